//! When each endpoint's page is read.

use core::net::SocketAddr;
use core::time::Duration;
use std::collections::BTreeMap;

use crate::time::Timestamp;

/// Which endpoints are due for a scrape. At most one scrape is under way for each endpoint; a slow
/// one delays nobody but itself. Endpoints are told by address, so one that takes another's place
/// waits for nothing. Memory: some words for each endpoint.
#[derive(Debug)]
pub struct ScrapePlan<K = SocketAddr> {
    interval: Duration,
    /// After this long an answer is not waited for any longer, even if the host never reports it.
    give_up_after: Duration,
    endpoints: BTreeMap<K, Due>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Due {
    next: Timestamp,
    under_way_since: Option<Timestamp>,
}

impl<K: Copy + Ord> ScrapePlan<K> {
    /// A plan for endpoints that are due when first seen. `timeout` is the call's own.
    pub fn new(interval: Duration, timeout: Duration) -> Self {
        let give_up_after = timeout.saturating_add(interval);
        Self {
            interval,
            give_up_after,
            endpoints: BTreeMap::new(),
        }
    }

    /// Those of `endpoints` to scrape now; each counts as under way from here on. What is not among
    /// them is forgotten.
    pub fn start_due(&mut self, endpoints: impl Iterator<Item = K>, now: Timestamp) -> Vec<K> {
        let mut before = core::mem::take(&mut self.endpoints);
        let mut due = Vec::new();
        for key in endpoints {
            let known = before.remove(&key).unwrap_or_default();
            let endpoint = self.endpoints.entry(key).or_insert(known);
            let waits = endpoint
                .under_way_since
                .is_some_and(|since| now.since(since) < self.give_up_after);
            if waits || now < endpoint.next {
                continue;
            }
            endpoint.under_way_since = Some(now);
            endpoint.next = now.after(self.interval);
            due.push(key);
        }
        due
    }

    /// The scrape that started at `started` has ended, one way or another.
    pub fn ended(&mut self, endpoint: K, started: Timestamp) {
        if let Some(due) = self.endpoints.get_mut(&endpoint)
            && due.under_way_since == Some(started)
        {
            due.under_way_since = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Timestamp {
        Timestamp::from_nanos(millis * 1_000_000)
    }

    fn plan() -> ScrapePlan {
        ScrapePlan::new(Duration::from_secs(1), Duration::from_secs(3))
    }

    fn address(number: u16) -> SocketAddr {
        ([10, 0, 0, 1], number).into()
    }

    /// Starts what is due of the endpoints `0..count`.
    fn start(plan: &mut ScrapePlan, count: u16, millis: u64) -> Vec<u16> {
        let due = plan.start_due((0..count).map(address), at(millis));
        due.iter().map(SocketAddr::port).collect()
    }

    #[test]
    fn each_endpoint_is_due_once_an_interval() {
        let mut plan = plan();
        assert_eq!(start(&mut plan, 2, 0), [0, 1]);
        for number in 0..2 {
            plan.ended(address(number), at(0));
        }
        assert_eq!(start(&mut plan, 2, 999), [0_u16; 0]);
        assert_eq!(start(&mut plan, 2, 1_000), [0, 1]);
    }

    #[test]
    fn a_slow_endpoint_delays_only_itself() {
        let mut plan = plan();
        start(&mut plan, 2, 0);
        plan.ended(address(1), at(0));
        assert_eq!(start(&mut plan, 2, 1_000), [1]);
        plan.ended(address(0), at(0));
        assert_eq!(start(&mut plan, 2, 1_100), [0]);
    }

    #[test]
    fn an_answer_that_never_comes_is_given_up() {
        let mut plan = plan();
        start(&mut plan, 2, 0);
        assert_eq!(start(&mut plan, 2, 3_999), [0_u16; 0]);
        assert_eq!(start(&mut plan, 2, 4_000), [0, 1]);
        // The first answer comes after all: the second is still awaited.
        plan.ended(address(0), at(0));
        assert_eq!(start(&mut plan, 2, 5_000), [0_u16; 0]);
    }

    #[test]
    fn who_joins_is_due_at_once_and_who_left_is_forgotten() {
        let mut plan = plan();
        start(&mut plan, 1, 0);
        assert_eq!(start(&mut plan, 2, 100), [1]);
        assert_eq!(start(&mut plan, 1, 200), [0_u16; 0]);
        assert_eq!(start(&mut plan, 2, 300), [1]);
    }
}
