//! The order in which one endpoint's blocks were last used.

use super::slab::{NONE, Slab, Slot};

/// A doubly linked list through the slab, oldest to youngest.
#[derive(Debug)]
pub(super) struct Lru {
    pub(super) oldest: Slot,
    pub(super) youngest: Slot,
    pub(super) len: u32,
    /// Blocks the endpoint has room for.
    pub(super) capacity: u32,
    /// Names the endpoint wherever its place in this VM must not matter.
    pub(super) key: u64,
}

/// Entries that follow one another in a list.
#[derive(Clone, Debug)]
pub(super) struct Run {
    pub(super) oldest: Slot,
    pub(super) youngest: Slot,
    /// The one behind `youngest`, [`NONE`] where there is none.
    pub(super) next: Slot,
}

impl Default for Run {
    /// None.
    fn default() -> Self {
        Self {
            oldest: NONE,
            youngest: NONE,
            next: NONE,
        }
    }
}

impl Lru {
    pub(super) fn new(capacity: u32, key: u64) -> Self {
        Self {
            oldest: NONE,
            youngest: NONE,
            len: 0,
            capacity,
            key,
        }
    }

    /// Appends `slot`, which is in no list.
    pub(super) fn push_youngest(&mut self, slab: &mut Slab, slot: Slot) {
        let Some(entry) = slab.get_mut(slot) else {
            return;
        };
        entry.older = self.youngest;
        entry.younger = NONE;
        match slab.get_mut(self.youngest) {
            Some(before) => before.younger = slot,
            None => self.oldest = slot,
        }
        self.youngest = slot;
        self.len = self.len.saturating_add(1);
    }

    /// Puts `slot`, which is in no list, before all others.
    pub(super) fn push_oldest(&mut self, slab: &mut Slab, slot: Slot) {
        let Some(entry) = slab.get_mut(slot) else {
            return;
        };
        entry.older = NONE;
        entry.younger = self.oldest;
        match slab.get_mut(self.oldest) {
            Some(after) => after.older = slot,
            None => self.youngest = slot,
        }
        self.oldest = slot;
        self.len = self.len.saturating_add(1);
    }

    /// Moves `run`, which is in this list, behind all others: as if its entries were taken out and
    /// appended one by one.
    pub(super) fn make_youngest(&mut self, slab: &mut Slab, run: &Run) {
        let Some(oldest) = slab.get_mut(run.oldest) else {
            return;
        };
        if run.youngest == self.youngest {
            return;
        }
        let before = core::mem::replace(&mut oldest.older, self.youngest);
        match slab.get_mut(before) {
            Some(before) => before.younger = run.next,
            None => self.oldest = run.next,
        }
        if let Some(next) = slab.get_mut(run.next) {
            next.older = before;
        }
        if let Some(last) = slab.get_mut(self.youngest) {
            last.younger = run.oldest;
        }
        if let Some(youngest) = slab.get_mut(run.youngest) {
            youngest.younger = NONE;
        }
        self.youngest = run.youngest;
    }

    /// Takes out `slot`, which is in this list.
    pub(super) fn unlink(&mut self, slab: &mut Slab, slot: Slot) {
        let Some(entry) = slab.get(slot) else { return };
        let (older, younger) = (entry.older, entry.younger);
        match slab.get_mut(older) {
            Some(before) => before.younger = younger,
            None => self.oldest = younger,
        }
        match slab.get_mut(younger) {
            Some(after) => after.older = older,
            None => self.youngest = older,
        }
        self.len = self.len.saturating_sub(1);
    }
}
