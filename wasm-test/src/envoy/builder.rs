//! What a run changes in a shipped configuration.

use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::bootstrap::Bootstrap;
use super::process::{Launch, Process};
use super::{BootstrapError, Envoy, StartError, admin, binary};
use crate::{artifact, repository};

type Patch = Box<dyn Fn(&mut Value) + Send + Sync>;

/// Collects the changes of one run; [`Envoy::builder`] makes it.
pub struct Builder {
    path: PathBuf,
    module: Option<PathBuf>,
    plugin_file: Option<PathBuf>,
    endpoints: Option<Vec<SocketAddr>>,
    plugin: Vec<Patch>,
    plugin_as_text: bool,
    bootstrap: Vec<Patch>,
    concurrency: usize,
    arguments: Vec<String>,
}

impl Builder {
    pub(super) fn new(path: &Path) -> Self {
        Self {
            path: repository::path(path),
            module: None,
            plugin_file: None,
            endpoints: None,
            plugin: Vec::new(),
            plugin_as_text: false,
            bootstrap: Vec::new(),
            concurrency: 2,
            arguments: Vec::new(),
        }
    }

    /// Starts from another configuration file, relative to the repository's root.
    #[must_use]
    pub fn file(mut self, path: impl AsRef<Path>) -> Self {
        self.path = repository::path(path);
        self
    }

    /// Puts `endpoints` in the place of the file's, in the clusters and in the module's pools.
    #[must_use]
    pub fn endpoints(mut self, endpoints: &[SocketAddr]) -> Self {
        self.endpoints = Some(endpoints.to_vec());
        self
    }

    /// Takes the plugin configuration from the YAML file at `path`, relative to the repository's root.
    #[must_use]
    pub fn plugin_file(mut self, path: impl AsRef<Path>) -> Self {
        self.plugin_file = Some(repository::path(path));
        self
    }

    /// Changes the plugin configuration, after the endpoints are in it.
    #[must_use]
    pub fn plugin(mut self, patch: impl Fn(&mut Value) + Send + Sync + 'static) -> Self {
        self.plugin.push(Box::new(patch));
        self
    }

    /// Hands the plugin configuration over as JSON text (a `StringValue`) instead of a `Struct`.
    #[must_use]
    pub fn plugin_as_text(mut self) -> Self {
        self.plugin_as_text = true;
        self
    }

    /// Changes the whole bootstrap, after everything else.
    #[must_use]
    pub fn bootstrap(mut self, patch: impl Fn(&mut Value) + Send + Sync + 'static) -> Self {
        self.bootstrap.push(Box::new(patch));
        self
    }

    /// Loads this file instead of the module built from the checkout.
    #[must_use]
    pub fn module(mut self, path: impl Into<PathBuf>) -> Self {
        self.module = Some(path.into());
        self
    }

    /// Number of worker threads, 2 unless set.
    #[must_use]
    pub fn concurrency(mut self, workers: usize) -> Self {
        self.concurrency = workers;
        self
    }

    /// Further command-line arguments of Envoy, such as `["--component-log-level", "wasm:debug"]`.
    #[must_use]
    pub fn arguments(mut self, arguments: &[&str]) -> Self {
        self.arguments
            .extend(arguments.iter().map(ToString::to_string));
        self
    }

    /// Starts Envoy and waits until it accepts requests, 30 s at most. Finding Envoy and building
    /// the module come first and are not part of that time.
    pub async fn start(self) -> Result<Envoy, StartError> {
        let prepared = tokio::task::spawn_blocking(move || self.prepare(true));
        let (mut process, names) = prepared.await.map_err(std::io::Error::from)??;
        let (admin, mut listeners) = admin::wait_until_live(&mut process).await?;
        listeners.sort_by_key(|listener| names.iter().position(|name| *name == listener.0));
        Ok(Envoy {
            process,
            admin,
            listeners,
        })
    }

    /// Lets Envoy check the configuration, the module's part included, without serving it. Ports
    /// are the file's own.
    pub async fn validate(mut self) -> Result<(), StartError> {
        self.arguments
            .extend(["--mode".to_owned(), "validate".to_owned()]);
        let prepared = tokio::task::spawn_blocking(move || self.prepare(false));
        let (mut process, _) = prepared.await.map_err(std::io::Error::from)??;
        process.wait_for_success().await
    }

    /// Everything that blocks: finding Envoy, building the module, writing files, the start itself.
    fn prepare(self, dynamic_ports: bool) -> Result<(Process, Vec<String>), StartError> {
        let binary = binary::path()?;
        let mut bootstrap = Bootstrap::load(self.path.clone())?;
        if bootstrap.has_module() {
            let module = match &self.module {
                Some(path) => path,
                None => artifact::module()?,
            };
            bootstrap.set_module(module);
        }
        if dynamic_ports {
            bootstrap.set_dynamic_ports();
        }
        self.patch(&mut bootstrap)?;
        let launch = Launch {
            binary,
            bootstrap: &bootstrap.to_json(),
            concurrency: self.concurrency,
            arguments: &self.arguments,
        };
        Ok((Process::spawn(&launch)?, bootstrap.listener_names()))
    }

    fn patch(&self, bootstrap: &mut Bootstrap) -> Result<(), BootstrapError> {
        if let Some(file) = &self.plugin_file {
            bootstrap.set_plugin_file(file.clone())?;
        }
        if let Some(endpoints) = &self.endpoints {
            bootstrap.set_endpoints(endpoints);
        }
        for patch in &self.plugin {
            bootstrap.edit_plugin(patch)?;
        }
        if self.plugin_as_text {
            bootstrap.use_plugin_text()?;
        }
        for patch in &self.bootstrap {
            patch(bootstrap.tree_mut());
        }
        Ok(())
    }
}

impl fmt::Debug for Builder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder")
            .field("path", &self.path)
            .field("endpoints", &self.endpoints)
            .field("concurrency", &self.concurrency)
            .finish_non_exhaustive()
    }
}
