//! Storage of the index's entries: chunks that never move, a free list through them.

use super::super::BlockHash;
use crate::datalayer::EndpointId;

/// Where an entry lies.
pub(super) type Slot = u32;

/// No entry.
pub(super) const NONE: Slot = Slot::MAX;

/// Entries of one chunk: 128 KiB, so that growth neither copies nor reserves much ahead.
const CHUNK: u32 = 4_096;

/// One block at one endpoint.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) block: BlockHash,
    /// The block before it; the same in all entries of a block.
    pub(super) parent: BlockHash,
    /// Neighbours in the endpoint's LRU list.
    pub(super) older: Slot,
    pub(super) younger: Slot,
    /// The next entry of the same bucket; the next free slot once the entry is free.
    pub(super) next_in_bucket: Slot,
    pub(super) endpoint: EndpointId,
    /// Requests sent but not answered yet that carry this block, at most 255.
    pub(super) pending: u8,
    /// An answer proved the block to be there.
    pub(super) confirmed: bool,
}

impl Entry {
    pub(super) fn pending(block: BlockHash, parent: BlockHash, endpoint: EndpointId) -> Self {
        Self {
            block,
            parent,
            older: NONE,
            younger: NONE,
            next_in_bucket: NONE,
            endpoint,
            pending: 1,
            confirmed: false,
        }
    }

    pub(super) fn confirmed(block: BlockHash, parent: BlockHash, endpoint: EndpointId) -> Self {
        Self {
            pending: 0,
            confirmed: true,
            ..Self::pending(block, parent, endpoint)
        }
    }
}

#[derive(Debug)]
pub(super) struct Slab {
    chunks: Vec<Vec<Entry>>,
    first_free: Slot,
    used: usize,
}

impl Default for Slab {
    fn default() -> Self {
        Self {
            chunks: Vec::new(),
            first_free: NONE,
            used: 0,
        }
    }
}

impl Slab {
    pub(super) fn len(&self) -> usize {
        self.used
    }

    pub(super) fn get(&self, slot: Slot) -> Option<&Entry> {
        self.chunks.get(chunk_of(slot))?.get(place_in_chunk(slot))
    }

    pub(super) fn get_mut(&mut self, slot: Slot) -> Option<&mut Entry> {
        self.chunks
            .get_mut(chunk_of(slot))?
            .get_mut(place_in_chunk(slot))
    }

    /// Stores `entry`; `None` when all slots a `u32` can name are taken.
    pub(super) fn add(&mut self, entry: Entry) -> Option<Slot> {
        let slot = if self.first_free == NONE {
            self.append(entry)?
        } else {
            let slot = self.first_free;
            let place = self.get_mut(slot)?;
            let next_free = place.next_in_bucket;
            *place = entry;
            self.first_free = next_free;
            slot
        };
        self.used = self.used.saturating_add(1);
        Some(slot)
    }

    /// Frees `slot`; the caller has taken it out of every list.
    pub(super) fn free(&mut self, slot: Slot) {
        let next_free = self.first_free;
        if let Some(entry) = self.get_mut(slot) {
            entry.next_in_bucket = next_free;
            self.first_free = slot;
            self.used = self.used.saturating_sub(1);
        }
    }

    /// Bytes allocated.
    pub(super) fn bytes(&self) -> usize {
        let outer = self
            .chunks
            .capacity()
            .saturating_mul(size_of::<Vec<Entry>>());
        let chunk = (CHUNK as usize).saturating_mul(size_of::<Entry>());
        outer.saturating_add(self.chunks.len().saturating_mul(chunk))
    }

    fn append(&mut self, entry: Entry) -> Option<Slot> {
        let full = self
            .chunks
            .last()
            .is_none_or(|chunk| place_count(chunk) == CHUNK);
        if full {
            self.chunks.push(Vec::with_capacity(CHUNK as usize));
        }
        let before = u32::try_from(self.chunks.len())
            .ok()?
            .checked_sub(1)?
            .checked_mul(CHUNK)?;
        let chunk = self.chunks.last_mut()?;
        let slot = before
            .checked_add(place_count(chunk))
            .filter(|&slot| slot != NONE)?;
        chunk.push(entry);
        Some(slot)
    }
}

fn chunk_of(slot: Slot) -> usize {
    (slot / CHUNK) as usize
}

fn place_in_chunk(slot: Slot) -> usize {
    (slot % CHUNK) as usize
}

fn place_count(chunk: &[Entry]) -> u32 {
    u32::try_from(chunk.len()).unwrap_or(CHUNK)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn freed_slots_are_used_again() {
        let mut slab = Slab::default();
        let entry = || Entry::pending(BlockHash(1), BlockHash(0), EndpointId::new(0));
        let slots: Vec<Slot> = (0..10_000).map(|_| slab.add(entry()).unwrap()).collect();
        for &slot in &slots {
            slab.free(slot);
        }
        assert_eq!(slab.len(), 0);
        let mut again: Vec<Slot> = (0..10_000).map(|_| slab.add(entry()).unwrap()).collect();
        again.sort_unstable();
        assert_eq!(again, slots);
    }
}
