//! What one router did with one load.

use serde::{Deserialize, Serialize};

use super::Quality;
use super::load::{Kind, Shape};
use super::options::Setup;
use super::player::Answer;
use super::router::Router;
use crate::bench::spread::{Spread, mean, quantile};
use crate::sim::{Sim, SimServer};

/// One figure of a round.
pub type Figure = fn(&Round) -> f64;

/// All rounds of one load.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct LoadFigures {
    /// Which one.
    pub kind: Kind,
    /// What it is like.
    pub shape: Shape,
    /// In the order of the report.
    pub routers: Vec<RouterFigures>,
}

/// All rounds of one router.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct RouterFigures {
    /// Which one.
    pub router: Router,
    /// Those that could be played.
    pub rounds: Vec<Round>,
    /// Why one could not be.
    pub failure: Option<String>,
}

/// One replay. Times are in seconds of the load's own time: measured, times the compression.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Round {
    /// Hits ÷ prompt tokens by the servers' own counters.
    pub hit_ratio: f64,
    /// Time to first token at the client, from when the request was due.
    pub mean_ttft: f64,
    /// Its median.
    pub p50_ttft: f64,
    /// Its 99th percentile.
    pub p99_ttft: f64,
    /// What is not the servers' part of the mean, in real milliseconds: router, network, client.
    pub on_the_way_ms: f64,
    /// Prompt tokens the busiest server computed ÷ the mean of all.
    pub imbalance: f64,
    /// Requests each server answered.
    pub requests: Vec<u64>,
    /// Requests without a whole answer.
    pub errors: usize,
    /// Why the first of them has none.
    pub first_error: Option<String>,
    /// 99th percentile of how late the load generator was, in real milliseconds.
    pub late_p99_ms: f64,
}

impl Round {
    /// Of `answers`, in any order, by `sim`, with the load `compression` times as fast as recorded.
    pub fn new(answers: &[Answer], sim: &Sim, compression: f64) -> Self {
        let seconds = |answer: &Answer| {
            let first = answer.first_token.as_ref().ok()?;
            Some(first.as_secs_f64())
        };
        let mut waits: Vec<f64> = answers.iter().filter_map(seconds).collect();
        waits.sort_unstable_by(f64::total_cmp);
        let mut late: Vec<f64> = answers.iter().map(|one| one.late.as_secs_f64()).collect();
        late.sort_unstable_by(f64::total_cmp);
        let servers: Vec<Served> = sim.servers().iter().map(Served::by).collect();
        let sum = |pick: fn(&Served) -> f64| servers.iter().map(pick).sum::<f64>();
        let answered = sum(|one| one.requests as f64);
        let computed = sum(Served::computed);
        let most = servers.iter().map(Served::computed).fold(0.0, f64::max);
        let of_servers = sum(|one| one.ttft) / answered.max(1.0);
        Self {
            hit_ratio: sum(|one| one.hits) / sum(|one| one.queries).max(1.0),
            mean_ttft: mean(&waits) * compression,
            p50_ttft: quantile(&waits, 0.5) * compression,
            p99_ttft: quantile(&waits, 0.99) * compression,
            on_the_way_ms: (mean(&waits) - of_servers) * 1e3,
            imbalance: most * servers.len() as f64 / computed.max(1.0),
            requests: servers.iter().map(|one| one.requests).collect(),
            errors: answers.len() - waits.len(),
            first_error: answers.iter().find_map(|one| one.first_token.clone().err()),
            late_p99_ms: quantile(&late, 0.99) * 1e3,
        }
    }
}

impl Round {
    /// Whether the load generator itself did not get the machine.
    pub fn is_disturbed(&self) -> bool {
        self.late_p99_ms > DISTURBED_MS
    }

    /// The one of two in which the load generator was less late.
    #[must_use]
    pub fn less_disturbed(self, other: Self) -> Self {
        if other.late_p99_ms < self.late_p99_ms {
            other
        } else {
            self
        }
    }
}

/// What one server counted.
struct Served {
    queries: f64,
    hits: f64,
    /// Requests whose prompt it computed, and their times to first token together, in seconds.
    requests: u64,
    ttft: f64,
}

impl Served {
    fn by(server: &SimServer) -> Self {
        let engines = server.stats();
        Self {
            queries: engines
                .iter()
                .map(|one| one.counters.prefix_cache_queries as f64)
                .sum(),
            hits: engines
                .iter()
                .map(|one| one.counters.prefix_cache_hits as f64)
                .sum(),
            requests: engines
                .iter()
                .map(|one| one.time_to_first_token.total())
                .sum(),
            ttft: engines
                .iter()
                .map(|one| one.time_to_first_token.sum())
                .sum(),
        }
    }

    fn computed(&self) -> f64 {
        self.queries - self.hits
    }
}

impl LoadFigures {
    /// Takes over the rounds of an `earlier` run of the same load against the same `setup`, but for
    /// those that were disturbed or behind the clock: the machine may have been the reason.
    pub fn take_over(&mut self, setup: &Setup, earlier: &Quality) {
        let mut loads = earlier.loads.iter();
        let Some(load) = loads.find(|one| one.kind == self.kind && one.shape.is(&self.shape))
        else {
            return;
        };
        if *setup != earlier.setup {
            return;
        }
        for one in &mut self.routers {
            let rounds = load.of(one.router).map_or(&[][..], |other| &other.rounds);
            let held = rounds
                .iter()
                .filter(|round| !round.is_disturbed() && round.on_the_way_ms <= BEHIND_MS);
            one.rounds.extend(held.cloned());
        }
    }

    /// The rounds of `router`, when it has any.
    pub fn of(&self, router: Router) -> Option<&RouterFigures> {
        let mut routers = self.routers.iter();
        routers.find(|one| one.router == router && !one.rounds.is_empty())
    }

    /// How much of the oracle's gain over random choice `router` has, in `figure`; below 0 where it
    /// is worse than random.
    pub fn gain(&self, router: &RouterFigures, figure: Figure) -> Option<f64> {
        let random = self.of(Router::Random)?.spread(figure).median;
        let oracle = self.of(Router::Oracle)?.spread(figure).median;
        let gain = (router.spread(figure).median - random) / (oracle - random);
        (!router.rounds.is_empty() && gain.is_finite()).then_some(gain)
    }
}

impl RouterFigures {
    /// Whether there is something to show: figures, or why there are none.
    pub fn is_played(&self) -> bool {
        !self.rounds.is_empty() || self.failure.is_some()
    }

    /// Median and quartiles of `figure`.
    pub fn spread(&self, figure: Figure) -> Spread {
        Spread::of(self.rounds.iter().map(figure))
    }

    /// What is wrong with its figures, if anything.
    pub fn fault(&self) -> Option<String> {
        if let Some(failure) = &self.failure {
            return Some(failure.clone());
        }
        let errors: usize = self.rounds.iter().map(|one| one.errors).sum();
        if errors > 0 {
            let first = self.rounds.iter().find_map(|one| one.first_error.clone());
            return Some(format!(
                "{errors} without an answer: {}",
                first.unwrap_or_default()
            ));
        }
        let mut faults = Vec::new();
        let way = self.spread(|one| one.on_the_way_ms).median;
        if way > BEHIND_MS {
            faults.push(format!("behind the clock: {way:.0} ms on the way"));
        }
        let late = self.spread(|one| one.late_p99_ms).median;
        if late > DISTURBED_MS {
            faults.push(format!("disturbed: requests left up to {late:.0} ms late"));
        }
        (!faults.is_empty()).then(|| faults.join("; "))
    }
}

/// Real milliseconds on the way, on average, from which on a router does not keep up.
const BEHIND_MS: f64 = 50.0;

/// Real milliseconds that the load generator may be late at the 99th percentile. More, and the
/// machine had no time for it: the figures say something of the machine.
const DISTURBED_MS: f64 = 100.0;

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::sim::SimConfig;

    fn figures(router: Router, hit_ratio: f64) -> RouterFigures {
        let round = Round {
            hit_ratio,
            mean_ttft: 1.0,
            p50_ttft: 1.0,
            p99_ttft: 1.0,
            on_the_way_ms: 2.0,
            imbalance: 1.0,
            requests: Vec::new(),
            errors: 0,
            first_error: None,
            late_p99_ms: 0.0,
        };
        RouterFigures {
            router,
            rounds: vec![round],
            failure: None,
        }
    }

    #[test]
    fn the_gain_is_what_random_lacks_and_the_oracle_has() {
        let load = LoadFigures {
            kind: Kind::NoReuse,
            shape: Shape::default(),
            routers: vec![
                figures(Router::Random, 0.2),
                figures(Router::Default, 0.5),
                figures(Router::Oracle, 0.6),
            ],
        };
        let gain = |at: usize| load.gain(&load.routers[at], |one| one.hit_ratio);
        assert!((gain(1).expect("a gain") - 0.75).abs() < 1e-9);
        assert!(gain(0).expect("a gain").abs() < 1e-9);
        // Equal for all three: nothing to gain.
        assert_eq!(load.gain(&load.routers[1], |one| one.mean_ttft), None);
    }

    #[test]
    fn errors_and_lag_are_shown() {
        let mut figures = figures(Router::Smg, 0.0);
        assert_eq!(figures.fault(), None);
        figures.rounds[0].on_the_way_ms = 180.0;
        assert!(figures.fault().expect("it lags").contains("180 ms"));
        figures.rounds[0].errors = 3;
        figures.rounds[0].first_error = Some("status 400".to_owned());
        let fault = figures.fault().expect("it fails");
        assert!(
            fault.contains("3 without") && fault.contains("status 400"),
            "{fault}"
        );
    }

    #[test]
    fn what_was_disturbed_is_not_taken_over() {
        let setup = Setup {
            servers: 2,
            cache_blocks: 500,
            compression: 20.0,
            pool: serde_json::Value::default(),
        };
        let mut behind = figures(Router::VllmRouter, 0.5);
        behind.rounds[0].on_the_way_ms = 90.0;
        let mut disturbed = figures(Router::Smg, 0.5);
        disturbed.rounds[0].late_p99_ms = 300.0;
        assert!(disturbed.fault().expect("it is").contains("300 ms late"));
        let load = |routers| LoadFigures {
            kind: Kind::NoReuse,
            shape: Shape::default(),
            routers,
        };
        let earlier = Quality {
            setup: setup.clone(),
            loads: vec![load(vec![figures(Router::Random, 0.2), disturbed, behind])],
        };
        let empty = || {
            let routers = [Router::Random, Router::Smg, Router::VllmRouter];
            let routers = routers.map(|router| RouterFigures {
                rounds: Vec::new(),
                ..figures(router, 0.0)
            });
            load(routers.to_vec())
        };
        let taken = |setup: &Setup| {
            let mut load = empty();
            load.take_over(setup, &earlier);
            load.routers
                .iter()
                .map(|one| one.rounds.len())
                .collect::<Vec<_>>()
        };
        assert_eq!(taken(&setup), [1, 0, 0]);
        let other = Setup {
            servers: 3,
            ..setup
        };
        assert_eq!(taken(&other), [0, 0, 0]);
    }

    #[tokio::test]
    async fn unanswered_requests_have_no_part_in_times() {
        let sim = Sim::start(&SimConfig::default(), 2).await.expect("ports");
        let answers = [Ok(Duration::from_millis(10)), Err("status 503".to_owned())];
        let answers = answers.map(|first_token| Answer {
            first_token,
            late: Duration::from_millis(1),
        });
        let round = Round::new(&answers, &sim, 20.0);
        assert!((round.mean_ttft - 0.2).abs() < 1e-9, "{round:?}");
        assert_eq!((round.errors, round.requests), (1, vec![0, 0]));
        assert_eq!(round.first_error.as_deref(), Some("status 503"));
    }
}
