//! What all VMs of a process know alike: a replica of each pool's state, and the log that feeds it.
//!
//! Every change is an entry of the decision log: it is appended, and what was appended, by this VM
//! or another, is applied in the log's order. While shared data does not work a VM tells only
//! itself.
//!
//! One ledger belongs to the VM, so that it outlives configurations; the pools of each configuration
//! share it through a [`LedgerHandle`].

mod board;
mod log;
mod own;
mod state;
mod upkeep;

use core::cell::RefCell;
use core::net::SocketAddr;
use std::rc::Rc;

pub use self::board::Board;
pub use self::own::RequestId;
pub use self::upkeep::Upkeep;

use self::log::Log;
use self::own::OwnRequests;
use self::state::State;
use super::InFlight;
use crate::prefix::BlockHash;
use crate::replication::ring::{Ring, SharedStore};
use crate::replication::{Entry, LeaseId, NewRequest, PoolKey, Replica, VmId, Weight};
use crate::time::Timestamp;

/// The state all VMs share, as far as this one has followed it.
#[derive(Debug)]
pub struct Ledger {
    me: VmId,
    log: Log,
    state: State,
    own: OwnRequests,
    upkeep: upkeep::Progress,
}

/// How much a pool's replica may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplicaLimits {
    /// Blocks an endpoint has room for until its room is known.
    pub capacity: u32,
    /// (block, endpoint) pairs of the pool's index.
    pub max_entries: usize,
}

/// A request to a pool, on its way.
#[derive(Clone, Copy, Debug)]
pub struct Sent<'a> {
    /// Where to.
    pub endpoint: SocketAddr,
    /// When.
    pub at: Timestamp,
    /// How much work it is.
    pub weight: Weight,
    /// Its prompt; empty where none was read.
    pub chain: &'a [BlockHash],
}

impl Ledger {
    /// A ledger that no other VM shares.
    pub fn alone() -> Self {
        Self::new(VmId(0), Log::alone())
    }

    /// A ledger that VMs with access to the same `store` share; `me` is this one's number. Starts
    /// from the oldest entry the ring still holds.
    pub fn shared(me: VmId, ring: Ring, store: Box<dyn SharedStore>) -> Self {
        Self::new(me, Log::shared(ring, store))
    }

    fn new(me: VmId, log: Log) -> Self {
        Self {
            me,
            log,
            state: State::new(me),
            own: OwnRequests::default(),
            upkeep: upkeep::Progress::default(),
        }
    }

    /// A configuration has the pool `key`: it is followed until [`Self::release`] was called as
    /// often as this.
    pub fn admit(&mut self, key: PoolKey, limits: ReplicaLimits) {
        let misses_nothing = self.log.is_at_first();
        self.state.admit(key, limits, misses_nothing);
    }

    /// A configuration with the pool `key` is gone. Without any, what is known of it goes too.
    pub fn release(&mut self, key: PoolKey) {
        self.state.release(key);
    }

    /// What is known of the pool `key`.
    pub fn replica(&self, key: PoolKey) -> Option<&Replica<InFlight>> {
        self.state.replica(key)
    }

    /// The same, for what does not travel: places and the scrapes in use.
    pub fn replica_mut(&mut self, key: PoolKey) -> Option<&mut Replica<InFlight>> {
        self.state.replica_mut(key)
    }

    /// Takes over what other VMs did. Costs one look at shared data while that is nothing.
    pub fn catch_up(&mut self) {
        self.log.catch_up(&mut self.state);
    }

    /// Entries that were overwritten before this VM read them, since the last call.
    pub fn take_lost(&mut self) -> u64 {
        core::mem::take(&mut self.state.lost)
    }

    /// Entries that could not be told to other VMs, since the last call.
    pub fn take_untold(&mut self) -> u64 {
        self.log.take_untold()
    }

    /// Changes whenever a snapshot of some pool was published.
    pub fn publications(&self) -> u64 {
        self.state.published
    }

    /// A request goes to `sent.endpoint`: its lease is open and its blocks are pending there.
    pub fn open(&mut self, pool: PoolKey, sent: Sent<'_>) -> RequestId {
        let request = NewRequest {
            vm: self.me,
            endpoint: sent.endpoint,
            sent: sent.at,
            weight: sent.weight,
            chain: sent.chain,
        };
        let sequence = self
            .log
            .append(&mut self.state, |state| state.routed(pool, request));
        self.own.add(pool, LeaseId(sequence))
    }

    /// The answer's first byte came: the request's blocks are there.
    pub fn confirm(&mut self, request: RequestId) {
        self.tell(request, |pool, lease| Entry::Confirmed { pool, lease });
    }

    /// The request's blocks are not where they were thought to be.
    pub fn take_back(&mut self, request: RequestId) {
        self.tell(request, |pool, lease| Entry::TakenBack { pool, lease });
    }

    /// Another endpoint serves the request; `record` says whether its blocks will be there.
    pub fn move_to(&mut self, request: RequestId, to: SocketAddr, at: Timestamp, record: bool) {
        self.tell(request, |pool, lease| Entry::Moved {
            pool,
            lease,
            to,
            sent: at,
            record,
        });
    }

    /// The request is over.
    pub fn finish(&mut self, request: RequestId) {
        self.tell(request, |pool, lease| Entry::Finished { pool, lease });
        self.own.remove(request);
    }

    /// `endpoint` holds `blocks`, though no request with them was sent there.
    pub fn remember(
        &mut self,
        pool: PoolKey,
        endpoint: SocketAddr,
        blocks: &[BlockHash],
        now: Timestamp,
    ) {
        let sent = Sent {
            endpoint,
            at: now,
            weight: Weight::default(),
            chain: blocks,
        };
        let request = self.open(pool, sent);
        self.confirm(request);
        self.finish(request);
    }

    /// `endpoint` is gone, with its blocks and leases.
    pub fn removed(&mut self, pool: PoolKey, endpoint: SocketAddr) {
        self.append(&Entry::Removed { pool, endpoint });
    }

    /// `endpoint` started anew with an empty cache.
    pub fn restarted(&mut self, pool: PoolKey, endpoint: SocketAddr) {
        self.append(&Entry::Restarted { pool, endpoint });
    }

    /// `endpoint` has room for `blocks` blocks.
    pub fn has_room(&mut self, pool: PoolKey, endpoint: SocketAddr, blocks: u32) {
        self.append(&Entry::Capacity {
            pool,
            endpoint,
            blocks,
        });
    }

    /// The pool's snapshot can be read.
    pub fn published(&mut self, pool: PoolKey) {
        self.append(&Entry::SnapshotPublished { pool });
    }

    fn tell(&mut self, request: RequestId, entry: impl FnOnce(PoolKey, LeaseId) -> Entry) {
        if let Some((pool, lease)) = self.own.get(request) {
            self.append(&entry(pool, lease));
        }
    }

    fn append(&mut self, entry: &Entry) {
        self.log.append(&mut self.state, |_| entry.clone());
    }
}

/// The one ledger of a VM, as its users hold it. A VM has one thread.
#[derive(Clone, Debug)]
pub struct LedgerHandle(Rc<RefCell<Ledger>>);

impl LedgerHandle {
    /// Shares `ledger`.
    pub fn new(ledger: Ledger) -> Self {
        Self(Rc::new(RefCell::new(ledger)))
    }

    /// What `f` makes of the ledger. `None` when `f` runs inside another one's `f`, which nobody
    /// does; all callers go on without, as with shared data that does not work.
    pub fn with<R>(&self, f: impl FnOnce(&mut Ledger) -> R) -> Option<R> {
        self.0
            .try_borrow_mut()
            .ok()
            .map(|mut ledger| f(&mut ledger))
    }
}

#[cfg(test)]
mod tests;
