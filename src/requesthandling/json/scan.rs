//! Finds the end of plain text, eight bytes at a time.

const LOW: u64 = u64::from_le_bytes([0x01; 8]);
const HIGH: u64 = u64::from_le_bytes([0x80; 8]);

/// Bytes up to the first quote or backslash, or all of them. Linear.
pub(super) fn plain_len(bytes: &[u8]) -> usize {
    let (words, tail) = bytes.as_chunks::<8>();
    let mut len: usize = 0;
    for word in words {
        let word = u64::from_le_bytes(*word);
        let found = zero_bytes(word ^ LOW.wrapping_mul(u64::from(b'"')))
            | zero_bytes(word ^ LOW.wrapping_mul(u64::from(b'\\')));
        if found != 0 {
            let before = usize::try_from(found.trailing_zeros() / 8).unwrap_or(0);
            return len.saturating_add(before);
        }
        len = len.saturating_add(8);
    }
    let before = tail.iter().position(|byte| matches!(byte, b'"' | b'\\'));
    len.saturating_add(before.unwrap_or(tail.len()))
}

/// The high bit of every zero byte, exact up to the first of them.
const fn zero_bytes(word: u64) -> u64 {
    word.wrapping_sub(LOW) & !word & HIGH
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_quote_or_backslash_ends_plain_text() {
        for len in 0..40 {
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
