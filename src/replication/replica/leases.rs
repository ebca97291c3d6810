//! The open leases of one pool, and who counts them.

use std::collections::BTreeMap;

use super::LeaseObserver;
use crate::datalayer::EndpointId;
use crate::prefix::{BlockHash, Tail};
use crate::replication::{LeaseId, VmId, Weight};
use crate::time::Timestamp;

/// A request in flight.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenLease {
    /// The VM that serves it.
    pub vm: VmId,
    /// Where it is.
    pub endpoint: EndpointId,
    /// When it was sent there.
    pub sent: Timestamp,
    /// How much work it is.
    pub weight: Weight,
    /// Its blocks while they are pending.
    pub pending: Pending,
}

/// Blocks that are pending at a lease's endpoint; none once it is known whether they are there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pending {
    /// What the first of them follows.
    pub after: Tail,
    /// The blocks.
    pub blocks: Vec<BlockHash>,
}

impl Default for Pending {
    fn default() -> Self {
        Self {
            after: Tail::START,
            blocks: Vec::new(),
        }
    }
}

#[derive(Debug)]
pub(super) struct Leases<O> {
    open: BTreeMap<LeaseId, OpenLease>,
    pub(super) observer: O,
}

impl<O: LeaseObserver> Leases<O> {
    pub(super) const fn new(observer: O) -> Self {
        Self {
            open: BTreeMap::new(),
            observer,
        }
    }

    /// Opens `id`, which is not open.
    pub(super) fn open(&mut self, id: LeaseId, lease: OpenLease) {
        self.observer.opened(id, &lease);
        if let Some(before) = self.open.insert(id, lease) {
            self.observer.closed(id, &before);
        }
    }

    /// Closes `id`, if it is open; its blocks are up to the caller.
    pub(super) fn close(&mut self, id: LeaseId) -> Option<OpenLease> {
        let lease = self.open.remove(&id)?;
        self.observer.closed(id, &lease);
        Some(lease)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (LeaseId, &OpenLease)> {
        self.open.iter().map(|(id, lease)| (*id, lease))
    }

    pub(super) fn get(&self, id: LeaseId) -> Option<&OpenLease> {
        self.open.get(&id)
    }

    /// To change its blocks; what is counted stays as it is.
    pub(super) fn get_mut(&mut self, id: LeaseId) -> Option<&mut OpenLease> {
        self.open.get_mut(&id)
    }

    /// In the order they were opened: to do things in the same order in every VM.
    pub(super) fn ids_where(&self, fits: impl Fn(LeaseId, &OpenLease) -> bool) -> Vec<LeaseId> {
        let fitting = self.iter().filter(|(id, lease)| fits(*id, lease));
        fitting.map(|(id, _)| id).collect()
    }
}
