//! How the endpoints' metrics are read.

use core::time::Duration;

use super::error::ConfigError;
use super::fields::Fields;
use super::metric_spec::MetricSpec;

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
    /// Port of the metrics text at each endpoint's address; `None`: the endpoint's own. Only ever
    /// given with a cluster, since the pool's own has no host at another port.
    pub port: Option<u16>,
    /// Whose metric names to expect.
    pub engine: Engine,
    /// Where the GPUs' load is read beside it; `None`: it is not.
    pub gpu: Option<GpuConfig>,
    /// Series that plugins ask for, in the order in which [`crate::datalayer::Signals`] holds their
    /// values; at most [`MetricSpec::MAX`].
    pub signals: Vec<MetricSpec>,
}

/// Where a DCGM exporter stands beside each endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GpuConfig {
    /// The cluster that its scrapes go through: the endpoints' addresses with [`Self::port`].
    pub cluster: String,
    /// Its port at each endpoint's address.
    pub port: u16,
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
        let cluster = fields.optional_text("cluster")?;
        let port = fields.optional_whole("port")?;
        if let (Some(port), None) = (port, &cluster) {
            // The pool's cluster would send the scrape to a host of its own choice.
            let path = fields.path_of("port");
            let expected = "a port only beside metrics.cluster, a cluster with hosts at that port";
            return Err(ConfigError::expected(&path, expected, port));
        }
        let gpu_port = fields.whole("gpuPort")?;
        let gpu_cluster = fields.optional_text("gpuCluster")?;
        let gpu = gpu_cluster.zip(narrow(gpu_port));
        Ok(Self {
            path: fields.text("path")?,
            interval: fields.duration("interval")?,
            timeout: fields.duration("timeout")?,
            cluster,
            port: port.and_then(narrow),
            engine: fields.choice("engine", &ENGINES)?,
            gpu: gpu.map(|(cluster, port)| GpuConfig { cluster, port }),
            signals: Vec::new(),
        })
    }
}

/// The list of keys holds ports to their range.
fn narrow(port: u32) -> Option<u16> {
    u16::try_from(port).ok()
}
