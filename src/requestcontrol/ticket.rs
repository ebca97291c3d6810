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
}

impl Ticket {
    /// Sends a request with `blocks` to `endpoint`: they are pending there, the lease is open.
    pub fn open(
        pool: &mut Pool,
        endpoint: EndpointId,
        blocks: Vec<BlockHash>,
        now: Timestamp,
    ) -> Self {
        pool.index.record(endpoint, &blocks);
        Self {
            lease: Some(pool.in_flight.open(endpoint, now)),
            blocks,
        }
    }

    /// Where the request counts.
    pub fn endpoint(&self) -> Option<EndpointId> {
        self.lease.as_ref().map(Lease::endpoint)
    }

    /// The response's headers came: blocks and lease move to who served it; all but a 2xx takes the
    /// blocks back. Returns the endpoints the lease moved between, if it did.
    ///
    /// A 2xx confirms nothing yet: a model server sends a stream's headers at once, while the
    /// request still waits for its prefill.
    pub fn served(
        &mut self,
        pool: &mut Pool,
        response: Served,
        now: Timestamp,
    ) -> Option<(EndpointId, EndpointId)> {
        let picked = self.endpoint()?;
        let Some(to) = response.endpoint.filter(|_| response.by_upstream) else {
            self.take_back(pool);
            return None;
        };
        let succeeded = (200..300).contains(&response.status);
        let moved = to != picked;
        if moved {
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
        moved.then_some((picked, to))
    }

    /// The first byte of the answer itself came: its prompt is computed, so the blocks are
    /// confirmed.
    pub fn answered(&mut self, pool: &mut Pool) {
        let blocks = core::mem::take(&mut self.blocks);
        if let Some(endpoint) = self.endpoint() {
            pool.index.confirm(endpoint, &blocks);
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
