//! Makes the beginning of a JSON text a JSON text: a cut-off prompt is still a prefix.

/// Ends `body`, the beginning of a JSON text, so that it parses: an open string value is closed
/// after its last whole character, a key without its value is dropped, open objects and lists are
/// closed. What was complete stays untouched. `false` when there is nothing to keep.
///
/// One pass, in place; memory is one byte for each open bracket.
pub fn close_cut_off(body: &mut Vec<u8>) -> bool {
    let mut scan = Scan::default();
    for (at, &byte) in body.iter().enumerate() {
        scan.step(at, byte);
    }
    match scan.string {
        Some(string) if !string.is_key => {
            body.truncate(string.clean_end);
            drop_partial_character(body);
            body.push(b'"');
        }
        _ => body.truncate(scan.safe_end),
    }
    body.extend(scan.open.iter().rev());
    !body.is_empty()
}

/// A pass over the text up to its cut.
#[derive(Default)]
struct Scan {
    /// The closing bracket of each open object and list.
    open: Vec<u8>,
    string: Option<OpenString>,
    /// The next string in the innermost object is a key.
    expects_key: bool,
    /// The text could end here, once the open brackets are closed.
    safe_end: usize,
}

struct OpenString {
    is_key: bool,
    escape: Escape,
    /// Where the string could be closed, a cut-off UTF-8 character aside.
    clean_end: usize,
}

enum Escape {
    No,
    Backslash,
    /// In `\uXXXX`: digits to come, and the value of those read.
    Hex(u8, u32),
}

impl Scan {
    fn step(&mut self, at: usize, byte: u8) {
        let next = at.saturating_add(1);
        if let Some(string) = &mut self.string {
            if string.step(next, byte) {
                if !string.is_key {
                    self.safe_end = next;
                }
                self.string = None;
            }
            return;
        }
        match byte {
            b'"' => {
                let is_key = self.expects_key;
                self.string = Some(OpenString {
                    is_key,
                    escape: Escape::No,
                    clean_end: next,
                });
            }
            b'{' | b'[' => {
                self.open.push(if byte == b'{' { b'}' } else { b']' });
                self.expects_key = byte == b'{';
                self.safe_end = next;
            }
            b'}' | b']' => {
                self.open.pop();
                self.expects_key = false;
                self.safe_end = next;
            }
            b':' => self.expects_key = false,
            b',' => {
                // A number or literal is whole once its comma is there; the comma is not kept.
                self.safe_end = at;
                self.expects_key = self.open.last() == Some(&b'}');
            }
            _ => {}
        }
    }
}

impl OpenString {
    /// Takes the byte before `next`; `true` when it ends the string.
    fn step(&mut self, next: usize, byte: u8) -> bool {
        match self.escape {
            Escape::No if byte == b'"' => return true,
            Escape::No if byte == b'\\' => self.escape = Escape::Backslash,
            Escape::Backslash if byte == b'u' => self.escape = Escape::Hex(4, 0),
            Escape::No | Escape::Backslash => {
                self.escape = Escape::No;
                self.clean_end = next;
            }
            Escape::Hex(left, value) => {
                let digit = char::from(byte).to_digit(16).unwrap_or(0);
                let value = value << 4 | digit;
                if left > 1 {
                    self.escape = Escape::Hex(left.saturating_sub(1), value);
                    return false;
                }
                self.escape = Escape::No;
                // The first half of a surrogate pair is no character without the second.
                if !(0xD800..0xDC00).contains(&value) {
                    self.clean_end = next;
                }
            }
        }
        false
    }
}

/// Drops the bytes of a UTF-8 character of which the end is missing.
fn drop_partial_character(text: &mut Vec<u8>) {
    let continuation = text
        .iter()
        .rev()
        .take(3)
        .take_while(|&&byte| byte & 0xC0 == 0x80)
        .count();
    let before = text.len().saturating_sub(continuation);
    let lead = before
        .checked_sub(1)
        .and_then(|at| text.get(at))
        .copied()
        .unwrap_or(0);
    let wanted = match lead {
        0xC0..0xE0 => 1,
        0xE0..0xF0 => 2,
        0xF0..=0xFF => 3,
        _ => 0,
    };
    if continuation < wanted {
        text.truncate(before.saturating_sub(1));
    }
}
