//! `/v1/responses`: instructions are the system message, a string input is the user's, and items
//! that are messages are read as a chat's.

use core::cell::Cell;

use super::content;
use super::encoder::{Encoder, Field, PromptSink};
use super::json::{Kind, Reader, Stop};
use super::keys::{Key, TopLevel};

const HEAD: [(Key, Field); 5] = [
    (Key::Conversation, Field::Conversation),
    (Key::Prompt, Field::PromptTemplate),
    (Key::Tools, Field::Tools),
    (Key::Reasoning, Field::Reasoning),
    (Key::TruncatePrompt, Field::TruncatePrompt),
];

pub(super) fn read(
    body: &TopLevel,
    reader: &mut Reader<'_>,
    encoder: &mut Encoder<'_>,
) -> Result<(), Stop> {
    if body.find(Key::PreviousResponse, reader) && reader.kind()? == Kind::Text {
        // The conversation so far is with the server that gave this response, and nowhere else.
        encoder.record(Field::PreviousResponse, reader)?;
        encoder.end_prompt();
        return Ok(());
    }
    if body.get(Key::Input).is_none() && body.get(Key::Prompt).is_none() {
        return Err(Stop::UnknownShape);
    }
    body.record(&HEAD, reader, encoder)?;
    if body.find(Key::Instructions, reader) && reader.kind()? != Kind::Null {
        encoder.literal("system");
        content::read(reader, encoder)?;
    }
    if body.find(Key::Input, reader) {
        input(reader, encoder)?;
    }
    encoder.end_prompt();
    Ok(())
}

/// Writes the prompt of a request that goes on from the response that begins with `start`, as JSON
/// or as the first event of a stream: its id, the first there is. Nothing where there is none.
pub fn continue_from(start: &[u8], sink: &mut dyn PromptSink) {
    let Some(id) = first_id(start) else { return };
    let mut encoder = Encoder::new(sink);
    encoder.record_bytes(Field::PreviousResponse, id);
    encoder.end_prompt();
}

/// The first value of a key `id`, quotes included, if it is a string without escapes.
fn first_id(start: &[u8]) -> Option<&[u8]> {
    const KEY: &[u8] = b"\"id\"";
    let at = start.windows(KEY.len()).position(|bytes| bytes == KEY)?;
    let value = start.get(at.saturating_add(KEY.len())..)?;
    let value = value.trim_ascii_start().strip_prefix(b":")?;
    let value = value.trim_ascii_start();
    let text = value.strip_prefix(b"\"")?;
    let end = text.iter().position(|byte| matches!(byte, b'"' | b'\\'))?;
    let is_whole = text.get(end) == Some(&b'"');
    value.get(..end.saturating_add(2)).filter(|_| is_whole)
}

fn input(reader: &mut Reader<'_>, encoder: &mut Encoder<'_>) -> Result<(), Stop> {
    match reader.kind()? {
        Kind::Text => {
            encoder.literal("user");
            encoder.text(reader)?;
            encoder.end_first_user_message();
            Ok(())
        }
        Kind::List => reader.items(|reader| {
            encoder.check_room()?;
            item(reader, encoder)
        }),
        Kind::Null => Ok(()),
        Kind::Object | Kind::Scalar => Err(Stop::UnknownShape),
    }
}

const NAMES: [&[u8]; 2] = [b"type", b"role"];
const TYPE: usize = 0;
const ROLE: usize = 1;

/// A message, or a call, its result, or reasoning: these are hashed as their JSON.
fn item(reader: &mut Reader<'_>, encoder: &mut Encoder<'_>) -> Result<(), Stop> {
    let start = reader.offset();
    if reader.kind()? != Kind::Object {
        return Err(Stop::UnknownShape);
    }
    let fields = reader.fields(&NAMES)?;
    let is_message = match fields.get(TYPE) {
        Some(kind) => {
            reader.seek(kind);
            reader.kind()? == Kind::Text && reader.word()?.is(b"message")
        }
        // Clients may leave it out, so the first messages need not say it.
        None => fields.get(ROLE).is_some(),
    };
    reader.seek(start);
    if !is_message {
        return encoder.record(Field::Item, reader);
    }
    let is_user = Cell::new(false);
    encoder.object(reader, &[b"role", b"content"], |place, reader, encoder| {
        if place == 0 {
            is_user.set(encoder.role(reader)?);
            return Ok(());
        }
        content::read(reader, encoder)
    })?;
    if is_user.get() {
        encoder.end_first_user_message();
    }
    Ok(())
}
