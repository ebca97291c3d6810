//! Measures inline-epp; `scripts/bench.sh` builds and runs it.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use tokio::signal::unix::{SignalKind, signal};
use wasm_test::bench::machine::Provenance;
use wasm_test::bench::overhead::ext_proc;
use wasm_test::bench::{BenchError, Run, calibration, overhead, quality, scale};

/// Measures inline-epp and its peers; results, drawings and the report go to one folder
#[derive(Debug, Parser)]
#[command(name = "bench")]
struct Arguments {
    #[command(subcommand)]
    part: Part,
    /// Folder of results, drawings and report
    #[arg(long, global = true, default_value = "target/bench")]
    out: PathBuf,
}

#[derive(Debug, Subcommand)]
enum Part {
    /// Hit ratio and time to first token, by router and load
    Quality(quality::Options),
    /// What a request costs: plain Envoy, a do-nothing `ext_proc` service, inline-epp
    Overhead(overhead::Options),
    /// How the cost of a decision grows with prompt, endpoints, index and workers
    Scale(scale::Options),
    /// The simulator against a real vLLM, which must be running; no part of `all`
    Calibration(calibration::Options),
    /// Every part that needs nothing but this machine
    All(All),
    /// The do-nothing `ext_proc` service, which `overhead` starts
    #[command(hide = true)]
    ExtProc {
        /// The header it sets
        header: String,
        /// To what
        endpoint: String,
    },
}

/// The parts name their groups of options themselves: clap would call each after its type, which is
/// `Options` for all.
#[derive(Debug, clap::Args)]
struct All {
    #[command(flatten)]
    overhead: overhead::Options,
    #[command(flatten)]
    scale: scale::Options,
    #[command(flatten)]
    quality: quality::Options,
}

#[tokio::main]
async fn main() -> ExitCode {
    let arguments = Arguments::parse();
    // Ended by its own hand, so that no Envoy and no other router stays behind.
    let result = tokio::select! {
        result = run(arguments) => result,
        () = told_to_end() => return ExitCode::FAILURE,
    };
    match result {
        Ok(report) => {
            println!("{}", report.display());
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("bench: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Waits for SIGINT or SIGTERM.
async fn told_to_end() {
    let signals = [SignalKind::interrupt(), SignalKind::terminate()].map(signal);
    let [Ok(mut interrupt), Ok(mut terminate)] = signals else {
        return std::future::pending().await;
    };
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
}

/// Returns where the report is.
async fn run(arguments: Arguments) -> Result<PathBuf, BenchError> {
    let provenance = Provenance::now(std::env::args().skip(1));
    let run = Run::begin(arguments.out, provenance)?;
    match arguments.part {
        Part::Quality(options) => run.keep(quality::measure(&options, &run).await?),
        Part::Overhead(options) => run.keep(overhead::measure(&options, &run).await?),
        Part::Scale(options) => run.keep(scale::measure(&options, &run).await?),
        Part::All(All {
            overhead,
            scale,
            quality,
        }) => {
            run.keep(overhead::measure(&overhead, &run).await?)?;
            run.keep(scale::measure(&scale, &run).await?)?;
            run.keep(quality::measure(&quality, &run).await?)
        }
        Part::Calibration(options) => run.keep(calibration::measure(&options).await?),
        Part::ExtProc { header, endpoint } => match ext_proc::run(&header, &endpoint).await? {},
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    /// Parts that are run together share one command line.
    #[test]
    fn no_two_options_of_all_parts_have_one_name() {
        Arguments::command().debug_assert();
        let arguments = Arguments::parse_from(["bench", "all"]);
        let Part::All(all) = arguments.part else {
            panic!("another part");
        };
        assert_eq!((all.overhead.rounds, all.quality.replays), (20, 1));
    }
}
