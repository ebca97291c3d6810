//! Which VMs are alive: leases of one that is gone would never be closed.

use core::time::Duration;
use std::collections::BTreeMap;

use super::lease_table::MAX_HEARTBEATS;
use super::{Entry, VmId};
use crate::time::Timestamp;

/// When each VM was last heard of. Memory: 12 bytes for each of at most [`MAX_HEARTBEATS`] VMs.
#[derive(Debug, Default)]
pub struct Heartbeats {
    last: BTreeMap<VmId, Timestamp>,
}

impl Heartbeats {
    /// Takes over an entry of the log. What a VM did shows that it lives, too.
    pub fn apply(&mut self, entry: &Entry) {
        match *entry {
            Entry::Alive { vm, at } => self.heard(vm, at),
            Entry::Routed(ref routed) => self.heard(routed.vm, routed.sent),
            Entry::Reopened(reopened) => self.heard(reopened.vm, reopened.sent),
            Entry::VmGone { vm } => {
                self.last.remove(&vm);
            }
            Entry::Void
            | Entry::Confirmed { .. }
            | Entry::Finished { .. }
            | Entry::Moved { .. }
            | Entry::TakenBack { .. }
            | Entry::SnapshotPublished { .. }
            | Entry::Removed { .. }
            | Entry::Restarted { .. }
            | Entry::Failed { .. }
            | Entry::Capacity { .. } => {}
        }
    }

    /// `vm` was alive at `at`. With too many VMs, the one not heard of for longest is forgotten.
    pub fn heard(&mut self, vm: VmId, at: Timestamp) {
        let last = self.last.entry(vm).or_default();
        *last = at.max(*last);
        if self.last.len() > MAX_HEARTBEATS {
            let silent = self.last.iter().min_by_key(|(_, at)| **at);
            if let Some(vm) = silent.map(|(vm, _)| *vm) {
                self.last.remove(&vm);
            }
        }
    }

    /// VMs not heard of for `patience` at `now`.
    pub fn silent(&self, now: Timestamp, patience: Duration) -> impl Iterator<Item = VmId> {
        self.iter()
            .filter(move |(_, at)| now.since(*at) >= patience)
            .map(|(vm, _)| vm)
    }

    /// When each VM was last heard of.
    pub fn iter(&self) -> impl Iterator<Item = (VmId, Timestamp)> {
        self.last.iter().map(|(vm, at)| (*vm, *at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Timestamp {
        Timestamp::from_nanos(seconds * 1_000_000_000)
    }

    fn silent(heartbeats: &Heartbeats, now: u64) -> Vec<VmId> {
        let patience = Duration::from_secs(10);
        heartbeats.silent(at(now), patience).collect()
    }

    #[test]
    fn who_is_not_heard_of_is_silent_until_it_is_gone() {
        let mut heartbeats = Heartbeats::default();
        for (vm, seconds) in [(1, 5), (2, 8), (1, 3)] {
            heartbeats.apply(&Entry::Alive {
                vm: VmId(vm),
                at: at(seconds),
            });
        }
        assert_eq!(silent(&heartbeats, 14), []);
        assert_eq!(silent(&heartbeats, 15), [VmId(1)]);
        assert_eq!(silent(&heartbeats, 99), [VmId(1), VmId(2)]);
        heartbeats.apply(&Entry::VmGone { vm: VmId(1) });
        assert_eq!(silent(&heartbeats, 99), [VmId(2)]);
    }

    #[test]
    fn no_more_vms_are_kept_than_a_table_tells_of() {
        let mut heartbeats = Heartbeats::default();
        let limit = u32::try_from(MAX_HEARTBEATS).unwrap();
        for number in 0..limit + 5 {
            heartbeats.heard(VmId(number), at(u64::from(number) + 1));
        }
        assert_eq!(heartbeats.iter().count(), MAX_HEARTBEATS);
        assert_eq!(heartbeats.iter().next(), Some((VmId(5), at(6))));
    }
}
