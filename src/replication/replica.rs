//! One pool's state as the decision log tells it: the prefix index and the open leases.
//!
//! A replica changes by [`Replica::apply`] only, so all VMs that applied the same entries hold the
//! same: they know the same prompts, and may tell each other of a prompt by its last block.
//!
//! A replica that starts late or was lapped comes close step by step. It replays what the ring still
//! holds, takes the leases older than that from the leader's [`LeaseTable`], and blocks from the
//! leader's checkpoint. Until then it may be told of a prompt that it does not know; it then
//! records the new blocks alone, which count once the ones before them came by the checkpoint.
//!
//! Memory: the index's, 8 bytes for each pending block of an open lease, some 100 bytes for each
//! open lease and endpoint.

mod leases;
mod places;
mod resync;

use core::net::SocketAddr;

use self::leases::Leases;
use self::places::Places;
use self::resync::Resync;
use super::entry::{Entry, Known, MAX_NEW_BLOCKS, Reopened, Routed};
use super::{LeaseId, PoolKey, Sequence, VmId, Weight};
use crate::datalayer::EndpointId;
use crate::prefix::{BlockHash, PrefixIndex, Tail};
use crate::time::Timestamp;

pub use self::leases::{OpenLease, Pending};

/// Is told which leases are open, and how endpoints do.
pub trait LeaseObserver {
    /// `lease` counts at its endpoint from here on. Endpoints may be new.
    fn opened(&mut self, id: LeaseId, lease: &OpenLease);

    /// `lease`, of which [`Self::opened`] told, does not count any more.
    fn closed(&mut self, id: LeaseId, lease: &OpenLease);

    /// `endpoint` served a request well, or failed it.
    fn turned_out(&mut self, endpoint: EndpointId, outcome: Outcome);
}

/// What became of a request at an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The endpoint answered, be it that the client asked for what it may not have.
    Served,
    /// A 5xx, a reset, a time-out.
    Failed,
}

impl LeaseObserver for () {
    fn opened(&mut self, _: LeaseId, _: &OpenLease) {}
    fn closed(&mut self, _: LeaseId, _: &OpenLease) {}
    fn turned_out(&mut self, _: EndpointId, _: Outcome) {}
}

/// A pool's replicated state. `O` counts what is in flight.
#[derive(Debug)]
pub struct Replica<O> {
    pool: PoolKey,
    index: PrefixIndex,
    places: Places,
    leases: Leases<O>,
    resync: Option<Resync>,
}

/// A decision to tell the other VMs of.
#[derive(Clone, Copy, Debug)]
pub struct NewRequest<'a> {
    /// Who decided.
    pub vm: VmId,
    /// Where to.
    pub endpoint: SocketAddr,
    /// When.
    pub sent: Timestamp,
    /// How much work it is.
    pub weight: Weight,
    /// Its prompt.
    pub chain: &'a [BlockHash],
}

impl<O: LeaseObserver> Replica<O> {
    /// A replica that has applied nothing: endpoints have room for `capacity` blocks unless told
    /// otherwise, the index for `max_entries`. VMs that agree on both know the same.
    pub fn new(pool: PoolKey, capacity: u32, max_entries: usize, observer: O) -> Self {
        Self {
            pool,
            index: PrefixIndex::new(0, capacity, max_entries),
            places: Places::new(capacity),
            leases: Leases::new(observer),
            resync: Some(Resync::default()),
        }
    }

    /// From now on the index has room for `max_entries`. VMs that take this over at different times
    /// may differ in what they forget meanwhile, as VMs do that missed entries.
    pub fn set_max_entries(&mut self, max_entries: usize) {
        self.index.set_max_entries(max_entries);
    }

    /// Takes over the entry at `sequence`. Entries of other pools change nothing, but are to be told,
    /// too: they show from where on this replica misses nothing.
    pub fn apply(&mut self, sequence: Sequence, entry: &Entry) {
        if let Some(resync) = &mut self.resync
            && !sequence.is_local()
        {
            resync.note(sequence, entry, self.pool, &self.leases);
        }
        if entry.pool().is_none_or(|pool| pool == self.pool) {
            self.change(sequence, entry);
        }
    }

    /// The entry that tells of `request`, given what every VM knows now.
    pub fn compose_routed(&self, request: NewRequest<'_>) -> Entry {
        let NewRequest {
            vm,
            endpoint,
            sent,
            weight,
            chain,
        } = request;
        let (known, new_blocks) = Known::split(chain, self.index.known_len(chain));
        Entry::Routed(Routed {
            pool: self.pool,
            vm,
            endpoint,
            sent,
            weight,
            known,
            new_blocks: new_blocks.iter().take(MAX_NEW_BLOCKS).copied().collect(),
        })
    }

    /// The entry that opens `id`, which was closed while its request runs at `endpoint`, again.
    pub fn compose_reopened(&self, id: LeaseId, lease: Reopening) -> Entry {
        Entry::Reopened(Reopened {
            pool: self.pool,
            vm: lease.vm,
            lease: id,
            endpoint: lease.endpoint,
            sent: lease.sent,
            weight: lease.weight,
        })
    }

    /// The pool.
    pub const fn pool(&self) -> PoolKey {
        self.pool
    }

    /// The index, to match prompts.
    pub const fn index(&self) -> &PrefixIndex {
        &self.index
    }

    /// The open leases, in the order they were opened.
    pub fn leases(&self) -> impl Iterator<Item = (LeaseId, &OpenLease)> {
        self.leases.iter()
    }

    /// The lease `id`, while it is open.
    pub fn lease(&self, id: LeaseId) -> Option<&OpenLease> {
        self.leases.get(id)
    }

    /// Who counts what is in flight.
    pub const fn observer(&self) -> &O {
        &self.leases.observer
    }

    /// The same, to be told of other things than leases.
    pub const fn observer_mut(&mut self) -> &mut O {
        &mut self.leases.observer
    }

    /// Does what `entry`, which concerns this pool, says.
    fn change(&mut self, sequence: Sequence, entry: &Entry) {
        match *entry {
            Entry::Routed(ref routed) => self.routed(sequence, routed),
            Entry::Confirmed { lease, .. } => {
                self.served(lease);
                self.confirm(lease);
            }
            Entry::Finished {
                lease,
                answered,
                succeeded,
                ..
            } => {
                if succeeded {
                    self.served(lease);
                }
                if answered {
                    self.confirm(lease);
                }
                self.close(lease);
            }
            Entry::Moved {
                lease,
                to,
                sent,
                record,
                ..
            } => self.moved(lease, to, sent, record),
            Entry::TakenBack { lease, .. } => self.take_back(lease),
            Entry::Removed { endpoint, .. } => self.removed(sequence, endpoint),
            Entry::Restarted { endpoint, .. } => self.restarted(sequence, endpoint),
            Entry::Failed { endpoint, .. } => {
                if let Some(id) = self.places.find(endpoint) {
                    self.leases.observer.turned_out(id, Outcome::Failed);
                }
            }
            Entry::Capacity {
                endpoint, blocks, ..
            } => {
                if let Some(id) = self.places.find_or_add(endpoint, &mut self.index) {
                    self.index.set_capacity(id, blocks);
                }
            }
            Entry::VmGone { vm } => self.close_all(|_, lease| lease.vm == vm),
            Entry::Reopened(reopened) => self.reopened(sequence, reopened),
            Entry::Void | Entry::SnapshotPublished { .. } | Entry::Alive { .. } => {}
        }
    }

    fn routed(&mut self, sequence: Sequence, routed: &Routed) {
        let Some(endpoint) = self.places.find_or_add(routed.endpoint, &mut self.index) else {
            return;
        };
        let pending = self.record(endpoint, routed.tail(), &routed.new_blocks);
        let lease = OpenLease {
            vm: routed.vm,
            endpoint,
            sent: routed.sent,
            weight: routed.weight,
            pending,
        };
        self.leases.open(LeaseId(sequence), lease);
    }

    fn reopened(&mut self, sequence: Sequence, reopened: Reopened) {
        self.close(reopened.lease);
        let Some(endpoint) = self.places.find_or_add(reopened.endpoint, &mut self.index) else {
            return;
        };
        let lease = OpenLease {
            vm: reopened.vm,
            endpoint,
            sent: reopened.sent,
            weight: reopened.weight,
            pending: Pending::default(),
        };
        self.leases.open(LeaseId(sequence), lease);
    }

    /// The prompt that goes on after `tail` with `new_blocks` was sent to `endpoint`. Returns those of
    /// its blocks that are pending there.
    fn record(&mut self, endpoint: EndpointId, tail: Tail, new_blocks: &[BlockHash]) -> Pending {
        if self
            .index
            .record_after_confirmed(endpoint, tail, new_blocks)
        {
            return Pending {
                after: tail,
                blocks: new_blocks.to_vec(),
            };
        }
        let pending = self.resolve(tail, new_blocks);
        self.index
            .record_after(endpoint, pending.after, &pending.blocks);
        pending
    }

    /// All blocks of a prompt, or those behind `tail` where this replica does not know it.
    fn resolve(&self, tail: Tail, new_blocks: &[BlockHash]) -> Pending {
        match self.index.chain_to(tail) {
            Some(mut blocks) => {
                blocks.extend_from_slice(new_blocks);
                Pending {
                    after: Tail::START,
                    blocks,
                }
            }
            None => Pending {
                after: tail,
                blocks: new_blocks.to_vec(),
            },
        }
    }

    /// Whoever has the lease `id` served its request well.
    fn served(&mut self, id: LeaseId) {
        if let Some(endpoint) = self.leases.get(id).map(|lease| lease.endpoint) {
            self.leases.observer.turned_out(endpoint, Outcome::Served);
        }
    }

    fn confirm(&mut self, id: LeaseId) {
        if let Some(lease) = self.leases.get_mut(id) {
            let pending = core::mem::take(&mut lease.pending);
            self.index.confirm(lease.endpoint, &pending.blocks);
        }
    }

    fn moved(&mut self, id: LeaseId, to: SocketAddr, sent: Timestamp, record: bool) {
        let Some(mut lease) = self.leases.close(id) else {
            return;
        };
        let pending = core::mem::take(&mut lease.pending);
        self.index.take_back(lease.endpoint, &pending.blocks);
        let Some(endpoint) = self.places.find_or_add(to, &mut self.index) else {
            return;
        };
        if record {
            lease.pending = self.record(endpoint, pending.after, &pending.blocks);
        }
        (lease.endpoint, lease.sent) = (endpoint, sent);
        self.leases.open(id, lease);
    }

    fn take_back(&mut self, id: LeaseId) {
        if let Some(lease) = self.leases.get_mut(id) {
            let pending = core::mem::take(&mut lease.pending);
            self.index.take_back(lease.endpoint, &pending.blocks);
        }
    }

    fn close(&mut self, id: LeaseId) {
        self.take_back(id);
        self.leases.close(id);
    }

    fn close_all(&mut self, closes: impl Fn(LeaseId, &OpenLease) -> bool) {
        for id in self.leases.ids_where(closes) {
            self.close(id);
        }
    }

    fn removed(&mut self, sequence: Sequence, address: SocketAddr) {
        self.places.emptied(address, sequence);
        if let Some(endpoint) = self.places.find(address) {
            self.index.drop_endpoint(endpoint);
            self.close_all(|_, lease| lease.endpoint == endpoint);
            self.places.reset(address, &mut self.index);
        }
    }

    fn restarted(&mut self, sequence: Sequence, address: SocketAddr) {
        self.places.emptied(address, sequence);
        if let Some(endpoint) = self.places.find(address) {
            self.index.drop_endpoint(endpoint);
            self.forget_pending_at(endpoint);
        }
    }

    /// The blocks are gone already; what is sent from here on must not be mistaken for them.
    fn forget_pending_at(&mut self, endpoint: EndpointId) {
        for id in self.leases.ids_where(|_, lease| lease.endpoint == endpoint) {
            if let Some(lease) = self.leases.get_mut(id) {
                lease.pending = Pending::default();
            }
        }
    }
}

/// What a VM knows of a request whose lease was closed while it runs.
#[derive(Clone, Copy, Debug)]
pub struct Reopening {
    /// The VM.
    pub vm: VmId,
    /// Where the request is.
    pub endpoint: SocketAddr,
    /// When it was sent there.
    pub sent: Timestamp,
    /// How much work it is.
    pub weight: Weight,
}

#[cfg(test)]
mod tests;
