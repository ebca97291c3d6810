//! The load: wrk with a script that makes the bodies.

use std::net::SocketAddr;
use std::path::PathBuf;

use serde::Deserialize;
use tokio::process::Command;

use super::super::{BenchError, Run, results};

const SCRIPT: &str = include_str!("wrk.lua");
const PATH: &str = "/v1/chat/completions";

/// wrk, with its script in the run's folder.
#[derive(Debug)]
pub struct Wrk {
    script: PathBuf,
    runs: u64,
}

/// What is sent for how long.
#[derive(Debug, Clone, Copy)]
pub struct Load<'a> {
    /// Bytes of a body.
    pub body: usize,
    /// Connections, each of which waits for its answer before it asks again.
    pub connections: u32,
    /// Seconds.
    pub seconds: u32,
    /// Which prompts no other request has.
    pub new: New,
    /// Further request headers, as `NAME=VALUE`.
    pub headers: &'a [String],
}

/// Which prompts are new.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum New {
    /// Every other request ends anew, in a tenth of its prompt; the rest is one of 16.
    HalfTheTails,
    /// All of them, from their first byte on.
    All,
}

/// What came back.
#[derive(Debug, Clone, Copy, Deserialize)]
pub struct Answered {
    /// Answers with a status below 400.
    pub requests: u64,
    /// How long it took, in microseconds.
    pub micros: u64,
    /// Half of the answers took no longer, in microseconds.
    pub p50: u64,
    /// 99 % of the answers took no longer, in microseconds.
    pub p99: u64,
    /// Requests without an answer, or with an error.
    pub errors: u64,
}

impl Answered {
    /// Answers a second.
    pub fn rate(&self) -> f64 {
        self.requests as f64 * 1e6 / self.micros.max(1) as f64
    }
}

impl Wrk {
    /// Writes the script.
    ///
    /// # Errors
    /// When wrk is not installed.
    pub fn new(run: &Run) -> Result<Self, BenchError> {
        let found = std::process::Command::new("wrk").arg("--version").output();
        if found.is_err() {
            return Err(BenchError::Content {
                path: "wrk".into(),
                problem: "not installed: apt-get install wrk".to_owned(),
            });
        }
        let script = run.folder().join("wrk.lua");
        std::fs::write(&script, SCRIPT).map_err(|source| results::file(&script, source))?;
        Ok(Self { script, runs: 0 })
    }

    /// Sends `load` to `address` and waits for the end.
    ///
    /// # Errors
    /// When wrk fails, or any request does: a figure of a run with errors says nothing.
    pub async fn send(
        &mut self,
        address: SocketAddr,
        load: Load<'_>,
    ) -> Result<Answered, BenchError> {
        self.runs += 1;
        let run = format!("{}-{}", std::process::id(), self.runs);
        let output = Command::new("wrk")
            .args(["--threads", "1", "--timeout", "30s"])
            .args(["--connections", &load.connections.to_string()])
            .args(["--duration", &format!("{}s", load.seconds)])
            .arg("--script")
            .arg(&self.script)
            .arg(format!("http://{address}"))
            .args(["--", PATH, &load.body.to_string(), &run])
            .arg(match load.new {
                New::HalfTheTails => "half",
                New::All => "all",
            })
            .args(load.headers)
            .output()
            .await?;
        let text = String::from_utf8_lossy(&output.stdout);
        let line = text.lines().find_map(|line| line.strip_prefix("result "));
        let answered: Option<Answered> = line.and_then(|json| serde_json::from_str(json).ok());
        match answered {
            Some(answered) if answered.errors == 0 && answered.requests > 0 => Ok(answered),
            _ => Err(BenchError::Content {
                path: "wrk".into(),
                problem: format!(
                    "{load:?} was not answered in full: {text}{}",
                    String::from_utf8_lossy(&output.stderr)
                ),
            }),
        }
    }
}
