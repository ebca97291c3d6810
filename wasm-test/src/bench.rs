//! The benchmark: what `scripts/bench.sh` measures, and how a result is kept and shown.
//!
//! A part is a subcommand: a module here with its options, a function that measures, and
//! [`Figures`] of what came out. To add one, write the module, implement [`Figures`], and name it in
//! [`report::sections`] and in `src/bin/bench.rs`. Everything else is shared: [`Run`] has the
//! folder and says who measured what where, [`spread`] the statistics, [`plot`] the drawings.

pub mod calibration;
pub mod latency;
pub mod machine;
pub mod overhead;
pub mod plot;
pub mod quality;
pub mod report;
pub mod results;
pub mod scale;
pub mod spread;

use std::io;
use std::path::PathBuf;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::demo::DemoError;
use crate::envoy::{AdminError, StartError};

pub use results::{Results, Run};

/// What one part measured. Kept as JSON; the report is written from the JSON alone.
pub trait Figures: Serialize + DeserializeOwned {
    /// Of the subcommand and of the files.
    const NAME: &'static str;
    /// Heading of the report's section.
    const TITLE: &'static str;

    /// The section, in Markdown, without heading and provenance.
    fn markdown(&self) -> String;

    /// Drawings, each with the name its file has after [`Self::NAME`].
    fn plots(&self) -> Result<Vec<(&'static str, String)>, plot::PlotError>;
}

/// Why nothing was measured.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// A file or folder, with what went wrong.
    #[error("{path}: {source}")]
    File {
        /// Which one.
        path: PathBuf,
        /// What went wrong.
        source: io::Error,
    },
    /// A file that is there and cannot be used.
    #[error("{path}: {problem}")]
    Content {
        /// Which one.
        path: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
    /// An Envoy did not start.
    #[error(transparent)]
    Envoy(#[from] StartError),
    /// An Envoy's admin interface gave no usable answer.
    #[error(transparent)]
    Admin(#[from] AdminError),
    /// Servers' counters could not be read.
    #[error(transparent)]
    Counters(#[from] DemoError),
    /// Sockets, processes.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// An HTTP client.
    #[error(transparent)]
    Http(#[from] reqwest::Error),
    /// A drawing.
    #[error(transparent)]
    Plot(#[from] plot::PlotError),
    /// A result as JSON.
    #[error(transparent)]
    Json(#[from] serde_json::Error),
}
