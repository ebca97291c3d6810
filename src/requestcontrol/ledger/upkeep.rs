//! What is done from time to time: signs of life, and what late VMs learn from.

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};

use super::Ledger;
use super::board::{self, Board};
use crate::replication::checkpoint::{
    CheckpointWriter, Contents, Loader, decode_chunk, decode_contents, encode_chunk,
    encode_contents,
};
use crate::replication::{
    Entry, LeaseId, PoolKey, Reopening, Replica, Sequence, VmId, lease_table,
};
use crate::time::Timestamp;

/// A VM with open requests says so this often.
pub(super) const HEARTBEAT: Duration = Duration::from_secs(5);

/// A VM not heard of for this long is gone: it missed three signs of life and more.
pub(super) const PATIENCE: Duration = Duration::from_secs(20);

/// Chunks a late VM takes over in one call: about a millisecond each.
const CHUNKS_PER_CALL: usize = 4;

/// How far the recurring work is.
#[derive(Debug, Default)]
pub(super) struct Progress {
    last_alive: Option<Timestamp>,
    /// Of each pool that is not complete yet.
    loaders: BTreeMap<PoolKey, Loader>,
    /// Pools whose checkpoint was read, or of which there is nothing to read.
    loaded: BTreeSet<PoolKey>,
    rounds: BTreeMap<PoolKey, Round>,
    /// Whose turn it was last to have a chunk written.
    last_written: Option<PoolKey>,
}

impl Progress {
    /// All that checkpoints tell of `pool` is known.
    pub(super) fn has_loaded(&self, pool: PoolKey) -> bool {
        self.loaded.contains(&pool)
    }
}

#[derive(Debug)]
struct Round {
    chunks: CheckpointWriter,
    /// The log's end when the round began.
    began: Sequence,
    /// A round goes on.
    is_under_way: bool,
}

/// One call's circumstances.
#[derive(Clone, Copy, Debug)]
pub struct Upkeep {
    /// The time.
    pub now: Timestamp,
    /// This VM scrapes for all, and writes for all.
    pub leads: bool,
}

impl Ledger {
    /// Catches up and does what is due. To be called about every tenth of a second.
    pub fn upkeep(&mut self, upkeep: Upkeep, board: &mut dyn Board) {
        self.catch_up();
        self.reopen();
        if !self.log.is_shared() {
            return;
        }
        self.tell_ends();
        self.empty_gone(board);
        self.learn_leases(upkeep.leads, board);
        self.learn_blocks(upkeep.leads, board);
        self.say_alive(upkeep.now);
        if upkeep.leads {
            self.bury(upkeep.now);
            self.write_leases(board);
            self.write_chunk(board);
        }
    }

    /// Opens the leases again that were closed because others thought this VM gone.
    fn reopen(&mut self) {
        for (pool, id, lease) in core::mem::take(&mut self.state.closed_on_us) {
            let found = self
                .own
                .iter()
                .find(|&(_, of, own)| of == pool && own == id);
            let address = self.state.replica(pool).and_then(|replica| {
                let mut endpoints = replica.endpoints();
                endpoints.find(|(_, place)| *place == lease.endpoint)
            });
            let (Some((request, ..)), Some((endpoint, _))) = (found, address) else {
                continue;
            };
            let reopening = Reopening {
                vm: self.me,
                endpoint,
                sent: lease.sent,
                weight: lease.weight,
            };
            let sequence = self.log.append(&mut self.state, |state| {
                let replica = state.replica(pool);
                replica.map_or(Entry::SnapshotPublished { pool }, |replica| {
                    replica.compose_reopened(id, reopening)
                })
            });
            self.own.renumber(request, LeaseId(sequence));
        }
    }

    /// Empties what was written of pools that no configuration has any more: shared data forgets no
    /// key, but what is under it can be given back. A VM that still has the pool writes it anew.
    fn empty_gone(&mut self, board: &mut dyn Board) {
        for pool in core::mem::take(&mut self.state.gone) {
            let mut empty = |key: String| {
                let holds = board.get(&key).is_some_and(|value| !value.is_empty());
                if holds {
                    board.set(&key, &[]);
                }
                holds
            };
            empty(board::contents(pool));
            empty(board::leases(pool));
            for number in 0..u32::MAX {
                if !empty(board::chunk(pool, number)) {
                    break;
                }
            }
        }
    }

    fn learn_leases(&mut self, leads: bool, board: &dyn Board) {
        let mut heard = Vec::new();
        for replica in self.state.replicas_mut() {
            if !replica.awaits_leases() {
                continue;
            }
            let table = board.get(&board::leases(replica.pool()));
            let table = table.and_then(|bytes| lease_table::decode(&bytes));
            let took = table.is_some_and(|table| {
                heard.extend_from_slice(&table.heartbeats);
                replica.load_leases(&table)
            });
            // Who leads is the one whose table the others wait for.
            if !took && leads {
                replica.await_no_leases();
            }
        }
        for (vm, at) in heard {
            self.state.heartbeats.heard(vm, at);
        }
    }

    /// Reads chunks of checkpoints until a whole round of each is known.
    fn learn_blocks(&mut self, leads: bool, board: &dyn Board) {
        let mut budget = CHUNKS_PER_CALL;
        let progress = &mut self.upkeep;
        if core::mem::take(&mut self.state.misses_blocks) {
            progress.loaded.clear();
            progress.loaders.clear();
        }
        for replica in self.state.replicas_mut() {
            let pool = replica.pool();
            if progress.loaded.contains(&pool) {
                continue;
            }
            let contents = read_contents(board, pool);
            let Some(contents) = contents else {
                // Nobody wrote any: there is nothing to know once somebody could have.
                if leads {
                    progress.loaded.insert(pool);
                }
                continue;
            };
            replica.learn(&contents);
            let loader = progress.loaders.entry(pool).or_default();
            while budget > 0
                && let Some(number) = loader.next(&contents)
            {
                budget = budget.saturating_sub(1);
                let chunk = board.get(&board::chunk(pool, number));
                if let Some(chunk) = chunk.and_then(|bytes| decode_chunk(&bytes)) {
                    replica.load_chunk(&chunk);
                }
            }
            // The leader writes the next round itself: it has all there is with the first.
            if loader.is_complete() || (leads && budget > 0) {
                progress.loaders.remove(&pool);
                progress.loaded.insert(pool);
            }
        }
        let followed: BTreeSet<PoolKey> = self.state.replicas().map(Replica::pool).collect();
        progress.loaded.retain(|pool| followed.contains(pool));
        progress.loaders.retain(|pool, _| followed.contains(pool));
        progress.rounds.retain(|pool, _| followed.contains(pool));
    }

    fn say_alive(&mut self, now: Timestamp) {
        let due = |last| now.since(last) >= HEARTBEAT;
        if self.own.is_empty() || !self.upkeep.last_alive.is_none_or(due) {
            return;
        }
        self.upkeep.last_alive = Some(now);
        self.append(&Entry::Alive {
            vm: self.me,
            at: now,
        });
    }

    /// Closes the leases of VMs that are gone.
    fn bury(&mut self, now: Timestamp) {
        let holders: BTreeSet<VmId> = self
            .state
            .replicas()
            .flat_map(Replica::leases)
            .map(|(_, lease)| lease.vm)
            .collect();
        let known: BTreeSet<VmId> = self.state.heartbeats.iter().map(|(vm, _)| vm).collect();
        for &vm in holders.difference(&known) {
            // Its sign of life was lost with other entries: it gets the time for another.
            self.state.heartbeats.heard(vm, now);
        }
        let silent = self.state.heartbeats.silent(now, PATIENCE);
        let gone: Vec<VmId> = silent.filter(|&vm| vm != self.me).collect();
        for vm in gone {
            self.append(&Entry::VmGone { vm });
        }
    }

    fn write_leases(&mut self, board: &mut dyn Board) {
        let heartbeats: Vec<(VmId, Timestamp)> = self.state.heartbeats.iter().collect();
        let next = self.log.position();
        for replica in self.state.replicas() {
            if let Some(table) = replica.lease_table(next, heartbeats.clone()) {
                board.set(&board::leases(replica.pool()), &lease_table::encode(&table));
            }
        }
    }

    /// Writes the next chunk of the pool whose turn it is: one a call, as large values stall all
    /// workers while they are copied. A round begins when something changed since the last one.
    fn write_chunk(&mut self, board: &mut dyn Board) {
        let next = self.log.position();
        let progress = &mut self.upkeep;
        let pools: BTreeSet<PoolKey> = self.state.replicas().map(Replica::pool).collect();
        let after = progress.last_written;
        let later = pools
            .iter()
            .filter(|pool| after.is_none_or(|last| **pool > last));
        let earlier = pools
            .iter()
            .filter(|pool| after.is_some_and(|last| **pool <= last));
        for &pool in later.chain(earlier) {
            let Some(replica) = self.state.replica(pool) else {
                continue;
            };
            // What this VM does not know yet must not replace what another wrote.
            if !progress.loaded.contains(&pool) {
                continue;
            }
            let round = progress.rounds.entry(pool).or_insert_with(|| Round {
                chunks: CheckpointWriter::new(read_contents(board, pool).as_ref()),
                began: Sequence(0),
                is_under_way: false,
            });
            if !round.is_under_way {
                if round.began == next {
                    continue;
                }
                (round.began, round.is_under_way) = (next, true);
            }
            match round.chunks.next_chunk(replica, next) {
                Some((number, chunk)) => {
                    board.set(&board::chunk(pool, number), &encode_chunk(&chunk));
                }
                None => round.is_under_way = false,
            }
            let contents = round.chunks.contents(replica, next);
            board.set(&board::contents(pool), &encode_contents(&contents));
            progress.last_written = Some(pool);
            return;
        }
    }
}

fn read_contents(board: &dyn Board, pool: PoolKey) -> Option<Contents> {
    let bytes = board.get(&board::contents(pool))?;
    decode_contents(&bytes).filter(|contents| contents.pool == pool)
}
