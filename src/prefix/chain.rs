//! The chain of block hashes of one prompt.
//!
//! A prompt is a byte string, cut into blocks of a fixed number of pseudo-tokens of four bytes. A
//! block's hash covers the block and everything before it, so equal hashes mean equal prefixes:
//!
//! ```text
//! seed = XXH64(model)  or  XXH64(model ‖ 0xFF ‖ salt)
//! c_i  = XXH64(bytes of block i, the last one zero-padded to a whole token)
//! h_i  = XXH64(LE64(c_i) ‖ LE64(h_{i-1})),  h_{-1} = seed
//! ```
//!
//! This is llm-d's `approx-prefix-cache-producer` chain; the salt is set off by a byte that UTF-8
//! never holds, so that model `ab` with salt `c` and model `a` with salt `bc` stay apart.

use core::num::NonZeroUsize;

use xxhash_rust::xxh64::xxh64;

/// Bytes of prompt that stand for one token.
pub const BYTES_PER_TOKEN: u32 = 4;

/// Identifies a block together with all blocks before it, its model and its cache salt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlockHash(pub u64);

/// What a chain starts from: the tenant's view of a model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seed(u64);

impl Seed {
    /// The seed for `model` as the server is asked for it, and the request's cache salt.
    pub fn new(model: &str, salt: Option<&[u8]>) -> Self {
        let Some(salt) = salt else {
            return Self(xxh64(model.as_bytes(), 0));
        };
        Self(xxh64(&[model.as_bytes(), &[0xFF], salt].concat(), 0))
    }

    /// Belongs to no model: what tells conversations apart before theirs is chosen.
    const NEUTRAL: Self = Self(0);
}

/// The block hashes of a request's prompts, each prompt's first block first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Chain {
    /// One hash a block, prompt after prompt; a prompt's last block may be partly filled.
    pub blocks: Vec<BlockHash>,
    /// Where the prompts after the first begin in `blocks`, in rising order.
    pub further: Vec<usize>,
    /// Where the conversation's first user message ends, or the 16th block for prompts without
    /// one: what tells conversations apart when no endpoint is better than another. The first
    /// block would not do, a system prompt makes it the same for everybody.
    pub anchor: Option<BlockHash>,
    /// Bytes of the prompts that were cut into `blocks`.
    pub bytes: u64,
}

impl Chain {
    /// The blocks of each prompt: what can be matched as one.
    pub fn prompts(&self) -> impl Iterator<Item = &[BlockHash]> {
        let starts = core::iter::once(0).chain(self.further.iter().copied());
        let ends = self.further.iter().copied();
        let ends = ends.chain(core::iter::once(self.blocks.len()));
        starts
            .zip(ends)
            .map(|(start, end)| self.blocks.get(start..end).unwrap_or_default())
    }
}

/// Cuts prompts that come in pieces into blocks, in one pass and without joining the pieces.
///
/// Time is linear in the bytes; memory is one block, and eight bytes for each block and for each
/// prompt, of which there are no more than blocks.
#[derive(Debug)]
pub struct ChainBuilder {
    block_bytes: NonZeroUsize,
    max_blocks: usize,
    /// Bytes of the block that is not full yet.
    open_block: Vec<u8>,
    contents: Contents,
    /// Places to go back to, the first `open_marks` of them; the others keep their memory.
    marks: Vec<Mark>,
    open_marks: usize,
}

/// A place in a prompt that is not ended.
#[derive(Debug, Default)]
struct Mark {
    /// Whole blocks before it.
    blocks: usize,
    /// What is in the next one.
    open_block: Vec<u8>,
}

/// What the blocks of prompts hold, not yet told whose model they are for.
///
/// A body may name its model after its prompt, and the model asked of the server may be chosen by
/// the prompt: so the blocks are hashed first and chained when the model is known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Contents {
    /// `c_i` of every block.
    blocks: Vec<u64>,
    /// As [`Chain::further`].
    further: Vec<usize>,
    anchor: Option<Anchor>,
    /// Bytes of a whole block.
    block_bytes: usize,
    /// What the prompts' last blocks lack in bytes of being full, all together.
    missing_bytes: usize,
}

/// A place in the first prompt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Anchor {
    /// Whole blocks before it.
    blocks: usize,
    /// `c` of what is in the next one up to there.
    tail: Option<u64>,
}

/// Prompts without a user message are anchored here, counted in blocks.
const ANCHOR_BLOCKS: usize = 16;

impl ChainBuilder {
    /// A builder for blocks of `block_tokens` pseudo-tokens that stops after `max_blocks` of all
    /// prompts together.
    pub fn new(block_tokens: u32, max_blocks: u32) -> Self {
        let block_bytes = usize::try_from(block_tokens.saturating_mul(BYTES_PER_TOKEN));
        let block_bytes = NonZeroUsize::new(block_bytes.unwrap_or(usize::MAX));
        Self {
            block_bytes: block_bytes.unwrap_or(NonZeroUsize::MIN),
            max_blocks: usize::try_from(max_blocks).unwrap_or(usize::MAX),
            open_block: Vec::new(),
            contents: Contents {
                block_bytes: block_bytes.map_or(1, NonZeroUsize::get),
                ..Contents::default()
            },
            marks: Vec::new(),
            open_marks: 0,
        }
    }

    /// Appends `bytes` to the prompt.
    pub fn push(&mut self, mut bytes: &[u8]) {
        if self.is_full() {
            return;
        }
        let block_bytes = self.block_bytes.get();
        if !self.open_block.is_empty() {
            let missing = block_bytes.saturating_sub(self.open_block.len());
            let (head, rest) = bytes.split_at_checked(missing).unwrap_or((bytes, &[]));
            self.open_block.extend_from_slice(head);
            bytes = rest;
            if self.open_block.len() < block_bytes {
                return;
            }
            let full = xxh64(&self.open_block, 0);
            self.contents.blocks.push(full);
            self.open_block.clear();
        }
        let whole_blocks = bytes.chunks_exact(block_bytes);
        let tail = whole_blocks.remainder();
        for block in whole_blocks {
            if self.is_full() {
                return;
            }
            self.contents.blocks.push(xxh64(block, 0));
        }
        if !self.is_full() {
            self.open_block.extend_from_slice(tail);
        }
    }

    /// Marks the present end as the end of the first user message; later marks change nothing.
    pub fn mark_anchor(&mut self) {
        if self.contents.anchor.is_some() || !self.contents.further.is_empty() {
            return;
        }
        let here = Anchor {
            blocks: self.contents.blocks.len(),
            tail: self.tail(),
        };
        if here.blocks > 0 || here.tail.is_some() {
            self.contents.anchor = Some(here);
        }
    }

    /// Remembers the present end, until [`Self::end_mark`]. Marks nest; no prompt ends and no anchor
    /// is set while one is open. Each takes the memory of a block.
    pub fn mark(&mut self) {
        if self.open_marks >= self.marks.len() {
            self.marks.push(Mark::default());
        }
        if let Some(mark) = self.marks.get_mut(self.open_marks) {
            mark.blocks = self.contents.blocks.len();
            mark.open_block.clear();
            mark.open_block.extend_from_slice(&self.open_block);
        }
        self.open_marks = self.open_marks.saturating_add(1);
    }

    /// Forgets the last mark, and what was appended since unless it is `kept`.
    pub fn end_mark(&mut self, kept: bool) {
        self.open_marks = self.open_marks.saturating_sub(1);
        if let Some(mark) = self.marks.get_mut(self.open_marks)
            && !kept
        {
            self.contents.blocks.truncate(mark.blocks);
            core::mem::swap(&mut self.open_block, &mut mark.open_block);
        }
    }

    /// Ends the prompt, its last block partly filled where it ends inside one; what follows is
    /// another prompt. A prompt of nothing is none.
    pub fn end_prompt(&mut self) {
        let tail = self.tail();
        if tail.is_some() {
            let missing = self.block_bytes.get().saturating_sub(self.open_block.len());
            let contents = &mut self.contents;
            contents.missing_bytes = contents.missing_bytes.saturating_add(missing);
        }
        self.contents.blocks.extend(tail);
        self.open_block.clear();
        let end = self.contents.blocks.len();
        if end > self.contents.last_start() {
            self.contents.further.push(end);
        }
    }

    /// Whether what is appended from here on makes no difference.
    pub fn is_full(&self) -> bool {
        self.contents.blocks.len() >= self.max_blocks
    }

    /// The blocks of all prompts that were ended, and the whole blocks of one that was not: of a
    /// prompt that was cut off only the beginning is known.
    pub fn finish(mut self) -> Contents {
        // The end of the last prompt begins no other.
        if self.contents.further.last() == Some(&self.contents.blocks.len()) {
            self.contents.further.pop();
        }
        self.contents
    }

    /// `c` of the block that is not full; `None` for an empty one.
    fn tail(&self) -> Option<u64> {
        if self.open_block.is_empty() || self.is_full() {
            return None;
        }
        let tokens = self.open_block.len().div_ceil(BYTES_PER_TOKEN as usize);
        let mut padded = self.open_block.clone();
        padded.resize(tokens.saturating_mul(BYTES_PER_TOKEN as usize), 0);
        Some(xxh64(&padded, 0))
    }
}

impl Contents {
    /// The chain for `seed`'s model. Linear in the blocks.
    pub fn chain(self, seed: Seed) -> Chain {
        let anchor = self.anchor();
        let whole = self.blocks.len().saturating_mul(self.block_bytes);
        let bytes = whole.saturating_sub(self.missing_bytes);
        let mut starts = self.further.iter().copied().peekable();
        let mut parent = seed.0;
        let blocks = self.blocks.into_iter().enumerate().map(|(at, content)| {
            if starts.next_if_eq(&at).is_some() {
                parent = seed.0;
            }
            parent = link(content, parent);
            BlockHash(parent)
        });
        let blocks: Vec<BlockHash> = blocks.collect();
        let before = blocks.get(..anchor.blocks).unwrap_or(&blocks).last();
        let anchor = match anchor.tail {
            Some(tail) => {
                let parent = before.map_or(seed.0, |last| last.0);
                Some(BlockHash(link(tail, parent)))
            }
            None => before.copied(),
        };
        Chain {
            blocks,
            further: self.further,
            anchor,
            bytes: u64::try_from(bytes).unwrap_or(u64::MAX),
        }
    }

    /// What tells the conversation apart from others, whatever its model and salt; `None` for a
    /// prompt of nothing. Linear in the blocks up to the anchor.
    pub fn conversation(&self) -> Option<u64> {
        let anchor = self.anchor();
        let before = self.blocks.iter().take(anchor.blocks).copied();
        let mut contents = before.chain(anchor.tail).peekable();
        contents.peek()?;
        Some(contents.fold(Seed::NEUTRAL.0, |parent, content| link(content, parent)))
    }

    /// Where the first user message ends; without one, [`ANCHOR_BLOCKS`].
    fn anchor(&self) -> Anchor {
        let first_end = self.further.first().copied();
        let first_end = first_end.unwrap_or(self.blocks.len());
        self.anchor.unwrap_or_else(|| Anchor {
            blocks: first_end.min(ANCHOR_BLOCKS),
            tail: None,
        })
    }

    fn last_start(&self) -> usize {
        self.further.last().copied().unwrap_or(0)
    }
}

fn link(content: u64, parent: u64) -> u64 {
    let joined = u128::from(content) | u128::from(parent) << 64;
    xxh64(&joined.to_le_bytes(), 0)
}

#[cfg(test)]
mod tests;
