//! What the log tells: a replica of each pool, and who is alive.

use super::ReplicaLimits;
use crate::replication::ring::Follower;
use crate::replication::{
    Entry, Heartbeats, LeaseId, NewRequest, OpenLease, PoolKey, Replica, Sequence, VmId,
};
use crate::requestcontrol::InFlight;

#[derive(Debug)]
pub(super) struct State {
    me: VmId,
    /// One for each pool of a configuration that still runs.
    pools: Vec<Followed>,
    pub(super) heartbeats: Heartbeats,
    /// Entries lost and not yet reported.
    pub(super) lost: u64,
    /// Blocks were missed, and the checkpoint not read since.
    pub(super) misses_blocks: bool,
    /// Snapshots published so far.
    pub(super) published: u64,
    /// Others think that this VM is gone. With the leases of it that were closed.
    pub(super) closed_on_us: Vec<(PoolKey, LeaseId, OpenLease)>,
    /// Pools that no configuration has any more, until their checkpoints are emptied.
    pub(super) gone: Vec<PoolKey>,
}

#[derive(Debug)]
pub(super) struct Followed {
    /// Configurations that have it.
    users: usize,
    pub(super) replica: Replica<InFlight>,
}

impl State {
    pub(super) fn new(me: VmId) -> Self {
        Self {
            me,
            pools: Vec::new(),
            heartbeats: Heartbeats::default(),
            lost: 0,
            misses_blocks: false,
            // Whatever was published before is new to this VM.
            published: 1,
            closed_on_us: Vec::new(),
            gone: Vec::new(),
        }
    }

    pub(super) fn admit(&mut self, key: PoolKey, limits: ReplicaLimits, misses_nothing: bool) {
        self.gone.retain(|gone| *gone != key);
        let ReplicaLimits {
            capacity,
            max_entries,
        } = limits;
        if let Some(known) = self.pools.iter_mut().find(|one| one.replica.pool() == key) {
            known.users = known.users.saturating_add(1);
            // The newest configuration's budget counts.
            known.replica.set_max_entries(max_entries);
            return;
        }
        let mut replica = Replica::new(key, capacity, max_entries, InFlight::default());
        if misses_nothing {
            replica.await_no_leases();
        }
        self.pools.push(Followed { users: 1, replica });
    }

    pub(super) fn release(&mut self, key: PoolKey) {
        for one in &mut self.pools {
            if one.replica.pool() == key {
                one.users = one.users.saturating_sub(1);
            }
        }
        if self.pools.iter().any(|one| one.users == 0) {
            self.gone.push(key);
        }
        self.pools.retain(|one| one.users > 0);
    }

    pub(super) fn replica(&self, key: PoolKey) -> Option<&Replica<InFlight>> {
        self.replicas().find(|replica| replica.pool() == key)
    }

    pub(super) fn replica_mut(&mut self, key: PoolKey) -> Option<&mut Replica<InFlight>> {
        self.replicas_mut().find(|replica| replica.pool() == key)
    }

    pub(super) fn replicas(&self) -> impl Iterator<Item = &Replica<InFlight>> {
        self.pools.iter().map(|one| &one.replica)
    }

    pub(super) fn replicas_mut(&mut self) -> impl Iterator<Item = &mut Replica<InFlight>> {
        self.pools.iter_mut().map(|one| &mut one.replica)
    }

    /// The entry that tells of `request`. A pool that is not followed is told nothing of.
    pub(super) fn routed(&self, pool: PoolKey, request: NewRequest<'_>) -> Entry {
        let replica = self.replica(pool);
        replica.map_or(Entry::SnapshotPublished { pool }, |replica| {
            replica.compose_routed(request)
        })
    }

    pub(super) fn apply_entry(&mut self, sequence: Sequence, entry: &Entry) {
        self.heartbeats.apply(entry);
        if let Entry::SnapshotPublished { .. } = entry {
            self.published = self.published.saturating_add(1);
        }
        if *entry == (Entry::VmGone { vm: self.me }) {
            self.remember_own();
        }
        for one in &mut self.pools {
            one.replica.apply(sequence, entry);
        }
    }

    /// The leases of this VM are about to be closed.
    fn remember_own(&mut self) {
        for one in &self.pools {
            let own = one
                .replica
                .leases()
                .filter(|(_, lease)| lease.vm == self.me);
            let own = own.map(|(id, lease)| (one.replica.pool(), id, lease.clone()));
            self.closed_on_us.extend(own);
        }
    }
}

impl Follower for State {
    fn apply(&mut self, sequence: Sequence, entry: &Entry) {
        self.apply_entry(sequence, entry);
    }

    fn lost(&mut self, entries: u64) {
        self.lost = self.lost.saturating_add(entries);
        self.misses_blocks = true;
        self.published = self.published.saturating_add(1);
        for one in &mut self.pools {
            one.replica.lost_entries(self.me);
        }
    }
}
