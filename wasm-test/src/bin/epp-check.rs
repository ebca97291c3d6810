//! Checks a configuration of inline-epp without Envoy.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use wasm_test::check::check;
use wasm_test::schema::plugin_configuration;

/// Checks a plugin configuration, or an Envoy bootstrap with inline-epp in it; both YAML or JSON
///
/// Prints what was read and what is probably not meant. The exit code is 1 for what Envoy or the
/// module would refuse, 0 otherwise.
#[derive(Debug, Parser)]
#[command(name = "epp-check")]
struct Arguments {
    /// The file
    #[arg(required_unless_present = "schema")]
    config: Option<PathBuf>,
    /// Print the JSON schema of the plugin configuration instead
    #[arg(long, conflicts_with = "config")]
    schema: bool,
}

fn main() -> ExitCode {
    let Some(config) = Arguments::parse().config else {
        println!("{:#}", plugin_configuration());
        return ExitCode::SUCCESS;
    };
    match check(&config) {
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
