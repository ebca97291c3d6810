//! One routed request, from the pick to its end.

use super::{End, InFlight, Pool, RequestId, Sent};
use crate::datalayer::EndpointId;
use crate::prefix::BlockHash;
use crate::replication::Replica;
use crate::time::Timestamp;

/// A routed request. Closed by [`Ticket::close`].
#[derive(Debug)]
pub struct Ticket {
    request: RequestId,
    /// Where the request counts.
    endpoint: EndpointId,
    /// Its blocks are neither confirmed nor taken back yet.
    pending: bool,
    /// Its answer came whole: blocks still pending are confirmed with its end.
    is_whole: bool,
    /// It was served well, and nobody was told.
    succeeded: bool,
    /// The endpoints the request is offered to, one an attempt.
    offered: Vec<EndpointId>,
    /// How many endpoints had joined: one that joins later may have the place of one that left.
    joined: u64,
    /// Of the endpoint that computes the prompt, when that is another.
    prefill: Option<Box<Self>>,
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

/// What came of having a prompt computed at another endpoint than the one that answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PrefillResult {
    /// The prompt is there.
    Computed,
    /// It is not, and that says nothing of the endpoint.
    Rejected,
    /// It is not: the endpoint failed.
    Failed,
}

/// A request was served by another endpoint than the one it was sent to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moved {
    /// The pick, while it is an endpoint of the pool.
    pub from: Option<EndpointId>,
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
        blocks: &[BlockHash],
        now: Timestamp,
    ) -> Option<Self> {
        let first = *offered.first()?;
        let sent = sent(pool, first, blocks, now)?;
        let request = pool.ledger(|ledger, key| ledger.open(key, sent))?;
        Some(Self::new(pool, request, first, offered, blocks))
    }

    /// The same, unless more than `open` requests are open at the first of `offered` by now: other
    /// workers have sent it some that whoever chose it does not know of.
    pub fn open_unless_busier(
        pool: &mut Pool,
        offered: Vec<EndpointId>,
        open: u32,
        blocks: &[BlockHash],
        now: Timestamp,
    ) -> Option<Self> {
        let first = *offered.first()?;
        let sent = sent(pool, first, blocks, now)?;
        let still = |replica: &Replica<InFlight>| replica.observer().open_at(first) <= open;
        let request = pool.ledger(|ledger, key| ledger.open_if(key, sent, still))??;
        Some(Self::new(pool, request, first, offered, blocks))
    }

    fn new(
        pool: &Pool,
        request: RequestId,
        endpoint: EndpointId,
        offered: Vec<EndpointId>,
        blocks: &[BlockHash],
    ) -> Self {
        Self {
            request,
            endpoint,
            pending: !blocks.is_empty(),
            is_whole: false,
            succeeded: false,
            offered,
            joined: pool.joined(),
            prefill: None,
        }
    }

    /// The prompt of `blocks` is computed at `prefill`: it is open there too, until the answer's first
    /// byte, and its blocks are pending there as well.
    #[must_use]
    pub fn with_prefill(
        mut self,
        pool: &mut Pool,
        prefill: Option<EndpointId>,
        blocks: &[BlockHash],
        now: Timestamp,
    ) -> Self {
        let ticket = prefill.and_then(|at| Self::open(pool, vec![at], blocks, now));
        self.prefill = ticket.map(Box::new);
        self
    }

    /// The endpoint that was to compute the prompt is done with it.
    pub fn prefilled(&mut self, pool: &mut Pool, result: PrefillResult) {
        let Some(mut prefill) = self.prefill.take() else {
            return;
        };
        match result {
            PrefillResult::Computed => (prefill.is_whole, prefill.succeeded) = (true, true),
            PrefillResult::Rejected => {}
            PrefillResult::Failed => prefill.broken_off(pool),
        }
        prefill.close(pool);
    }

    /// The stream is over, and nobody will hear of the prompt that is still being computed: it counts
    /// there, its blocks pending, `until` that must have ended.
    pub fn abandon(mut self, pool: &mut Pool, until: Timestamp) {
        if let Some(prefill) = self.prefill.take() {
            pool.abandon(prefill.request, until);
        }
        self.close(pool);
    }

    /// Where the request counts; `None` when that endpoint is no longer the pool's.
    pub fn endpoint(&self, pool: &Pool) -> Option<EndpointId> {
        pool.is_same(self.endpoint, self.joined)
            .then_some(self.endpoint)
    }

    /// The response's headers came: blocks and lease move to who served it; all but a 2xx takes the
    /// blocks back. Says where the lease moved, if it did.
    ///
    /// A 2xx confirms nothing yet: a model server sends a stream's headers at once, while the
    /// request still waits for its prefill.
    pub fn served(&mut self, pool: &mut Pool, response: Served, now: Timestamp) -> Option<Moved> {
        for &failed in self.offered.iter().take(response.failed_attempts) {
            if pool.is_same(failed, self.joined) {
                pool.failed(failed);
            }
        }
        let succeeded = (200..300).contains(&response.status);
        if !(succeeded && response.by_upstream)
            && let Some(prefill) = &mut self.prefill
        {
            prefill.take_back(pool);
        }
        let Some(to) = response.endpoint.filter(|_| response.by_upstream) else {
            self.take_back(pool);
            return None;
        };
        // What the client did wrong, and 429, says nothing against the server.
        self.succeeded = response.status < 500;
        if !self.succeeded {
            pool.failed(to);
        }
        let picked = self.endpoint(pool);
        if picked == Some(to) {
            if !succeeded {
                self.take_back(pool);
            }
            return None;
        }
        let moved = Moved {
            from: picked,
            to,
            passed_over: response.failed_attempts == 0,
        };
        if let (Some(picked), true) = (picked, moved.passed_over) {
            pool.failed(picked);
        }
        let address = pool.endpoint(to)?.address;
        let record = succeeded && self.pending;
        pool.ledger(|ledger, _| ledger.move_to(self.request, address, now, record));
        self.pending = record;
        (self.endpoint, self.joined) = (to, pool.joined());
        Some(moved)
    }

    /// The first byte of the answer itself came: its prompt is computed, so the blocks are
    /// confirmed, and it is served well. Of an answer that `is_whole` with its first piece the end is
    /// near, and tells both: one entry of the log instead of two.
    pub fn answered(&mut self, pool: &mut Pool, is_whole: bool) {
        if is_whole {
            self.is_whole = true;
        } else if core::mem::take(&mut self.pending) | core::mem::take(&mut self.succeeded) {
            pool.ledger(|ledger, _| ledger.confirm(self.request));
        }
        if let Some(mut prefill) = self.prefill.take() {
            prefill.is_whole = true;
            prefill.close(pool);
        }
    }

    /// `blocks` are with who serves the request, too: another request can go on from this one's
    /// answer.
    pub fn remember(&self, pool: &mut Pool, blocks: &[BlockHash], now: Timestamp) {
        let endpoint = self.endpoint(pool).and_then(|id| pool.endpoint(id));
        if let Some(address) = endpoint.map(|endpoint| endpoint.address) {
            pool.ledger(|ledger, key| ledger.remember(key, address, blocks, now));
        }
    }

    /// The server broke the response off.
    pub fn broken_off(&mut self, pool: &Pool) {
        self.succeeded = false;
        if let Some(endpoint) = self.endpoint(pool) {
            pool.failed(endpoint);
        }
    }

    /// The stream is over. Blocks still pending never got an answer, unless it came whole.
    pub fn close(self, pool: &mut Pool) {
        let end = End {
            answered: self.is_whole && self.pending,
            succeeded: self.succeeded,
        };
        pool.ledger(|ledger, _| ledger.finish(self.request, end));
        if let Some(prefill) = self.prefill {
            prefill.close(pool);
        }
    }

    fn take_back(&mut self, pool: &mut Pool) {
        if core::mem::take(&mut self.pending) {
            pool.ledger(|ledger, _| ledger.take_back(self.request));
        }
    }
}

/// A request with `blocks` that goes to `to` now.
fn sent<'a>(
    pool: &Pool,
    to: EndpointId,
    blocks: &'a [BlockHash],
    now: Timestamp,
) -> Option<Sent<'a>> {
    Some(Sent {
        endpoint: pool.endpoint(to)?.address,
        at: now,
        weight: pool.weight_of(blocks),
        chain: blocks,
    })
}
