//! The simulator against one real vLLM: the same requests to both, and what each says of itself.
//!
//! Prompts are token ids, so that both have the same tokens. Hits are compared request by request.
//! Of queues only the shape can agree: how many run and wait as a burst is worked off, over the
//! share of the time it took.

mod burst;
mod server;
mod workload;

use clap::Args;
use serde::{Deserialize, Serialize};

use super::plot::{self, Caption, Line, PlotError, Scale};
use super::report::table;
use super::{BenchError, Figures};
use crate::sim::{Sim, SimConfig};
use burst::Curve;
use server::Server;

/// The real server.
#[derive(Debug, Clone, Args)]
#[group(id = "calibration")]
pub struct Options {
    /// Base URL of a running vLLM, started with --enable-prompt-tokens-details
    #[arg(long, value_name = "URL")]
    pub vllm: String,
    /// Its --max-num-seqs, which it does not tell
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..))]
    pub max_num_seqs: u32,
    /// Requests whose hits are compared, one after the other
    #[arg(long, default_value_t = 300, value_parser = clap::value_parser!(u32).range(1..))]
    pub compared: u32,
}

/// What came out.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Calibration {
    /// Its own word.
    pub vllm_version: String,
    /// Tokens in a block, and blocks, of both.
    pub block_size: u32,
    /// Of both; one is the null block.
    pub num_gpu_blocks: u32,
    /// Requests compared.
    pub requests: usize,
    /// Of those, requests with as many cached tokens at both.
    pub equal: usize,
    /// Prompt tokens, and those of them that were cached, by the servers' counters.
    pub vllm: Tokens,
    /// The same of the simulator.
    pub simulator: Tokens,
    /// The burst at each.
    pub vllm_burst: Curve,
    /// The same of the simulator.
    pub simulator_burst: Curve,
}

/// What a server's prefix-cache counters went up by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tokens {
    /// Looked up.
    pub queries: u64,
    /// Found.
    pub hits: u64,
}

/// Plays everything at the real server and at a simulated one with the same sizes.
pub async fn measure(options: &Options) -> Result<Calibration, BenchError> {
    let vllm = Server::at(&options.vllm).await?;
    let config = SimConfig {
        block_size: vllm.block_size,
        num_gpu_blocks: vllm.num_gpu_blocks,
        max_num_seqs: options.max_num_seqs,
        served_model_name: vec![vllm.model.clone()],
        ..SimConfig::default()
    };
    let sim = Sim::start(&config, 1).await?;
    let simulated = Server::at(&sim[0].url("")).await?;

    // Decided by the real server's room, so that blocks are evicted.
    let prompts = workload::prompts(options.compared as usize);
    let (real_hits, real) = hits(&vllm, &prompts).await?;
    let (simulated_hits, simulator) = hits(&simulated, &prompts).await?;
    let equal = real_hits.iter().zip(&simulated_hits);
    Ok(Calibration {
        vllm_version: vllm.version.clone(),
        block_size: vllm.block_size,
        num_gpu_blocks: vllm.num_gpu_blocks,
        requests: prompts.len(),
        equal: equal.filter(|(one, other)| one == other).count(),
        vllm: real,
        simulator,
        vllm_burst: burst::play(&vllm).await?,
        simulator_burst: burst::play(&simulated).await?,
    })
}

/// Cached tokens of each prompt, and what the counters say.
async fn hits(server: &Server, prompts: &[Vec<u32>]) -> Result<(Vec<u64>, Tokens), BenchError> {
    let before = server.tokens().await?;
    let mut cached = Vec::with_capacity(prompts.len());
    for prompt in prompts {
        cached.push(server.complete(prompt, workload::ANSWER).await?);
    }
    let after = server.tokens().await?;
    let tokens = Tokens {
        queries: after.queries - before.queries,
        hits: after.hits - before.hits,
    };
    Ok((cached, tokens))
}

impl Figures for Calibration {
    const NAME: &'static str = "calibration";
    const TITLE: &'static str = "The simulator against a real vLLM";

    fn markdown(&self) -> String {
        let row = |name: &str, tokens: &Tokens, curve: &Curve| {
            vec![
                name.to_owned(),
                tokens.queries.to_string(),
                tokens.hits.to_string(),
                curve.most(|state| state.running).to_string(),
                curve.most(|state| state.waiting).to_string(),
                format!("{:.2}", curve.mean_waiting()),
            ]
        };
        let head = [
            "server",
            "prompt tokens",
            "cached tokens",
            "most running",
            "most waiting",
            "mean waiting",
        ];
        let rows = [
            row(
                &format!("vLLM {}", self.vllm_version),
                &self.vllm,
                &self.vllm_burst,
            ),
            row("simulator", &self.simulator, &self.simulator_burst),
        ];
        let Self {
            requests,
            equal,
            block_size,
            num_gpu_blocks,
            ..
        } = self;
        format!(
            "{equal} of {requests} requests, one after the other, had as many cached tokens at both; {num_gpu_blocks} \
             blocks of {block_size} tokens, too few for all prompts. Then {} requests at once: most running and waiting by \
             the metrics pages, and the mean over the time it took.\n\n{}",
            burst::REQUESTS,
            table(&head, &rows),
        )
    }

    fn plots(&self) -> Result<Vec<(&'static str, String)>, PlotError> {
        let line = |name: &str, curve: &Curve| Line {
            name: name.to_owned(),
            points: curve.waiting(),
        };
        let lines = [
            line("vLLM", &self.vllm_burst),
            line("simulator", &self.simulator_burst),
        ];
        let caption = Caption {
            title: "A burst: requests waiting",
            x: "share of the time until the last was done",
            y: "waiting",
        };
        Ok(vec![(
            "burst",
            plot::lines(caption, Scale::Linear, &lines)?,
        )])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::Preset;

    /// Against a simulated server, which must agree with another one.
    #[tokio::test(flavor = "multi_thread")]
    async fn a_server_of_the_same_kind_agrees_in_every_hit() {
        let config = SimConfig {
            block_size: 32,
            num_gpu_blocks: 128,
            max_num_seqs: 2,
            preset: Preset::A100Llama8b,
            time_scale: 20.0,
            ..SimConfig::default()
        };
        let sim = Sim::start(&config, 1).await.expect("a port");
        let options = Options {
            vllm: sim[0].url(""),
            max_num_seqs: 2,
            compared: 40,
        };
        let figures = measure(&options).await.expect("it answers");
        assert_eq!((figures.requests, figures.equal), (40, 40));
        assert_eq!(figures.vllm, figures.simulator);
        assert!(figures.vllm.hits > 0, "{figures:?}");
        assert_eq!(figures.block_size, 32);
        let most = figures.vllm_burst.most(|state| state.running);
        assert!((1..=2).contains(&most), "{figures:?}");
        assert!(figures.markdown().contains("40 of 40 requests"));
    }
}
