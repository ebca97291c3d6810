//! A real Envoy, started from one of the shipped configurations.
//!
//! Every port is dynamic and every file of a run is in a folder of its own, so that many can run at
//! once. The process ends with its [`Envoy`].

mod admin;
mod binary;
mod bootstrap;
mod builder;
mod process;
pub(crate) mod prometheus;

pub use admin::{AdminError, VmReloads};
pub use binary::BinaryError;
pub use bootstrap::BootstrapError;
pub use builder::Builder;
pub use prometheus::Series;

use std::fmt;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use bootstrap::Bootstrap;
use process::Process;

use crate::{artifact, repository};

/// The shipped configuration with the module in it.
pub const CANONICAL: &str = "envoy/envoy.yaml";

/// The shipped baseline: the same without the module, round robin.
pub const NO_FILTER: &str = "envoy/no-filter.yaml";

/// By how much a timer of Envoy's may end early, as seen from outside. Its event loop counts from
/// `CLOCK_MONOTONIC_COARSE`, which lags by up to a tick of the kernel: 10 ms where that is longest
/// (`CONFIG_HZ=100`).
pub const TIMER_SLACK: Duration = Duration::from_millis(10);

/// The module's plugin configuration in the file at `path`, relative to the repository's root.
///
/// # Errors
/// When the file cannot be read or has no module in it.
pub fn plugin_configuration(path: impl AsRef<Path>) -> Result<serde_json::Value, BootstrapError> {
    Bootstrap::load(repository::path(path))?.plugin()
}

/// A running Envoy that accepts requests. Dropping it kills the process; when that happens in a
/// failing test, the end of its log goes to standard error and its files stay.
#[derive(Debug)]
pub struct Envoy {
    process: Process,
    admin: admin::Admin,
    listeners: Vec<(String, SocketAddr)>,
}

/// Why an Envoy did not start. `Debug` is `Display`, so that `expect` shows the log as it is.
#[derive(thiserror::Error)]
pub enum StartError {
    /// No usable Envoy could be found or installed.
    #[error(transparent)]
    Binary(#[from] BinaryError),
    /// The module did not build.
    #[error(transparent)]
    Artifact(#[from] artifact::BuildError),
    /// The configuration file could not be read or has no place for a patch.
    #[error(transparent)]
    Bootstrap(#[from] BootstrapError),
    /// A file of the run could not be written, or the process not be started.
    #[error("Envoy could not be run: {0}")]
    Io(#[from] std::io::Error),
    /// Envoy ended, or was not ready in time.
    #[error("Envoy {reason}; the end of its log:\n{}", process::tail(log))]
    NotReady {
        /// What was waited for and what came.
        reason: String,
        /// The whole log.
        log: String,
    },
}

impl fmt::Debug for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl StartError {
    /// The log of an Envoy that ran and gave up, empty when none ran.
    pub fn log(&self) -> &str {
        match self {
            Self::NotReady { log, .. } => log,
            Self::Binary(_) | Self::Artifact(_) | Self::Bootstrap(_) | Self::Io(_) => "",
        }
    }
}

impl Envoy {
    /// Prepares a run of the configuration file at `bootstrap`, relative to the repository's root.
    pub fn builder(bootstrap: impl AsRef<Path>) -> Builder {
        Builder::new(bootstrap.as_ref())
    }

    /// Where the first listener accepts requests.
    ///
    /// # Panics
    /// When the configuration has no listener.
    pub fn address(&self) -> SocketAddr {
        self.listeners
            .first()
            .expect("the configuration has a listener")
            .1
    }

    /// Where the listener called `name` accepts requests.
    pub fn address_of(&self, name: &str) -> Option<SocketAddr> {
        self.listeners
            .iter()
            .find(|listener| listener.0 == name)
            .map(|listener| listener.1)
    }

    /// The first listener's base URL, without a slash at its end.
    pub fn url(&self) -> String {
        format!("http://{}", self.address())
    }

    /// Where the admin interface answers.
    pub fn admin_address(&self) -> SocketAddr {
        self.admin.address()
    }

    /// The number of its process.
    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    /// Everything Envoy has logged so far, the module's lines included.
    pub fn log(&self) -> String {
        self.process.log()
    }

    /// The body of the admin answer to GET `path`, which begins with a slash.
    pub async fn admin_get(&self, path: &str) -> Result<String, AdminError> {
        self.admin.get(path).await
    }

    /// The value of the counter or gauge with the full name `name`, labels not extracted, such as
    /// `cluster.model-servers.upstream_rq_retry`. An error when Envoy has no such stat, so that a
    /// misspelled name is not 0.
    pub async fn counter(&self, name: &str) -> Result<u64, AdminError> {
        self.admin.counter(name).await
    }

    /// The text of `/stats/prometheus`.
    pub async fn prometheus(&self) -> Result<String, AdminError> {
        self.admin.get("/stats/prometheus").await
    }

    /// The sum over the Prometheus series called `name` that carry all of `labels`; `None` when
    /// there is no such series.
    pub async fn prometheus_value(
        &self,
        name: &str,
        labels: &[(&str, &str)],
    ) -> Result<Option<f64>, AdminError> {
        Ok(prometheus::sum(&self.prometheus().await?, name, labels))
    }

    /// The Prometheus series called `name`; none when there is no such metric.
    pub async fn prometheus_series(&self, name: &str) -> Result<Vec<Series>, AdminError> {
        Ok(prometheus::series(&self.prometheus().await?, name))
    }

    /// How many VMs this process ever made. It grows when a trapped VM is replaced, which the next
    /// request on that worker does; `…v8.active` alone does not tell.
    pub async fn vms_created(&self) -> Result<u64, AdminError> {
        self.admin.vms_created().await
    }

    /// How often a VM of the module was replaced after a trap. All zero in a good run.
    pub async fn vm_reloads(&self) -> Result<VmReloads, AdminError> {
        self.admin.vm_reloads().await
    }
}
