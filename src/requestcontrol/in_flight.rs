//! Requests sent and not finished, and how those before them turned out, by endpoint.

use std::collections::BTreeMap;

use crate::datalayer::EndpointId;
use crate::replication::{LeaseId, LeaseObserver, OpenLease, Outcome, Weight};
use crate::time::Timestamp;

/// Open leases of one pool, of all VMs. Memory: one entry for each open request.
#[derive(Debug, Default)]
pub struct InFlight {
    endpoints: Vec<Open>,
}

#[derive(Clone, Debug, Default)]
struct Open {
    leases: BTreeMap<(Timestamp, LeaseId), Weight>,
    /// Start of the scrape whose numbers are in use.
    scrape_start: Timestamp,
    /// What was opened at or after `scrape_start`.
    since_scrape: Sum,
    /// When the latest one was sent.
    last_sent: Option<Timestamp>,
    turned_out: Tally,
}

/// How many requests an endpoint served well and how many it failed, ever. Wraps around: differences
/// count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Served well.
    pub served: u32,
    /// Failed.
    pub failed: u32,
}

impl Tally {
    /// What came to it since it was `before`.
    #[must_use]
    pub const fn since(self, before: Self) -> Self {
        Self {
            served: self.served.wrapping_sub(before.served),
            failed: self.failed.wrapping_sub(before.failed),
        }
    }
}

/// Requests and the tokens of their prompts.
#[derive(Clone, Copy, Debug, Default)]
struct Sum {
    requests: u32,
    tokens: u64,
}

impl Sum {
    fn add(&mut self, weight: Weight) {
        self.requests = self.requests.saturating_add(1);
        self.tokens = self.tokens.saturating_add(weight.tokens().into());
    }

    fn subtract(&mut self, weight: Weight) {
        self.requests = self.requests.saturating_sub(1);
        self.tokens = self.tokens.saturating_sub(weight.tokens().into());
    }
}

impl InFlight {
    /// Numbers from a scrape of `endpoint` that started at `start` are in use from here on, unless
    /// newer ones are.
    pub fn use_scrape(&mut self, endpoint: EndpointId, start: Timestamp) {
        let Some(open) = self.at_mut(endpoint) else {
            return;
        };
        if start <= open.scrape_start {
            return;
        }
        open.scrape_start = start;
        open.since_scrape = Sum::default();
        let first = (start, LeaseId::FIRST);
        for (_, &weight) in open.leases.range(first..) {
            open.since_scrape.add(weight);
        }
    }

    /// No numbers of `endpoint` are in use: another has its place.
    pub fn forget_scrape(&mut self, endpoint: EndpointId) {
        let Some(open) = self.at_mut(endpoint) else {
            return;
        };
        open.scrape_start = Timestamp::default();
        open.since_scrape = Sum::default();
        for &weight in open.leases.values() {
            open.since_scrape.add(weight);
        }
    }

    /// Open requests at `endpoint`.
    pub fn open_at(&self, endpoint: EndpointId) -> u32 {
        self.at(endpoint).map_or(0, |open| count(open.leases.len()))
    }

    /// Open requests at `endpoint` that its scraped `waiting` and `running` do not show:
    /// `max(sent since the scrape started and still open, open − running − waiting, 0)`.
    pub fn own(&self, endpoint: EndpointId, waiting: u32, running: u32) -> u32 {
        let Some(open) = self.at(endpoint) else {
            return 0;
        };
        let scraped = waiting.saturating_add(running);
        open.since_scrape
            .requests
            .max(count(open.leases.len()).saturating_sub(scraped))
    }

    /// Tokens of the prompts sent to `endpoint` since the scrape in use started, and still open: the
    /// KV cache they will fill is not in its numbers yet.
    pub fn own_tokens(&self, endpoint: EndpointId) -> u64 {
        self.at(endpoint).map_or(0, |open| open.since_scrape.tokens)
    }

    /// When a request was last sent to `endpoint`, by any VM.
    pub fn last_sent(&self, endpoint: EndpointId) -> Option<Timestamp> {
        self.at(endpoint)?.last_sent
    }

    /// How the requests to `endpoint` turned out so far.
    pub fn turned_out(&self, endpoint: EndpointId) -> Tally {
        let open = self.at(endpoint);
        open.map(|open| open.turned_out).unwrap_or_default()
    }

    fn at(&self, endpoint: EndpointId) -> Option<&Open> {
        self.endpoints.get(endpoint.index())
    }

    /// Makes the place if there is none.
    fn at_mut(&mut self, endpoint: EndpointId) -> Option<&mut Open> {
        let place = endpoint.index();
        if self.endpoints.len() <= place {
            self.endpoints
                .resize_with(place.saturating_add(1), Open::default);
        }
        self.endpoints.get_mut(place)
    }
}

impl LeaseObserver for InFlight {
    fn opened(&mut self, id: LeaseId, lease: &OpenLease) {
        let Some(open) = self.at_mut(lease.endpoint) else {
            return;
        };
        open.last_sent = open.last_sent.max(Some(lease.sent));
        let is_new = open.leases.insert((lease.sent, id), lease.weight).is_none();
        if is_new && lease.sent >= open.scrape_start {
            open.since_scrape.add(lease.weight);
        }
    }

    fn closed(&mut self, id: LeaseId, lease: &OpenLease) {
        let Some(open) = self.at_mut(lease.endpoint) else {
            return;
        };
        let was_open = open.leases.remove(&(lease.sent, id)).is_some();
        if was_open && lease.sent >= open.scrape_start {
            open.since_scrape.subtract(lease.weight);
        }
    }

    fn turned_out(&mut self, endpoint: EndpointId, outcome: Outcome) {
        let Some(open) = self.at_mut(endpoint) else {
            return;
        };
        let count = match outcome {
            Outcome::Served => &mut open.turned_out.served,
            Outcome::Failed => &mut open.turned_out.failed,
        };
        *count = count.wrapping_add(1);
    }
}

fn count(len: usize) -> u32 {
    u32::try_from(len).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replication::{Pending, Sequence, VmId};

    const HERE: EndpointId = EndpointId::new(0);

    fn at(millis: u64) -> Timestamp {
        Timestamp::from_nanos(millis * 1_000_000)
    }

    /// A lease of 100 tokens.
    fn lease(millis: u64) -> OpenLease {
        OpenLease {
            vm: VmId(1),
            endpoint: HERE,
            sent: at(millis),
            weight: Weight::from_tokens(100),
            pending: Pending::default(),
        }
    }

    fn id(number: u64) -> LeaseId {
        LeaseId(Sequence(number))
    }

    #[test]
    fn what_the_scrape_cannot_have_seen_is_our_own() {
        let mut in_flight = InFlight::default();
        in_flight.opened(id(1), &lease(10));
        in_flight.use_scrape(HERE, at(20));
        for number in 20..23 {
            in_flight.opened(id(number), &lease(number));
        }
        assert_eq!(in_flight.open_at(HERE), 4);
        // The server shows the first one as running.
        assert_eq!(in_flight.own(HERE, 0, 1), 3);
        assert_eq!(in_flight.own_tokens(HERE), 300);
        // A server busy with others' requests shows more than ours.
        assert_eq!(in_flight.own(HERE, 50, 50), 3);
        // A server that shows less than we sent: all that is missing is our own.
        assert_eq!(in_flight.own(HERE, 0, 0), 4);
        in_flight.closed(id(1), &lease(10));
        for number in 20..23 {
            in_flight.closed(id(number), &lease(number));
        }
        assert_eq!((in_flight.open_at(HERE), in_flight.own(HERE, 0, 0)), (0, 0));
        assert_eq!(in_flight.own_tokens(HERE), 0);
    }

    #[test]
    fn a_newer_scrape_takes_over_what_was_sent_before_it() {
        let mut in_flight = InFlight::default();
        for number in 0..10 {
            in_flight.opened(id(number), &lease(number + 1));
        }
        assert_eq!(in_flight.own(HERE, 100, 100), 10);
        in_flight.use_scrape(HERE, at(8));
        assert_eq!(in_flight.own(HERE, 100, 100), 3);
        assert_eq!(in_flight.own_tokens(HERE), 300);
        // An older one, which another configuration still uses, changes nothing.
        in_flight.use_scrape(HERE, at(2));
        assert_eq!(in_flight.own(HERE, 100, 100), 3);
        in_flight.forget_scrape(HERE);
        assert_eq!(in_flight.own(HERE, 100, 100), 10);
        for number in 0..10 {
            in_flight.closed(id(number), &lease(number + 1));
        }
        assert_eq!(in_flight.own(HERE, 0, 0), 0);
    }

    #[test]
    fn requests_of_the_same_moment_are_told_apart() {
        let mut in_flight = InFlight::default();
        in_flight.opened(id(1), &lease(1));
        in_flight.opened(id(2), &lease(1));
        in_flight.closed(id(1), &lease(1));
        assert_eq!(in_flight.open_at(HERE), 1);
        in_flight.closed(id(2), &lease(1));
        assert_eq!(in_flight.open_at(HERE), 0);
    }

    #[test]
    fn an_unknown_endpoint_has_nothing() {
        let in_flight = InFlight::default();
        let nobody = EndpointId::new(9);
        assert_eq!(
            (in_flight.open_at(nobody), in_flight.own(nobody, 0, 0)),
            (0, 0)
        );
    }
}
