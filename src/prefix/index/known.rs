//! Chains told by their last block: what makes a decision about a known prompt small.

use super::PrefixIndex;
use super::lru::{Lru, Run};
use super::slab::NONE;
use crate::datalayer::EndpointId;
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
        let (mut likely, mut before) = (NONE, Tail::START.block);
        let is_known = |&&block: &&BlockHash| {
            let found = self.slab.get(self.find_any(block, likely));
            let found = found.filter(|entry| entry.parent == before);
            before = block;
            likely = found.map_or(NONE, |entry| entry.older);
            found.is_some()
        };
        chain.iter().take_while(is_known).count()
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
        let (mut likely, mut block) = (NONE, tail.block);
        for _ in 0..len {
            chain.push(block);
            let entry = self.slab.get(self.find_any(block, likely))?;
            (likely, block) = (entry.younger, entry.parent);
        }
        chain.reverse();
        (block == Tail::START.block).then_some(chain)
    }

    /// Like [`Self::record_after`] with all blocks of the prompt, the known ones included, for the
    /// most frequent case: `endpoint` was proved to hold those up to `tail`, they lie in its list as
    /// they were sent, and has none of `blocks`. One walk along the list then does, and only
    /// `blocks` are pending. Returns whether that was so; if not, nothing has changed.
    pub fn record_after_confirmed(
        &mut self,
        endpoint: EndpointId,
        tail: Tail,
        blocks: &[BlockHash],
    ) -> bool {
        let Some(mut known) = self.confirmed_run(endpoint, tail) else {
            return false;
        };
        let new = u32::try_from(blocks.len()).unwrap_or(u32::MAX);
        let has_room = |list: &Lru| {
            let others = list.len.saturating_sub(tail.len);
            // A new block drives two at most out, the oldest ones: the known must not be among them.
            new.saturating_mul(2) <= others && tail.len.saturating_add(new) <= list.capacity
        };
        let holds = |&block: &BlockHash| self.find(endpoint, block, NONE) != NONE;
        if !self.lists.get(endpoint).is_some_and(has_room) || blocks.iter().any(holds) {
            return false;
        }
        self.make_youngest(endpoint, &mut known.clone());
        self.record_after(endpoint, tail, blocks);
        let behind = self.slab.get(known.youngest);
        known.next = behind.map_or(NONE, |entry| entry.younger);
        self.make_youngest(endpoint, &mut known);
        true
    }

    /// The beginning of a prompt that ends with `tail`, if `endpoint` was proved to hold all of it
    /// and it lies in the list as it was sent.
    fn confirmed_run(&self, endpoint: EndpointId, tail: Tail) -> Option<Run> {
        let mut next = self.find(endpoint, tail.block, NONE);
        let (oldest, mut youngest, mut block) = (next, NONE, tail.block);
        for _ in 0..tail.len {
            let entry = self.slab.get(next)?;
            if entry.block != block || !entry.confirmed {
                return None;
            }
            youngest = next;
            (next, block) = (entry.younger, entry.parent);
        }
        (tail.len > 0 && block == Tail::START.block).then_some(Run {
            oldest,
            youngest,
            next,
        })
    }
}
