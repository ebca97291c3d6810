//! Finds bytes, many at a time.

const LOW: u64 = u64::from_le_bytes([0x01; 8]);
const HIGH: u64 = u64::from_le_bytes([0x80; 8]);

/// How many of `bytes` come before the first that is `A` or `B`; all, where none is. Linear.
#[inline]
pub(crate) fn len_before<const A: u8, const B: u8>(bytes: &[u8]) -> usize {
    let (chunks, _) = bytes.as_chunks::<16>();
    let is_plain = |chunk: &&[u8; 16]| {
        let (words, _) = chunk.as_chunks::<8>();
        let marks = words.iter().map(|word| ends::<A, B>(*word));
        marks.fold(0, |all, one| all | one) & HIGH == 0
    };
    let plain = chunks.iter().take_while(is_plain).count();
    let len = plain.saturating_mul(16);
    let rest = bytes.get(len..).unwrap_or_default();
    len.saturating_add(len_by_words::<A, B>(rest))
}

/// The same, for a few bytes.
fn len_by_words<const A: u8, const B: u8>(bytes: &[u8]) -> usize {
    let (words, _) = bytes.as_chunks::<8>();
    let mut len: usize = 0;
    for word in words {
        let marks = ends::<A, B>(*word) & HIGH;
        if marks != 0 {
            let before = usize::try_from(marks.trailing_zeros() / 8).unwrap_or(0);
            return len.saturating_add(before);
        }
        len = len.saturating_add(8);
    }
    let tail = bytes.get(len..).unwrap_or_default();
    let before = tail.iter().position(|byte| *byte == A || *byte == B);
    len.saturating_add(before.unwrap_or(tail.len()))
}

/// A word with the high bit of every byte that is `A` or `B`, both of them ASCII, exact up to the
/// first of them; its other bits mean nothing.
fn ends<const A: u8, const B: u8>(word: [u8; 8]) -> u64 {
    let word = u64::from_le_bytes(word);
    let is_a = word ^ LOW.wrapping_mul(u64::from(A));
    let is_b = word ^ LOW.wrapping_mul(u64::from(B));
    // Less one, a byte that is 0 gets its high bit, and so does one beyond ASCII, which had it.
    (is_a.wrapping_sub(LOW) | is_b.wrapping_sub(LOW)) & !word
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_end_counts_wherever_it_is() {
        for len in 0..100 {
            let plain: Vec<u8> = (0..=255_u8)
                .filter(|byte| !matches!(byte, b'"' | b'\\'))
                .cycle()
                .skip(len * 7)
                .take(len)
                .collect();
            let len_before = len_before::<b'"', b'\\'>;
            assert_eq!(len_before(&plain), len);
            for end in [b'"', b'\\'] {
                let text = [&plain[..], &[end], b"\"more\\"].concat();
                assert_eq!(len_before(&text), len, "{text:?}");
            }
        }
    }
}
