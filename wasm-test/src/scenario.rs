//! One scenario, two proxies: what a client, a server and an operator see, be it of a real Envoy or
//! of the fake. Where the two disagree, the fake is wrong.

mod fake;
mod real;

pub use fake::{FakeGateway, metrics_page};
pub use real::RealGateway;

use std::fmt::{self, Write};
use std::net::SocketAddr;
use std::time::Duration;

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::testbed::split_pool;

/// A proxy with the module in it, and model servers behind.
#[expect(async_fn_in_trait, reason = "tests poll one future on one thread")]
pub trait Gateway: Sized {
    /// Starts everything and waits until the servers' metrics are known, unless the plan is blind.
    async fn start(plan: Plan) -> Self;

    /// Addresses of the servers, in the order of the plan.
    fn servers(&self) -> &[SocketAddr];

    /// Sends a request and waits for the end of the answer.
    async fn send(&self, request: Request) -> Exchange;

    /// The sum over the counters and gauges called `name` that carry all of `labels`; `None` when
    /// there is none.
    async fn metric(&self, name: &str, labels: &[(&str, &str)]) -> Option<u64>;

    /// Has a server treat requests otherwise from here on.
    async fn change(&self, index: usize, serves: Serves);

    /// Lets time pass.
    async fn pass(&self, time: Duration);

    /// What was logged so far.
    fn log(&self) -> String;
}

/// What a run differs in.
pub struct Plan {
    pub(crate) servers: Vec<Serves>,
    pub(crate) patches: Vec<Patch>,
    pub(crate) looks_after_servers: bool,
    pub(crate) is_split: bool,
}

pub(crate) type Patch = Box<dyn Fn(&mut Value) + Send + Sync>;

impl fmt::Debug for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Plan")
            .field("servers", &self.servers)
            .finish_non_exhaustive()
    }
}

/// How a server treats requests. Its metrics can be read and it says it is ready, unless otherwise
/// stated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Serves {
    /// It answers.
    Well,
    /// It answers 503.
    Busy,
    /// It refuses connections.
    Gone,
    /// Its model is not there yet: 503, for its health too, and no metrics of an engine.
    Loading,
    /// It answers, and its metrics are none.
    Garbled,
    /// Its engine does nothing although requests run.
    Stuck,
    /// Generations are answered 500.
    Failing,
    /// Generations are not answered.
    Silent,
    /// Connections end where the answer of a generation should begin.
    Breaking,
    /// It computes no prompts for others.
    Unsharing,
    /// Whole answers have two megabytes.
    Verbose,
}

impl Plan {
    /// A run of the shipped configuration with these servers.
    pub fn new(servers: &[Serves]) -> Self {
        Self {
            servers: servers.to_vec(),
            patches: Vec::new(),
            looks_after_servers: true,
            is_split: false,
        }
    }

    /// Has the module read and check nothing for as long as the run takes: it routes by what it was
    /// told of servers, and by how they answer.
    #[must_use]
    pub fn blind(self) -> Self {
        let mut blind = self.plugin(|plugin| {
            let pool = &mut plugin["pools"][0];
            // A tick is a tenth of it.
            pool["metrics"]["interval"] = json!("10m");
            // A server that was never read is as good as any.
            pool["health"] = json!({ "staleFloor": 1.0 });
        });
        blind.looks_after_servers = false;
        blind
    }

    /// Has the first server compute the prompts for the others.
    #[must_use]
    pub fn split(self, mode: &'static str) -> Self {
        let patch = split_pool(1, mode, 0);
        let mut split = self.plugin(move |plugin| patch(&mut plugin["pools"][0]));
        split.is_split = true;
        split
    }

    /// Changes the plugin configuration.
    #[must_use]
    pub fn plugin(mut self, patch: impl Fn(&mut Value) + Send + Sync + 'static) -> Self {
        self.patches.push(Box::new(patch));
        self
    }
}

/// A client's request.
#[derive(Clone, Debug)]
pub struct Request {
    pub method: &'static str,
    pub path: String,
    /// Beside what frames the body.
    pub headers: Vec<(String, Vec<u8>)>,
    pub body: Vec<u8>,
    pub framing: Framing,
}

/// How the end of a body is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// By its length, ahead.
    Length,
    /// By an empty chunk.
    Chunked,
    /// By trailers behind the last chunk.
    Trailers,
}

impl Request {
    /// A POST of `body`, announced as JSON, which it need not be.
    pub fn post(path: &str, body: impl Into<Vec<u8>>) -> Self {
        Self {
            method: "POST",
            path: path.to_owned(),
            headers: vec![("content-type".to_owned(), b"application/json".to_vec())],
            body: body.into(),
            framing: Framing::Length,
        }
    }

    /// A GET without a body.
    pub fn get(path: &str) -> Self {
        Self {
            method: "GET",
            headers: Vec::new(),
            ..Self::post(path, Vec::new())
        }
    }

    /// Adds a header.
    #[must_use]
    pub fn header(mut self, name: &str, value: impl Into<Vec<u8>>) -> Self {
        self.headers.push((name.to_owned(), value.into()));
        self
    }

    /// Ends the body in another way.
    #[must_use]
    pub fn framed(mut self, framing: Framing) -> Self {
        self.framing = framing;
        self
    }
}

/// What became of a request.
#[derive(Clone, Debug, Default)]
pub struct Exchange {
    pub status: u16,
    /// Headers of the answer, names in lower case.
    pub headers: Vec<(String, String)>,
    /// Who answered; `None` when the proxy did.
    pub server: Option<SocketAddr>,
    /// The endpoints the module named, in its order.
    pub destinations: Vec<SocketAddr>,
    /// Names of the headers the server received, and its request id. Empty when the proxy answered.
    pub received_headers: Vec<String>,
    pub received_request_id: Option<String>,
    /// SHA-256 of the body the server received, in lower-case hex.
    pub received_body: Option<String>,
    /// The server was handed a prompt that another one computed.
    pub received_prompt: bool,
}

impl Exchange {
    /// The first value of a header of the answer.
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut headers = self.headers.iter();
        headers
            .find(|(key, _)| key == name)
            .map(|(_, value)| value.as_str())
    }

    /// The module's reason, empty when it gave none.
    pub fn reason(&self) -> &str {
        self.header("x-epp-reason").unwrap_or_default()
    }

    /// Matched and all blocks as they are written, empty when the module did not say.
    pub fn cache_match(&self) -> &str {
        self.header("x-epp-cache-match").unwrap_or_default()
    }
}

/// SHA-256 in lower-case hex.
pub fn digest(bytes: &[u8]) -> String {
    Sha256::digest(bytes)
        .iter()
        .fold(String::new(), |mut text, byte| {
            // Writing to a String cannot fail.
            let _ = write!(text, "{byte:02x}");
            text
        })
}

/// The endpoints of a destination header.
fn destinations(header: &str) -> Vec<SocketAddr> {
    header
        .split(',')
        .filter_map(|one| one.trim().parse().ok())
        .collect()
}

/// The header the module writes its choice to in the shipped configuration.
const DESTINATION: &str = "x-gateway-destination-endpoint";
