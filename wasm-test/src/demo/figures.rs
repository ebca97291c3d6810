//! What one run measured.

use std::net::SocketAddr;
use std::time::Duration;

use serde::Serialize;

use super::client::Answer;
use super::counters::CacheCounters;
use super::player::Turn;

/// The figures of one run.
#[derive(Debug, Clone, Serialize)]
pub struct Figures {
    /// Conversation × turn: the index of the server that answered, by its own word; `None` for a
    /// turn without an answer.
    pub grid: Vec<Vec<Option<usize>>>,
    /// Turns each server answered.
    pub turns_per_server: Vec<usize>,
    /// The servers' own counters: what the run added to them.
    pub cache: CacheCounters,
    /// Hits ÷ queries of [`Self::cache`], in [0, 1].
    pub hit_ratio: f64,
    /// What the module expected: matched ÷ all prompt blocks by its own counters, in [0, 1].
    pub predicted_hit_ratio: Option<f64>,
    /// Mean time to first token in milliseconds.
    pub ttft_mean_ms: f64,
    /// 99th percentile of the time to first token in milliseconds.
    pub ttft_p99_ms: f64,
    /// Turns without a whole answer.
    pub errors: usize,
    /// Why the first of them failed.
    pub first_error: Option<String>,
    /// Answers whose `x-epp-reason` is not `picked`; all of them without the module.
    pub not_picked: usize,
    /// Answers of another server than `x-epp-endpoint` names; all of them without the module.
    pub not_as_picked: usize,
}

impl Figures {
    /// Figures of `turns`, each conversation of `size` = (conversations, turns).
    pub fn new(
        turns: &[Turn],
        size: (usize, usize),
        servers: &[SocketAddr],
        cache: CacheCounters,
        predicted_hit_ratio: Option<f64>,
    ) -> Self {
        let answers: Vec<&Answer> = turns
            .iter()
            .filter_map(|turn| turn.result.as_ref().ok())
            .collect();
        let mut waits: Vec<Duration> = answers.iter().map(|one| one.time_to_first_token).collect();
        waits.sort_unstable();
        let count = |wrong: fn(&Answer) -> bool| answers.iter().filter(|one| wrong(one)).count();
        let grid = grid(turns, size, servers);
        Self {
            turns_per_server: (0..servers.len())
                .map(|server| occurrences(&grid, server))
                .collect(),
            grid,
            cache,
            hit_ratio: cache.hit_ratio(),
            predicted_hit_ratio,
            ttft_mean_ms: milliseconds(waits.iter().sum::<Duration>()) / waits.len().max(1) as f64,
            ttft_p99_ms: milliseconds(percentile(&waits, 99)),
            errors: turns.len() - answers.len(),
            first_error: turns.iter().find_map(|turn| turn.result.clone().err()),
            not_picked: count(|answer| !is_picked(answer)),
            not_as_picked: count(|answer| !is_as_picked(answer)),
        }
    }

    /// The largest share of answers one server gave, in [0, 1].
    pub fn largest_share(&self) -> f64 {
        let most = self.turns_per_server.iter().max().copied().unwrap_or(0);
        most as f64 / self.answered().max(1) as f64
    }

    /// Turns with an answer.
    pub fn answered(&self) -> usize {
        self.turns_per_server.iter().sum()
    }
}

fn grid(
    turns: &[Turn],
    (conversations, length): (usize, usize),
    servers: &[SocketAddr],
) -> Vec<Vec<Option<usize>>> {
    let mut grid = vec![vec![None; length]; conversations];
    for turn in turns {
        let server = turn.result.as_ref().ok().and_then(|answer| answer.server);
        grid[turn.conversation][turn.turn] =
            servers.iter().position(|address| Some(*address) == server);
    }
    grid
}

fn occurrences(grid: &[Vec<Option<usize>>], server: usize) -> usize {
    grid.iter()
        .flatten()
        .filter(|one| **one == Some(server))
        .count()
}

fn is_picked(answer: &Answer) -> bool {
    answer
        .decision
        .as_ref()
        .is_some_and(|decision| decision.reason == "picked")
}

fn is_as_picked(answer: &Answer) -> bool {
    answer
        .decision
        .as_ref()
        .is_some_and(|decision| decision.endpoint.is_some() && decision.endpoint == answer.server)
}

/// By nearest rank; `sorted` ascends.
fn percentile(sorted: &[Duration], percent: usize) -> Duration {
    let rank = (sorted.len() * percent).div_ceil(100);
    sorted
        .get(rank.saturating_sub(1))
        .copied()
        .unwrap_or_default()
}

fn milliseconds(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demo::client::Decision;

    fn server(port: u16) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], port))
    }

    fn turn(turn: usize, answered_by: u16, decision: Option<(&str, u16)>) -> Turn {
        Turn {
            conversation: 0,
            turn,
            result: Ok(Answer {
                text: String::new(),
                server: Some(server(answered_by)),
                decision: decision.map(|(reason, port)| Decision {
                    reason: reason.to_owned(),
                    endpoint: Some(server(port)),
                }),
                time_to_first_token: Duration::from_millis(10 * (turn as u64 + 1)),
            }),
        }
    }

    fn figures(turns: &[Turn]) -> Figures {
        let cache = CacheCounters {
            queries: 200,
            hits: 50,
        };
        Figures::new(turns, (1, 4), &[server(1), server(2)], cache, None)
    }

    #[test]
    fn every_turn_is_counted_where_it_was_answered() {
        let mut turns = vec![
            turn(0, 2, Some(("picked", 2))),
            turn(1, 1, Some(("picked", 2))),
            turn(2, 2, Some(("malformed_body", 2))),
        ];
        turns.push(Turn {
            conversation: 0,
            turn: 3,
            result: Err("reset".to_owned()),
        });
        let figures = figures(&turns);
        assert_eq!(figures.grid, [[Some(1), Some(0), Some(1), None]]);
        assert_eq!(figures.turns_per_server, [1, 2]);
        assert_eq!((figures.not_picked, figures.not_as_picked), (1, 1));
        assert_eq!(figures.errors, 1);
        assert_eq!(figures.first_error.as_deref(), Some("reset"));
        assert!((figures.largest_share() - 2.0 / 3.0).abs() < 1e-9);
        assert!((figures.hit_ratio - 0.25).abs() < 1e-9);
        assert!((figures.ttft_mean_ms - 20.0).abs() < 1e-9);
        assert!((figures.ttft_p99_ms - 30.0).abs() < 1e-9);
    }

    #[test]
    fn without_the_module_nothing_was_picked() {
        let figures = figures(&[turn(0, 1, None)]);
        assert_eq!((figures.not_picked, figures.not_as_picked), (1, 1));
    }

    #[test]
    fn the_percentile_is_a_value_that_occurred() {
        let waits: Vec<Duration> = (1..=156).map(Duration::from_millis).collect();
        assert_eq!(percentile(&waits, 99), Duration::from_millis(155));
        assert_eq!(percentile(&waits[..1], 99), Duration::from_millis(1));
        assert_eq!(percentile(&[], 99), Duration::ZERO);
    }
}
