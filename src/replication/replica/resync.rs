//! How a replica that missed entries learns which leases are open.
//!
//! It missed that leases were opened and, worse, that they were closed: a lease that nobody closes
//! would count for ever. So it starts without any, replays what the ring still holds, and keeps what
//! was said meanwhile of leases it does not know. The leader's table then tells of those: they
//! are opened, and what was said of them after the table was made is made up for.

use core::net::SocketAddr;
use core::num::NonZeroU16;
use std::collections::BTreeMap;

use super::leases::Leases;
use super::{LeaseObserver, OpenLease, Pending, Replica};
use crate::prefix::{BlockHash, Tail};
use crate::replication::checkpoint::{Chunk, Contents};
use crate::replication::entry::{Known, Reopened};
use crate::replication::lease_table::{LeaseTable, ListedLease, MAX_BLOCKS, MAX_LEASES};
use crate::replication::{Entry, LeaseId, PoolKey, Sequence, VmId};
use crate::time::Timestamp;

/// Entries kept while the leader's table is awaited: minutes of them. A replica that needs more
/// does without the leases it does not know.
const MAX_KEPT: usize = 65_536;

#[derive(Debug, Default)]
pub(super) struct Resync {
    /// The first entry applied since nothing was missed.
    since: Option<Sequence>,
    /// What may concern leases opened before.
    kept: Vec<(Sequence, Entry)>,
    overflowed: bool,
}

impl Resync {
    /// `entry` is about to be applied.
    pub(super) fn note<O: LeaseObserver>(
        &mut self,
        sequence: Sequence,
        entry: &Entry,
        ours: PoolKey,
        leases: &Leases<O>,
    ) {
        self.since.get_or_insert(sequence);
        if entry.pool().is_some_and(|pool| pool != ours) {
            return;
        }
        let concerns_unknown = match *entry {
            Entry::Confirmed { lease, .. }
            | Entry::Finished { lease, .. }
            | Entry::TakenBack { lease, .. }
            | Entry::Moved { lease, .. }
            | Entry::Reopened(Reopened { lease, .. }) => leases.get(lease).is_none(),
            Entry::Removed { .. } | Entry::Restarted { .. } | Entry::VmGone { .. } => true,
            Entry::Void
            | Entry::Routed(_)
            | Entry::SnapshotPublished { .. }
            | Entry::Failed { .. }
            | Entry::Capacity { .. }
            | Entry::Alive { .. } => false,
        };
        if !concerns_unknown {
            return;
        }
        if self.kept.len() < MAX_KEPT {
            self.kept.push((sequence, entry.clone()));
        } else {
            self.overflowed = true;
        }
    }
}

impl<O: LeaseObserver> Replica<O> {
    /// Entries were lost: leases of other VMs than `me`, which knows its own, may be closed without
    /// this replica having heard, so they are; the leader's table tells which are open.
    pub fn lost_entries(&mut self, me: VmId) {
        self.close_all(|_, lease| lease.vm != me);
        self.resync = Some(Resync::default());
    }

    /// Whether the leases known may be too few, so that the leader's table should be read.
    pub const fn awaits_leases(&self) -> bool {
        self.resync.is_some()
    }

    /// There is no table, nobody knows more: what is known is all.
    pub fn await_no_leases(&mut self) {
        self.resync = None;
    }

    /// Takes over the leases of `table` that were opened before all entries this replica knows.
    /// Returns whether it could: not if entries are missing between the table and those; a newer
    /// table will do. To be called once no newer entry is unread than the table's.
    pub fn load_leases(&mut self, table: &LeaseTable) -> bool {
        let fits = table.pool == self.pool
            && self
                .resync
                .as_ref()
                .is_some_and(|resync| resync.since.is_none_or(|since| since <= table.next));
        if !fits {
            return false;
        }
        let Some(resync) = self.resync.take().filter(|resync| !resync.overflowed) else {
            return true;
        };
        let before = resync.since.unwrap_or(table.next);
        for listed in &table.leases {
            if listed.id.0 < before && self.leases.get(listed.id).is_none() {
                self.open_listed(listed);
            }
        }
        for (sequence, entry) in &resync.kept {
            if *sequence >= table.next {
                self.make_up_for(*sequence, entry, before);
            }
        }
        true
    }

    /// The open leases, for a replica that misses some; `next` is the first entry not applied here.
    /// Blocks that any endpoint was proved to hold are told by the last of them, as the checkpoint
    /// has them. `None` while this replica misses some itself.
    pub fn lease_table(
        &self,
        next: Sequence,
        heartbeats: Vec<(VmId, Timestamp)>,
    ) -> Option<LeaseTable> {
        if self.awaits_leases() {
            return None;
        }
        let addresses: BTreeMap<_, _> = self
            .endpoints()
            .map(|(address, id)| (id, address))
            .collect();
        let mut room = MAX_BLOCKS;
        let listed = self.leases().filter_map(|(id, lease)| {
            let (known, new_blocks) = self.split_pending(lease);
            let fits = new_blocks.len() <= room;
            room = room.saturating_sub(if fits { new_blocks.len() } else { 0 });
            Some(ListedLease {
                id,
                vm: lease.vm,
                endpoint: *addresses.get(&lease.endpoint)?,
                sent: lease.sent,
                weight: lease.weight,
                known: known.filter(|_| fits),
                new_blocks: if fits {
                    new_blocks.to_vec()
                } else {
                    Vec::new()
                },
            })
        });
        Some(LeaseTable {
            pool: self.pool,
            next,
            leases: listed.take(MAX_LEASES).collect(),
            heartbeats,
        })
    }

    /// Takes over a chunk of the leader's checkpoint: blocks that are not held yet, as used longer
    /// ago than all that are. Returns how many of the chunk's are held now: none of an endpoint
    /// that has no place here or was emptied after the chunk was made.
    pub fn load_chunk(&mut self, chunk: &Chunk) -> usize {
        let emptied = self.places.last_emptied(chunk.endpoint);
        let stale = emptied.is_some_and(|emptied| emptied >= chunk.next);
        let Some(endpoint) = self
            .find(chunk.endpoint)
            .filter(|_| chunk.pool == self.pool && !stale)
        else {
            return 0;
        };
        let blocks = chunk.blocks.iter();
        blocks
            .filter(|(block, parent)| self.index.import(endpoint, *block, *parent))
            .count()
    }

    /// Takes over from the contents of the checkpoint when endpoints were emptied: older chunks of
    /// them are stale. To be called before [`Self::load_chunk`].
    pub fn learn(&mut self, contents: &Contents) {
        if contents.pool != self.pool {
            return;
        }
        for listed in &contents.endpoints {
            if let Some(emptied) = listed.emptied {
                self.places.emptied(listed.address, emptied);
            }
        }
    }

    /// When `endpoint` was last emptied, as far as is known.
    pub fn last_emptied(&self, endpoint: SocketAddr) -> Option<Sequence> {
        self.places.last_emptied(endpoint)
    }

    fn split_pending<'a>(&self, lease: &'a OpenLease) -> (Option<Known>, &'a [BlockHash]) {
        let Pending { after, ref blocks } = lease.pending;
        if after == Tail::START {
            return Known::split(blocks, self.index.confirmed_len(blocks));
        }
        let len = u16::try_from(after.len).ok();
        let known = len.and_then(NonZeroU16::new).map(|blocks| Known {
            blocks,
            last: after.block,
        });
        (known, blocks)
    }

    fn open_listed(&mut self, listed: &ListedLease) {
        let Some(endpoint) = self.places.find_or_add(listed.endpoint, &mut self.index) else {
            return;
        };
        let pending = self.record(endpoint, listed.tail(), &listed.new_blocks);
        let lease = OpenLease {
            vm: listed.vm,
            endpoint,
            sent: listed.sent,
            weight: listed.weight,
            pending,
        };
        self.leases.open(listed.id, lease);
    }

    /// Whether the endpoint of the lease `id` was emptied after the entry at `sequence`.
    fn was_emptied_after(&self, sequence: Sequence, id: LeaseId) -> bool {
        let place = self.leases.get(id).map(|lease| lease.endpoint);
        let mut endpoints = self.endpoints();
        let address = endpoints.find(|(_, id)| Some(*id) == place);
        address
            .and_then(|(address, _)| self.last_emptied(address))
            .is_some_and(|emptied| emptied > sequence)
    }

    /// Does to leases opened before `before` what `entry` says.
    fn make_up_for(&mut self, sequence: Sequence, entry: &Entry, before: Sequence) {
        let is_old = |id: LeaseId| id.0 < before;
        match *entry {
            Entry::VmGone { vm } => self.close_all(|id, lease| is_old(id) && lease.vm == vm),
            Entry::Removed { endpoint, .. } => {
                let place = self.find(endpoint);
                self.close_all(|id, lease| is_old(id) && Some(lease.endpoint) == place);
            }
            Entry::Restarted { endpoint, .. } => {
                let place = self.find(endpoint);
                let there = |id, lease: &OpenLease| is_old(id) && Some(lease.endpoint) == place;
                for id in self.leases.ids_where(there) {
                    self.take_back(id);
                }
            }
            Entry::Reopened(reopened) => self.close(reopened.lease),
            // What was dropped after it was confirmed must not come back.
            Entry::Confirmed { lease, .. } if self.was_emptied_after(sequence, lease) => {
                self.take_back(lease);
            }
            Entry::Finished { lease, .. } if self.was_emptied_after(sequence, lease) => {
                self.close(lease);
            }
            Entry::Confirmed { .. }
            | Entry::Finished { .. }
            | Entry::Moved { .. }
            | Entry::TakenBack { .. } => self.change(sequence, entry),
            Entry::Void
            | Entry::Routed(_)
            | Entry::SnapshotPublished { .. }
            | Entry::Failed { .. }
            | Entry::Capacity { .. }
            | Entry::Alive { .. } => {}
        }
    }
}
