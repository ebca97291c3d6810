//! Where requests should have gone: hit ratio and time to first token by router.
//!
//! Traces and synthetic loads are replayed, faster than they were recorded, against simulated
//! servers whose caches hold a fraction of what is asked for.

pub mod load;
pub mod text;
pub mod trace;

use std::path::PathBuf;

use clap::Args;
use serde::{Deserialize, Serialize};

use super::plot::PlotError;
use super::report::table;
use super::{BenchError, Figures, Run};
use crate::repository;
use crate::sim::SimConfig;
use load::{Kind, Load, Shape};
use text::Prompt;

/// How much is replayed.
#[derive(Debug, Clone, Args)]
pub struct Options {
    /// Folder of mooncake-conversation.jsonl and mooncake-synthetic.jsonl; relative to the repository
    #[arg(long, env = "BENCH_TRACES", default_value = "../shared/traces")]
    pub traces: PathBuf,
    /// Loads; all of them if not given
    #[arg(long, value_enum, value_delimiter = ',')]
    pub loads: Vec<Kind>,
    /// Requests of each load, from its beginning
    #[arg(long, default_value_t = 3000, value_parser = clap::value_parser!(u32).range(10..))]
    pub requests: u32,
    /// All requests of the traces
    #[arg(long, conflicts_with = "requests")]
    pub full: bool,
    /// Seed of the synthetic loads
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
}

/// What came out.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Quality {
    /// One entry a load.
    pub loads: Vec<LoadFigures>,
}

/// What came out for one load.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct LoadFigures {
    /// Which one.
    pub kind: Kind,
    /// What it is like.
    pub shape: Shape,
}

/// Replays every load.
pub fn measure(options: &Options, _run: &Run) -> Result<Quality, BenchError> {
    let config = SimConfig::default();
    let mut loads = Vec::new();
    for load in options.read()? {
        let block_size = config.block_size as usize;
        let prompts: Vec<Prompt> = load
            .requests
            .iter()
            .map(|request| Prompt::new(request, config.model_name(), block_size))
            .collect();
        loads.push(LoadFigures {
            kind: load.kind,
            shape: load.shape(&prompts, block_size),
        });
    }
    Ok(Quality { loads })
}

const ALL: [Kind; 4] = [
    Kind::Conversation,
    Kind::Synthetic,
    Kind::SharedPrompts,
    Kind::NoReuse,
];

impl Options {
    /// The loads that are asked for.
    fn read(&self) -> Result<Vec<Load>, BenchError> {
        let kinds: &[Kind] = if self.loads.is_empty() {
            &ALL
        } else {
            &self.loads
        };
        kinds.iter().map(|kind| self.load(*kind)).collect()
    }

    fn load(&self, kind: Kind) -> Result<Load, BenchError> {
        let requests = self.requests as usize;
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

impl Figures for Quality {
    const NAME: &'static str = "quality";
    const TITLE: &'static str = "Where requests should have gone";

    fn markdown(&self) -> String {
        let row = |one: &LoadFigures| {
            vec![
                one.kind.name().to_owned(),
                one.shape.requests.to_string(),
                format!("{:.0}", one.shape.seconds),
                format!("{:.0}", one.shape.mean_prompt),
                one.shape.working_set.to_string(),
                format!("{:.3}", one.shape.ideal_hit_ratio),
            ]
        };
        let rows: Vec<Vec<String>> = self.loads.iter().map(row).collect();
        let head = [
            "load",
            "requests",
            "seconds",
            "tokens a prompt",
            "distinct blocks",
            "best possible hit ratio",
        ];
        table(&head, &rows)
    }

    fn plots(&self) -> Result<Vec<(&'static str, String)>, PlotError> {
        Ok(Vec::new())
    }
}
