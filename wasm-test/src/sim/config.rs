//! Settings of a simulated server, named as vLLM names its flags.

use std::str::FromStr;
use std::time::Duration;

use clap::Args;

use crate::sim::adapter::Adapter;
use crate::sim::faults::{Overrides, Span};
use crate::sim::preset::{Preset, Timing};
use crate::sim::transfer::LoadFailure;

/// One server's settings. The defaults are those of the command line.
#[derive(Debug, Clone, Args)]
pub struct SimConfig {
    /// Model and GPU whose speed is simulated
    #[arg(long, value_enum, default_value = "a100-8b")]
    pub preset: Preset,
    /// Divides every delay: 100 is a hundred times faster
    #[arg(long, default_value_t = 1.0, value_parser = positive)]
    pub time_scale: f64,
    /// Tokens in one KV-cache block
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..))]
    pub block_size: u32,
    /// KV-cache blocks, one of which is the null block
    #[arg(long, default_value_t = 8192, value_parser = clap::value_parser!(u32).range(2..))]
    pub num_gpu_blocks: u32,
    /// Requests that run at once
    #[arg(long, default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..))]
    pub max_num_seqs: u32,
    /// Requests, running and waiting, beyond which new ones get 503
    #[arg(long)]
    pub max_num_queued_reqs: Option<u32>,
    /// Longest prompt plus answer in tokens; never more than the KV cache holds
    #[arg(long, default_value_t = 131_072)]
    pub max_model_len: u32,
    /// Names of the base model; the first labels the metrics
    #[arg(long, num_args = 1.., value_delimiter = ',', default_value = "sim-model")]
    pub served_model_name: Vec<String>,
    /// `LoRA` adapters, each usable as a model: `name` or `name=rank`, rank 16 if not given
    #[arg(long, num_args = 1.., value_delimiter = ',', value_parser = Adapter::from_str)]
    pub lora_modules: Vec<Adapter>,
    /// Adapters that are loaded at once; all of them if not given
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    pub max_loras: Option<u32>,
    /// Engines behind the one port, each with a cache of its own
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub data_parallel_size: u32,
    /// Bytes of a completion's prompt in one token, in place of the tokenizer's words
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    pub bytes_per_token: Option<u32>,
    /// Take part in prefill/decode, as with vLLM's NIXL connector
    #[arg(long)]
    pub kv_transfer: bool,
    /// What becomes of a request whose blocks another server does not hand over
    #[arg(long, value_enum, default_value = "fail")]
    pub kv_load_failure_policy: LoadFailure,
    /// Milliseconds that blocks are kept for another server, divided by the time scale
    #[arg(long, default_value_t = 30_000)]
    pub kv_lease_ms: u64,
    /// Milliseconds after each start in which the server answers and its model is not there yet
    #[arg(long, default_value_t = 0)]
    pub loading_ms: u64,
    /// Milliseconds an idle connection is kept open; vLLM's own default is 5 s
    #[arg(long, default_value_t = 5000)]
    pub keep_alive_ms: u64,
    /// Delays in the place of the preset's; not scaled
    #[arg(skip)]
    pub custom_timing: Option<Timing>,
}

pub(crate) fn positive(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(value) if value.is_finite() && value > 0.0 => Ok(value),
        Ok(_) => Err("must be above 0".into()),
        Err(error) => Err(error.to_string()),
    }
}

impl Default for SimConfig {
    fn default() -> Self {
        Self {
            preset: Preset::A100Llama8b,
            time_scale: 1.0,
            block_size: 16,
            num_gpu_blocks: 8192,
            max_num_seqs: 256,
            max_num_queued_reqs: None,
            max_model_len: 131_072,
            served_model_name: vec!["sim-model".into()],
            lora_modules: Vec::new(),
            max_loras: None,
            data_parallel_size: 1,
            bytes_per_token: None,
            kv_transfer: false,
            kv_load_failure_policy: LoadFailure::Fail,
            kv_lease_ms: 30_000,
            loading_ms: 0,
            keep_alive_ms: 5000,
            custom_timing: None,
        }
    }
}

impl SimConfig {
    /// The name the server answers with and labels its metrics with.
    pub fn model_name(&self) -> &str {
        self.served_model_name
            .first()
            .map_or("sim-model", String::as_str)
    }

    pub fn timing(&self) -> Timing {
        let preset = || self.preset.timing(self.time_scale);
        self.custom_timing.unwrap_or_else(preset)
    }

    pub fn keep_alive(&self) -> Duration {
        Duration::from_millis(self.keep_alive_ms)
    }

    /// How long blocks are kept for another server.
    pub fn kv_lease(&self) -> Duration {
        Duration::from_millis(self.kv_lease_ms).div_f64(self.time_scale)
    }

    /// Longest prompt plus answer in tokens. A longer one could never get its blocks.
    pub fn context_tokens(&self) -> usize {
        let cache = (self.num_gpu_blocks as usize - 1) * self.block_size as usize;
        cache.min(self.max_model_len as usize)
    }

    /// Whether `model` names the base model (`Some(None)`) or an adapter; `None` if unknown.
    pub fn resolve_model(&self, model: &str) -> Option<Option<&Adapter>> {
        if self.served_model_name.iter().any(|name| name == model) {
            return Some(None);
        }
        let adapter = self.lora_modules.iter().find(|known| known.name == model)?;
        Some(Some(adapter))
    }

    /// Adapters that are loaded at once.
    pub fn max_loras(&self) -> usize {
        let all = self.lora_modules.len();
        self.max_loras.map_or(all, |limit| limit as usize)
    }

    /// What a server starts with.
    pub fn overrides(&self) -> Overrides {
        let scaled = (self.loading_ms as f64 / self.time_scale).round();
        Overrides {
            loading: match self.loading_ms {
                0 => Span::Never,
                _ => Span::ForMs(scaled as u64),
            },
            ..Overrides::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::{FromArgMatches, error::ErrorKind};

    use super::*;

    fn parse(arguments: &[&str]) -> Result<SimConfig, ErrorKind> {
        SimConfig::augment_args(clap::Command::new("vllm-sim").no_binary_name(true))
            .try_get_matches_from(arguments)
            .map(|matches| SimConfig::from_arg_matches(&matches).expect("parsed arguments fit"))
            .map_err(|error| error.kind())
    }

    #[test]
    fn the_defaults_are_those_of_the_command_line() {
        let parsed = parse(&[]).expect("no argument is required");
        assert_eq!(format!("{parsed:?}"), format!("{:?}", SimConfig::default()));
    }

    #[test]
    fn values_that_cannot_work_are_refused() {
        for arguments in [
            ["--block-size", "0"],
            ["--num-gpu-blocks", "1"],
            ["--max-num-seqs", "0"],
            ["--max-loras", "0"],
            ["--data-parallel-size", "0"],
            ["--lora-modules", "a=0"],
        ] {
            assert_eq!(
                parse(&arguments).err(),
                Some(ErrorKind::ValueValidation),
                "{arguments:?}"
            );
        }
        for scale in ["0", "-1", "inf", "x"] {
            assert!(
                parse(&[&format!("--time-scale={scale}")]).is_err(),
                "{scale}"
            );
        }
    }

    #[test]
    fn models_and_adapters_resolve_by_name() {
        let config = parse(&[
            "--served-model-name",
            "base,alias",
            "--lora-modules",
            "a=64,b",
        ])
        .expect("valid arguments");
        assert_eq!(config.model_name(), "base");
        assert_eq!(config.resolve_model("alias"), Some(None));
        let rank = |name| {
            config
                .resolve_model(name)
                .flatten()
                .map(|adapter| adapter.rank)
        };
        assert_eq!((rank("a"), rank("b")), (Some(64), Some(16)));
        assert_eq!(config.resolve_model("c"), None);
    }

    #[test]
    fn context_is_bounded_by_the_cache() {
        let config = SimConfig {
            num_gpu_blocks: 64,
            block_size: 32,
            ..SimConfig::default()
        };
        assert_eq!(config.context_tokens(), 63 * 32);
    }
}
