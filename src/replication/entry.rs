//! The entries of the decision log.

mod codec;

use core::net::SocketAddr;
use core::num::NonZeroU16;

use super::ids::{LeaseId, PoolKey, VmId, Weight};
use crate::prefix::{BlockHash, Tail};
use crate::time::Timestamp;

pub use self::codec::{decode, encode, leading_number};

/// The most new blocks one decision carries, so that an entry stays below 64 KiB and a ring of `n`
/// entries below `n` times that; what follows them in the prompt stays unknown.
pub const MAX_NEW_BLOCKS: usize = 8_000;

/// Something all VMs should know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Entry {
    /// Nothing: what a slot holds before its first entry, or where an entry was damaged.
    Void,
    /// A request was sent. Opens the lease with this entry's number.
    Routed(Routed),
    /// The answer's first byte came: the lease's blocks are there, and the endpoint serves well.
    Confirmed {
        /// Whose request.
        pool: PoolKey,
        /// Which request.
        lease: LeaseId,
    },
    /// The request is over.
    Finished {
        /// Whose request.
        pool: PoolKey,
        /// Which request.
        lease: LeaseId,
        /// With its answer, so blocks still pending are there; else they never got one.
        answered: bool,
        /// The endpoint served it well, of which no [`Self::Confirmed`] has told.
        succeeded: bool,
    },
    /// Another endpoint serves the request.
    Moved {
        /// Whose request.
        pool: PoolKey,
        /// Which request.
        lease: LeaseId,
        /// Who serves it.
        to: SocketAddr,
        /// When it turned out.
        sent: Timestamp,
        /// The request's blocks are pending there; else they are taken back.
        record: bool,
    },
    /// The request's pending blocks are not where they were thought to be; it is still open.
    TakenBack {
        /// Whose request.
        pool: PoolKey,
        /// Which request.
        lease: LeaseId,
    },
    /// A new snapshot of the pool can be read.
    SnapshotPublished {
        /// Whose.
        pool: PoolKey,
    },
    /// The endpoint is gone, with its blocks and leases.
    Removed {
        /// Whose endpoint.
        pool: PoolKey,
        /// Which endpoint.
        endpoint: SocketAddr,
    },
    /// The endpoint started anew, with an empty cache.
    Restarted {
        /// Whose endpoint.
        pool: PoolKey,
        /// Which endpoint.
        endpoint: SocketAddr,
    },
    /// The endpoint failed a request: a 5xx, a reset, a time-out.
    Failed {
        /// Whose endpoint.
        pool: PoolKey,
        /// Which endpoint.
        endpoint: SocketAddr,
    },
    /// The endpoint has room for so many blocks.
    Capacity {
        /// Whose endpoint.
        pool: PoolKey,
        /// Which endpoint.
        endpoint: SocketAddr,
        /// Its room.
        blocks: u32,
    },
    /// The VM runs.
    Alive {
        /// Which VM.
        vm: VmId,
        /// When it said so.
        at: Timestamp,
    },
    /// The VM is gone, with all its leases.
    VmGone {
        /// Which VM.
        vm: VmId,
    },
    /// A lease was closed while its request runs: its VM, thought to be gone, opens it again under
    /// this entry's number. Its blocks are not pending any more.
    Reopened(Reopened),
}

/// A decision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Routed {
    /// Whose request.
    pub pool: PoolKey,
    /// Who decided.
    pub vm: VmId,
    /// Where to.
    pub endpoint: SocketAddr,
    /// When.
    pub sent: Timestamp,
    /// How much work it is.
    pub weight: Weight,
    /// The beginning of the prompt that every VM's index knows.
    pub known: Option<Known>,
    /// The blocks that follow it, at most [`MAX_NEW_BLOCKS`]: the encoding leaves out what is more.
    pub new_blocks: Vec<BlockHash>,
}

/// A beginning of a prompt, told by its last block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Known {
    /// How many blocks.
    pub blocks: NonZeroU16,
    /// The last of them.
    pub last: BlockHash,
}

/// A lease that is opened again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reopened {
    /// Whose request.
    pub pool: PoolKey,
    /// Whose VM serves it.
    pub vm: VmId,
    /// The lease it had, should that still be open somewhere.
    pub lease: LeaseId,
    /// Where it is.
    pub endpoint: SocketAddr,
    /// When it was sent there.
    pub sent: Timestamp,
    /// How much work it is.
    pub weight: Weight,
}

impl Entry {
    /// Whose it is; `None` where it concerns all pools.
    pub const fn pool(&self) -> Option<PoolKey> {
        match *self {
            Self::Void | Self::Alive { .. } | Self::VmGone { .. } => None,
            Self::Routed(Routed { pool, .. })
            | Self::Confirmed { pool, .. }
            | Self::Finished { pool, .. }
            | Self::Moved { pool, .. }
            | Self::TakenBack { pool, .. }
            | Self::SnapshotPublished { pool }
            | Self::Removed { pool, .. }
            | Self::Restarted { pool, .. }
            | Self::Failed { pool, .. }
            | Self::Capacity { pool, .. }
            | Self::Reopened(Reopened { pool, .. }) => Some(pool),
        }
    }
}

impl Known {
    /// The beginning as the index tells it; where nothing is known, the one without a block.
    pub fn tail(known: Option<Self>) -> Tail {
        known.map_or(Tail::START, |known| Tail {
            len: u32::from(known.blocks.get()),
            block: known.last,
        })
    }

    /// The first `blocks` of `chain` as a known beginning, and what follows them.
    pub(super) fn split(chain: &[BlockHash], blocks: usize) -> (Option<Self>, &[BlockHash]) {
        let blocks = u16::try_from(blocks).unwrap_or(u16::MAX);
        let (known, rest) = chain
            .split_at_checked(usize::from(blocks))
            .unwrap_or((&[], chain));
        let known = NonZeroU16::new(blocks).zip(known.last());
        (known.map(|(blocks, &last)| Self { blocks, last }), rest)
    }
}

impl Routed {
    /// What the new blocks follow.
    pub fn tail(&self) -> Tail {
        Known::tail(self.known)
    }
}
