//! How the endpoints' metrics are read.

use core::time::Duration;

use super::error::ConfigError;
use super::fields::Fields;

/// How the endpoints' metrics are read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetricsConfig {
    /// Path of the metrics text, with its query if any.
    pub path: String,
    /// Time between two scrapes of an endpoint.
    pub interval: Duration,
    /// Time after which a scrape has failed.
    pub timeout: Duration,
    /// The cluster that scrapes go through; `None`: the pool's own.
    pub cluster: Option<String>,
    /// Whose metric names to expect.
    pub engine: Engine,
}

/// Whose metric names to expect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Engine {
    /// Those that the text has.
    Auto,
    /// vLLM's.
    Vllm,
    /// `SGLang`'s.
    Sglang,
    /// Those of TensorRT-LLM's own server, `trtllm-serve`.
    Trtllm,
    /// Those of Triton with the TensorRT-LLM backend.
    Triton,
}

/// In the order of their names in the list of keys.
const ENGINES: [Engine; 5] = [
    Engine::Auto,
    Engine::Vllm,
    Engine::Sglang,
    Engine::Trtllm,
    Engine::Triton,
];

impl MetricsConfig {
    pub(super) fn read(fields: &Fields<'_>) -> Result<Self, ConfigError> {
        Ok(Self {
            path: fields.text("path")?,
            interval: fields.duration("interval")?,
            timeout: fields.duration("timeout")?,
            cluster: fields.optional_text("cluster")?,
            engine: fields.choice("engine", &ENGINES)?,
        })
    }
}
