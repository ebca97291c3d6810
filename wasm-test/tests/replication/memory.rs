//! Shared data as the host keeps it: a token for each write, no delete, and an absent slot takes
//! everything.

use std::collections::BTreeMap;

use inline_epp::replication::ring::{Cas, SetResult, SharedStore};

#[derive(Debug, Default)]
pub struct Memory {
    slots: BTreeMap<u32, (Vec<u8>, u32)>,
    writes: u32,
}

impl Memory {
    /// Writes `slot` whatever it holds, as any plugin may.
    pub fn force(&mut self, slot: u32, value: Vec<u8>) {
        self.writes += 1;
        self.slots.insert(slot, (value, self.writes));
    }
}

impl SharedStore for Memory {
    fn get(&self, slot: u32) -> Option<(Vec<u8>, Cas)> {
        let (value, cas) = self.slots.get(&slot)?;
        Some((value.clone(), Cas(*cas)))
    }

    fn set(&mut self, slot: u32, value: &[u8], cas: Cas) -> SetResult {
        match self.slots.get(&slot) {
            Some((_, current)) if *current != cas.0 => SetResult::Mismatch,
            _ => {
                self.force(slot, value.to_vec());
                SetResult::Stored
            }
        }
    }
}
