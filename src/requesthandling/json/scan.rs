//! Finds the end of plain text, many bytes at a time, and of what nests.

const LOW: u64 = u64::from_le_bytes([0x01; 8]);
const HIGH: u64 = u64::from_le_bytes([0x80; 8]);

/// Bytes up to the first quote or backslash, or all of them. Linear.
pub(super) fn plain_len(bytes: &[u8]) -> usize {
    let (pairs, _) = bytes.as_chunks::<16>();
    let mut len: usize = 0;
    for pair in pairs {
        let (words, _) = pair.as_chunks::<8>();
        let [low, high] = words else { break };
        let (low, high) = (ends(*low), ends(*high));
        if low | high != 0 {
            let before = if low == 0 {
                before(high).saturating_add(8)
            } else {
                before(low)
            };
            return len.saturating_add(before);
        }
        len = len.saturating_add(16);
    }
    let tail = bytes.get(len..).unwrap_or_default();
    let before = tail.iter().position(|byte| matches!(byte, b'"' | b'\\'));
    len.saturating_add(before.unwrap_or(tail.len()))
}

/// Bytes of a word before its first mark.
fn before(marks: u64) -> usize {
    usize::try_from(marks.trailing_zeros() / 8).unwrap_or(0)
}

/// The high bit of every quote and backslash, exact up to the first of them.
fn ends(word: [u8; 8]) -> u64 {
    let word = u64::from_le_bytes(word);
    zero_bytes(word ^ LOW.wrapping_mul(u64::from(b'"')))
        | zero_bytes(word ^ LOW.wrapping_mul(u64::from(b'\\')))
}

/// The high bit of every zero byte, exact up to the first of them.
const fn zero_bytes(word: u64) -> u64 {
    word.wrapping_sub(LOW) & !word & HIGH
}

/// What ends a run of bytes inside objects and lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RunEnd {
    /// The end of the bytes.
    Bytes,
    /// A string begins.
    Quote,
    /// White space.
    Space,
    /// The bracket that closes the outermost object or list; it is part of the run.
    Closed,
    /// What no JSON holds there.
    Other,
}

/// Bytes up to the first that ends a run, and what does. `depth` is how many objects and lists are
/// open, and is kept.
pub(super) fn run(bytes: &[u8], depth: &mut usize) -> (usize, RunEnd) {
    for (&byte, at) in bytes.iter().zip(0_usize..) {
        let end = match byte {
            b'"' => RunEnd::Quote,
            b'{' | b'[' => {
                *depth = depth.saturating_add(1);
                continue;
            }
            b'}' | b']' => {
                *depth = depth.saturating_sub(1);
                if *depth > 0 {
                    continue;
                }
                return (at.saturating_add(1), RunEnd::Closed);
            }
            b',' | b':' => continue,
            byte if is_space(byte) => RunEnd::Space,
            byte if is_scalar(byte) => continue,
            _ => RunEnd::Other,
        };
        return (at, end);
    }
    (bytes.len(), RunEnd::Bytes)
}

pub(super) const fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r')
}

/// Numbers, literals, and the `NaN` and `Infinity` of some servers.
pub(super) const fn is_scalar(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_quote_or_backslash_ends_plain_text() {
        for len in 0..100 {
            let plain: Vec<u8> = (0..=255_u8)
                .filter(|byte| !matches!(byte, b'"' | b'\\'))
                .cycle()
                .skip(len * 7)
                .take(len)
                .collect();
            assert_eq!(plain_len(&plain), len);
            for end in [b'"', b'\\'] {
                let text = [&plain[..], &[end], b"\"more\\"].concat();
                assert_eq!(plain_len(&text), len, "{text:?}");
            }
        }
    }
}
