//! What a request that was sent leaves behind, and who really served it.

use super::{Lease, Pool};
use crate::datalayer::EndpointId;
use crate::prefix::BlockHash;
use crate::time::Timestamp;

/// A routed request: its lease, and its blocks while they are pending. Closed by
/// [`Ticket::close`]. Memory: 8 bytes a block until the answer's first byte.
#[derive(Debug)]
pub struct Ticket {
    lease: Option<Lease>,
    /// Pending at the lease's endpoint.
    blocks: Vec<BlockHash>,
    /// The endpoints the request is offered to, one an attempt.
    offered: Vec<EndpointId>,
    /// How many endpoints had joined: one that joins later may have the place of one that left.
    joined: u64,
}

/// How the response began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Served {
    /// A model server answered, not Envoy itself.
    pub by_upstream: bool,
    /// The endpoint that answered, where it is one of the pool's.
    pub endpoint: Option<EndpointId>,
    /// HTTP status.
    pub status: u16,
    /// How many of the endpoints that were offered, from the first on, failed to answer.
    pub failed_attempts: usize,
}

/// A request was served by another endpoint than the one it was sent to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moved {
    /// The pick.
    pub from: EndpointId,
    /// Who served it.
    pub to: EndpointId,
    /// The pick was never tried: Envoy's cluster does not hold its address.
    pub passed_over: bool,
}

impl Ticket {
    /// Sends a request with `blocks` to the first of `offered`: they are pending there, the lease is
    /// open. The others are tried in their order where it fails. `None` when nobody is offered.
    pub fn open(
        pool: &mut Pool,
        offered: Vec<EndpointId>,
        blocks: Vec<BlockHash>,
        now: Timestamp,
    ) -> Option<Self> {
        let endpoint = *offered.first()?;
        pool.index.record(endpoint, &blocks);
        Some(Self {
            lease: Some(pool.in_flight.open(endpoint, now)),
            blocks,
            offered,
            joined: pool.joined(),
        })
    }

    /// Where the request counts.
    pub fn endpoint(&self) -> Option<EndpointId> {
        self.lease.as_ref().map(Lease::endpoint)
    }

    /// The response's headers came: blocks and lease move to who served it; all but a 2xx takes the
    /// blocks back. Says where the lease moved, if it did.
    ///
    /// A 2xx confirms nothing yet: a model server sends a stream's headers at once, while the
    /// request still waits for its prefill.
    pub fn served(&mut self, pool: &mut Pool, response: Served, now: Timestamp) -> Option<Moved> {
        let picked = self.endpoint()?;
        for &failed in self.offered.iter().take(response.failed_attempts) {
            if pool.is_same(failed, self.joined) {
                pool.record_outcome(failed, now, true);
            }
        }
        let Some(to) = response.endpoint.filter(|_| response.by_upstream) else {
            self.take_back(pool);
            return None;
        };
        // What the client did wrong, and 429, says nothing about the server.
        pool.record_outcome(to, now, response.status >= 500);
        let succeeded = (200..300).contains(&response.status);
        let moved = (to != picked).then_some(Moved {
            from: picked,
            to,
            passed_over: response.failed_attempts == 0,
        });
        if let Some(Moved { passed_over, .. }) = moved {
            if passed_over {
                pool.record_outcome(picked, now, true);
            }
            pool.index.take_back(picked, &self.blocks);
            if let Some(lease) = self.lease.take() {
                pool.in_flight.close(lease);
            }
            self.lease = Some(pool.in_flight.open(to, now));
            if succeeded {
                pool.index.record(to, &self.blocks);
            } else {
                self.blocks.clear();
            }
        } else if !succeeded {
            self.take_back(pool);
        }
        moved
    }

    /// The first byte of the answer itself came: its prompt is computed, so the blocks are
    /// confirmed.
    pub fn answered(&mut self, pool: &mut Pool) {
        let blocks = core::mem::take(&mut self.blocks);
        if let Some(endpoint) = self.endpoint() {
            pool.index.confirm(endpoint, &blocks);
        }
    }

    /// `blocks` are with who serves the request, too: another request can go on from this one's
    /// answer.
    pub fn remember(&self, pool: &mut Pool, blocks: &[BlockHash]) {
        if let Some(endpoint) = self.endpoint() {
            pool.index.record(endpoint, blocks);
            pool.index.confirm(endpoint, blocks);
        }
    }

    /// The server broke the response off.
    pub fn broken_off(&self, pool: &mut Pool, now: Timestamp) {
        if let Some(endpoint) = self.endpoint() {
            pool.record_outcome(endpoint, now, true);
        }
    }

    /// The stream is over. Blocks still pending never got an answer.
    pub fn close(mut self, pool: &mut Pool) {
        self.take_back(pool);
        if let Some(lease) = self.lease {
            pool.in_flight.close(lease);
        }
    }

    fn take_back(&mut self, pool: &mut Pool) {
        let blocks = core::mem::take(&mut self.blocks);
        if let Some(endpoint) = self.endpoint() {
            pool.index.take_back(endpoint, &blocks);
        }
    }
}
