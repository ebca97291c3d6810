//! When each endpoint's metrics are read.

use core::time::Duration;

use super::EndpointId;
use crate::time::Timestamp;

/// Which endpoints are due for a scrape. At most one scrape is under way for each endpoint; a slow
/// one delays nobody but itself.
#[derive(Debug)]
pub struct ScrapePlan {
    interval: Duration,
    /// After this long an answer is not waited for any longer, even if the host never reports it.
    give_up_after: Duration,
    endpoints: Vec<Due>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Due {
    next: Timestamp,
    under_way_since: Option<Timestamp>,
}

impl ScrapePlan {
    /// A plan for `endpoints` endpoints, all due at once. `timeout` is the call's own.
    pub fn new(endpoints: usize, interval: Duration, timeout: Duration) -> Self {
        let give_up_after = timeout.saturating_add(interval);
        Self {
            interval,
            give_up_after,
            endpoints: vec![Due::default(); endpoints],
        }
    }

    /// The endpoints to scrape now; each counts as under way from here on.
    pub fn start_due(&mut self, now: Timestamp) -> Vec<EndpointId> {
        let mut due = Vec::new();
        for (endpoint, id) in self.endpoints.iter_mut().zip(0_u16..) {
            let waits = endpoint
                .under_way_since
                .is_some_and(|since| now.since(since) < self.give_up_after);
            if waits || now < endpoint.next {
                continue;
            }
            endpoint.under_way_since = Some(now);
            endpoint.next = now.after(self.interval);
            due.push(EndpointId::new(id));
        }
        due
    }

    /// The scrape that started at `started` has ended, one way or another.
    pub fn ended(&mut self, endpoint: EndpointId, started: Timestamp) {
        if let Some(due) = self.endpoints.get_mut(endpoint.index())
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
        ScrapePlan::new(2, Duration::from_secs(1), Duration::from_secs(3))
    }

    fn ids(due: &[EndpointId]) -> Vec<usize> {
        due.iter().map(|id| id.index()).collect()
    }

    #[test]
    fn each_endpoint_is_due_once_an_interval() {
        let mut plan = plan();
        assert_eq!(ids(&plan.start_due(at(0))), [0, 1]);
        for id in 0..2 {
            plan.ended(EndpointId::new(id), at(0));
        }
        assert_eq!(ids(&plan.start_due(at(999))), [0_usize; 0]);
        assert_eq!(ids(&plan.start_due(at(1_000))), [0, 1]);
    }

    #[test]
    fn a_slow_endpoint_delays_only_itself() {
        let mut plan = plan();
        plan.start_due(at(0));
        plan.ended(EndpointId::new(1), at(0));
        assert_eq!(ids(&plan.start_due(at(1_000))), [1]);
        plan.ended(EndpointId::new(0), at(0));
        assert_eq!(ids(&plan.start_due(at(1_100))), [0]);
    }

    #[test]
    fn an_answer_that_never_comes_is_given_up() {
        let mut plan = plan();
        plan.start_due(at(0));
        assert_eq!(ids(&plan.start_due(at(3_999))), [0_usize; 0]);
        assert_eq!(ids(&plan.start_due(at(4_000))), [0, 1]);
        // The first answer comes after all: the second is still awaited.
        plan.ended(EndpointId::new(0), at(0));
        assert_eq!(ids(&plan.start_due(at(5_000))), [0_usize; 0]);
    }
}
