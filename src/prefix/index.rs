//! Which endpoint was sent which block: an approximation of every model server's prefix cache.
//!
//! * A match is contiguous from block 0, as a server can only reuse a cache from its start.
//! * Each endpoint has its own LRU list and capacity. A chain is touched from its tail to its
//!   head, so the head is always the youngest and eviction takes prompt tails first: what a server
//!   frees first too. A block an endpoint was sent thus has all its predecessors there.
//! * An entry is *pending* from the pick until the server's first byte, then *confirmed*.
//! * An entry knows the block before its own, so a chain can be told by its last block.
//!
//! What the index holds depends on the calls made and on the endpoints' keys, never on the places
//! endpoints have: where several VMs make the same calls, their indexes are the same.
//!
//! Memory: [`BYTES_PER_ENTRY`] for each (block, endpoint) pair, at most `max_entries` of them.
//! Matching and recording take time linear in the chain and in the endpoints that hold its blocks.

mod buckets;
mod endpoints;
mod known;
mod lru;
mod slab;

use self::buckets::Buckets;
use self::endpoints::Lists;
use self::lru::Run;
use self::slab::{Entry, NONE, Slab, Slot};
use super::BlockHash;
use crate::config::PendingCredit;
use crate::datalayer::EndpointId;

pub use self::known::Tail;

/// Upper bound of the memory one (block, endpoint) pair takes: an entry of 32 bytes and two buckets
/// of 4, with room for the unused end of the last chunk of each and for the lists of chunks.
pub const BYTES_PER_ENTRY: usize = 48;

/// Blocks whose buckets are looked up before the first of them is matched: each is somewhere else in
/// memory, and so they are waited for together.
const AHEAD: usize = 8;

/// Approximate prefix index of one pool.
#[derive(Debug)]
pub struct PrefixIndex {
    buckets: Buckets,
    slab: Slab,
    lists: Lists,
    max_entries: usize,
}

/// One block at one endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Held {
    /// The block.
    pub block: BlockHash,
    /// The block before it, [`Tail::START`]'s where there is none.
    pub parent: BlockHash,
    /// An answer proved it to be there.
    pub confirmed: bool,
    /// Requests sent but not answered yet that carry it, at most 255.
    pub pending: u8,
}

impl PrefixIndex {
    /// An empty index for `endpoints` endpoints, each with room for `capacity` blocks and with its
    /// place as its key, that never holds more than `max_entries` entries together.
    pub fn new(endpoints: usize, capacity: u32, max_entries: usize) -> Self {
        let mut index = Self {
            buckets: Buckets::default(),
            slab: Slab::default(),
            lists: Lists::default(),
            max_entries,
        };
        for key in (0..).take(endpoints) {
            index.add_endpoint(capacity, key);
        }
        index
    }

    /// From now on the index never holds more than `max_entries` entries. Too many go at once, the
    /// oldest of the fullest endpoints: time in their number, and memory is kept for later ones.
    pub fn set_max_entries(&mut self, max_entries: usize) {
        self.max_entries = max_entries;
        while self.slab.len() > max_entries
            && let Some(largest) = self.lists.largest()
            && self.evict_oldest(largest)
        {}
    }

    /// Remembers that `endpoint` was sent the prompt of `chain`: new blocks become pending.
    pub fn record(&mut self, endpoint: EndpointId, chain: &[BlockHash]) {
        self.record_after(endpoint, Tail::START, chain);
    }

    /// Like [`Self::record`], for `blocks` that continue a prompt after `tail`.
    pub fn record_after(&mut self, endpoint: EndpointId, tail: Tail, blocks: &[BlockHash]) {
        let Some(list) = self.lists.get(endpoint) else {
            return;
        };
        let room = usize::try_from(list.capacity)
            .unwrap_or(usize::MAX)
            .min(self.max_entries)
            .saturating_sub(usize::try_from(tail.len).unwrap_or(usize::MAX))
            .min(blocks.len());
        let mut touched = Run::default();
        for at in (0..room).rev() {
            let before = at.checked_sub(1).and_then(|before| blocks.get(before));
            let parent = before.copied().unwrap_or(tail.block);
            if let Some(&block) = blocks.get(at) {
                self.record_one(endpoint, block, parent, &mut touched);
            }
        }
        self.make_youngest(endpoint, &mut touched);
    }

    /// The server answered: those of `blocks` that were recorded at `endpoint` are there for sure.
    pub fn confirm(&mut self, endpoint: EndpointId, blocks: &[BlockHash]) {
        let mut likely = NONE;
        for &block in blocks {
            let slot = self.find(endpoint, block, likely);
            if let Some(entry) = self.slab.get_mut(slot) {
                entry.confirmed = true;
                entry.pending = entry.pending.saturating_sub(1);
                likely = entry.older;
            }
        }
    }

    /// The request never reached `endpoint`, or failed there: those of its `blocks` that are
    /// pending go, unless another request's answer confirmed them or is still awaited.
    pub fn take_back(&mut self, endpoint: EndpointId, blocks: &[BlockHash]) {
        for &block in blocks.iter().rev() {
            let slot = self.find(endpoint, block, NONE);
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
        let mut reached: u32 = 0;
        for blocks in chain.chunks(AHEAD) {
            let mut heads = [NONE; AHEAD];
            for (head, &block) in heads.iter_mut().zip(blocks) {
                *head = self.buckets.head(block);
            }
            for (&first, &block) in heads.iter().zip(blocks) {
                reached = reached.saturating_add(1);
                let mut grow = |counts: fn(&Entry) -> bool| {
                    let holders = self.holders_from(first, block);
                    grow_runs(holders.filter(|entry| counts(entry)), reached, matched)
                };
                let grown = match credit {
                    PendingCredit::Full => grow(|_| true),
                    PendingCredit::None => grow(|entry| entry.confirmed),
                    PendingCredit::UnlessConfirmed => {
                        grow(|entry| entry.confirmed).or_else(|| grow(|_| true))
                    }
                };
                if grown != Some(true) {
                    return;
                }
            }
        }
    }

    /// Remembers that `endpoint` holds `block`, which follows `parent`, longer unused than all it
    /// holds already: what a checkpoint tells. A full index or endpoint takes nothing. Returns
    /// whether `endpoint` holds the block now.
    pub fn import(&mut self, endpoint: EndpointId, block: BlockHash, parent: BlockHash) -> bool {
        let known_parent = match self.find_or_parent(endpoint, block, NONE) {
            Ok(slot) => {
                if let Some(entry) = self.slab.get_mut(slot) {
                    entry.confirmed = true;
                }
                return true;
            }
            Err(parent) => parent,
        };
        let room = self
            .lists
            .get(endpoint)
            .is_some_and(|list| list.len < list.capacity);
        if !room || self.slab.len() >= self.max_entries {
            return false;
        }
        let entry = Entry::confirmed(block, known_parent.unwrap_or(parent), endpoint);
        let Some(slot) = self.add(entry) else {
            return false;
        };
        if let Some(list) = self.lists.get_mut(endpoint) {
            list.push_oldest(&mut self.slab, slot);
        }
        true
    }

    /// What `endpoint` holds, from the youngest block to the oldest.
    pub fn held(&self, endpoint: EndpointId) -> impl Iterator<Item = Held> {
        let youngest = self.lists.get(endpoint).map_or(NONE, |list| list.youngest);
        let entries =
            core::iter::successors(self.slab.get(youngest), |entry| self.slab.get(entry.older));
        entries.map(|entry| Held {
            block: entry.block,
            parent: entry.parent,
            confirmed: entry.confirmed,
            pending: entry.pending,
        })
    }

    /// How many (block, endpoint) entries are held.
    pub fn len(&self) -> usize {
        self.slab.len()
    }

    /// Whether nothing is held.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes allocated for entries and for finding them.
    pub fn allocated_bytes(&self) -> usize {
        self.slab.bytes().saturating_add(self.buckets.bytes())
    }

    /// All entries of `block`.
    fn holders(&self, block: BlockHash) -> impl Iterator<Item = &Entry> {
        self.holders_from(self.buckets.head(block), block)
    }

    /// The same, where `first` heads the block's bucket.
    fn holders_from(&self, first: Slot, block: BlockHash) -> impl Iterator<Item = &Entry> {
        let first = self.slab.get(first);
        core::iter::successors(first, |entry| self.slab.get(entry.next_in_bucket))
            .filter(move |entry| entry.block == block)
    }

    /// Where an entry of `block` is, be it whose it may: [`NONE`] where nobody holds it. Looks at
    /// `likely` first.
    ///
    /// A chain lies in a list as it was sent, and mostly in the slab as well: the neighbour of one
    /// block's entry is the next one's, and looking there spares a bucket that is in no cache.
    fn find_any(&self, block: BlockHash, likely: Slot) -> Slot {
        if self.holds(likely, block) {
            return likely;
        }
        let mut slot = self.buckets.head(block);
        while let Some(entry) = self.slab.get(slot)
            && entry.block != block
        {
            slot = entry.next_in_bucket;
        }
        slot
    }

    /// Where `endpoint`'s entry of `block` is. `likely`, in the endpoint's list, is looked at first.
    fn find(&self, endpoint: EndpointId, block: BlockHash, likely: Slot) -> Slot {
        self.find_or_parent(endpoint, block, likely).unwrap_or(NONE)
    }

    /// The same; else the block's parent, as others' entries know it.
    fn find_or_parent(
        &self,
        endpoint: EndpointId,
        block: BlockHash,
        likely: Slot,
    ) -> Result<Slot, Option<BlockHash>> {
        if self.holds(likely, block) {
            return Ok(likely);
        }
        let mut parent = None;
        let mut slot = self.buckets.head(block);
        while let Some(entry) = self.slab.get(slot) {
            if entry.block == block {
                if entry.endpoint == endpoint {
                    return Ok(slot);
                }
                parent = Some(entry.parent);
            }
            slot = entry.next_in_bucket;
        }
        Err(parent)
    }

    fn holds(&self, slot: Slot, block: BlockHash) -> bool {
        self.slab
            .get(slot)
            .is_some_and(|entry| entry.block == block)
    }

    /// `touched` holds the last blocks that were there already and are still to be made the
    /// youngest.
    fn record_one(
        &mut self,
        endpoint: EndpointId,
        block: BlockHash,
        parent: BlockHash,
        touched: &mut Run,
    ) {
        let known_parent = match self.find_or_parent(endpoint, block, touched.next) {
            Ok(slot) => return self.touch(endpoint, slot, touched),
            Err(parent) => parent,
        };
        self.make_youngest(endpoint, touched);
        if self
            .lists
            .get(endpoint)
            .is_some_and(|list| list.len >= list.capacity)
        {
            self.evict_oldest(endpoint);
        }
        if self.slab.len() >= self.max_entries
            && let Some(largest) = self.lists.largest()
        {
            self.evict_oldest(largest);
        }
        let entry = Entry::pending(block, known_parent.unwrap_or(parent), endpoint);
        if let Some(slot) = self.add(entry)
            && let Some(list) = self.lists.get_mut(endpoint)
        {
            list.push_youngest(&mut self.slab, slot);
        }
    }

    /// What is sent again mostly lies in the list as it was sent before, so that it moves as one.
    fn touch(&mut self, endpoint: EndpointId, slot: Slot, touched: &mut Run) {
        if touched.next != slot {
            self.make_youngest(endpoint, touched);
            touched.oldest = slot;
        }
        if let Some(entry) = self.slab.get_mut(slot) {
            entry.pending = entry.pending.saturating_add(1);
            (touched.youngest, touched.next) = (slot, entry.younger);
        }
    }

    /// Moves the `touched` blocks, which `endpoint` holds, and forgets which they were.
    fn make_youngest(&mut self, endpoint: EndpointId, touched: &mut Run) {
        let run = core::mem::take(touched);
        if let Some(list) = self.lists.get_mut(endpoint) {
            list.make_youngest(&mut self.slab, &run);
        }
    }

    /// Stores `entry`, which its endpoint does not hold yet and whose place in the LRU list is still
    /// to be given. All entries of a block name the same parent: equal hashes follow equal ones, but
    /// who writes to shared data may claim otherwise, and it must not matter by which entry a chain
    /// is followed.
    fn add(&mut self, entry: Entry) -> Option<Slot> {
        let slot = self.slab.add(entry)?;
        self.buckets.insert(&mut self.slab, slot);
        Some(slot)
    }

    fn evict_oldest(&mut self, endpoint: EndpointId) -> bool {
        let oldest = self.lists.get(endpoint).map_or(NONE, |list| list.oldest);
        self.remove(oldest)
    }

    /// Takes `slot` out of its bucket, its LRU list and the slab.
    fn remove(&mut self, slot: Slot) -> bool {
        let Some(endpoint) = self.slab.get(slot).map(|entry| entry.endpoint) else {
            return false;
        };
        self.buckets.remove(&mut self.slab, slot);
        if let Some(list) = self.lists.get_mut(endpoint) {
            list.unlink(&mut self.slab, slot);
        }
        self.slab.free(slot);
        true
    }
}

/// Takes each endpoint's run of blocks, in `matched`, to `reached` where it was one shorter and one
/// of `entries`, all of one block, is the endpoint's. Returns whether there was such a run; `None`
/// where there are no entries.
fn grow_runs<'a>(
    entries: impl Iterator<Item = &'a Entry>,
    reached: u32,
    matched: &mut [u32],
) -> Option<bool> {
    let mut grown = None;
    for entry in entries {
        let run = matched.get_mut(entry.endpoint.index());
        let run = run.filter(|run| run.saturating_add(1) == reached);
        grown = Some(grown == Some(true) || run.is_some());
        if let Some(run) = run {
            *run = reached;
        }
    }
    grown
}

#[cfg(test)]
mod tests;
