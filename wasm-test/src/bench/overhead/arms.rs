//! What is compared: the same Envoy without a picker, with one that it asks, and with ours.

use std::net::SocketAddr;
use std::process::Stdio;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

use super::ext_proc;
use crate::bench::BenchError;
use crate::envoy::{CANONICAL, Envoy, NO_FILTER};

/// The header that the shipped configuration's `override_host` policy reads.
const HEADER: &str = "x-gateway-destination-endpoint";

/// Who decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// Nobody: `envoy/no-filter.yaml`.
    Plain,
    /// A service that does nothing, asked over `ext_proc`.
    ExtProc,
    /// The module: `envoy/envoy.yaml`.
    InlineEpp,
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Plain, Self::ExtProc, Self::InlineEpp];
}

/// One Envoy, and what it needs.
#[derive(Debug)]
pub struct Arm {
    /// Who decides.
    pub kind: Kind,
    envoy: Envoy,
    /// Killed with it.
    service: Option<Child>,
}

impl Arm {
    /// Starts it with `workers` workers before `endpoints`.
    pub async fn start(
        kind: Kind,
        workers: usize,
        endpoints: &[SocketAddr],
    ) -> Result<Self, BenchError> {
        let file = match kind {
            Kind::Plain => NO_FILTER,
            Kind::ExtProc | Kind::InlineEpp => CANONICAL,
        };
        let mut builder = Envoy::builder(file)
            .endpoints(endpoints)
            .concurrency(workers)
            .arguments(&["--log-level", "warning"]);
        let mut service = None;
        if kind == Kind::ExtProc {
            let (child, address) = picker(endpoints).await?;
            builder = builder.bootstrap(move |tree| ask(tree, address));
            service = Some(child);
        }
        Ok(Self {
            kind,
            envoy: builder.start().await?,
            service,
        })
    }

    /// Where it takes requests.
    pub fn address(&self) -> SocketAddr {
        self.envoy.address()
    }

    /// The Envoy.
    pub fn envoy(&self) -> &Envoy {
        &self.envoy
    }

    /// Whether what it is named after happened.
    ///
    /// # Errors
    /// When the service was not asked, or the module did not route every request by its prompt.
    pub async fn check(&self) -> Result<(), BenchError> {
        let problem = match self.kind {
            Kind::Plain => None,
            Kind::ExtProc => {
                let asked = "http.openai.ext_proc.streams_started";
                let failed = "http.openai.ext_proc.streams_failed";
                let (asked, failed) = (
                    self.envoy.counter(asked).await?,
                    self.envoy.counter(failed).await?,
                );
                (asked == 0 || failed > 0)
                    .then(|| format!("the service was asked {asked} times, {failed} in vain"))
            }
            Kind::InlineEpp => {
                let count = async |name: &str| {
                    let value = self.envoy.prometheus_value(name, &[]).await;
                    value.map(Option::unwrap_or_default)
                };
                let routed = count("epp_routing_decisions_total").await?;
                let others = count("epp_fallback_total").await?;
                (routed <= 0.0 || others > 0.0).then(|| {
                    format!("{routed} requests were routed by their prompts, {others} not")
                })
            }
        };
        problem.map_or(Ok(()), |problem| {
            Err(BenchError::Content {
                path: "envoy".into(),
                problem,
            })
        })
    }

    /// The processes of the whole proxy side.
    pub fn pids(&self) -> Vec<u32> {
        let service = self.service.as_ref().and_then(Child::id);
        std::iter::once(self.envoy.pid()).chain(service).collect()
    }
}

/// The service as a process of its own, so that what it uses can be told from what the servers use.
async fn picker(endpoints: &[SocketAddr]) -> Result<(Child, SocketAddr), BenchError> {
    let endpoint = endpoints.first().map(ToString::to_string);
    let mut child = Command::new(std::env::current_exe()?)
        .args(["ext-proc", HEADER, &endpoint.unwrap_or_default()])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()?;
    let mut line = String::new();
    if let Some(output) = child.stdout.take() {
        BufReader::new(output).read_line(&mut line).await?;
    }
    let address = line.trim().parse().map_err(|_| BenchError::Content {
        path: "ext-proc".into(),
        problem: format!("printed {line:?} instead of its address"),
    })?;
    Ok((child, address))
}

/// Puts the filter that asks the service at `address` in the module's place.
fn ask(tree: &mut Value, address: SocketAddr) {
    let resources = &mut tree["static_resources"];
    let manager = &mut resources["listeners"][0]["filter_chains"][0]["filters"][0]["typed_config"];
    manager["http_filters"][0] = ext_proc::filter();
    if let Some(clusters) = resources["clusters"].as_array_mut() {
        clusters.push(ext_proc::cluster(address));
    } else {
        resources["clusters"] = json!([ext_proc::cluster(address)]);
    }
}
