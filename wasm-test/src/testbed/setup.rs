//! What a run differs in.

use std::net::{Ipv4Addr, SocketAddr};

use serde_json::{Value, json};

use super::Testbed;
use crate::artifact;
use crate::envoy::{Builder, CANONICAL, Envoy, StartError};
use crate::sim::{Preset, SimConfig, SimServer};

/// Collects the differences; [`Testbed::with_servers`] makes it.
#[derive(Debug)]
pub struct Setup {
    servers: Vec<SimConfig>,
    further_endpoints: Vec<SocketAddr>,
    envoy: Builder,
}

impl Setup {
    pub(super) fn new(count: usize) -> Self {
        let config = SimConfig {
            preset: Preset::Instant,
            ..SimConfig::default()
        };
        let envoy = Envoy::builder(CANONICAL).concurrency(1).plugin(|plugin| {
            plugin["debugHeaders"] = json!(true);
            let metrics = &mut plugin["pools"][0]["metrics"];
            metrics["interval"] = json!("200ms");
            metrics["timeout"] = json!("1s");
            plugin["pools"][0]["health"] = json!({ "staleAfter": 9 });
        });
        Self {
            servers: vec![config; count],
            further_endpoints: Vec::new(),
            envoy,
        }
    }

    /// Starts from another shipped configuration.
    #[must_use]
    pub fn file(mut self, path: &str) -> Self {
        self.envoy = self.envoy.file(path);
        self
    }

    /// Further command-line arguments of Envoy.
    #[must_use]
    pub fn arguments(mut self, arguments: &[&str]) -> Self {
        self.envoy = self.envoy.arguments(arguments);
        self
    }

    /// Changes the configuration of every server.
    #[must_use]
    pub fn every_server(mut self, change: impl Fn(&mut SimConfig)) -> Self {
        self.servers.iter_mut().for_each(change);
        self
    }

    /// Changes the configuration of the server at `index`.
    #[must_use]
    pub fn server(mut self, index: usize, change: impl FnOnce(&mut SimConfig)) -> Self {
        change(&mut self.servers[index]);
        self
    }

    /// Adds `address`, at which no server of the testbed is, to the endpoints.
    #[must_use]
    pub fn further_endpoint(mut self, address: SocketAddr) -> Self {
        self.further_endpoints.push(address);
        self
    }

    /// Number of Envoy's workers, 1 unless set: each has its own index and its own open requests.
    #[must_use]
    pub fn workers(mut self, workers: usize) -> Self {
        self.envoy = self.envoy.concurrency(workers);
        self
    }

    /// Has Envoy pass on what the module logs at `level`.
    #[must_use]
    pub fn wasm_log(mut self, level: &str) -> Self {
        let component = format!("wasm:{level}");
        self.envoy = self.envoy.arguments(&["--component-log-level", &component]);
        self
    }

    /// Loads the module that traps on a request with the header `x-epp-trap`.
    ///
    /// # Panics
    /// When it cannot be built.
    #[must_use]
    pub fn switchable(mut self) -> Self {
        let module = artifact::switchable_module().expect("a module");
        self.envoy = self.envoy.module(module);
        self
    }

    /// Has each worker keep to itself.
    #[must_use]
    pub fn unshared(self) -> Self {
        self.switchable().connection_manager(|manager| {
            let vm = &mut manager["http_filters"][0]["typed_config"]["config"]["vm_config"];
            vm["environment_variables"] = json!({ "key_values": { "EPP_UNSHARED": "1" } });
        })
    }

    /// Changes the plugin configuration.
    #[must_use]
    pub fn plugin(mut self, patch: impl Fn(&mut Value) + Send + Sync + 'static) -> Self {
        self.envoy = self.envoy.plugin(patch);
        self
    }

    /// Changes the first pool of the plugin configuration.
    #[must_use]
    pub fn pool(self, patch: impl Fn(&mut Value) + Send + Sync + 'static) -> Self {
        self.plugin(move |plugin| patch(&mut plugin["pools"][0]))
    }

    /// Changes Envoy's bootstrap.
    #[must_use]
    pub fn bootstrap(mut self, patch: impl Fn(&mut Value) + Send + Sync + 'static) -> Self {
        self.envoy = self.envoy.bootstrap(patch);
        self
    }

    /// Changes the HTTP connection manager of the first listener.
    #[must_use]
    pub fn connection_manager(self, patch: impl Fn(&mut Value) + Send + Sync + 'static) -> Self {
        self.bootstrap(move |tree| {
            let listener = &mut tree["static_resources"]["listeners"][0];
            patch(&mut listener["filter_chains"][0]["filters"][0]["typed_config"]);
        })
    }

    /// Changes the first cluster.
    #[must_use]
    pub fn cluster(mut self, patch: impl Fn(&mut Value) + Send + Sync + 'static) -> Self {
        self.envoy = self
            .envoy
            .bootstrap(move |tree| patch(&mut tree["static_resources"]["clusters"][0]));
        self
    }

    /// The Envoy alone, with `endpoints` behind it.
    pub(super) fn envoy_for(self, endpoints: &[SocketAddr]) -> Builder {
        self.envoy.endpoints(endpoints)
    }

    /// Starts everything and waits until Envoy has scraped every server.
    ///
    /// # Panics
    /// When anything does not start; nothing can be tested then.
    pub async fn start(self) -> Testbed {
        let testbed = self.start_unscraped().await;
        testbed.metrics_taken_over().await;
        testbed
    }

    /// Starts everything and waits for no scrape.
    ///
    /// # Panics
    /// When anything does not start; nothing can be tested then.
    pub async fn start_unscraped(self) -> Testbed {
        self.try_start().await.expect("a start")
    }

    /// The same where Envoy may refuse to.
    ///
    /// # Errors
    /// Why Envoy does not start.
    ///
    /// # Panics
    /// When a server does not start.
    pub async fn try_start(self) -> Result<Testbed, StartError> {
        let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let mut servers = Vec::new();
        for config in self.servers {
            let server = SimServer::start(config, any).await;
            servers.push(server.expect("a free port"));
        }
        let mut endpoints: Vec<_> = servers.iter().map(SimServer::address).collect();
        endpoints.extend(self.further_endpoints);
        let envoy = self.envoy.endpoints(&endpoints).start().await?;
        Ok(Testbed {
            endpoints,
            vms: envoy.vms_created().await.expect("a stat of the runtime"),
            servers,
            envoy,
            client: reqwest::Client::new(),
        })
    }
}
