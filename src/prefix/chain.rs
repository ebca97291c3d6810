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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seed(u64);

impl Seed {
    /// The seed for `model` as the server is asked for it, and the request's cache salt.
    pub fn new(model: &str, salt: Option<&str>) -> Self {
        let Some(salt) = salt else {
            return Self(xxh64(model.as_bytes(), 0));
        };
        let mut bytes = Vec::with_capacity(model.len() + 1 + salt.len());
        bytes.extend_from_slice(model.as_bytes());
        bytes.push(0xFF);
        bytes.extend_from_slice(salt.as_bytes());
        Self(xxh64(&bytes, 0))
    }
}

/// The block hashes of one prompt, first block first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Chain {
    /// One hash a block; the last block may be partly filled.
    pub blocks: Vec<BlockHash>,
    /// Where the conversation's first user message ends, or the 16th block for prompts without
    /// one: what tells conversations apart when no endpoint is better than another. The first
    /// block would not do, a system prompt makes it the same for everybody.
    pub anchor: Option<BlockHash>,
}

/// Hashes a prompt that comes in pieces, in one pass and without joining them.
///
/// Time is linear in the bytes; memory is one block and eight bytes for each hash.
#[derive(Debug)]
pub struct ChainBuilder {
    block_bytes: NonZeroUsize,
    max_blocks: usize,
    parent: u64,
    /// Bytes of the block that is not full yet.
    open_block: Vec<u8>,
    blocks: Vec<BlockHash>,
    anchor: Option<BlockHash>,
}

/// Prompts without a user message are anchored here, counted in blocks.
const ANCHOR_BLOCKS: usize = 16;

impl ChainBuilder {
    /// A builder for blocks of `block_tokens` pseudo-tokens that stops after `max_blocks`.
    pub fn new(seed: Seed, block_tokens: u32, max_blocks: u32) -> Self {
        let block_bytes = usize::try_from(block_tokens.saturating_mul(BYTES_PER_TOKEN));
        let block_bytes = NonZeroUsize::new(block_bytes.unwrap_or(usize::MAX));
        Self {
            block_bytes: block_bytes.unwrap_or(NonZeroUsize::MIN),
            max_blocks: usize::try_from(max_blocks).unwrap_or(usize::MAX),
            parent: seed.0,
            open_block: Vec::new(),
            blocks: Vec::new(),
            anchor: None,
        }
    }

    /// Appends `bytes` to the prompt.
    pub fn push(&mut self, mut bytes: &[u8]) {
        let block_bytes = self.block_bytes.get();
        if !self.open_block.is_empty() {
            let missing = block_bytes.saturating_sub(self.open_block.len());
            let (head, rest) = bytes.split_at_checked(missing).unwrap_or((bytes, &[]));
            self.open_block.extend_from_slice(head);
            bytes = rest;
            if self.open_block.len() < block_bytes {
                return;
            }
            let full = core::mem::take(&mut self.open_block);
            self.close_block(&full);
            self.open_block = full;
            self.open_block.clear();
        }
        let whole_blocks = bytes.chunks_exact(block_bytes);
        let tail = whole_blocks.remainder();
        for block in whole_blocks {
            if self.is_full() {
                return;
            }
            self.close_block(block);
        }
        self.open_block.extend_from_slice(tail);
    }

    /// Marks the present end as the end of the first user message; later marks change nothing.
    pub fn mark_anchor(&mut self) {
        if self.anchor.is_none() {
            self.anchor = self.end_here();
        }
    }

    /// The chain, its last block partly filled where the prompt ends inside one.
    pub fn finish(mut self) -> Chain {
        if !self.open_block.is_empty() && !self.is_full() {
            let tail = core::mem::take(&mut self.open_block);
            let hash = self.next_hash(&padded(tail));
            self.blocks.push(hash);
        }
        self.finish_whole()
    }

    /// The chain of whole blocks only: for a prompt of which only the beginning was read.
    pub fn finish_whole(self) -> Chain {
        let default_anchor = self.blocks.iter().take(ANCHOR_BLOCKS).next_back().copied();
        Chain {
            anchor: self.anchor.or(default_anchor),
            blocks: self.blocks,
        }
    }

    fn is_full(&self) -> bool {
        self.blocks.len() >= self.max_blocks
    }

    fn close_block(&mut self, block: &[u8]) {
        if self.is_full() {
            return;
        }
        let hash = self.next_hash(block);
        self.parent = hash.0;
        self.blocks.push(hash);
    }

    /// The last hash of the chain if the prompt ended here; `None` for an empty prompt.
    fn end_here(&self) -> Option<BlockHash> {
        if self.open_block.is_empty() || self.is_full() {
            return self.blocks.last().copied();
        }
        Some(self.next_hash(&padded(self.open_block.clone())))
    }

    fn next_hash(&self, block: &[u8]) -> BlockHash {
        let content = u128::from(xxh64(block, 0));
        let joined = content | u128::from(self.parent) << 64;
        BlockHash(xxh64(&joined.to_le_bytes(), 0))
    }
}

/// `bytes` zero-padded to a whole number of pseudo-tokens.
fn padded(mut bytes: Vec<u8>) -> Vec<u8> {
    let tokens = bytes.len().div_ceil(BYTES_PER_TOKEN as usize);
    bytes.resize(tokens.saturating_mul(BYTES_PER_TOKEN as usize), 0);
    bytes
}

#[cfg(test)]
mod tests;
