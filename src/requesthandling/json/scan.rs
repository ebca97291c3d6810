//! Finds the end of plain text, and of what nests.

use crate::words;

/// Bytes up to the first quote or backslash, or all of them. Linear.
pub(super) fn plain_len(bytes: &[u8]) -> usize {
    words::len_before::<b'"', b'\\'>(bytes)
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
