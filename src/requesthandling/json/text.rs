//! Strings and whole numbers, as what they mean.

use super::scan::{is_scalar, plain_len};
use super::{Kind, Reader, Stop};

impl Reader<'_> {
    /// Reads a string and hands out what it says, in pieces. A surrogate without its other half
    /// becomes the three bytes it would have in UTF-8, as Python writes it. Of a string that is cut
    /// off, what is certain was handed out.
    pub(in crate::requesthandling) fn text(
        &mut self,
        mut push: impl FnMut(&[u8]),
    ) -> Result<(), Stop> {
        if self.kind()? != Kind::Text {
            return Err(Stop::UnknownShape);
        }
        self.window.advance(1);
        // The first half of a surrogate pair, while the second may follow.
        let mut half = None;
        loop {
            let rest = self.window.rest();
            let len = if half.is_none() {
                plain_text(rest, &mut push)
            } else {
                0
            };
            self.window.advance(len);
            match self.next()? {
                b'\\' => {
                    let unit = self.escape()?;
                    half = join(half, unit, &mut push);
                }
                end => {
                    if let Some(high) = half.take() {
                        encode(high, &mut push);
                    }
                    if end == b'"' {
                        return Ok(());
                    }
                    push(&[end]);
                }
            }
        }
    }

    /// Passes over a string; whether it begins with `start`.
    pub(in crate::requesthandling) fn begins_with(&mut self, start: &[u8]) -> Result<bool, Stop> {
        let mut wanted = start;
        let mut differs = false;
        self.text(|piece| {
            let len = piece.len().min(wanted.len());
            differs |= piece.get(..len) != wanted.get(..len);
            wanted = wanted.get(len..).unwrap_or_default();
        })?;
        Ok(!differs && wanted.is_empty())
    }

    /// What stands behind a backslash, as a UTF-16 unit.
    fn escape(&mut self) -> Result<u32, Stop> {
        let letter = self.next()?;
        if let Some(byte) = simple_escape(letter) {
            return Ok(u32::from(byte));
        }
        if letter != b'u' {
            return Err(Stop::Malformed);
        }
        let mut unit = 0;
        for _ in 0..4 {
            let digit = char::from(self.next()?).to_digit(16);
            unit = unit << 4 | digit.ok_or(Stop::Malformed)?;
        }
        Ok(unit)
    }

    /// Reads a number that a token id can be.
    pub(in crate::requesthandling) fn token_id(&mut self) -> Result<u32, Stop> {
        if self.kind()? != Kind::Scalar {
            return Err(Stop::UnknownShape);
        }
        let mut id: u32 = 0;
        let mut valid = true;
        while let Some(byte) = self.take_if(is_scalar) {
            let digit = char::from(byte).to_digit(10);
            let next = digit.and_then(|digit| id.checked_mul(10)?.checked_add(digit));
            valid &= next.is_some();
            id = next.unwrap_or(0);
        }
        if self.window.rest().is_empty() {
            return Err(self.end());
        }
        if valid {
            Ok(id)
        } else {
            Err(Stop::UnknownShape)
        }
    }
}

/// Hands out what `bytes` say, up to the end of the string, an escape of four digits, or the end of
/// the bytes; how many were read.
fn plain_text(bytes: &[u8], push: &mut impl FnMut(&[u8])) -> usize {
    let mut len: usize = 0;
    loop {
        let rest = bytes.get(len..).unwrap_or_default();
        let plain = plain_len(rest);
        push(rest.get(..plain).unwrap_or_default());
        len = len.saturating_add(plain);
        let escaped = match rest.get(plain..) {
            Some([b'\\', escaped, ..]) => simple_escape(*escaped),
            _ => None,
        };
        let Some(escaped) = escaped else { return len };
        push(&[escaped]);
        len = len.saturating_add(2);
    }
}

/// The character that a letter behind a backslash stands for.
const fn simple_escape(letter: u8) -> Option<u8> {
    Some(match letter {
        b'b' => 0x08,
        b'f' => 0x0C,
        b'n' => b'\n',
        b'r' => b'\r',
        b't' => b'\t',
        b'"' | b'\\' | b'/' => letter,
        _ => return None,
    })
}

/// Takes a unit that may be the second half of `half`; returns a new first half.
fn join(half: Option<u32>, unit: u32, push: &mut impl FnMut(&[u8])) -> Option<u32> {
    let is_low = (0xDC00..0xE000).contains(&unit);
    match half {
        Some(high) if is_low => {
            let high = high & 0x3FF;
            encode((high << 10 | unit & 0x3FF).saturating_add(0x1_0000), push);
            return None;
        }
        Some(high) => encode(high, push),
        None => {}
    }
    if (0xD800..0xDC00).contains(&unit) {
        return Some(unit);
    }
    encode(unit, push);
    None
}

/// Writes a code point; of a surrogate, the bytes that UTF-8 would give it.
fn encode(point: u32, push: &mut impl FnMut(&[u8])) {
    if let Some(char) = char::from_u32(point) {
        push(char.encode_utf8(&mut [0; 4]).as_bytes());
        return;
    }
    let [_, _, high, low] = point.to_be_bytes();
    let bytes = [
        0xE0 | high >> 4,
        0x80 | (high & 0x0F) << 2 | low >> 6,
        0x80 | low & 0x3F,
    ];
    push(&bytes);
}
