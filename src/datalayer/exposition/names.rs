//! Tells by a line's first bytes that it is of none of the names somebody wants.

/// Names of metrics that are looked for.
///
/// Beside the names themselves there is a set of hashes of their first bytes: as many as the
/// shortest name has, and 16 at most. A line that begins otherwise has one of the same hashes once
/// in 1,024 for each name; it is read further in vain.
#[derive(Clone, Debug)]
pub struct Names<'a> {
    all: Vec<&'a [u8]>,
    /// Which of a line's first bytes are hashed, as two words.
    masks: [u64; 2],
    /// Whether a name has the hash.
    hashes: [bool; HASHES],
}

impl<'a> FromIterator<&'a [u8]> for Names<'a> {
    /// Linear in the names' number.
    fn from_iter<I: IntoIterator<Item = &'a [u8]>>(names: I) -> Self {
        let all: Vec<&[u8]> = names.into_iter().collect();
        let shortest = all.iter().map(|name| name.len()).min().unwrap_or(0);
        let masks = [mask(shortest), mask(shortest.saturating_sub(WORD))];
        let mut hashes = [false; HASHES];
        for name in &all {
            let mut start = [0; START];
            for (to, from) in start.iter_mut().zip(*name) {
                *to = *from;
            }
            if let Some(has) = hashes.get_mut(hash(&start, masks)) {
                *has = true;
            }
        }
        Self { all, masks, hashes }
    }
}

impl Names<'_> {
    /// Whether `name` is one of them.
    pub(super) fn has(&self, name: &[u8]) -> bool {
        self.all.contains(&name)
    }

    /// Whether the line that `text` begins with may be of one of them. Bytes after a shorter line
    /// do no harm: no name has a line's end in it.
    pub(super) fn may_begin(&self, text: &[u8]) -> bool {
        let Some(start) = text.first_chunk::<START>() else {
            return true;
        };
        let [first, ..] = start;
        let is_indented = *first <= b' ';
        let known = self.hashes.get(hash(start, self.masks));
        is_indented || known.copied().unwrap_or(true)
    }
}

const WORD: usize = 8;
const START: usize = 2 * WORD;
/// A power of two.
const HASHES: usize = 1 << 10;
/// Odd, with bits everywhere: a product's highest bits depend on all of the other factor's.
const FACTOR: u64 = 0x9E37_79B9_7F4A_7C15;

/// The first `bytes` bytes of a word, or all.
fn mask(bytes: usize) -> u64 {
    let mut mask = [0; WORD];
    mask.iter_mut().take(bytes).for_each(|byte| *byte = 0xFF);
    u64::from_le_bytes(mask)
}

/// Below [`HASHES`].
fn hash(start: &[u8; START], masks: [u64; 2]) -> usize {
    let (words, _) = start.as_chunks();
    let mut hash: u64 = 0;
    for (word, mask) in words.iter().zip(masks) {
        let word = u64::from_le_bytes(*word) & mask;
        hash = (hash.rotate_right(32) ^ word).wrapping_mul(FACTOR);
    }
    usize::try_from(hash >> (u64::BITS - HASHES.ilog2())).unwrap_or(0)
}
