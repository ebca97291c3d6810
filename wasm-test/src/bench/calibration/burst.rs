//! Many requests at once, and how the server says it works them off.

use std::convert::Infallible;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use serde::{Deserialize, Serialize};

use super::server::Server;
use crate::bench::BenchError;
use crate::envoy::prometheus;

/// Requests of the burst.
pub const REQUESTS: usize = 16;
/// Tokens of each answer: long enough for several looks at each state.
const ANSWER: usize = 48;
const PROMPT: usize = 200;
const POLL: Duration = Duration::from_millis(10);

/// What a page said at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct State {
    /// Since the burst began, in seconds.
    pub at: f64,
    /// Requests that run.
    pub running: u64,
    /// Requests that wait.
    pub waiting: u64,
}

/// The whole burst.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Curve(Vec<State>);

/// Sends the burst and reads the metrics page until all is answered.
pub async fn play(server: &Server) -> Result<Curve, BenchError> {
    let start = Instant::now();
    let prompts: Vec<Vec<u32>> = (0..REQUESTS as u32)
        .map(|number| {
            (0..PROMPT as u32)
                .map(|at| 300 + (number * 97 + at * 13) % 1500)
                .collect()
        })
        .collect();
    let all = join_all(prompts.iter().map(|prompt| server.complete(prompt, ANSWER)));
    let mut states = Vec::new();
    tokio::select! {
        answers = all => {
            for answer in answers {
                answer?;
            }
        }
        failed = watch(server, start, &mut states) => {
            failed?;
        }
    }
    Ok(Curve(states))
}

/// Notes what the page says, until dropped or until there is none.
async fn watch(
    server: &Server,
    start: Instant,
    states: &mut Vec<State>,
) -> Result<Infallible, BenchError> {
    loop {
        let page = server.page().await?;
        let value = |name| prometheus::sum(&page, name, &[]).unwrap_or(0.0) as u64;
        states.push(State {
            at: start.elapsed().as_secs_f64(),
            running: value("vllm:num_requests_running"),
            waiting: value("vllm:num_requests_waiting"),
        });
        tokio::time::sleep(POLL).await;
    }
}

impl Curve {
    /// The highest of all moments.
    pub fn most(&self, figure: fn(&State) -> u64) -> u64 {
        self.0.iter().map(figure).max().unwrap_or(0)
    }

    /// Over time, not over looks.
    pub fn mean_waiting(&self) -> f64 {
        let spans = self.0.windows(2);
        let area: f64 = spans
            .map(|pair| pair[0].waiting as f64 * (pair[1].at - pair[0].at))
            .sum();
        let whole = self.0.first().zip(self.0.last());
        whole.map_or(0.0, |(first, last)| {
            area / (last.at - first.at).max(f64::MIN_POSITIVE)
        })
    }

    /// Requests that wait over the share of the whole time.
    pub fn waiting(&self) -> Vec<(f64, f64)> {
        let whole = self.0.last().map_or(1.0, |last| last.at);
        let point = |state: &State| (state.at / whole, state.waiting as f64);
        self.0.iter().map(point).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mean_weighs_each_state_by_how_long_it_lasted() {
        let state = |at, waiting| State {
            at,
            running: 1,
            waiting,
        };
        let curve = Curve(vec![state(0.0, 4), state(3.0, 0), state(4.0, 0)]);
        assert!((curve.mean_waiting() - 3.0).abs() < 1e-9);
        assert_eq!(curve.most(|state| state.waiting), 4);
        assert_eq!(curve.waiting()[1], (0.75, 0.0));
    }
}
