//! Shows what inline-epp saves; `scripts/demo.sh` builds and runs it.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Parser;
use serde_json::json;
use tokio::signal::unix::{SignalKind, signal};
use wasm_test::demo::serve::Serving;
use wasm_test::demo::verdict::{Check, checks};
use wasm_test::demo::{Comparison, DemoError, Options, compare, report};

/// Plays the same conversations through Envoy's round robin and through inline-epp
#[derive(Debug, Parser)]
#[command(name = "demo")]
struct Arguments {
    #[command(flatten)]
    options: Options,
    /// Then keep Envoy and the servers running, until Ctrl-C
    #[arg(long)]
    serve: bool,
    /// Envoy's port with --serve; without it, the first free one from 8080 on
    #[arg(long, requires = "serve")]
    port: Option<u16>,
    /// Write all figures to this file, as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

#[tokio::main]
async fn main() -> ExitCode {
    match run(&Arguments::parse()).await {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("demo: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Whether everything was shown that was to be shown.
async fn run(arguments: &Arguments) -> Result<bool, DemoError> {
    let options = &arguments.options;
    println!("{}", report::heading(options));
    let comparisons = compare(options).await?;
    for comparison in &comparisons {
        println!("{}", report::comparison(comparison));
    }
    let checks = checks(&comparisons, options);
    println!("{}", report::verdict(&checks));
    if let Some(file) = &arguments.json {
        write_json(file, options, &comparisons, &checks)?;
    }
    if arguments.serve {
        serve(options, arguments.port).await?;
    }
    Ok(checks.iter().all(|check| check.held))
}

async fn serve(options: &Options, port: Option<u16>) -> Result<(), DemoError> {
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let serving = Serving::start(options, port).await?;
    println!("{}", serving.instructions());
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
    Ok(())
}

fn write_json(
    file: &Path,
    options: &Options,
    comparisons: &[Comparison],
    checks: &[Check],
) -> Result<(), DemoError> {
    let all = json!({ "options": options, "comparisons": comparisons, "checks": checks });
    serde_json::to_writer_pretty(File::create(file)?, &all)?;
    Ok(())
}
