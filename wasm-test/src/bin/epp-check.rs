//! Checks a configuration of inline-epp without Envoy.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use wasm_test::check::check;

/// Checks a plugin configuration, or an Envoy bootstrap with inline-epp in it; both YAML or JSON
///
/// Prints what was read and what is probably not meant. The exit code is 1 for what Envoy or the
/// module would refuse, 0 otherwise.
#[derive(Debug, Parser)]
#[command(name = "epp-check")]
struct Arguments {
    /// The file
    config: PathBuf,
}

fn main() -> ExitCode {
    match check(&Arguments::parse().config) {
        Ok(report) => {
            print!("{report}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("epp-check: {error}");
            ExitCode::FAILURE
        }
    }
}
