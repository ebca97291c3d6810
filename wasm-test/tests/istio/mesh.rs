//! A gateway of the shipped manifests in a real Envoy, with simulated model servers behind it.

use std::net::{Ipv4Addr, SocketAddr};

use serde_json::{Value, json};
use tempfile::TempDir;
use wasm_test::artifact;
use wasm_test::envoy::{Builder, Envoy};
use wasm_test::istio::{Delivery, EnvoyFilter, Gateway, WasmPlugin};
use wasm_test::sim::{Preset, SimConfig, SimServer};
use wasm_test::testbed::{AdminRelay, Answer, COMPLETIONS, Host, HostFile, completion, eventually};

pub use super::manifests::documents;

const BOOTSTRAP: &str = "wasm-test/tests/istio/bootstrap.yaml";
const CLUSTER: &str = "outbound|8000||vllm.llm.svc.cluster.local";
pub const PICK: &str = "x-gateway-destination-endpoint";

/// Dropping it ends everything.
#[derive(Debug)]
pub struct Mesh {
    pub servers: Vec<SimServer>,
    pub envoy: Envoy,
    _hosts: HostFile,
    _relay: AdminRelay,
    _folder: TempDir,
}

/// The gateway's Envoy after istiod has applied `files`, with the plugin's configuration changed by
/// `tune`.
pub fn gateway(files: &[&str], tune: impl Fn(&mut Value)) -> Gateway {
    let text = std::fs::read_to_string(super::manifests::root().join(BOOTSTRAP));
    let bootstrap = serde_saphyr::from_str(&text.expect("readable")).expect("YAML");
    let mut gateway = Gateway::new(bootstrap);
    for document in files.iter().flat_map(|file| documents(file)) {
        let applied = match document["kind"].as_str().expect("a kind") {
            "EnvoyFilter" => EnvoyFilter::apply(&document, &mut gateway),
            "WasmPlugin" => WasmPlugin::apply(&document, &mut gateway),
            _ => Ok(()),
        };
        applied.unwrap_or_else(|error| panic!("{files:?}: {error}"));
    }
    for plugin in gateway.plugins_mut() {
        let value = &mut plugin["configuration"]["value"];
        if let Some(text) = value.as_str() {
            let mut configuration = serde_json::from_str(text).expect("JSON");
            tune(&mut configuration);
            *value = json!(configuration.to_string());
        } else {
            tune(value);
        }
    }
    gateway
}

/// Istio's bootstrap override: what the gateway's `ConfigMap` adds, as its agent hands it to Envoy.
fn bootstrap_override() -> String {
    let maps = documents("gateway.yaml").into_iter();
    let mut texts = maps.filter_map(|document| {
        let text = document["data"]["custom_bootstrap.json"].as_str()?;
        Some(text.to_owned())
    });
    texts.next().expect("a bootstrap override")
}

/// An Envoy of `gateway`, whose resources come as `delivery` says, after `patch`.
pub fn envoy(
    gateway: Gateway,
    delivery: &Delivery<'_>,
    patch: impl Fn(&mut Value) + Send + Sync + 'static,
) -> Builder {
    let module = artifact::module().expect("a module");
    let tree = gateway.bootstrap(module, delivery);
    Envoy::builder(BOOTSTRAP)
        .arguments(&["--config-yaml", &bootstrap_override()])
        .bootstrap(move |bootstrap| {
            // Ports were made dynamic before.
            let listeners = &bootstrap["static_resources"]["listeners"];
            let (address, admin) = (listeners[0]["address"].clone(), bootstrap["admin"].clone());
            *bootstrap = tree.clone();
            bootstrap["static_resources"]["listeners"][0]["address"] = address;
            bootstrap["admin"] = admin;
            patch(bootstrap);
        })
}

impl Mesh {
    /// `count` servers behind the gateway of `files`; `patch` changes Envoy's bootstrap at last.
    pub async fn start(
        count: usize,
        files: &[&str],
        patch: impl Fn(&mut Value) + Send + Sync + 'static,
    ) -> Self {
        let mesh = Self::of(count, gateway(files, tune), patch).await;
        mesh.discovered(count as u64).await;
        // Without this one, calls of the module lead to no endpoint in particular.
        if files.contains(&"cluster-policy.yaml") {
            mesh.scraped().await;
        }
        mesh
    }

    /// The same with a gateway that is there already, and without waiting for endpoints.
    pub async fn of(
        count: usize,
        gateway: Gateway,
        patch: impl Fn(&mut Value) + Send + Sync + 'static,
    ) -> Self {
        let config = SimConfig {
            preset: Preset::Instant,
            ..SimConfig::default()
        };
        let mut servers = Vec::new();
        for _ in 0..count {
            let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
            servers.push(
                SimServer::start(config.clone(), any)
                    .await
                    .expect("a free port"),
            );
        }
        let hosts: Vec<Host> = servers
            .iter()
            .map(|server| Host::new(server.address()))
            .collect();
        let hosts = HostFile::new(&hosts);
        let relay = AdminRelay::start().await;
        let folder = tempfile::tempdir().expect("a folder");
        let (follow, admin) = (hosts.cluster_patch(), relay.address());
        let envoy = envoy(gateway, &Delivery::Ecds(folder.path()), move |tree| {
            for cluster in tree["static_resources"]["clusters"].as_array_mut().unwrap() {
                if cluster["name"] == CLUSTER {
                    follow(cluster);
                } else {
                    let host = &mut cluster["load_assignment"]["endpoints"][0]["lb_endpoints"][0];
                    host["endpoint"]["address"]["socket_address"]["port_value"] =
                        json!(admin.port());
                }
            }
            patch(tree);
        });
        let envoy = envoy.start().await.expect("a start");
        relay.lead_to(Some(envoy.admin_address()));
        Self {
            servers,
            envoy,
            _hosts: hosts,
            _relay: relay,
            _folder: folder,
        }
    }

    /// Waits until the module has `count` endpoints of Envoy's own host list.
    pub async fn discovered(&self, count: u64) {
        eventually("the hosts of prometheus_stats", async || {
            (self.metric("epp_candidate_pods", &[("pool", "vllm")]).await == Some(count))
                .then_some(())
        })
        .await;
    }

    /// Waits until the module knows the process behind each endpoint: one that turns out to be
    /// another starts with nothing in the index.
    async fn scraped(&self) {
        let scrapes = |server: &SimServer| server.state().scrapes;
        let wanted: Vec<_> = self
            .servers
            .iter()
            .map(|server| scrapes(server) + 3)
            .collect();
        eventually("three scrapes of each server", async || {
            let mut servers = self.servers.iter().zip(&wanted);
            servers
                .all(|(server, wanted)| scrapes(server) >= *wanted)
                .then_some(())
        })
        .await;
    }

    pub async fn metric(&self, name: &str, labels: &[(&str, &str)]) -> Option<u64> {
        let value = self.envoy.prometheus_value(name, labels).await;
        value.expect("admin answers").map(|value| value as u64)
    }

    /// The completion of `prompt`, on a connection of its own, so by any worker.
    pub async fn complete(&self, prompt: &str) -> Answer {
        Answer::on_a_new_connection(&self.envoy, COMPLETIONS, &completion(prompt)).await
    }
}

/// Quick scrapes and headers that show the decision.
pub fn tune(configuration: &mut Value) {
    configuration["debugHeaders"] = json!(true);
    let pool = &mut configuration["pools"][0];
    pool["metrics"] = json!({ "interval": "200ms", "timeout": "1s" });
    pool["discovery"]["interval"] = json!("200ms");
    pool["health"] = json!({ "staleAfter": 9 });
}
