//! One run: fresh servers, an Envoy in front of them, one workload.

use std::fmt;

use super::counters::CacheCounters;
use super::figures::Figures;
use super::player::play;
use super::workload::{Kind, Workload};
use super::{DemoError, Options, WORKERS};
use crate::envoy::{CANONICAL, Envoy, NO_FILTER};
use crate::progress::Progress;
use crate::sim::Sim;
use crate::sim::template::Message;

/// Who chooses the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Routing {
    /// Stock Envoy, from `envoy/no-filter.yaml`.
    RoundRobin,
    /// The module, from `envoy/envoy.yaml`.
    InlineEpp,
}

impl fmt::Display for Routing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::RoundRobin => "round robin",
            Self::InlineEpp => "inline-epp",
        })
    }
}

/// Plays `workload`; returns the figures and all messages of every conversation.
pub async fn run(
    routing: Routing,
    workload: &Workload,
    options: &Options,
    progress: &mut Progress,
) -> Result<(Figures, Vec<Vec<Message>>), DemoError> {
    let config = options.sim_config();
    let sim = Sim::start(&config, usize::from(options.servers)).await?;
    let envoy = start_envoy(routing, workload.kind, &sim).await?;
    let before = CacheCounters::read(&sim).await?;
    let in_flight = usize::from(options.in_flight);
    let played = play(
        workload,
        &envoy.url(),
        config.model_name(),
        in_flight,
        || progress.step(),
    )
    .await;
    let cache = CacheCounters::read(&sim).await? - before;
    let predicted = match routing {
        Routing::RoundRobin => None,
        Routing::InlineEpp => Some(predicted_hit_ratio(&envoy).await?),
    };
    let size = (workload.questions.len(), usize::from(options.turns));
    let figures = Figures::new(&played.turns, size, &sim.addresses(), cache, predicted);
    Ok((figures, played.histories))
}

async fn start_envoy(routing: Routing, kind: Kind, sim: &Sim) -> Result<Envoy, DemoError> {
    let builder = match routing {
        Routing::RoundRobin => Envoy::builder(NO_FILTER),
        Routing::InlineEpp => Envoy::builder(CANONICAL).plugin(move |plugin| {
            plugin["debugHeaders"] = true.into();
            plugin["pools"][0]["scoring"]["preset"] = kind.scoring_preset().into();
        }),
    };
    let builder = builder.endpoints(&sim.addresses()).concurrency(WORKERS);
    Ok(builder.start().await?)
}

async fn predicted_hit_ratio(envoy: &Envoy) -> Result<f64, DemoError> {
    let matched = counter(envoy, "epp_cache_match_blocks_total").await?;
    let all = counter(envoy, "epp_prompt_blocks_total").await?;
    Ok(matched / all.max(1.0))
}

async fn counter(envoy: &Envoy, name: &'static str) -> Result<f64, DemoError> {
    let value = envoy.prometheus_value(name, &[]).await?;
    value.ok_or(DemoError::NoSuchMetric(name))
}
