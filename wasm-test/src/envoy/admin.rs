//! Questions to Envoy's admin interface.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::StartError;
use super::process::{POLL, Process};

/// How long admin may take for one answer.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Why admin gave no usable answer.
#[derive(Debug, thiserror::Error)]
pub enum AdminError {
    /// The question was not answered with success.
    #[error(transparent)]
    Http(#[from] reqwest::Error),
    /// The answer is not what Envoy documents.
    #[error("admin's answer is not understood: {0}")]
    Answer(String),
    /// Envoy has no counter or gauge of that name.
    #[error("Envoy has no stat called {0}")]
    NoSuchStat(String),
}

/// How often a VM of the module was replaced after a trap.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VmReloads {
    /// New VMs that took over.
    pub success: u64,
    /// New VMs that did not start.
    pub failure: u64,
    /// Requests refused because the last load was too recent.
    pub backoff: u64,
}

/// The admin interface of one Envoy.
#[derive(Clone, Debug)]
pub(super) struct Admin {
    address: SocketAddr,
    http: reqwest::Client,
}

/// Polls `process` until it is live and all its listeners have a port.
pub(super) async fn wait_until_live(
    process: &mut Process,
) -> Result<(Admin, Vec<(String, SocketAddr)>), StartError> {
    let since = Instant::now();
    loop {
        if let Some(address) = process.admin_address() {
            let admin = Admin {
                address,
                http: reqwest::Client::new(),
            };
            if admin
                .get("/ready")
                .await
                .is_ok_and(|state| state.trim() == "LIVE")
                && let Ok(listeners) = admin.listeners().await
            {
                return Ok((admin, listeners));
            }
        }
        process.check_waiting(since)?;
        tokio::time::sleep(POLL).await;
    }
}

impl Admin {
    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(super) async fn get(&self, path: &str) -> Result<String, AdminError> {
        let url = format!("http://{}{path}", self.address);
        let answer = self.http.get(url).timeout(TIMEOUT).send().await?;
        Ok(answer.error_for_status()?.text().await?)
    }

    pub(super) async fn counter(&self, name: &str) -> Result<u64, AdminError> {
        let stats = self.get_json("/stats?format=json").await?;
        stats["stats"]
            .as_array()
            .into_iter()
            .flatten()
            .find(|stat| stat["name"] == name)
            .and_then(|stat| stat["value"].as_u64())
            .ok_or_else(|| AdminError::NoSuchStat(name.to_owned()))
    }

    pub(super) async fn vms_created(&self) -> Result<u64, AdminError> {
        self.counter("wasm.envoy.wasm.runtime.v8.created").await
    }

    pub(super) async fn vm_reloads(&self) -> Result<VmReloads, AdminError> {
        Ok(VmReloads {
            success: self.counter("wasm.inline-epp.vm_reload_success").await?,
            failure: self.counter("wasm.inline-epp.vm_reload_failure").await?,
            backoff: self.counter("wasm.inline-epp.vm_reload_backoff").await?,
        })
    }

    /// Names and addresses of the listeners; an error while one has no port.
    async fn listeners(&self) -> Result<Vec<(String, SocketAddr)>, AdminError> {
        let answer = self.get_json("/listeners?format=json").await?;
        let listener = |status: &Value| {
            let name = status["name"].as_str()?.to_owned();
            let socket = &status["local_address"]["socket_address"];
            let port = u16::try_from(socket["port_value"].as_u64()?)
                .ok()
                .filter(|port| *port != 0)?;
            let ip = socket["address"].as_str()?.parse().ok()?;
            Some((name, SocketAddr::new(ip, port)))
        };
        answer["listener_statuses"]
            .as_array()
            .and_then(|statuses| statuses.iter().map(listener).collect())
            .ok_or_else(|| AdminError::Answer(answer.to_string()))
    }

    async fn get_json(&self, path: &str) -> Result<Value, AdminError> {
        let text = self.get(path).await?;
        serde_json::from_str(&text).map_err(|error| AdminError::Answer(error.to_string()))
    }
}
