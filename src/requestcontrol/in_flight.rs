//! Requests sent and not finished, by endpoint.

use std::collections::BTreeSet;

use crate::datalayer::EndpointId;
use crate::time::Timestamp;

/// One request's place in the count. It is given back by [`InFlight::close`].
#[derive(Debug, PartialEq, Eq)]
pub struct Lease {
    endpoint: EndpointId,
    sent: Timestamp,
    id: u64,
}

impl Lease {
    /// Where the request counts.
    pub fn endpoint(&self) -> EndpointId {
        self.endpoint
    }
}

/// Open leases of one pool. Memory: one entry for each open request.
#[derive(Debug, Default)]
pub struct InFlight {
    endpoints: Vec<Open>,
    next_id: u64,
}

#[derive(Clone, Debug, Default)]
struct Open {
    leases: BTreeSet<(Timestamp, u64)>,
    /// Start of the scrape whose numbers are in use.
    scrape_start: Timestamp,
    /// How many leases were opened at or after `scrape_start`.
    since_scrape: u32,
}

impl InFlight {
    /// Takes in `endpoint`, at which no request is open.
    pub fn admit(&mut self, endpoint: EndpointId) {
        while self.endpoints.len() <= endpoint.index() {
            self.endpoints.push(Open::default());
        }
        if let Some(open) = self.endpoints.get_mut(endpoint.index()) {
            *open = Open::default();
        }
    }

    /// A request goes to `endpoint` at `now`.
    pub fn open(&mut self, endpoint: EndpointId, now: Timestamp) -> Lease {
        let lease = Lease {
            endpoint,
            sent: now,
            id: self.next_id,
        };
        self.next_id = self.next_id.wrapping_add(1);
        if let Some(open) = self.endpoints.get_mut(endpoint.index())
            && open.leases.insert((lease.sent, lease.id))
            && lease.sent >= open.scrape_start
        {
            open.since_scrape = open.since_scrape.saturating_add(1);
        }
        lease
    }

    /// The request is over.
    #[expect(clippy::needless_pass_by_value, reason = "a lease is given back once")]
    pub fn close(&mut self, lease: Lease) {
        let Lease { endpoint, sent, id } = lease;
        if let Some(open) = self.endpoints.get_mut(endpoint.index())
            && open.leases.remove(&(sent, id))
            && sent >= open.scrape_start
        {
            open.since_scrape = open.since_scrape.saturating_sub(1);
        }
    }

    /// Numbers from a scrape of `endpoint` that started at `start` are in use from here on.
    pub fn use_scrape(&mut self, endpoint: EndpointId, start: Timestamp) {
        if let Some(open) = self.endpoints.get_mut(endpoint.index()) {
            open.scrape_start = start;
            open.since_scrape = count(open.leases.range((start, 0)..).count());
        }
    }

    /// Open requests at `endpoint`.
    pub fn open_at(&self, endpoint: EndpointId) -> u32 {
        self.endpoints
            .get(endpoint.index())
            .map_or(0, |open| count(open.leases.len()))
    }

    /// Open requests at `endpoint` that its scraped `waiting` and `running` do not show:
    /// `max(sent since the scrape started and still open, open − running − waiting, 0)`.
    pub fn own(&self, endpoint: EndpointId, waiting: u32, running: u32) -> u32 {
        let Some(open) = self.endpoints.get(endpoint.index()) else {
            return 0;
        };
        let scraped = waiting.saturating_add(running);
        open.since_scrape
            .max(count(open.leases.len()).saturating_sub(scraped))
    }
}

fn count(len: usize) -> u32 {
    u32::try_from(len).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: EndpointId = EndpointId::new(0);

    fn at(millis: u64) -> Timestamp {
        Timestamp::from_nanos(millis * 1_000_000)
    }

    fn in_flight() -> InFlight {
        let mut in_flight = InFlight::default();
        in_flight.admit(HERE);
        in_flight
    }

    #[test]
    fn what_the_scrape_cannot_have_seen_is_our_own() {
        let mut in_flight = in_flight();
        let before = in_flight.open(HERE, at(10));
        in_flight.use_scrape(HERE, at(20));
        let after: Vec<Lease> = (20..23)
            .map(|millis| in_flight.open(HERE, at(millis)))
            .collect();
        assert_eq!(in_flight.open_at(HERE), 4);
        // The server shows the first one as running.
        assert_eq!(in_flight.own(HERE, 0, 1), 3);
        // A server busy with others' requests shows more than ours.
        assert_eq!(in_flight.own(HERE, 50, 50), 3);
        // A server that shows less than we sent: all that is missing is our own.
        assert_eq!(in_flight.own(HERE, 0, 0), 4);
        in_flight.close(before);
        for lease in after {
            in_flight.close(lease);
        }
        assert_eq!((in_flight.open_at(HERE), in_flight.own(HERE, 0, 0)), (0, 0));
    }

    #[test]
    fn a_newer_scrape_takes_over_what_was_sent_before_it() {
        let mut in_flight = in_flight();
        let leases: Vec<Lease> = (0..10)
            .map(|millis| in_flight.open(HERE, at(millis)))
            .collect();
        assert_eq!(in_flight.own(HERE, 100, 100), 10);
        in_flight.use_scrape(HERE, at(7));
        assert_eq!(in_flight.own(HERE, 100, 100), 3);
        for lease in leases {
            in_flight.close(lease);
        }
        assert_eq!(in_flight.own(HERE, 0, 0), 0);
    }

    #[test]
    fn requests_of_the_same_moment_are_told_apart() {
        let mut in_flight = in_flight();
        let first = in_flight.open(HERE, at(1));
        let second = in_flight.open(HERE, at(1));
        in_flight.close(first);
        assert_eq!(in_flight.open_at(HERE), 1);
        in_flight.close(second);
        assert_eq!(in_flight.open_at(HERE), 0);
    }

    #[test]
    fn an_unknown_endpoint_has_nothing() {
        let mut in_flight = in_flight();
        let lease = in_flight.open(EndpointId::new(9), at(1));
        assert_eq!(in_flight.open_at(EndpointId::new(9)), 0);
        in_flight.close(lease);
    }
}
