//! A JSON text read where it is held: forwards, a window at a time, and again from places that were
//! passed.
//!
//! It is as lenient as the most lenient server. What is passed over is looked at only so far as its
//! end must be found; text may hold control characters, lone surrogates and bytes that are no
//! UTF-8. Memory is one window, whatever the body holds and however deep it nests.

mod members;
mod scan;
mod text;

use super::body::{Body, WINDOW_BYTES, Window};
pub(super) use members::{Member, Members};
use scan::{RunEnd, is_scalar, is_space, plain_len, run};

/// Why reading stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stop {
    /// Not JSON.
    Malformed,
    /// JSON of another shape.
    UnknownShape,
    /// The body was cut off here.
    CutOff,
    /// Enough was read.
    Full,
}

/// What kind of value begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Text,
    List,
    Object,
    Null,
    /// A number or a truth value.
    Scalar,
}

/// Where the values of some of an object's keys begin.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fields<const N: usize> {
    /// In the order of the names asked for; `None` for a key that was not there.
    values: [Option<usize>; N],
    /// The object was cut off: keys that were not there might have come.
    cut_off: bool,
}

impl<const N: usize> Fields<N> {
    /// Where the value of the key at place `index` of the names begins.
    pub(super) fn get(&self, index: usize) -> Option<usize> {
        self.values.get(index).copied().flatten()
    }

    /// As [`Self::get`], where a key that is missing must not come later: an error when the object
    /// was cut off before it.
    pub(super) fn settled(&self, index: usize) -> Result<Option<usize>, Stop> {
        match self.get(index) {
            None if self.cut_off => Err(Stop::CutOff),
            value => Ok(value),
        }
    }
}

/// Reads one body.
pub(super) struct Reader<'b> {
    window: Window<'b>,
    /// The body goes on after what can be read.
    cut_off: bool,
}

/// Longest word that is told from others, in bytes.
const MAX_WORD: usize = 32;

/// A short string.
pub(super) struct Word {
    bytes: [u8; MAX_WORD],
    /// More than there are bytes for one that is too long.
    len: usize,
}

impl Word {
    /// All of it, unless it is too long.
    pub(super) fn bytes(&self) -> Option<&[u8]> {
        self.bytes.get(..self.len)
    }

    /// Whether it is `other`.
    pub(super) fn is(&self, other: &[u8]) -> bool {
        self.bytes() == Some(other)
    }

    fn push(&mut self, piece: &[u8]) {
        let end = self.len.saturating_add(piece.len());
        let space = self.bytes.get_mut(self.len..).unwrap_or_default();
        for (to, from) in space.iter_mut().zip(piece) {
            *to = *from;
        }
        self.len = end;
    }
}

impl<'b> Reader<'b> {
    pub(super) fn new(body: &'b mut dyn Body, cut_off: bool) -> Self {
        Self::with_window(body, cut_off, WINDOW_BYTES)
    }

    pub(super) fn with_window(body: &'b mut dyn Body, cut_off: bool, size: usize) -> Self {
        Self {
            window: Window::new(body, size),
            cut_off,
        }
    }

    /// Where the next byte is.
    pub(super) fn offset(&self) -> usize {
        self.window.offset()
    }

    /// Goes to a value that was passed.
    pub(super) fn seek(&mut self, offset: usize) {
        self.window.seek(offset);
    }

    /// Passes the mark that some editors put before a text.
    pub(super) fn skip_byte_order_mark(&mut self) {
        let mark = [0xEF, 0xBB, 0xBF];
        let start = self.offset();
        let is_marked = mark
            .iter()
            .all(|&byte| self.take_if(|next| next == byte).is_some());
        if !is_marked {
            self.seek(start);
        }
    }

    /// Nothing but white space may follow.
    pub(super) fn expect_end(&mut self) -> Result<(), Stop> {
        match self.peek() {
            Err(_) => Ok(()),
            Ok(_) => Err(Stop::Malformed),
        }
    }

    /// The kind of the next value.
    pub(super) fn kind(&mut self) -> Result<Kind, Stop> {
        match self.peek()? {
            b'"' => Ok(Kind::Text),
            b'[' => Ok(Kind::List),
            b'{' => Ok(Kind::Object),
            b'n' => Ok(Kind::Null),
            b't' | b'f' | b'N' | b'I' | b'-' | b'0'..=b'9' => Ok(Kind::Scalar),
            _ => Err(Stop::Malformed),
        }
    }

    /// Passes over an object and notes where the values of `names` begin; of equal keys, the last
    /// one's, as servers do. One pass; a key may be cut off with the body.
    pub(super) fn fields<const N: usize>(&mut self, names: &[&[u8]; N]) -> Result<Fields<N>, Stop> {
        let mut found = Fields {
            values: [None; N],
            cut_off: false,
        };
        match self.each_field(names, &mut found.values) {
            Err(Stop::CutOff) => found.cut_off = true,
            other => other?,
        }
        Ok(found)
    }

    fn each_field<const N: usize>(
        &mut self,
        names: &[&[u8]; N],
        values: &mut [Option<usize>; N],
    ) -> Result<(), Stop> {
        if self.kind()? != Kind::Object {
            return Err(Stop::UnknownShape);
        }
        self.window.advance(1);
        if self.take_token(b'}')? {
            return Ok(());
        }
        loop {
            let place = self.key(names)?;
            self.expect_token(b':')?;
            self.peek()?;
            let value = place.and_then(|place| values.get_mut(place));
            if let Some(value) = value {
                *value = Some(self.offset());
            }
            self.skip()?;
            if self.take_token(b'}')? {
                return Ok(());
            }
            self.expect_token(b',')?;
        }
    }

    /// Enters an object and calls `each` at the value of every one of `names`, which must read or
    /// pass it, as long as they come in the order of the names and none comes twice. Whether all
    /// did; where not, or where the object was cut off, [`Self::fields`] tells more.
    pub(super) fn fields_in_order(
        &mut self,
        names: &[&[u8]],
        mut each: impl FnMut(&mut Self, usize) -> Result<(), Stop>,
    ) -> Result<bool, Stop> {
        let mut next = 0;
        let mut in_order = || -> Result<bool, Stop> {
            if self.kind()? != Kind::Object {
                return Err(Stop::UnknownShape);
            }
            self.window.advance(1);
            if self.take_token(b'}')? {
                return Ok(true);
            }
            loop {
                let place = self.key(names)?;
                self.expect_token(b':')?;
                match place {
                    None => self.skip()?,
                    Some(place) if place < next => return Ok(false),
                    Some(place) => {
                        self.peek()?;
                        each(self, place)?;
                        next = place.saturating_add(1);
                    }
                }
                if self.take_token(b'}')? {
                    return Ok(true);
                }
                self.expect_token(b',')?;
            }
        };
        match in_order() {
            Err(Stop::CutOff) => Ok(false),
            other => other,
        }
    }

    /// Reads a key; its place among `names`.
    fn key(&mut self, names: &[&[u8]]) -> Result<Option<usize>, Stop> {
        if self.peek()? != b'"' {
            return Err(Stop::Malformed);
        }
        let inside = self.window.rest().get(1..).unwrap_or_default();
        let len = plain_len(inside);
        if inside.get(len) == Some(&b'"') {
            let key = inside.get(..len);
            let place = names.iter().position(|&name| Some(name) == key);
            self.window.advance(len.saturating_add(2));
            return Ok(place);
        }
        let key = self.word()?;
        Ok(names.iter().position(|&name| key.is(name)))
    }

    /// Reads a string that is one of a few known ones.
    pub(super) fn word(&mut self) -> Result<Word, Stop> {
        let mut word = Word {
            bytes: [0; MAX_WORD],
            len: 0,
        };
        self.text(|piece| word.push(piece))?;
        Ok(word)
    }

    /// Enters a list; the kind of its first item, `None` for an empty one.
    pub(super) fn first_item(&mut self) -> Result<Option<Kind>, Stop> {
        self.window.advance(1);
        if self.peek()? == b']' {
            return Ok(None);
        }
        self.kind().map(Some)
    }

    /// Calls `each` at every item of a list; it must read or pass the item.
    pub(super) fn items(
        &mut self,
        mut each: impl FnMut(&mut Self) -> Result<(), Stop>,
    ) -> Result<(), Stop> {
        if self.kind()? != Kind::List {
            return Err(Stop::UnknownShape);
        }
        self.window.advance(1);
        if self.take_token(b']')? {
            return Ok(());
        }
        loop {
            self.peek()?;
            each(self)?;
            if self.take_token(b']')? {
                return Ok(());
            }
            self.expect_token(b',')?;
        }
    }

    /// Passes over a value of any kind, however deep it nests. What nests is not checked any
    /// further than finding its end takes.
    pub(super) fn skip(&mut self) -> Result<(), Stop> {
        self.pass_value(|_| {})
    }

    /// Passes over a value and hands out its bytes, less the white space between its tokens.
    pub(super) fn compact(&mut self, mut push: impl FnMut(&[u8])) -> Result<(), Stop> {
        self.pass_value(&mut push)
    }

    fn pass_value(&mut self, mut push: impl FnMut(&[u8])) -> Result<(), Stop> {
        match self.kind()? {
            Kind::Text => self.pass_text(&mut push),
            Kind::List | Kind::Object => self.pass_nested(&mut push),
            Kind::Null | Kind::Scalar => self.pass_run(is_scalar, &mut push),
        }
    }

    fn pass_nested(&mut self, push: &mut impl FnMut(&[u8])) -> Result<(), Stop> {
        let mut depth = 0;
        loop {
            let rest = self.window.rest();
            let (len, end) = run(rest, &mut depth);
            push(rest.get(..len).unwrap_or_default());
            self.window.advance(len);
            match end {
                RunEnd::Closed => return Ok(()),
                RunEnd::Quote => self.pass_text(push)?,
                RunEnd::Other => return Err(Stop::Malformed),
                RunEnd::Bytes | RunEnd::Space => self.peek().map(drop)?,
            }
        }
    }

    /// Passes over a string, its quotes and escapes as they are.
    fn pass_text(&mut self, push: &mut impl FnMut(&[u8])) -> Result<(), Stop> {
        self.window.advance(1);
        push(b"\"");
        loop {
            let rest = self.window.rest();
            let len = escaped_len(rest);
            push(rest.get(..len).unwrap_or_default());
            self.window.advance(len);
            match self.next()? {
                b'"' => {
                    push(b"\"");
                    return Ok(());
                }
                // Only where the window ends is an escape left.
                b'\\' => {
                    let escaped = self.next()?;
                    push(&[b'\\', escaped]);
                }
                other => push(&[other]),
            }
        }
    }

    fn pass_run(
        &mut self,
        belongs: fn(u8) -> bool,
        push: &mut impl FnMut(&[u8]),
    ) -> Result<(), Stop> {
        while let Some(byte) = self.take_if(belongs) {
            push(&[byte]);
        }
        // A number that reaches the cut may go on.
        if self.window.rest().is_empty() && self.cut_off {
            return Err(Stop::CutOff);
        }
        Ok(())
    }

    /// The next byte that is no white space, which is not passed.
    #[inline]
    fn peek(&mut self) -> Result<u8, Stop> {
        match self.window.first() {
            Some(byte) if !is_space(byte) => Ok(byte),
            _ => self.peek_further(),
        }
    }

    fn peek_further(&mut self) -> Result<u8, Stop> {
        loop {
            let rest = self.window.rest();
            let Some(&first) = rest.first() else {
                return Err(self.end());
            };
            if !is_space(first) {
                return Ok(first);
            }
            let blank = rest.iter().take_while(|&&byte| is_space(byte)).count();
            self.window.advance(blank);
        }
    }

    fn next(&mut self) -> Result<u8, Stop> {
        match self.window.rest().first() {
            Some(&byte) => {
                self.window.advance(1);
                Ok(byte)
            }
            None => Err(self.end()),
        }
    }

    fn take_if(&mut self, wanted: impl FnOnce(u8) -> bool) -> Option<u8> {
        let byte = *self.window.rest().first()?;
        wanted(byte).then(|| {
            self.window.advance(1);
            byte
        })
    }

    fn take_token(&mut self, token: u8) -> Result<bool, Stop> {
        let is_next = self.peek()? == token;
        if is_next {
            self.window.advance(1);
        }
        Ok(is_next)
    }

    fn expect_token(&mut self, token: u8) -> Result<(), Stop> {
        if self.take_token(token)? {
            Ok(())
        } else {
            Err(Stop::Malformed)
        }
    }

    /// What the end of the readable bytes means.
    fn end(&self) -> Stop {
        if self.cut_off {
            Stop::CutOff
        } else {
            Stop::Malformed
        }
    }
}

/// Bytes of a string up to its end, escapes included, or to where the bytes end.
fn escaped_len(bytes: &[u8]) -> usize {
    let mut len: usize = 0;
    loop {
        let rest = bytes.get(len..).unwrap_or_default();
        let plain = plain_len(rest);
        len = len.saturating_add(plain);
        let escape = rest.get(plain..).unwrap_or_default();
        if escape.first() != Some(&b'\\') || escape.len() < 2 {
            return len;
        }
        len = len.saturating_add(2);
    }
}
