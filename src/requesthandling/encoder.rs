//! A prompt as bytes: what is hashed, and in which form.
//!
//! Text is hashed as it is and without separators: llm-d's scheme, so that its chains of text-only
//! chats are ours. Everything else that decides a prompt is a *record*:
//!
//! ```text
//! 0xFF ‖ field ‖ LE32(length) ‖ bytes
//! ```
//!
//! 0xFF never occurs in UTF-8, so no text reads as a record. The bytes are the value's JSON as the
//! client wrote it, less the white space between its tokens.

use super::json::{Kind, Reader, Stop};

/// Takes a request's prompts.
pub trait PromptSink {
    /// Appends to the prompt.
    fn push(&mut self, bytes: &[u8]);

    /// The first user message of the request ends here; later calls mean nothing.
    fn end_first_user_message(&mut self);

    /// The prompt is complete; what follows is another one.
    fn end_prompt(&mut self);

    /// Remembers the present end of the prompt, until [`Self::end_mark`]. Marks nest; no prompt ends
    /// while one is open.
    fn mark(&mut self);

    /// Forgets the last mark, and unless it is to be `kept`, what was appended since.
    fn end_mark(&mut self, kept: bool);

    /// Whether more makes no difference, so that nothing more need be read.
    fn is_full(&self) -> bool;
}

/// What a record holds. The numbers are part of every chain: a changed one means that no chain of
/// another version matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Field {
    /// The digest of several others, for prompts that share them.
    Head = 0,
    Tools = 1,
    ReasoningEffort = 2,
    Reasoning = 3,
    Thinking = 4,
    ChatTemplate = 5,
    ChatTemplateArguments = 6,
    Documents = 7,
    AddSpecialTokens = 8,
    MediaArguments = 9,
    TruncatePrompt = 10,
    Adapter = 11,
    Features = 12,
    PromptEmbeds = 13,
    PromptTemplate = 14,
    Conversation = 15,
    PreviousResponse = 16,
    Name = 32,
    ToolCalls = 33,
    ToolCallId = 34,
    FunctionCall = 35,
    Refusal = 36,
    ReasoningContent = 37,
    IsError = 38,
    Item = 39,
    Part = 40,
    Content = 41,
    Pair = 42,
    ToolUse = 43,
    Image = 64,
    Audio = 65,
    Video = 66,
}

/// Values of this length that are no number hold nothing.
const EMPTY: &str = "[]";

/// First byte of a record.
const RECORD: u8 = 0xFF;

/// Writes prompts to a sink.
pub(super) struct Encoder<'s> {
    sink: &'s mut dyn PromptSink,
    /// The prompt is text so far and ends in a zero byte, which the padding of a block could be
    /// taken for.
    ends_in_zero: bool,
    /// Text that is about to be pushed; empty but while a string is read.
    pieces: Vec<u8>,
}

/// Bytes of text that are pushed together.
const PIECES: usize = 2_048;

impl<'s> Encoder<'s> {
    pub(super) fn new(sink: &'s mut dyn PromptSink) -> Self {
        Self {
            sink,
            ends_in_zero: false,
            pieces: Vec::with_capacity(PIECES),
        }
    }

    /// Stops the reading where more makes no difference.
    pub(super) fn check_room(&self) -> Result<(), Stop> {
        if self.sink.is_full() {
            return Err(Stop::Full);
        }
        Ok(())
    }

    /// The role of a message, where it is text; whether it is the user's.
    pub(super) fn role(&mut self, reader: &mut Reader<'_>) -> Result<bool, Stop> {
        if reader.kind()? != Kind::Text {
            reader.skip()?;
            return Ok(false);
        }
        let start = reader.offset();
        let role = reader.word()?;
        if let Some(bytes) = role.bytes() {
            self.push_text(bytes);
        } else {
            reader.seek(start);
            self.text(reader)?;
        }
        Ok(role.is(b"user"))
    }

    /// Reads something with `quick`, unless that turns out not to be able to (`false`): then what it
    /// wrote is taken back and `thorough` reads from the same place.
    pub(super) fn attempt<'b>(
        &mut self,
        reader: &mut Reader<'b>,
        quick: impl FnOnce(&mut Reader<'b>, &mut Self) -> Result<bool, Stop>,
        thorough: impl FnOnce(&mut Reader<'b>, &mut Self) -> Result<(), Stop>,
    ) -> Result<(), Stop> {
        let start = reader.offset();
        let ends_in_zero = self.ends_in_zero;
        self.sink.mark();
        let done = quick(reader, self)?;
        self.sink.end_mark(done);
        if done {
            return Ok(());
        }
        self.ends_in_zero = ends_in_zero;
        reader.seek(start);
        thorough(reader, self)
    }

    /// Reads the values of an object's `names`, in that order, with `field`. One that is missing
    /// because the object was cut off ends the reading: what would stand behind it is not certain.
    pub(super) fn object<'b, const N: usize>(
        &mut self,
        reader: &mut Reader<'b>,
        names: &[&[u8]; N],
        field: impl Fn(usize, &mut Reader<'b>, &mut Self) -> Result<(), Stop>,
    ) -> Result<(), Stop> {
        self.attempt(
            reader,
            |reader, encoder| {
                reader.fields_in_order(names, |reader, place| field(place, reader, encoder))
            },
            |reader, encoder| {
                let fields = reader.fields(names)?;
                let end = reader.offset();
                for place in 0..N {
                    if let Some(value) = fields.settled(place)? {
                        reader.seek(value);
                        field(place, reader, encoder)?;
                    }
                }
                reader.seek(end);
                Ok(())
            },
        )
    }

    /// Text that the prompt has, though not the body.
    pub(super) fn literal(&mut self, text: &str) {
        self.push_text(text.as_bytes());
    }

    /// The text of the string at the reader's place.
    pub(super) fn text(&mut self, reader: &mut Reader<'_>) -> Result<(), Stop> {
        // A piece ends at every escape, so they are collected.
        let mut pieces = core::mem::take(&mut self.pieces);
        let read = reader.text(|piece| {
            if pieces.len().saturating_add(piece.len()) > PIECES {
                self.push_text(&pieces);
                pieces.clear();
            }
            if piece.len() < PIECES {
                pieces.extend_from_slice(piece);
            } else {
                self.push_text(piece);
            }
        });
        self.push_text(&pieces);
        pieces.clear();
        self.pieces = pieces;
        read
    }

    /// A record of the value at the reader's place, unless it says nothing: null, or empty.
    pub(super) fn record(&mut self, field: Field, reader: &mut Reader<'_>) -> Result<(), Stop> {
        let start = reader.offset();
        let kind = reader.kind()?;
        let mut len: usize = 0;
        // The length stands before the bytes, so the value is passed twice.
        reader.compact(|piece| len = len.saturating_add(piece.len()))?;
        let is_empty = kind != Kind::Scalar && len == EMPTY.len();
        if kind == Kind::Null || is_empty {
            return Ok(());
        }
        reader.seek(start);
        self.head(field, len);
        reader.compact(|piece| self.sink.push(piece))
    }

    /// A record of bytes that the body does not hold as JSON.
    pub(super) fn record_bytes(&mut self, field: Field, bytes: &[u8]) {
        self.head(field, bytes.len());
        self.sink.push(bytes);
    }

    /// A medium as `tokens` pseudo-tokens that stand for its content.
    pub(super) fn placeholder(&mut self, field: Field, content: u64, tokens: u32) {
        let bytes = u64::from(tokens).saturating_mul(4);
        self.head(field, usize::try_from(bytes).unwrap_or(usize::MAX));
        let pair = content.to_le_bytes();
        let pairs: [u8; 512] = core::array::from_fn(|at| pair.get(at % 8).copied().unwrap_or(0));
        let mut left = bytes;
        while left > 0 && !self.sink.is_full() {
            let some = usize::try_from(left).unwrap_or(usize::MAX).min(pairs.len());
            self.sink.push(pairs.get(..some).unwrap_or_default());
            left = left.saturating_sub(u64::try_from(some).unwrap_or(u64::MAX));
        }
    }

    /// A token id, four bytes.
    pub(super) fn token(&mut self, id: u32) {
        self.ends_in_zero = false;
        self.sink.push(&id.to_le_bytes());
    }

    pub(super) fn end_first_user_message(&mut self) {
        self.sink.end_first_user_message();
    }

    /// Ends a prompt.
    pub(super) fn end_prompt(&mut self) {
        if core::mem::take(&mut self.ends_in_zero) {
            self.sink.push(&[RECORD]);
        }
        self.sink.end_prompt();
    }

    fn push_text(&mut self, text: &[u8]) {
        if let Some(&last) = text.last() {
            self.ends_in_zero = last == 0;
        }
        self.sink.push(text);
    }

    fn head(&mut self, field: Field, len: usize) {
        self.ends_in_zero = false;
        let len = u32::try_from(len).unwrap_or(u32::MAX).to_le_bytes();
        let [a, b, c, d] = len;
        self.sink.push(&[RECORD, field as u8, a, b, c, d]);
    }
}
