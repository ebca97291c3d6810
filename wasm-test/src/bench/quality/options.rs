//! How much is replayed, and against what.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::load::{self, BLOCK, Kind, Load};
use super::router::Router;
use super::text::{ANSWER_TOKENS, TOKENS};
use super::trace;
use crate::bench::BenchError;
use crate::repository;
use crate::sim::config::positive;
use crate::sim::preset::Timing;
use crate::sim::{Preset, SimConfig};

/// How much is replayed, and against what.
#[derive(Debug, Clone, Args)]
#[group(id = "quality")]
pub struct Options {
    /// Folder of mooncake-conversation.jsonl and mooncake-synthetic.jsonl; relative to the repository
    #[arg(long, env = "BENCH_TRACES", default_value = "../shared/traces")]
    pub traces: PathBuf,
    /// Loads; all of them if not given
    #[arg(long, value_enum, value_delimiter = ',')]
    pub loads: Vec<Kind>,
    /// Routers; all of them if not given
    #[arg(long, value_enum, value_delimiter = ',')]
    pub routers: Vec<Router>,
    /// Requests of each load, from its beginning
    #[arg(long, default_value_t = 3000, value_parser = clap::value_parser!(u32).range(10..))]
    pub requests: u32,
    /// All requests of the traces
    #[arg(long, conflicts_with = "requests")]
    pub full: bool,
    /// Three routers and one load in a few seconds: shows that everything works, and nothing else
    #[arg(long, conflicts_with_all = ["requests", "full", "loads", "routers"])]
    pub quick: bool,
    /// Replays of each load through each router, interleaved
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub replays: u32,
    /// Keep what an earlier run with the same sizes left in the folder, but for what was late or behind
    #[arg(long)]
    pub resume: bool,
    /// Seed of the synthetic loads
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    #[command(flatten)]
    pub setup: Setup,
}

/// The simulated servers, and what of the module is not as shipped.
#[derive(Debug, Clone, PartialEq, Args, Serialize, Deserialize)]
pub struct Setup {
    /// Simulated servers, each an A100 with an 8B model
    #[arg(long, default_value_t = 12, value_parser = clap::value_parser!(u16).range(1..=256))]
    pub servers: u16,
    /// Blocks of 512 of the trace's tokens in each server's cache
    #[arg(long, default_value_t = 2000, value_parser = clap::value_parser!(u32).range(400..=100_000))]
    pub cache_blocks: u32,
    /// How many times faster than recorded the loads are played
    #[arg(long, default_value_t = 20.0, value_parser = positive)]
    pub compression: f64,
    /// JSON that is merged into the pool of every inline-epp router, such as {"prefix": {"capacityBlocks": 5000}}
    #[serde(default = "empty")]
    #[arg(long, value_name = "JSON", default_value = "{}", value_parser = object)]
    pub pool: Value,
}

fn empty() -> Value {
    Value::Object(serde_json::Map::new())
}

fn object(text: &str) -> Result<Value, String> {
    match serde_json::from_str(text) {
        Ok(Value::Object(members)) => Ok(Value::Object(members)),
        Ok(_) => Err("must be an object".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

/// Shortest scrape interval of the module.
const SHORTEST_INTERVAL_MS: u64 = 50;

const QUICK_REQUESTS: usize = 200;
const QUICK_ROUTERS: [Router; 3] = [Router::RoundRobin, Router::Default, Router::Oracle];

impl Options {
    /// The routers that are asked for.
    pub fn routers(&self) -> &[Router] {
        match (self.quick, self.routers.is_empty()) {
            (true, _) => &QUICK_ROUTERS,
            (_, true) => Router::value_variants(),
            _ => &self.routers,
        }
    }

    /// The loads that are asked for.
    pub fn read(&self) -> Result<Vec<Load>, BenchError> {
        let kinds: &[Kind] = match (self.quick, self.loads.is_empty()) {
            (true, _) => &[Kind::SharedPrompts],
            (_, true) => Kind::value_variants(),
            _ => &self.loads,
        };
        kinds.iter().map(|kind| self.load(*kind)).collect()
    }

    fn load(&self, kind: Kind) -> Result<Load, BenchError> {
        let requests = if self.quick {
            QUICK_REQUESTS
        } else {
            self.requests as usize
        };
        let recorded = |file| {
            let limit = if self.full { usize::MAX } else { requests };
            trace::read(kind, file, &repository::path(&self.traces), limit)
        };
        match kind {
            Kind::Conversation => recorded("mooncake-conversation.jsonl"),
            Kind::Synthetic => recorded("mooncake-synthetic.jsonl"),
            Kind::SharedPrompts => Ok(load::shared_prompts(requests, self.seed)),
            Kind::NoReuse => Ok(load::no_reuse(requests, self.seed)),
        }
    }
}

impl Setup {
    /// The settings of every server. What one token here stands for takes as long as in the trace,
    /// all divided by the compression.
    pub fn sim_config(&self) -> SimConfig {
        let block_size = SimConfig::default().block_size;
        let real = Preset::A100Llama8b.timing(1.0);
        let scaled = |time: Duration, tokens: u32| (time * tokens).div_f64(self.compression);
        SimConfig {
            num_gpu_blocks: self.cache_blocks * (BLOCK / TOKENS) / block_size + 1,
            custom_timing: Some(Timing {
                prefill_base: scaled(real.prefill_base, 1),
                prefill_per_token: scaled(real.prefill_per_token, TOKENS),
                decode_per_token: scaled(real.decode_per_token, ANSWER_TOKENS),
                lora_load_per_rank: real.lora_load_per_rank,
            }),
            ..SimConfig::default()
        }
    }

    /// What a second of the load's time is, as a scrape interval.
    pub fn interval_ms(&self) -> u64 {
        let second = (1e3 / self.compression).round() as u64;
        second.max(SHORTEST_INTERVAL_MS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_servers_prefill_takes_what_it_takes_in_the_trace() {
        let setup = Setup {
            servers: 1,
            cache_blocks: 1000,
            compression: 20.0,
            pool: Value::default(),
        };
        let config = setup.sim_config();
        // 4,096 tokens of the trace are 1,024 here: 0.9 s on an A100, a twentieth of that here.
        let prefill = config.timing().prefill(1024).as_secs_f64();
        assert!((prefill * 20.0 - 0.9).abs() < 0.01, "{prefill}");
        assert_eq!(config.num_gpu_blocks, 1000 * 8 + 1);
        assert_eq!(setup.interval_ms(), 50);
    }
}
