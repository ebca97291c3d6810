//! Conversations that change worker with every turn, and what came of them.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep_until};
use wasm_test::envoy::Envoy;
use wasm_test::testbed::{Answer, CHAT, Testbed, prompt, say};

/// What is played.
#[derive(Clone, Copy)]
pub struct Traffic {
    pub name: &'static str,
    pub conversations: usize,
    pub turns: usize,
    /// Of each answer.
    pub tokens: u32,
    /// Conversations at a time.
    pub in_flight: usize,
}

/// Sums over all answers.
#[derive(Clone, Copy, Debug, Default)]
pub struct Played {
    matched: u64,
    blocks: u64,
}

impl Played {
    /// Share of the prompts' blocks that the picks were thought to hold.
    pub fn predicted(self) -> f64 {
        self.matched as f64 / self.blocks as f64
    }

    fn add(&mut self, answer: &Answer) {
        assert_eq!(answer.status, 200, "{}", answer.text());
        let (matched, blocks) = answer.cache_match();
        self.matched += u64::from(matched);
        self.blocks += u64::from(blocks);
    }

    fn sum(all: impl IntoIterator<Item = Self>) -> Self {
        all.into_iter().fold(Self::default(), |sum, one| Self {
            matched: sum.matched + one.matched,
            blocks: sum.blocks + one.blocks,
        })
    }
}

/// The body of `turn` of a chat: what was said before, and 600 bytes more.
fn turn_of(name: &str, conversation: usize, turn: usize, tokens: u32) -> Value {
    let name = format!("{name} {conversation}");
    let mut messages = vec![say("user", &prompt(&name, 1_200))];
    for before in 0..turn {
        messages.push(say("assistant", "Go on."));
        messages.push(say("user", &prompt(&format!("{name}, turn {before}"), 600)));
    }
    json!({
        "model": "sim-model", "messages": messages, "max_tokens": tokens, "ignore_eos": true,
    })
}

/// Plays conversations, a few at a time, each turn after the answer to the one before.
pub async fn play(testbed: &Testbed, traffic: Traffic) -> Played {
    play_over(&[testbed.envoy()], traffic).await
}

/// The same, each turn to the other Envoy.
pub async fn play_alternating(testbed: &Testbed, other: &Envoy, traffic: Traffic) -> Played {
    play_over(&[testbed.envoy(), other], traffic).await
}

async fn play_over(envoys: &[&Envoy], traffic: Traffic) -> Played {
    let next = AtomicUsize::new(0);
    let player = async || {
        let mut played = Played::default();
        loop {
            let conversation = next.fetch_add(1, Ordering::Relaxed);
            if conversation >= traffic.conversations {
                return played;
            }
            for turn in 0..traffic.turns {
                let body = turn_of(traffic.name, conversation, turn, traffic.tokens);
                let envoy = envoys[turn % envoys.len()];
                played.add(&Answer::on_a_new_connection(envoy, CHAT, &body).await);
            }
        }
    };
    Played::sum(join_all((0..traffic.in_flight).map(|_| player())).await)
}

/// Sends the turns of all conversations by the clock, `rate` a second, whether or not answers have
/// come. Returns what came of it and the fewest candidates seen meanwhile.
pub async fn play_open_loop(
    testbed: &Testbed,
    conversations: usize,
    turns: usize,
    rate: f64,
) -> (Played, u64) {
    let start = Instant::now();
    let requests = (0..turns).flat_map(|turn| (0..conversations).map(move |one| (turn, one)));
    let requests = requests
        .enumerate()
        .map(async |(number, (turn, conversation))| {
            sleep_until(start + Duration::from_secs_f64(number as f64 / rate)).await;
            let body = turn_of("open loop", conversation, turn, 1);
            let mut played = Played::default();
            played.add(&Answer::on_a_new_connection(testbed.envoy(), CHAT, &body).await);
            played
        });
    let all = join_all(requests);
    tokio::pin!(all);
    let mut lowest = u64::MAX;
    loop {
        tokio::select! {
            played = &mut all => return (Played::sum(played), lowest),
            () = tokio::time::sleep(Duration::from_millis(50)) => {
                let candidates = testbed.metric("epp_candidate_pods", &[]).await;
                let candidates = candidates.expect("a gauge from the start");
                lowest = lowest.min(candidates);
            }
        }
    }
}

/// Tokens looked up in all servers' caches, and those found.
pub fn counters(testbed: &Testbed) -> (u64, u64) {
    let servers = testbed.servers().iter();
    let counters = servers.map(|server| server.state().counters);
    counters.fold((0, 0), |(queries, hits), one| {
        (
            queries + one.prefix_cache_queries,
            hits + one.prefix_cache_hits,
        )
    })
}

pub fn ratio_between(before: (u64, u64), after: (u64, u64)) -> f64 {
    (after.1 - before.1) as f64 / (after.0 - before.0) as f64
}

/// Share of all prompts' tokens that the servers found in their caches.
pub fn served_ratio(testbed: &Testbed) -> f64 {
    ratio_between((0, 0), counters(testbed))
}
