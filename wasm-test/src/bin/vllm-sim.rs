//! Runs simulated model servers until SIGINT or SIGTERM.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::process::ExitCode;

use clap::Parser;
use tokio::signal::unix::{SignalKind, signal};
use wasm_test::sim::{Sim, SimConfig};

/// Model servers that behave like vLLM, without a GPU
#[derive(Debug, Parser)]
#[command(name = "vllm-sim")]
struct Arguments {
    /// Number of servers, each an engine of its own
    #[arg(long, default_value_t = 4)]
    servers: u16,
    /// Port of the first server, the others follow; 0 takes free ones
    #[arg(long, default_value_t = 8101)]
    base_port: u16,
    /// Address to listen on
    #[arg(long, default_value = "127.0.0.1")]
    host: IpAddr,
    #[command(flatten)]
    config: SimConfig,
}

#[tokio::main]
async fn main() -> ExitCode {
    match run(&Arguments::parse()).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("vllm-sim: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn run(arguments: &Arguments) -> io::Result<()> {
    // Before the first line is printed: who reads it may signal at once.
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let sim = Sim::start_at(&arguments.config, &addresses(arguments)?).await?;
    for (index, address) in sim.addresses().iter().enumerate() {
        println!("server {index} listening on http://{address}");
    }
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
    Ok(())
}

fn addresses(arguments: &Arguments) -> io::Result<Vec<SocketAddr>> {
    let port = |index: u16| match arguments.base_port {
        0 => Some(0),
        base => base.checked_add(index),
    };
    (0..arguments.servers)
        .map(|index| port(index).map(|port| SocketAddr::new(arguments.host, port)))
        .collect::<Option<_>>()
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "ports end at 65535"))
}
