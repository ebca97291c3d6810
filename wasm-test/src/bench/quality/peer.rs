//! Routers of other projects, from `PyPI`, as processes.

use std::fs::{self, File};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::router::Router;
use crate::bench::{BenchError, results};
use crate::repository;

/// Where they are installed.
const VENV: &str = "target/bench/venv";
/// The routers themselves, without the dependencies they declare: a CUDA build of vLLM or `SGLang`
/// among them.
const ROUTERS: [&str; 3] = ["sglang-router==0.3.2", "vllm-router==0.1.17", "smg==1.13.0"];
/// What they need to start.
const NEEDED: [&str; 9] = [
    "setproctitle",
    "aiohttp",
    "orjson",
    "uvicorn",
    "fastapi",
    "requests",
    "grpcio",
    "grpcio-health-checking",
    "pyyaml",
];

/// How long a router may take to find its servers.
const PATIENCE: Duration = Duration::from_mins(1);

/// A started process. Dropping it kills it.
#[derive(Debug)]
pub struct Peer {
    child: Child,
    address: SocketAddr,
}

impl Peer {
    /// Base URL for requests.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        // It has ended already, or ends now.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Starts `router`, which must be a peer, and waits until it takes requests.
pub async fn start(router: Router, servers: &[SocketAddr]) -> Result<Peer, BenchError> {
    let python = tokio::task::spawn_blocking(install)
        .await
        .map_err(std::io::Error::from)??;
    let (address, prometheus) = (free_port()?, free_port()?);
    let module: &[&str] = match router {
        Router::VllmRouter => &["-m", "vllm_router.launch_router"],
        Router::Smg => &["-m", "smg.cli", "launch"],
        _ => &["-m", "sglang_router.launch_router"],
    };
    let log = repository::path(format!("target/bench/{}.log", module[1]));
    let file = File::create(&log).map_err(|source| results::file(&log, source))?;
    let urls = servers.iter().map(|server| format!("http://{server}"));
    let child = Command::new(python)
        .args(module)
        .arg("--worker-urls")
        .args(urls)
        .args(["--policy", "cache_aware", "--host", "127.0.0.1"])
        .args(["--port", &address.port().to_string()])
        .args(["--prometheus-host", "127.0.0.1"])
        .args(["--prometheus-port", &prometheus.port().to_string()])
        .args([
            "--worker-startup-timeout-secs",
            "30",
            "--log-level",
            "error",
        ])
        .stdin(Stdio::null())
        .stdout(file.try_clone()?)
        .stderr(file)
        .spawn()?;
    let mut peer = Peer { child, address };
    let deadline = Instant::now() + PATIENCE;
    while !is_ready(&peer).await {
        let ended = peer.child.try_wait()?;
        if ended.is_some() || Instant::now() > deadline {
            let problem = "the router did not start; this is its log".to_owned();
            return Err(BenchError::Content { path: log, problem });
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    Ok(peer)
}

/// Whether it says that it is healthy.
async fn is_ready(peer: &Peer) -> bool {
    let answer = reqwest::get(format!("{}/health", peer.url())).await;
    answer.is_ok_and(|answer| answer.status().is_success())
}

fn free_port() -> Result<SocketAddr, BenchError> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    Ok(listener.local_addr()?)
}

/// The Python of the folder in which all peers are installed, made at the first call.
fn install() -> Result<PathBuf, BenchError> {
    let venv = repository::path(VENV);
    let python = venv.join("bin/python");
    let done = venv.join("installed");
    if done.exists() {
        return Ok(python);
    }
    eprintln!("bench: installing {} into {VENV}", ROUTERS.join(", "));
    let pip = [
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
    ];
    let install = |packages: &[&str]| {
        let mut command = Command::new(&python);
        command
            .args(pip)
            .args(["--only-binary", ":all:"])
            .args(packages);
        command
    };
    let mut make = Command::new("python3");
    make.args(["-m", "venv", "--clear"]).arg(&venv);
    let routers = [&["--no-deps"][..], &ROUTERS].concat();
    for mut command in [make, install(&routers), install(&NEEDED)] {
        if !command.status()?.success() {
            let problem = format!("{command:?} failed");
            return Err(BenchError::Content {
                path: venv,
                problem,
            });
        }
    }
    fs::write(&done, ROUTERS.join("\n")).map_err(|source| results::file(&done, source))?;
    Ok(python)
}
