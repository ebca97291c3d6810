//! Shared data in which others are faster.

use inline_epp::replication::ring::{Cas, SetResult, SharedStore};

use super::memory::Memory;

/// A store in which another writer comes first, some times.
pub struct Racy<'a, F> {
    pub memory: &'a mut Memory,
    /// How many more times.
    pub losses: u32,
    /// What the other writer does.
    pub rival: F,
}

impl<F: FnMut(&mut Memory)> SharedStore for Racy<'_, F> {
    fn get(&self, slot: u32) -> Option<(Vec<u8>, Cas)> {
        self.memory.get(slot)
    }

    fn set(&mut self, slot: u32, value: &[u8], cas: Cas) -> SetResult {
        if self.losses > 0 {
            self.losses -= 1;
            (self.rival)(self.memory);
        }
        self.memory.set(slot, value, cas)
    }
}
