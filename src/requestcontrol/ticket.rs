//! What a request that was sent leaves behind, and who really served it.

use super::{Lease, Pool};
use crate::datalayer::EndpointId;
use crate::prefix::BlockHash;
use crate::time::Timestamp;

/// A routed request: its lease, and its blocks while they are pending. Closed by
/// [`Ticket::close`]. Memory: 8 bytes a block until the first response byte.
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

    /// The response began: blocks and lease move to who served it; a 2xx confirms the blocks, all
    /// else takes them back. Returns the endpoints the lease moved between, if it did.
    pub fn served(
        &mut self,
        pool: &mut Pool,
        response: Served,
        now: Timestamp,
    ) -> Option<(EndpointId, EndpointId)> {
        let picked = self.endpoint()?;
        let blocks = core::mem::take(&mut self.blocks);
        let Some(to) = response.endpoint.filter(|_| response.by_upstream) else {
            pool.index.take_back(picked, &blocks);
            return None;
        };
        let moved = to != picked;
        if moved {
            pool.index.take_back(picked, &blocks);
            if let Some(lease) = self.lease.take() {
                pool.in_flight.close(lease);
            }
            self.lease = Some(pool.in_flight.open(to, now));
        }
        match ((200..300).contains(&response.status), moved) {
            (true, true) => {
                pool.index.record(to, &blocks);
                pool.index.confirm(to, &blocks);
            }
            (true, false) => pool.index.confirm(to, &blocks),
            (false, true) => {}
            (false, false) => pool.index.take_back(to, &blocks),
        }
        moved.then_some((picked, to))
    }

    /// The stream is over. Blocks still pending never reached a server that answered.
    pub fn close(self, pool: &mut Pool) {
        let Some(lease) = self.lease else { return };
        pool.index.take_back(lease.endpoint(), &self.blocks);
        pool.in_flight.close(lease);
    }
}
