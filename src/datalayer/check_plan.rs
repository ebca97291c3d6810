//! When each endpoint is asked whether it is ready, and what it serves.

use core::net::SocketAddr;
use core::time::Duration;
use std::collections::BTreeMap;

use super::ScrapePlan;
use crate::time::Timestamp;

/// Scrape intervals between two health checks of an endpoint with which all is well. Its metrics are
/// read in each, so a dead one is found out by them at once; what is left is a server that reads its
/// metrics out although its engine is dead, and failing answers tell that as well.
const INTERVALS_WHILE_WELL: u32 = 5;
/// Scrape intervals between two readings of a list of models, which changes with the process or by
/// hand.
const INTERVALS_OF_LIST: u32 = 30;
/// Scrape intervals until an endpoint that did not answer is asked for its list again.
const INTERVALS_UNTIL_ASKED_AGAIN: u32 = 5;

/// What an endpoint is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Question {
    /// `GET /health`.
    IsReady,
    /// `GET /v1/models`.
    Models,
}

impl Question {
    /// Where it is asked.
    pub const fn path(self) -> &'static str {
        match self {
            Self::IsReady => "/health",
            Self::Models => "/v1/models",
        }
    }
}

/// What is known of an endpoint's readiness.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Readiness {
    /// Its latest health check that told anything failed.
    pub fails_checks: bool,
    /// It lists models, and there are none.
    pub lists_nothing: bool,
}

/// The questions to the endpoints of one pool. Of each kind one is under way for an endpoint at a
/// time. Memory: some words for each endpoint.
#[derive(Debug)]
pub struct CheckPlan {
    interval: Duration,
    checks: ScrapePlan,
    lists: ScrapePlan,
    /// Endpoints whose metrics could be read at the latest scrape.
    readable: BTreeMap<SocketAddr, Readable>,
}

#[derive(Clone, Copy, Debug)]
struct Readable {
    process_start: Option<f64>,
    /// It did not answer when it was last asked for its models.
    left_unanswered: bool,
}

impl CheckPlan {
    /// A plan for endpoints scraped every `interval` and asked with `timeout`.
    pub fn new(interval: Duration, timeout: Duration) -> Self {
        Self {
            interval,
            checks: ScrapePlan::new(interval, timeout),
            lists: ScrapePlan::new(interval, timeout),
            readable: BTreeMap::new(),
        }
    }

    /// The metrics of `endpoint` were read, and its process started at `process_start`.
    pub fn note_readable(&mut self, endpoint: SocketAddr, process_start: Option<f64>) {
        let readable = self.readable.entry(endpoint).or_insert(Readable {
            process_start,
            left_unanswered: false,
        });
        // The values are compared, not calculated with.
        if readable.process_start.map(f64::to_bits) != process_start.map(f64::to_bits) {
            readable.process_start = process_start;
            self.lists.forget(endpoint);
        }
    }

    /// The metrics of `endpoint` could not be read.
    pub fn note_unreadable(&mut self, endpoint: SocketAddr) {
        self.readable.remove(&endpoint);
    }

    /// What to ask whom now; each counts as under way from here on. Who is not among `endpoints` is
    /// forgotten.
    pub fn start_due(
        &mut self,
        endpoints: &[(SocketAddr, Readiness)],
        now: Timestamp,
    ) -> Vec<(SocketAddr, Question)> {
        let readable = &mut self.readable;
        if readable.len() > endpoints.len() {
            let is_member = |one: &SocketAddr| endpoints.iter().any(|(other, _)| other == one);
            readable.retain(|address, _| is_member(address));
        }
        let after = |intervals: u32| self.interval.saturating_mul(intervals);
        let checks = endpoints.iter().map(|(address, readiness)| {
            let is_well = readable.contains_key(address) && !readiness.fails_checks;
            (
                *address,
                after(if is_well { INTERVALS_WHILE_WELL } else { 1 }),
            )
        });
        let checks = self.checks.start_due(checks, now);
        let lists = endpoints.iter().filter_map(|(address, readiness)| {
            let intervals = match readable.get(address)? {
                _ if readiness.lists_nothing => 1,
                Readable {
                    left_unanswered: true,
                    ..
                } => INTERVALS_UNTIL_ASKED_AGAIN,
                Readable {
                    left_unanswered: false,
                    ..
                } => INTERVALS_OF_LIST,
            };
            Some((*address, after(intervals)))
        });
        let lists = self.lists.start_due(lists, now);
        let ask = |question| move |address| (address, question);
        let checks = checks.into_iter().map(ask(Question::IsReady));
        let lists = lists.into_iter().map(ask(Question::Models));
        checks.chain(lists).collect()
    }

    /// The question asked at `started` is no longer under way; `answered` says whether there was an
    /// answer to it.
    pub fn ended(
        &mut self,
        endpoint: SocketAddr,
        question: Question,
        started: Timestamp,
        answered: bool,
    ) {
        match question {
            Question::IsReady => self.checks.ended(endpoint, started),
            Question::Models => {
                self.lists.ended(endpoint, started);
                if let Some(readable) = self.readable.get_mut(&endpoint) {
                    readable.left_unanswered = !answered;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WELL: Readiness = Readiness {
        fails_checks: false,
        lists_nothing: false,
    };

    fn address() -> SocketAddr {
        ([10, 0, 0, 1], 8_000).into()
    }

    fn plan() -> CheckPlan {
        CheckPlan::new(Duration::from_secs(1), Duration::from_secs(3))
    }

    /// At which of the seconds 1 to 60 each question is asked, when each is answered at once.
    fn asked(plan: &mut CheckPlan, readiness: Readiness, answered: bool) -> [Vec<u64>; 2] {
        let mut times = [Vec::new(), Vec::new()];
        for second in 1..=60 {
            let now = Timestamp::from_nanos(second * 1_000_000_000);
            for (address, question) in plan.start_due(&[(address(), readiness)], now) {
                plan.ended(address, question, now, answered);
                times[usize::from(question == Question::Models)].push(second);
            }
        }
        times
    }

    #[test]
    fn an_endpoint_with_which_all_is_well_is_asked_seldom() {
        let mut plan = plan();
        plan.note_readable(address(), Some(1.0));
        let [checks, lists] = asked(&mut plan, WELL, true);
        assert_eq!(checks, (1..=60).step_by(5).collect::<Vec<u64>>());
        assert_eq!(lists, [1, 31]);
    }

    #[test]
    fn an_endpoint_that_cannot_be_read_or_fails_is_checked_every_interval() {
        let every: Vec<u64> = (1..=60).collect();
        let [checks, lists] = asked(&mut plan(), WELL, true);
        assert_eq!((checks, lists), (every.clone(), Vec::new()));
        let mut plan = plan();
        plan.note_readable(address(), None);
        let failing = Readiness {
            fails_checks: true,
            ..WELL
        };
        assert_eq!(asked(&mut plan, failing, true)[0], every);
    }

    #[test]
    fn an_empty_list_is_read_every_interval_and_one_that_did_not_come_every_fifth() {
        let empty = Readiness {
            lists_nothing: true,
            ..WELL
        };
        for (readiness, answered, step) in [(empty, true, 1), (WELL, false, 5)] {
            let mut plan = plan();
            plan.note_readable(address(), None);
            let times: Vec<u64> = (1..=60).step_by(step).collect();
            assert_eq!(asked(&mut plan, readiness, answered)[1], times);
        }
    }

    #[test]
    fn another_process_and_a_page_that_is_back_are_asked_for_their_models_at_once() {
        let mut plan = plan();
        let lists_at = |plan: &mut CheckPlan, second: u64| {
            let now = Timestamp::from_nanos(second * 1_000_000_000);
            let due = plan.start_due(&[(address(), WELL)], now);
            for (address, question) in &due {
                plan.ended(*address, *question, now, true);
            }
            due.contains(&(address(), Question::Models))
        };
        plan.note_readable(address(), Some(1.0));
        assert!(lists_at(&mut plan, 1));
        plan.note_readable(address(), Some(1.0));
        assert!(!lists_at(&mut plan, 2));
        plan.note_readable(address(), Some(2.0));
        assert!(lists_at(&mut plan, 3));
        plan.note_unreadable(address());
        assert!(!lists_at(&mut plan, 4));
        plan.note_readable(address(), Some(2.0));
        assert!(lists_at(&mut plan, 5));
    }
}
