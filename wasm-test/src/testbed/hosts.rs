//! A cluster whose hosts a test changes while Envoy runs, and Envoy's admin interface as one of its
//! own clusters.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// The name of the cluster that leads to admin.
pub const ADMIN_CLUSTER: &str = "envoy-admin";

/// One host, and what the control plane says of it.
#[derive(Clone, Debug)]
pub struct Host {
    /// Where it listens.
    pub address: SocketAddr,
    /// As in an `LbEndpoint`: `HEALTHY`, `DRAINING`, …
    pub health: &'static str,
    /// 0 is used first.
    pub priority: u32,
}

impl Host {
    /// A healthy one of the first priority.
    pub const fn new(address: SocketAddr) -> Self {
        Self {
            address,
            health: "HEALTHY",
            priority: 0,
        }
    }
}

/// A host list in a file that Envoy watches.
#[derive(Debug)]
pub struct HostFile {
    folder: TempDir,
}

impl HostFile {
    /// A file that lists `hosts`.
    ///
    /// # Panics
    /// When it cannot be written.
    pub fn new(hosts: &[Host]) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let file = Self { folder };
        file.write(hosts);
        file
    }

    /// Makes `hosts` the list.
    ///
    /// # Panics
    /// When it cannot be written.
    pub fn write(&self, hosts: &[Host]) {
        let localities: Vec<Value> = (0..=hosts.iter().map(|host| host.priority).max().unwrap_or(0))
            .map(|priority| {
                let here = hosts.iter().filter(|host| host.priority == priority);
                json!({ "priority": priority, "lb_endpoints": here.map(lb_endpoint).collect::<Vec<_>>() })
            })
            .collect();
        let list = json!({ "resources": [{
            "@type": "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment",
            "cluster_name": "hosts",
            "endpoints": localities,
        }] });
        let next = self.folder.path().join("next.json");
        fs::write(&next, list.to_string()).expect("a writable folder");
        // Envoy notices files that are moved in, not those that are written to.
        fs::rename(next, self.path()).expect("the same folder");
    }

    /// A change of a cluster that makes it follow the file.
    pub fn cluster_patch(&self) -> impl Fn(&mut Value) + Send + Sync + 'static {
        let (path, folder) = (self.path(), self.folder.path().to_owned());
        move |cluster| {
            cluster["type"] = json!("EDS");
            let fields = cluster.as_object_mut().expect("a cluster");
            fields.remove("load_assignment");
            cluster["eds_cluster_config"] = json!({
                "service_name": "hosts",
                "eds_config": {
                    "resource_api_version": "V3",
                    "path_config_source": { "path": path, "watched_directory": { "path": folder } },
                },
            });
        }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("hosts.json")
    }
}

fn lb_endpoint(host: &Host) -> Value {
    json!({
        "health_status": host.health,
        "endpoint": { "address": { "socket_address": {
            "address": host.address.ip().to_string(),
            "port_value": host.address.port(),
        } } },
    })
}

/// A port that leads to Envoy's admin interface once that is known: Envoy is told the port before it
/// has chosen its own.
#[derive(Debug)]
pub struct AdminRelay {
    address: SocketAddr,
    target: watch::Sender<Option<SocketAddr>>,
    task: JoinHandle<()>,
}

impl AdminRelay {
    /// Listens; connections end at once until there is a target.
    ///
    /// # Panics
    /// When no port is free.
    pub async fn start() -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await;
        let listener = listener.expect("a free port");
        let address = listener.local_addr().expect("bound");
        let (target, targets) = watch::channel(None);
        let task = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(relay(client, targets.clone()));
            }
        });
        Self {
            address,
            target,
            task,
        }
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Ends all connections and leads new ones to `target`.
    pub fn lead_to(&self, target: Option<SocketAddr>) {
        self.target.send_replace(target);
    }

    /// A change of the bootstrap that adds the cluster [`ADMIN_CLUSTER`].
    pub fn bootstrap_patch(&self) -> impl Fn(&mut Value) + Send + Sync + 'static {
        let address = self.address;
        move |tree| {
            tree["node"] = json!({ "id": "test", "cluster": "test" });
            let clusters = &mut tree["static_resources"]["clusters"];
            let clusters = clusters.as_array_mut().expect("a list");
            let host = lb_endpoint(&Host::new(address));
            clusters.push(json!({
                "name": ADMIN_CLUSTER,
                "type": "STATIC",
                "connect_timeout": "1s",
                "load_assignment": {
                    "cluster_name": ADMIN_CLUSTER,
                    "endpoints": [{ "lb_endpoints": [host] }],
                },
            }));
        }
    }
}

/// Joins `client` and the target until one of them ends the connection or the target changes.
async fn relay(mut client: TcpStream, mut targets: watch::Receiver<Option<SocketAddr>>) {
    let Some(target) = *targets.borrow_and_update() else {
        return;
    };
    if let Ok(mut admin) = TcpStream::connect(target).await {
        tokio::select! {
            _ = tokio::io::copy_bidirectional(&mut client, &mut admin) => {}
            _ = targets.changed() => {}
        }
    }
}

impl Drop for AdminRelay {
    fn drop(&mut self) {
        self.task.abort();
    }
}
