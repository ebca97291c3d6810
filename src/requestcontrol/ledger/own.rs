//! The requests of this VM, by a name that stays while their leases may get new numbers.

use std::collections::BTreeMap;

use crate::replication::{LeaseId, PoolKey};

/// One request of this VM.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RequestId(u64);

/// Memory: some words for each open request.
#[derive(Debug, Default)]
pub(super) struct OwnRequests {
    open: BTreeMap<RequestId, (PoolKey, LeaseId)>,
    next: u64,
}

impl OwnRequests {
    pub(super) fn add(&mut self, pool: PoolKey, lease: LeaseId) -> RequestId {
        let id = RequestId(self.next);
        self.next = self.next.wrapping_add(1);
        self.open.insert(id, (pool, lease));
        id
    }

    pub(super) fn get(&self, id: RequestId) -> Option<(PoolKey, LeaseId)> {
        self.open.get(&id).copied()
    }

    pub(super) fn remove(&mut self, id: RequestId) {
        self.open.remove(&id);
    }

    /// Whether there ever was a request.
    pub(super) const fn had_any(&self) -> bool {
        self.next > 0
    }

    pub(super) fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (RequestId, PoolKey, LeaseId)> {
        self.open
            .iter()
            .map(|(&id, &(pool, lease))| (id, pool, lease))
    }

    /// The request's lease has another number.
    pub(super) fn renumber(&mut self, id: RequestId, lease: LeaseId) {
        if let Some((_, number)) = self.open.get_mut(&id) {
            *number = lease;
        }
    }
}
