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
use crate::replication::lease::Suitability;
use crate::replication::ring::{Ring, SharedStore};
use crate::replication::{Entry, LeaseId, NewRequest, PoolKey, Replica, Sequence, VmId, Weight};
use crate::time::Timestamp;

/// The state all VMs share, as far as this one has followed it.
#[derive(Debug)]
pub struct Ledger {
    me: VmId,
    log: Log,
    state: State,
    own: OwnRequests,
    /// Leases whose end could not be told: the others count them until it can. At most
    /// [`MAX_UNTOLD_ENDS`].
    untold_ends: Vec<(PoolKey, LeaseId)>,
    upkeep: upkeep::Progress,
}

/// More ends than a worker has open requests at a time; those beyond are closed with their VM only.
const MAX_UNTOLD_ENDS: usize = 16_384;

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

/// How a request ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct End {
    /// With its answer, so that blocks still pending are there.
    pub answered: bool,
    /// The endpoint served it well, of which [`Ledger::confirm`] has not told.
    pub succeeded: bool,
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
            untold_ends: Vec::new(),
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

    /// How well this VM suits to scrape for the `pools` and to write what late VMs learn from. It is in
    /// step when it knows all that others know of them, as far as it has caught up: what it missed,
    /// as it came late or was overtaken by the log, it has learned from the leader.
    pub fn suits(&self, mut pools: impl Iterator<Item = PoolKey>) -> Suitability {
        let knows = |pool| {
            let replica = self.state.replica(pool);
            replica.is_some_and(|replica| !replica.awaits_leases()) && self.upkeep.has_loaded(pool)
        };
        let is_shared = self.log.is_shared();
        let in_step = is_shared.then(|| !self.state.misses_blocks && pools.all(knows));
        Suitability::of(self.own.had_any(), in_step)
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
        let request = self.new_request(sent);
        let sequence = self
            .log
            .append(&mut self.state, |state| state.routed(pool, request));
        self.own.add(pool, LeaseId(sequence))
    }

    /// The same, if `still` holds of what is known of the pool when everything that other VMs did
    /// before is taken over.
    pub fn open_if(
        &mut self,
        pool: PoolKey,
        sent: Sent<'_>,
        still: impl Fn(&Replica<InFlight>) -> bool,
    ) -> Option<RequestId> {
        let request = self.new_request(sent);
        let sequence = self.log.append_if(&mut self.state, |state| {
            let holds = state.replica(pool).is_none_or(&still);
            holds.then(|| state.routed(pool, request))
        })?;
        Some(self.own.add(pool, LeaseId(sequence)))
    }

    fn new_request<'a>(&self, sent: Sent<'a>) -> NewRequest<'a> {
        NewRequest {
            vm: self.me,
            endpoint: sent.endpoint,
            sent: sent.at,
            weight: sent.weight,
            chain: sent.chain,
        }
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
    pub fn finish(&mut self, request: RequestId, end: End) {
        let End {
            answered,
            succeeded,
        } = end;
        let Some((pool, lease)) = self.own.get(request) else {
            return;
        };
        self.own.remove(request);
        let at = self.append(&Entry::Finished {
            pool,
            lease,
            answered,
            succeeded,
        });
        let is_untold = at.is_local() && self.log.is_shared() && !lease.0.is_local();
        if is_untold && self.untold_ends.len() < MAX_UNTOLD_ENDS {
            self.untold_ends.push((pool, lease));
        }
    }

    /// Tells the ends again that could not be told.
    fn tell_ends(&mut self) {
        while let Some(&(pool, lease)) = self.untold_ends.last() {
            let at = self.append(&Entry::Finished {
                pool,
                lease,
                answered: false,
                succeeded: false,
            });
            if at.is_local() {
                return;
            }
            self.untold_ends.pop();
        }
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
        let end = End {
            answered: true,
            succeeded: false,
        };
        self.finish(request, end);
    }

    /// `endpoint` is gone, with its blocks and leases.
    pub fn removed(&mut self, pool: PoolKey, endpoint: SocketAddr) {
        self.append(&Entry::Removed { pool, endpoint });
    }

    /// `endpoint` started anew with an empty cache.
    pub fn restarted(&mut self, pool: PoolKey, endpoint: SocketAddr) {
        self.append(&Entry::Restarted { pool, endpoint });
    }

    /// `endpoint` failed a request.
    pub fn failed(&mut self, pool: PoolKey, endpoint: SocketAddr) {
        self.append(&Entry::Failed { pool, endpoint });
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

    fn append(&mut self, entry: &Entry) -> Sequence {
        self.log.append(&mut self.state, |_| entry.clone())
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
