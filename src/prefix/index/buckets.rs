//! Finds an entry by its block: linear hashing through the slab.
//!
//! A bucket is four bytes: the head of a list that runs through its entries. There are at most
//! [`PER_ENTRY`] buckets for each entry there ever was at once. They are added one by one, each
//! split off an older one, so no insertion moves more than a few entries: a table that doubles would
//! hold a worker up for tens of milliseconds at a million entries, and need both sizes meanwhile.

use super::super::BlockHash;
use super::slab::{NONE, Slab, Slot};

/// Buckets of one chunk: 16 KiB, so that growth neither copies nor reserves much ahead.
const CHUNK: u32 = 4_096;

/// Most lists then are empty or hold one block's entries only.
pub(super) const PER_ENTRY: usize = 2;

#[derive(Debug, Default)]
pub(super) struct Buckets {
    heads: Vec<Vec<Slot>>,
    count: u32,
    /// As many low bits as number all buckets.
    mask: u64,
}

impl Buckets {
    /// The first entry in the bucket of `block`. The others follow by their `next_in_bucket`;
    /// entries of other blocks are among them.
    pub(super) fn head(&self, block: BlockHash) -> Slot {
        let bucket = self.bucket_of(block);
        self.place(bucket).copied().unwrap_or(NONE)
    }

    /// Puts the entry at `slot`, which is in no bucket, at the head of its bucket.
    pub(super) fn insert(&mut self, slab: &mut Slab, slot: Slot) {
        let enough = slab.len().saturating_mul(PER_ENTRY);
        for _ in 0..PER_ENTRY {
            if usize::try_from(self.count).is_ok_and(|count| count < enough) {
                self.split(slab);
            }
        }
        self.push(slab, slot);
    }

    /// Takes the entry at `slot` out of its bucket.
    pub(super) fn remove(&mut self, slab: &mut Slab, slot: Slot) {
        let Some(entry) = slab.get(slot) else { return };
        let (block, next) = (entry.block, entry.next_in_bucket);
        let bucket = self.bucket_of(block);
        let Some(head) = self.place_mut(bucket) else {
            return;
        };
        if *head == slot {
            *head = next;
            return;
        }
        let mut before = *head;
        while let Some(entry) = slab.get_mut(before) {
            if entry.next_in_bucket == slot {
                entry.next_in_bucket = next;
                return;
            }
            before = entry.next_in_bucket;
        }
    }

    /// Bytes allocated.
    pub(super) fn bytes(&self) -> usize {
        let outer = self.heads.capacity().saturating_mul(size_of::<Vec<Slot>>());
        let chunk = (CHUNK as usize).saturating_mul(size_of::<Slot>());
        outer.saturating_add(self.heads.len().saturating_mul(chunk))
    }

    fn push(&mut self, slab: &mut Slab, slot: Slot) {
        let Some(entry) = slab.get_mut(slot) else {
            return;
        };
        if let Some(head) = self.place_mut(self.bucket_of(entry.block)) {
            entry.next_in_bucket = *head;
            *head = slot;
        }
    }

    /// Adds one bucket and shares the entries of the one it was part of out between both.
    fn split(&mut self, slab: &mut Slab) {
        let added = self.count;
        let full = self
            .heads
            .last()
            .is_none_or(|chunk| chunk.len() == CHUNK as usize);
        if full {
            self.heads.push(Vec::with_capacity(CHUNK as usize));
        }
        if let Some(chunk) = self.heads.last_mut() {
            chunk.push(NONE);
        }
        self.count = added.saturating_add(1);
        if u64::from(added) > self.mask {
            self.mask = self.mask << 1 | 1;
        }
        let half = added.checked_ilog2().map_or(0, |bits| 1 << bits);
        let Some(head) = self.place_mut(added.saturating_sub(half)) else {
            return;
        };
        let mut slot = core::mem::replace(head, NONE);
        while let Some(entry) = slab.get(slot) {
            let next = entry.next_in_bucket;
            self.push(slab, slot);
            slot = next;
        }
    }

    /// The bucket of `block`: its hash's low bits, one bit fewer where that bucket is not split off
    /// yet.
    fn bucket_of(&self, block: BlockHash) -> u32 {
        let bucket = u32::try_from(block.0 & self.mask).unwrap_or(0);
        if bucket < self.count {
            bucket
        } else {
            u32::try_from(block.0 & self.mask >> 1).unwrap_or(0)
        }
    }

    fn place(&self, bucket: u32) -> Option<&Slot> {
        let chunk = self.heads.get((bucket / CHUNK) as usize)?;
        chunk.get((bucket % CHUNK) as usize)
    }

    fn place_mut(&mut self, bucket: u32) -> Option<&mut Slot> {
        let chunk = self.heads.get_mut((bucket / CHUNK) as usize)?;
        chunk.get_mut((bucket % CHUNK) as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::super::slab::Entry;
    use super::*;
    use crate::datalayer::EndpointId;

    fn found(buckets: &Buckets, slab: &Slab, block: BlockHash) -> Vec<Slot> {
        let mut slots = Vec::new();
        let mut slot = buckets.head(block);
        while let Some(entry) = slab.get(slot) {
            if entry.block == block {
                slots.push(slot);
            }
            slot = entry.next_in_bucket;
        }
        slots
    }

    fn scattered(number: u64) -> BlockHash {
        BlockHash(xxhash_rust::xxh64::xxh64(&number.to_le_bytes(), 0))
    }

    #[test]
    fn every_entry_is_found_while_buckets_are_added_and_after_removals() {
        let (mut buckets, mut slab) = (Buckets::default(), Slab::default());
        let mut slots = Vec::new();
        for number in 0..9_000_u64 {
            let entry = Entry::pending(scattered(number), BlockHash(0), EndpointId::new(0));
            let slot = slab.add(entry).unwrap();
            buckets.insert(&mut slab, slot);
            slots.push(slot);
            for probe in [0, number / 2, number] {
                let slot = slots[usize::try_from(probe).unwrap()];
                assert_eq!(found(&buckets, &slab, scattered(probe)), [slot]);
            }
        }
        assert_eq!(buckets.count, 18_000);
        for (number, &slot) in (0..).zip(&slots).filter(|(number, _)| number % 3 == 0) {
            buckets.remove(&mut slab, slot);
            slab.free(slot);
            assert!(found(&buckets, &slab, scattered(number)).is_empty());
        }
        for (number, &slot) in (0..).zip(&slots).filter(|(number, _)| number % 3 != 0) {
            assert_eq!(found(&buckets, &slab, scattered(number)), [slot]);
        }
    }

    #[test]
    fn lists_stay_short() {
        let (mut buckets, mut slab) = (Buckets::default(), Slab::default());
        for number in 0..50_000 {
            let entry = Entry::pending(scattered(number), BlockHash(0), EndpointId::new(0));
            let slot = slab.add(entry).unwrap();
            buckets.insert(&mut slab, slot);
        }
        let longest = (0..50_000).map(|number| {
            let mut length = 0;
            let mut slot = buckets.head(scattered(number));
            while let Some(entry) = slab.get(slot) {
                length += 1;
                slot = entry.next_in_bucket;
            }
            length
        });
        assert!(longest.max().unwrap() <= 9);
    }
}
