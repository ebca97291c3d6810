//! The process: its folder, its log, its end.

use std::fs::{self, File};
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use super::StartError;
use crate::repository;

/// How long an Envoy may take to be ready, or to check a configuration.
pub(super) const PATIENCE: Duration = Duration::from_secs(30);

/// How often readiness is asked for.
pub(super) const POLL: Duration = Duration::from_millis(10);

/// Lines of the log that a failure shows; the whole can be thousands.
const TAIL_LINES: usize = 40;

/// What to run.
#[derive(Debug)]
pub(super) struct Launch<'a> {
    pub(super) binary: &'a Path,
    pub(super) bootstrap: &'a str,
    pub(super) concurrency: usize,
    pub(super) arguments: &'a [String],
}

/// A started Envoy, ready or not.
#[derive(Debug)]
pub(super) struct Process {
    child: Child,
    folder: TempDir,
}

impl Process {
    /// Its number in the system.
    pub(super) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Starts Envoy in a folder of its own under `target/`, with one file for all that it logs.
    pub(super) fn spawn(launch: &Launch<'_>) -> io::Result<Self> {
        let runs = repository::path("target/envoy-runs");
        fs::create_dir_all(&runs)?;
        let folder = tempfile::Builder::new().prefix("run-").tempdir_in(runs)?;
        let bootstrap = folder.path().join("bootstrap.json");
        fs::write(&bootstrap, launch.bootstrap)?;
        let log = File::create(folder.path().join("envoy.log"))?;
        let child = Command::new(launch.binary)
            .arg("--config-path")
            .arg(&bootstrap)
            .arg("--admin-address-path")
            .arg(folder.path().join("admin.txt"))
            .args(["--concurrency", &launch.concurrency.to_string()])
            // No shared memory: runs cannot meet, and a killed one leaves nothing behind.
            .arg("--disable-hot-restart")
            .args(launch.arguments)
            .current_dir(repository::root())
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()?;
        Ok(Self { child, folder })
    }

    /// Everything logged so far.
    pub(super) fn log(&self) -> String {
        fs::read(self.log_path()).map_or_else(
            |error| error.to_string(),
            |log| String::from_utf8_lossy(&log).into_owned(),
        )
    }

    /// Where admin listens, once Envoy has written it down.
    pub(super) fn admin_address(&self) -> Option<SocketAddr> {
        fs::read_to_string(self.folder.path().join("admin.txt"))
            .ok()?
            .trim()
            .parse()
            .ok()
    }

    /// An error when the process has ended or `since` is too long ago.
    pub(super) fn check_waiting(&mut self, since: Instant) -> Result<(), StartError> {
        if let Some(status) = self.child.try_wait()? {
            return Err(self.not_ready(format!("ended with {status}")));
        }
        if since.elapsed() > PATIENCE {
            return Err(self.not_ready(format!("is not ready after {PATIENCE:?}")));
        }
        Ok(())
    }

    /// Waits until the process ends, successfully or with an error.
    pub(super) async fn wait_for_success(&mut self) -> Result<(), StartError> {
        let since = Instant::now();
        loop {
            match self.child.try_wait()? {
                Some(status) if ExitStatus::success(&status) => return Ok(()),
                _ => self.check_waiting(since)?,
            }
            tokio::time::sleep(POLL).await;
        }
    }

    fn not_ready(&self, reason: String) -> StartError {
        StartError::NotReady {
            reason,
            log: self.log(),
        }
    }

    fn log_path(&self) -> PathBuf {
        self.folder.path().join("envoy.log")
    }

    /// Shows the end of the log and keeps the folder.
    fn keep_for_inspection(&mut self) {
        eprintln!(
            "the end of {}:\n{}",
            self.log_path().display(),
            tail(&self.log())
        );
        self.folder.disable_cleanup(true);
    }
}

/// The last lines of `log`, those that tell why.
pub(super) fn tail(log: &str) -> String {
    let lines: Vec<&str> = log.lines().collect();
    lines[lines.len().saturating_sub(TAIL_LINES)..].join("\n")
}

impl Drop for Process {
    fn drop(&mut self) {
        // Both fail only for a process that has ended and been waited for.
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            self.keep_for_inspection();
        }
    }
}
