//! Chains told by their last block: what makes a decision about a known prompt small.

use super::PrefixIndex;
use crate::prefix::BlockHash;

/// The beginning of a prompt, told by its last block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tail {
    /// Blocks of it.
    pub len: u32,
    /// The last one.
    pub block: BlockHash,
}

impl Tail {
    /// The beginning without a block. Its hash is what a first block follows; that a real block has
    /// it would cost a match, no more.
    pub const START: Self = Self {
        len: 0,
        block: BlockHash(0),
    };
}

impl PrefixIndex {
    /// How many leading blocks of `chain` anybody holds, each after the one before it: so many
    /// that [`Self::chain_to`] finds them again here and in every index that equals this one.
    pub fn known_len(&self, chain: &[BlockHash]) -> usize {
        let parents = core::iter::once(&Tail::START.block).chain(chain);
        chain
            .iter()
            .zip(parents)
            .take_while(|&(&block, &parent)| self.parent(block) == Some(parent))
            .count()
    }

    /// How many leading blocks of `chain` anybody was proved to hold.
    pub fn confirmed_len(&self, chain: &[BlockHash]) -> usize {
        let confirmed = |block| self.holders(block).any(|entry| entry.confirmed);
        let known = chain.iter().take(self.known_len(chain));
        known.take_while(|&&block| confirmed(block)).count()
    }

    /// The chain of `tail.len` blocks that ends with `tail.block`, if all of it is known. Time and
    /// memory are linear in the blocks found.
    pub fn chain_to(&self, tail: Tail) -> Option<Vec<BlockHash>> {
        let len = usize::try_from(tail.len).ok()?;
        if len > self.len() {
            return None;
        }
        let mut chain = Vec::with_capacity(len);
        let mut block = tail.block;
        for _ in 0..len {
            chain.push(block);
            block = self.parent(block)?;
        }
        chain.reverse();
        (block == Tail::START.block).then_some(chain)
    }

    /// The block before `block`, if anybody holds `block`.
    pub(super) fn parent(&self, block: BlockHash) -> Option<BlockHash> {
        self.holders(block).next().map(|entry| entry.parent)
    }
}
