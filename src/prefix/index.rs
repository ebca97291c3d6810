//! Which endpoint was sent which block: an approximation of every model server's prefix cache.
//!
//! * A match is contiguous from block 0, as a server can only reuse a cache from its start.
//! * Each endpoint has its own LRU list and capacity. A chain is touched from its tail to its
//!   head, so the head is always the youngest and eviction takes prompt tails first: what a server
//!   frees first too. A block an endpoint holds thus has all its predecessors there.
//! * An entry is *pending* from the pick until the server's first byte, then *confirmed*.
//!
//! Memory: [`BYTES_PER_ENTRY`] for each (block, endpoint) pair, at most `max_entries` of them.
//! Matching and recording take time linear in the chain and in the endpoints that hold its blocks.

mod lru;
mod slab;

use hashbrown::HashTable;

use self::lru::Lru;
use self::slab::{Entry, NONE, Slab, Slot};
use super::BlockHash;
use crate::config::PendingCredit;
use crate::datalayer::EndpointId;

/// Upper bound of the memory one (block, endpoint) pair takes: 24 bytes of entry and at most 12
/// of hash table, with room for the table's growth.
pub const BYTES_PER_ENTRY: usize = 48;

/// Approximate prefix index of one pool.
#[derive(Debug)]
pub struct PrefixIndex {
    /// Block hash to the first entry of its holder list.
    table: HashTable<Slot>,
    slab: Slab,
    /// Indexed by endpoint.
    lists: Vec<Lru>,
    max_entries: usize,
}

impl PrefixIndex {
    /// An empty index for `endpoints` endpoints, each with room for `capacity` blocks, that never
    /// holds more than `max_entries` entries together.
    pub fn new(endpoints: usize, capacity: u32, max_entries: usize) -> Self {
        Self {
            table: HashTable::new(),
            slab: Slab::default(),
            lists: (0..endpoints).map(|_| Lru::new(capacity)).collect(),
            max_entries,
        }
    }

    /// Takes in `endpoint`, which holds nothing and has room for `capacity` blocks.
    pub fn admit(&mut self, endpoint: EndpointId, capacity: u32) {
        self.drop_endpoint(endpoint);
        while self.lists.len() <= endpoint.index() {
            self.lists.push(Lru::new(0));
        }
        self.set_capacity(endpoint, capacity);
    }

    /// Forgets all blocks of `endpoint`; nothing is recorded for it until it is admitted again.
    pub fn drop_endpoint(&mut self, endpoint: EndpointId) {
        self.set_capacity(endpoint, 0);
    }

    /// Sets how many blocks `endpoint` has room for; what exceeds it is evicted.
    pub fn set_capacity(&mut self, endpoint: EndpointId, capacity: u32) {
        if let Some(list) = self.lists.get_mut(endpoint.index()) {
            list.capacity = capacity;
        }
        while self
            .lists
            .get(endpoint.index())
            .is_some_and(|list| list.len > list.capacity)
        {
            if !self.evict_oldest(endpoint) {
                break;
            }
        }
    }

    /// Remembers that `endpoint` was sent the prompt of `chain`: new blocks become pending.
    pub fn record(&mut self, endpoint: EndpointId, chain: &[BlockHash]) {
        let Some(list) = self.lists.get(endpoint.index()) else {
            return;
        };
        let room = usize::try_from(list.capacity)
            .unwrap_or(usize::MAX)
            .min(self.max_entries);
        for &block in chain.iter().take(room).rev() {
            if let Some(slot) = self.find(endpoint, block) {
                self.touch(endpoint, slot);
                if let Some(entry) = self.slab.get_mut(slot) {
                    entry.pending = entry.pending.saturating_add(1);
                }
            } else {
                self.insert(endpoint, block);
            }
        }
    }

    /// The server answered: blocks of `chain` that were recorded at `endpoint` are there for sure.
    pub fn confirm(&mut self, endpoint: EndpointId, chain: &[BlockHash]) {
        for &block in chain {
            let Some(slot) = self.find(endpoint, block) else {
                continue;
            };
            if let Some(entry) = self.slab.get_mut(slot) {
                entry.confirmed = true;
                entry.pending = entry.pending.saturating_sub(1);
            }
        }
    }

    /// The request never reached `endpoint`, or failed there: its pending blocks go, unless
    /// another request's answer confirmed them or is still awaited.
    pub fn take_back(&mut self, endpoint: EndpointId, chain: &[BlockHash]) {
        for &block in chain.iter().rev() {
            let Some(slot) = self.find(endpoint, block) else {
                continue;
            };
            let Some(entry) = self.slab.get_mut(slot) else {
                continue;
            };
            entry.pending = entry.pending.saturating_sub(1);
            if entry.pending == 0 && !entry.confirmed {
                self.remove(slot);
            }
        }
    }

    /// For each endpoint, by its index, how many leading blocks of `chain` it holds.
    ///
    /// `credit` says when a pending block counts. `matched` is cleared and filled.
    pub fn matches(&self, chain: &[BlockHash], credit: PendingCredit, matched: &mut Vec<u32>) {
        matched.clear();
        matched.resize(self.lists.len(), 0);
        for (&block, reached) in chain.iter().zip(1_u32..) {
            let mut extended = false;
            let confirmed_somewhere = credit == PendingCredit::UnlessConfirmed
                && self.holders(block).any(|entry| entry.confirmed);
            for entry in self.holders(block) {
                let counts = entry.confirmed
                    || match credit {
                        PendingCredit::Full => true,
                        PendingCredit::UnlessConfirmed => !confirmed_somewhere,
                        PendingCredit::None => false,
                    };
                let Some(run) = matched.get_mut(entry.endpoint.index()) else {
                    continue;
                };
                if counts && run.saturating_add(1) == reached {
                    *run = reached;
                    extended = true;
                }
            }
            if !extended {
                return;
            }
        }
    }

    /// How many (block, endpoint) entries are held.
    pub fn len(&self) -> usize {
        self.slab.len()
    }

    /// Whether nothing is held.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many blocks `endpoint` is thought to hold.
    pub fn blocks_at(&self, endpoint: EndpointId) -> u32 {
        self.lists.get(endpoint.index()).map_or(0, |list| list.len)
    }

    fn holders(&self, block: BlockHash) -> impl Iterator<Item = &Entry> {
        let first = self.first_holder(block).unwrap_or(NONE);
        core::iter::successors(self.slab.get(first), |entry| {
            self.slab.get(entry.next_holder)
        })
    }

    fn first_holder(&self, block: BlockHash) -> Option<Slot> {
        let is_block = |slot: &Slot| self.slab.get(*slot).is_some_and(|e| e.block == block);
        self.table.find(block.0, is_block).copied()
    }

    fn find(&self, endpoint: EndpointId, block: BlockHash) -> Option<Slot> {
        let mut slot = self.first_holder(block)?;
        while let Some(entry) = self.slab.get(slot) {
            if entry.endpoint == endpoint {
                return Some(slot);
            }
            slot = entry.next_holder;
        }
        None
    }

    fn touch(&mut self, endpoint: EndpointId, slot: Slot) {
        if let Some(list) = self.lists.get_mut(endpoint.index()) {
            list.unlink(&mut self.slab, slot);
            list.push_youngest(&mut self.slab, slot);
        }
    }

    fn insert(&mut self, endpoint: EndpointId, block: BlockHash) {
        if self
            .lists
            .get(endpoint.index())
            .is_some_and(|list| list.len >= list.capacity)
        {
            self.evict_oldest(endpoint);
        }
        if self.slab.len() >= self.max_entries {
            self.evict_from_largest();
        }
        let Some(list) = self.lists.get_mut(endpoint.index()) else {
            return;
        };
        let first = {
            let slab = &self.slab;
            self.table.find_mut(block.0, |slot| {
                slab.get(*slot).is_some_and(|e| e.block == block)
            })
        };
        let next_holder = first.as_deref().copied().unwrap_or(NONE);
        let Some(slot) = self.slab.add(Entry::pending(block, endpoint, next_holder)) else {
            return;
        };
        if let Some(first) = first {
            *first = slot;
        } else {
            let slab = &self.slab;
            self.table.insert_unique(block.0, slot, |slot| {
                slab.get(*slot).map_or(0, |entry| entry.block.0)
            });
        }
        list.push_youngest(&mut self.slab, slot);
    }

    /// Makes room anywhere: the endpoint with the most entries gives up its oldest.
    fn evict_from_largest(&mut self) {
        let largest = self
            .lists
            .iter()
            .zip(0_u16..)
            .max_by_key(|(list, _)| list.len);
        if let Some((_, index)) = largest {
            self.evict_oldest(EndpointId::new(index));
        }
    }

    fn evict_oldest(&mut self, endpoint: EndpointId) -> bool {
        let oldest = self
            .lists
            .get(endpoint.index())
            .map_or(NONE, |list| list.oldest);
        self.remove(oldest)
    }

    /// Takes `slot` out of its holder list, its LRU list and the slab.
    fn remove(&mut self, slot: Slot) -> bool {
        let Some(&Entry {
            block,
            endpoint,
            next_holder,
            ..
        }) = self.slab.get(slot)
        else {
            return false;
        };
        let slab = &self.slab;
        let found = self.table.find_entry(block.0, |slot| {
            slab.get(*slot).is_some_and(|e| e.block == block)
        });
        if let Ok(mut first) = found {
            if *first.get() != slot {
                let mut before = *first.get();
                while let Some(entry) = self.slab.get_mut(before) {
                    if entry.next_holder == slot {
                        entry.next_holder = next_holder;
                        break;
                    }
                    before = entry.next_holder;
                }
            } else if next_holder == NONE {
                first.remove();
            } else {
                *first.get_mut() = next_holder;
            }
        }
        if let Some(list) = self.lists.get_mut(endpoint.index()) {
            list.unlink(&mut self.slab, slot);
        }
        self.slab.free(slot);
        true
    }
}

#[cfg(test)]
mod tests;
