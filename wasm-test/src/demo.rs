//! The demo: the same conversations through Envoy's round robin and through inline-epp.
//!
//! Everything but the model servers' GPUs is real. What a run shows comes from the servers: they
//! say who served a turn, and their own counters say what was in their caches.

pub mod client;
pub mod counters;
pub mod figures;
pub mod ideal;
pub mod options;
pub mod player;
pub mod report;
pub mod run;
pub mod serve;
pub mod verdict;
pub mod workload;

use serde::Serialize;

pub use options::Options;

use crate::envoy::{AdminError, StartError};
use crate::progress::Progress;
use figures::Figures;
use run::Routing;
use workload::{Kind, Workload};

/// Worker threads of every Envoy here.
pub const WORKERS: usize = 2;

/// Both runs of one workload.
#[derive(Debug, Clone, Serialize)]
pub struct Comparison {
    /// What the conversations have in common.
    pub workload: Kind,
    /// Hit ratio of one cache that holds everything; no routing can do better.
    pub ideal_hit_ratio: f64,
    /// Stock Envoy.
    pub round_robin: Figures,
    /// The same Envoy with the module.
    pub inline_epp: Figures,
}

/// Why there is nothing to show.
#[derive(Debug, thiserror::Error)]
pub enum DemoError {
    /// Envoy did not start.
    #[error(transparent)]
    Envoy(#[from] StartError),
    /// Envoy's admin interface gave no usable answer.
    #[error(transparent)]
    Admin(#[from] AdminError),
    /// A simulated server could not be started, or a file not be written.
    #[error(transparent)]
    Io(#[from] std::io::Error),
    /// A server's metrics page could not be read.
    #[error(transparent)]
    Http(#[from] reqwest::Error),
    /// A metrics page lacks what the demo reads from it.
    #[error("there is no metric called {0}")]
    NoSuchMetric(&'static str),
    /// The figures could not be written as JSON.
    #[error(transparent)]
    Json(#[from] serde_json::Error),
}

/// Plays every workload through both, each time on fresh servers.
pub async fn compare(options: &Options) -> Result<Vec<Comparison>, DemoError> {
    let workloads = [Kind::Distinct, Kind::SharedSystemPrompt].map(|kind| (kind, options));
    let turns = options.turns_in_all() * workloads.len() * 2;
    let mut progress = Progress::new(turns, "turns");
    let mut comparisons = Vec::new();
    for (kind, options) in workloads {
        let workload = Workload::new(kind, options);
        let mut run = async |routing| {
            progress.announce(&format!("{routing}, {kind}"));
            run::run(routing, &workload, options, &mut progress).await
        };
        let (round_robin, _) = run(Routing::RoundRobin).await?;
        let (inline_epp, histories) = run(Routing::InlineEpp).await?;
        comparisons.push(Comparison {
            workload: kind,
            ideal_hit_ratio: ideal::hit_ratio(&histories),
            round_robin,
            inline_epp,
        });
    }
    progress.finish();
    Ok(comparisons)
}
