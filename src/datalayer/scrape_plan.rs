//! When each endpoint is called.

use core::net::SocketAddr;
use core::time::Duration;
use std::collections::BTreeMap;

use crate::time::Timestamp;

/// Which endpoints are due for a call. At most one call is under way for each endpoint; a slow one
/// delays nobody but itself. Endpoints are told by address, so one that takes another's place waits
/// for nothing. Those first called together, or again after a pause, come again one after another, so
/// that their answers, and the work of reading them, are spread over the interval. Memory: some words
/// for each endpoint.
#[derive(Debug)]
pub struct ScrapePlan<K = SocketAddr> {
    /// After this long an answer is not waited for any longer, even if the host never reports it.
    give_up_after: Duration,
    endpoints: BTreeMap<K, Latest>,
}

/// The latest call; the default when there was none.
#[derive(Clone, Copy, Debug, Default)]
struct Latest {
    started: Option<Timestamp>,
    is_under_way: bool,
    /// The next call comes that much earlier than an interval after this one.
    advance: Duration,
    /// Set while those are sought that are no endpoints any more.
    is_endpoint: bool,
}

impl<K: Copy + Ord> ScrapePlan<K> {
    /// A plan for endpoints that are due when first seen. `timeout` is the call's own; its answer is
    /// waited for an `interval` longer.
    pub fn new(interval: Duration, timeout: Duration) -> Self {
        Self {
            give_up_after: timeout.saturating_add(interval),
            endpoints: BTreeMap::new(),
        }
    }

    /// Those of `endpoints`, each with the time between two of its calls, to call now; each counts
    /// as under way from here on. What is not among them is forgotten.
    pub fn start_due(
        &mut self,
        endpoints: impl Iterator<Item = (K, Duration)>,
        now: Timestamp,
    ) -> Vec<K> {
        let (mut due, mut together) = (Vec::new(), Vec::new());
        for (key, every) in endpoints {
            let latest = self.endpoints.entry(key).or_default();
            latest.is_endpoint = true;
            let (wait, advance) = if latest.is_under_way {
                (self.give_up_after.max(every), Duration::ZERO)
            } else {
                (every, latest.advance)
            };
            let waits = |at: Timestamp| now.after(advance) < at.after(wait);
            if latest.started.is_some_and(waits) {
                continue;
            }
            let paused =
                |at: Timestamp| !latest.is_under_way && now >= at.after(wait.saturating_mul(2));
            if latest.started.is_none_or(paused) {
                together.push((key, every));
            }
            latest.started = Some(now);
            latest.is_under_way = true;
            latest.advance = Duration::ZERO;
            due.push(key);
        }
        self.spread(&together);
        self.endpoints
            .retain(|_, latest| core::mem::take(&mut latest.is_endpoint));
        due
    }

    /// Spreads the next calls of those whose present one is `together`, the first of them as early as
    /// its share of the interval allows and the last an interval from now.
    fn spread(&mut self, together: &[(K, Duration)]) {
        let count = u64::try_from(together.len()).unwrap_or(u64::MAX);
        for (&(key, every), behind) in together.iter().rev().zip(0_u64..) {
            if let Some(latest) = self.endpoints.get_mut(&key) {
                let nanos = u64::try_from(every.as_nanos()).unwrap_or(u64::MAX);
                let share = nanos.checked_div(count).unwrap_or(0);
                latest.advance = Duration::from_nanos(share.saturating_mul(behind));
            }
        }
    }

    /// The call that started at `started` has ended, one way or another.
    pub fn ended(&mut self, endpoint: K, started: Timestamp) {
        if let Some(latest) = self.endpoints.get_mut(&endpoint)
            && latest.started == Some(started)
        {
            latest.is_under_way = false;
        }
    }

    /// `endpoint` is due again as if it was never called.
    pub fn forget(&mut self, endpoint: K) {
        self.endpoints.remove(&endpoint);
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
        let endpoints = (0..count).map(|number| (address(number), Duration::from_secs(1)));
        let due = plan.start_due(endpoints, at(millis)).into_iter();
        due.map(|address| address.port()).collect()
    }

    #[test]
    fn each_endpoint_is_due_once_an_interval_and_not_all_of_them_at_once() {
        let mut plan = plan();
        assert_eq!(start(&mut plan, 4, 0), [0, 1, 2, 3]);
        for number in 0..4 {
            plan.ended(address(number), at(0));
        }
        let mut calls = Vec::new();
        for millis in 1..=3_000 {
            for number in start(&mut plan, 4, millis) {
                plan.ended(address(number), at(millis));
                calls.push((millis, number));
            }
        }
        let (first, others) = calls.split_at_checked(4).unwrap();
        assert_eq!(first, [(250, 0), (500, 1), (750, 2), (1_000, 3)]);
        let later = |by: u64| {
            first
                .iter()
                .map(move |&(millis, number)| (millis + by, number))
        };
        assert!(others.iter().copied().eq(later(1_000).chain(later(2_000))));
    }

    #[test]
    fn those_due_together_after_a_pause_are_spread_anew() {
        let mut plan = plan();
        start(&mut plan, 4, 0);
        (0..4).for_each(|number| plan.ended(address(number), at(0)));
        // Another VM called them meanwhile.
        assert_eq!(start(&mut plan, 4, 5_000), [0, 1, 2, 3]);
        (0..4).for_each(|number| plan.ended(address(number), at(5_000)));
        let calls: Vec<_> = (5_001..=6_000)
            .flat_map(|millis| {
                start(&mut plan, 4, millis)
                    .into_iter()
                    .map(move |number| (millis, number))
                    .collect::<Vec<_>>()
            })
            .collect();
        assert_eq!(calls, [(5_250, 0), (5_500, 1), (5_750, 2), (6_000, 3)]);
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

    #[test]
    fn the_time_between_two_calls_may_change_and_who_is_forgotten_is_due() {
        let mut plan = plan();
        let mut start = |millis, every: u64| {
            let endpoint = (address(0), Duration::from_millis(every));
            let due = plan.start_due(core::iter::once(endpoint), at(millis)).len();
            plan.ended(address(0), at(millis));
            due
        };
        assert_eq!(start(0, 5_000), 1);
        assert_eq!(start(4_999, 5_000), 0);
        assert_eq!(start(4_999, 1_000), 1);
        assert_eq!(start(5_998, 1_000), 0);
        plan.forget(address(0));
        assert_eq!(start_once(&mut plan, 5_999), 1);
    }

    fn start_once(plan: &mut ScrapePlan, millis: u64) -> usize {
        start(plan, 1, millis).len()
    }
}
