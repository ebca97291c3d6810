//! What is asked, and when: requests made of blocks, as the traces have them.

use std::collections::HashSet;

use clap::ValueEnum;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use serde::{Deserialize, Serialize};

use super::text::Prompt;

/// Tokens of a block, in a trace.
pub const BLOCK: u32 = 512;

/// The kinds of load.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, ValueEnum,
)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// Mooncake's conversation trace: one system prompt for all, long conversations.
    Conversation,
    /// Mooncake's synthetic trace: public data sets put together, more reuse.
    Synthetic,
    /// Long system prompts of very different popularity, a question of its own behind each.
    SharedPrompts,
    /// No two prompts have anything in common.
    NoReuse,
}

impl Kind {
    /// In tables and in drawings.
    pub fn name(self) -> &'static str {
        match self {
            Self::Conversation => "conversation trace",
            Self::Synthetic => "synthetic trace",
            Self::SharedPrompts => "shared prompts",
            Self::NoReuse => "no reuse",
        }
    }
}

/// One request. Equal block numbers mean equal text.
#[derive(Debug, Clone, PartialEq)]
pub struct Request {
    /// When it is due, in seconds of the trace's time.
    pub at: f64,
    /// The prompt.
    pub blocks: Vec<u64>,
    /// How many of the blocks are the system message; the next one is the first user message.
    pub system: usize,
    /// Tokens of the prompt: all blocks are whole but maybe the last.
    pub input: u32,
    /// Tokens of the answer.
    pub output: u32,
}

/// Requests in the order of their times.
#[derive(Debug, Clone, PartialEq)]
pub struct Load {
    /// Which one.
    pub kind: Kind,
    /// What is asked.
    pub requests: Vec<Request>,
}

/// What a load is like, whoever routes it.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Shape {
    /// How many requests.
    pub requests: usize,
    /// From the first to the last, in seconds of the trace's time.
    pub seconds: f64,
    /// Prompt tokens of a request on average, in the trace's tokens.
    pub mean_prompt: f64,
    /// Distinct blocks of all prompts, of 512 of the trace's tokens.
    pub working_set: usize,
    /// Hit ratio of one cache that holds everything, in the simulated servers' blocks: no routing
    /// can do better.
    pub ideal_hit_ratio: f64,
}

impl Shape {
    /// Whether both are of the same load; one may have been rounded on its way through a file.
    pub fn is(&self, other: &Self) -> bool {
        let counts = |one: &Self| (one.requests, one.working_set);
        let measures = |one: &Self| [one.seconds, one.mean_prompt, one.ideal_hit_ratio];
        let mut both = measures(self).into_iter().zip(measures(other));
        counts(self) == counts(other) && both.all(|(one, other)| (one - other).abs() < 1e-6)
    }
}

impl Load {
    /// What it is like.
    pub fn shape(&self, prompts: &[Prompt], block_size: usize) -> Shape {
        let count = self.requests.len();
        let ends = self.requests.first().zip(self.requests.last());
        let tokens: f64 = self.requests.iter().map(|one| f64::from(one.input)).sum();
        let blocks: HashSet<u64> = self
            .requests
            .iter()
            .flat_map(|one| one.blocks.iter().copied())
            .collect();
        Shape {
            requests: count,
            seconds: ends.map_or(0.0, |(first, last)| last.at - first.at),
            mean_prompt: tokens / count.max(1) as f64,
            working_set: blocks.len(),
            ideal_hit_ratio: ideal(prompts, block_size),
        }
    }
}

/// Hit ratio of `prompts`, one after the other, in a cache that forgets nothing.
fn ideal(prompts: &[Prompt], block_size: usize) -> f64 {
    let mut cached = HashSet::new();
    let (mut hits, mut all) = (0, 0);
    for prompt in prompts {
        // The block with the last token is never a hit: the token must be computed.
        let usable = prompt.tokens.saturating_sub(1) / block_size;
        let found = prompt.hashes.iter().take(usable);
        hits += found.take_while(|hash| cached.contains(*hash)).count() * block_size;
        all += prompt.tokens;
        cached.extend(prompt.hashes.iter().copied());
    }
    hits as f64 / all.max(1) as f64
}

/// System prompts of the shared load, and how long each is in blocks: 8,192 tokens.
const SYSTEM_PROMPTS: usize = 400;
const SYSTEM_BLOCKS: usize = 16;
/// Blocks of a question behind a system prompt, and of a prompt that nobody repeats.
const QUESTION: std::ops::RangeInclusive<u64> = 1..=4;
const UNIQUE: std::ops::RangeInclusive<u64> = 2..=30;
/// Requests a second of the trace's time: as many prompt tokens as the traces have.
const SHARED_RATE: f64 = 4.6;
const UNIQUE_RATE: f64 = 5.0;
/// Tokens of an answer.
const ANSWER: std::ops::RangeInclusive<u32> = 16..=500;

/// System prompts with Zipf's popularity (the n-th is asked for 1/n as often as the first), each
/// request with a question of its own; Poisson arrivals.
pub fn shared_prompts(requests: usize, seed: u64) -> Load {
    let mut rng = StdRng::seed_from_u64(seed);
    let weights: Vec<f64> = (1..=SYSTEM_PROMPTS).map(|rank| 1.0 / rank as f64).collect();
    let total: f64 = weights.iter().sum();
    let mut fresh = (SYSTEM_PROMPTS * SYSTEM_BLOCKS) as u64;
    let make = |at, rng: &mut StdRng| {
        let mut left = rng.random::<f64>() * total;
        let popular = weights.iter().position(|weight| {
            left -= weight;
            left < 0.0
        });
        let first = popular.unwrap_or(0) * SYSTEM_BLOCKS;
        let mut blocks: Vec<u64> = (first..first + SYSTEM_BLOCKS)
            .map(|block| block as u64)
            .collect();
        blocks.extend(take(rng.random_range(QUESTION), &mut fresh));
        request(at, blocks, SYSTEM_BLOCKS, rng)
    };
    let requests = poisson(requests, SHARED_RATE, &mut rng, make);
    Load {
        kind: Kind::SharedPrompts,
        requests,
    }
}

/// Prompts that nobody repeats, of very different lengths; Poisson arrivals.
pub fn no_reuse(requests: usize, seed: u64) -> Load {
    let mut rng = StdRng::seed_from_u64(seed);
    let mut fresh = 0;
    let make = |at, rng: &mut StdRng| {
        let blocks = take(rng.random_range(UNIQUE), &mut fresh).collect();
        request(at, blocks, 1, rng)
    };
    let requests = poisson(requests, UNIQUE_RATE, &mut rng, make);
    Load {
        kind: Kind::NoReuse,
        requests,
    }
}

fn poisson(
    count: usize,
    rate: f64,
    rng: &mut StdRng,
    mut make: impl FnMut(f64, &mut StdRng) -> Request,
) -> Vec<Request> {
    let mut at = 0.0;
    (0..count)
        .map(|_| {
            at -= (1.0 - rng.random::<f64>()).ln() / rate;
            make(at, rng)
        })
        .collect()
}

/// The next `count` numbers.
fn take(count: u64, fresh: &mut u64) -> std::ops::Range<u64> {
    let first = *fresh;
    *fresh += count;
    first..*fresh
}

fn request(at: f64, blocks: Vec<u64>, system: usize, rng: &mut StdRng) -> Request {
    Request {
        at,
        input: blocks.len() as u32 * BLOCK,
        blocks,
        system,
        output: rng.random_range(ANSWER),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_seeds_give_equal_loads_and_others_do_not() {
        assert_eq!(shared_prompts(50, 1), shared_prompts(50, 1));
        assert_ne!(shared_prompts(50, 1), shared_prompts(50, 2));
        assert_ne!(no_reuse(50, 1), no_reuse(50, 2));
    }

    #[test]
    fn prompts_that_nobody_repeats_have_no_block_in_common() {
        let load = no_reuse(200, 1);
        let all = load.requests.iter().flat_map(|one| &one.blocks);
        let distinct: HashSet<&u64> = all.clone().collect();
        assert_eq!(all.count(), distinct.len());
    }

    #[test]
    fn the_most_popular_system_prompt_is_asked_for_far_more_than_its_share() {
        let load = shared_prompts(1000, 1);
        let first = load
            .requests
            .iter()
            .filter(|one| one.blocks[0] == 0)
            .count();
        // 1 / (1 + 1/2 + … + 1/400) = 0.152 of them.
        assert!((100..210).contains(&first), "{first}");
        let times: Vec<f64> = load.requests.iter().map(|one| one.at).collect();
        assert!(times.is_sorted());
        let rate = 1000.0 / times[999];
        assert!((4.1..5.1).contains(&rate), "{rate}");
    }
}
