//! The fake host with a model of the shipped cluster: the `override_host` policy and its retries.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::rc::Rc;
use std::time::Duration;

use serde_json::{Value, json};

use super::{DESTINATION, Exchange, Framing, Gateway, Plan, Request, Serves, destinations, digest};
use crate::envoy::{self, CANONICAL};
use crate::host::{Answer, Host, Progress, Response, Sent, Setup, Stream, Thread};

/// The fake with model servers that answer at once.
#[derive(Debug)]
pub struct FakeGateway {
    host: Host,
    plugin: Value,
    addresses: Vec<SocketAddr>,
    servers: Servers,
    /// Requests without a destination take turns.
    turn: Cell<usize>,
}

/// What the servers are doing, by address; the host's calls read it too.
type Servers = Rc<RefCell<BTreeMap<SocketAddr, Server>>>;

#[derive(Clone, Copy, Debug)]
struct Server {
    serves: Serves,
    /// Value of `vllm:num_requests_waiting` on its page.
    waiting: u32,
    scrapes: u64,
    scraped_by: Option<Thread>,
}

/// What Envoy says of a server that refuses connections; a real one adds more in the braces.
const REFUSED: &str = "upstream_reset_before_response_started{remote_connection_failure}";
/// `num_retries` of the shipped configuration.
const RETRIES: usize = 2;

impl FakeGateway {
    /// Starts a host with `workers` workers; metrics are not known yet.
    ///
    /// # Panics
    /// When the module does not start.
    pub fn start_unscraped(plan: &Plan, setup: Setup) -> Self {
        let last_byte = 1..=plan.servers.len() as u8;
        let addresses: Vec<SocketAddr> = last_byte
            .map(|byte| (Ipv4Addr::new(10, 0, 0, byte), 8000).into())
            .collect();
        let servers = addresses
            .iter()
            .zip(&plan.servers)
            .map(|(address, serves)| {
                let server = Server {
                    serves: *serves,
                    waiting: 0,
                    scrapes: 0,
                    scraped_by: None,
                };
                (*address, server)
            });
        let servers = Rc::new(RefCell::new(servers.collect()));
        let plugin = plugin(&addresses, plan);
        let host = setup.start(&plugin).expect("a start");
        answer_calls(&host, &servers);
        Self {
            host,
            plugin,
            addresses,
            servers,
            turn: Cell::new(0),
        }
    }

    pub fn host(&self) -> &Host {
        &self.host
    }

    /// The plugin configuration it was started with.
    pub fn plugin(&self) -> &Value {
        &self.plugin
    }

    /// Lets the servers' metrics become known to every VM.
    pub fn scrape(&self) {
        self.host.advance(Duration::from_millis(500));
    }

    /// Has a server treat requests otherwise from here on.
    ///
    /// # Panics
    /// When there is no such server.
    pub fn set_serves(&self, index: usize, serves: Serves) {
        self.server(index, |server| server.serves = serves);
    }

    /// Has a server report so many waiting requests.
    ///
    /// # Panics
    /// When there is no such server.
    pub fn set_waiting(&self, index: usize, waiting: u32) {
        self.server(index, |server| server.waiting = waiting);
    }

    /// How often a server's metrics were asked for.
    ///
    /// # Panics
    /// When there is no such server.
    pub fn scrapes(&self, index: usize) -> u64 {
        self.server(index, |server| server.scrapes)
    }

    /// Whose VM asked a server for its metrics last; `None` when nobody did.
    ///
    /// # Panics
    /// When there is no such server.
    pub fn scraped_by(&self, index: usize) -> Option<Thread> {
        self.server(index, |server| server.scraped_by)
    }

    fn server<T>(&self, index: usize, action: impl FnOnce(&mut Server) -> T) -> T {
        let mut servers = self.servers.borrow_mut();
        action(servers.get_mut(&self.addresses[index]).expect("a server"))
    }

    /// Sends a request through a worker.
    ///
    /// # Panics
    /// When it is never answered.
    pub fn send_by(&self, worker: usize, request: &Request) -> Exchange {
        let mut stream = self.host.stream(worker);
        drive(&mut stream, request);
        // What is held waits for a call.
        let since = self.host.now();
        while stream.progress() == Progress::Held && self.host.now() < since + HELD {
            self.host.advance(Duration::from_millis(10));
        }
        match stream.progress() {
            Progress::Sent => {}
            Progress::Replied(reply) => {
                let headers = stream.response_headers().unwrap_or_default();
                stream.finish();
                return Exchange {
                    status: reply.status,
                    headers: texts(&headers),
                    ..Exchange::default()
                };
            }
            other @ (Progress::Held | Progress::Lost) => panic!("{other:?} for ever: {request:?}"),
        }
        let sent = stream.sent().expect("a request");
        let response = self.route(&sent);
        let headers = stream.respond(&response, false);
        let status = headers.as_ref().map_or(503, |_| response.status);
        stream.response_body(br#"{"choices":[{"text":"a"}]}"#, true);
        stream.finish();
        let by_server = response.details == "via_upstream";
        let received = by_server.then_some(&sent);
        Exchange {
            status,
            headers: texts(&headers.unwrap_or_default()),
            server: response.upstream.filter(|_| by_server),
            destinations: destinations(sent.header(DESTINATION).unwrap_or_default()),
            received_headers: received.map(names).unwrap_or_default(),
            received_request_id: received
                .and_then(|sent| sent.header("x-request-id"))
                .map(Into::into),
            received_body: received.map(|sent| digest(&sent.body)),
            received_prompt: received.is_some_and(|sent| {
                let body: Value = serde_json::from_slice(&sent.body).unwrap_or_default();
                !body["kv_transfer_params"].is_null()
            }),
        }
    }

    /// The cluster: entry by entry of the list, then members in turn.
    fn route(&self, sent: &Sent) -> Response {
        let mut named = destinations(sent.header(DESTINATION).unwrap_or_default());
        named.retain(|address| self.addresses.contains(address));
        let mut latest = None;
        let retries = sent.header("x-envoy-max-retries");
        let retries = retries
            .and_then(|most| most.parse().ok())
            .unwrap_or(RETRIES);
        for attempt in 0..=retries {
            let address = named.get(attempt).copied().unwrap_or_else(|| self.next());
            let server = self.servers.borrow()[&address];
            let mut response = Response::by(address, 200);
            response.attempts = attempt as u64 + 1;
            match server.serves {
                Serves::Well
                | Serves::Garbled
                | Serves::Stuck
                | Serves::Unsharing
                | Serves::Verbose => return response,
                Serves::Failing => {
                    response.status = 500;
                    return response;
                }
                Serves::Busy | Serves::Loading => response.status = 503,
                Serves::Silent => panic!("a client that waits for ever is not modelled"),
                Serves::Gone | Serves::Breaking => {
                    response.status = 503;
                    response.details = REFUSED.into();
                }
            }
            latest = Some(response);
        }
        latest.expect("at least one attempt")
    }

    fn next(&self) -> SocketAddr {
        let turn = self.turn.get();
        self.turn.set(turn + 1);
        self.addresses[turn % self.addresses.len()]
    }
}

impl Gateway for FakeGateway {
    async fn start(plan: Plan) -> Self {
        let gateway = Self::start_unscraped(&plan, Host::setup());
        if plan.looks_after_servers {
            gateway.scrape();
        }
        gateway
    }

    fn servers(&self) -> &[SocketAddr] {
        &self.addresses
    }

    async fn send(&self, request: Request) -> Exchange {
        self.send_by(0, &request)
    }

    async fn metric(&self, name: &str, labels: &[(&str, &str)]) -> Option<u64> {
        self.host.metric(name, labels)
    }

    async fn change(&self, index: usize, serves: Serves) {
        self.set_serves(index, serves);
    }

    async fn pass(&self, time: Duration) {
        self.host.advance(time);
    }

    fn log(&self) -> String {
        let log = self.host.log();
        let lines: Vec<&str> = log.iter().map(|line| line.text.as_str()).collect();
        lines.join("\n")
    }
}

/// The shipped plugin configuration for these servers, with what the testbed changes in it.
fn plugin(addresses: &[SocketAddr], plan: &Plan) -> Value {
    let mut plugin = envoy::plugin_configuration(CANONICAL).expect("the shipped configuration");
    let addresses: Vec<String> = addresses.iter().map(ToString::to_string).collect();
    plugin["debugHeaders"] = json!(true);
    plugin["pools"][0]["endpoints"] = json!(addresses);
    plugin["pools"][0]["metrics"] = json!({ "interval": "200ms", "timeout": "1s" });
    plan.patches.iter().for_each(|patch| patch(&mut plugin));
    plugin
}

fn answer_calls(host: &Host, servers: &Servers) {
    let servers = Rc::clone(servers);
    host.answer_calls(move |call| {
        let address: SocketAddr = call.request.header(DESTINATION)?.parse().ok()?;
        let mut servers = servers.borrow_mut();
        let server = servers.get_mut(&address)?;
        let answer = match call.request.header(":path")? {
            _ if server.serves == Serves::Gone => Answer::refused(),
            "/health" if server.serves == Serves::Loading => Answer::status(503),
            "/health" => Answer::ok(""),
            "/v1/models" if server.serves == Serves::Loading => Answer::ok(r#"{"data":[]}"#),
            path if path.ends_with("/completions") => {
                return prefilled(server.serves).map(|answer| (Duration::from_millis(2), answer));
            }
            "/v1/models" => Answer::ok(r#"{"data":[{"id":"sim-model","parent":null}]}"#),
            _ => page(server),
        };
        if call.request.header(":path") == Some("/metrics") {
            server.scrapes += 1;
            server.scraped_by = Some(call.thread);
        }
        Some((Duration::from_millis(2), answer))
    });
}

fn page(server: &Server) -> Answer {
    match server.serves {
        Serves::Loading => Answer::ok("process_start_time_seconds 1.0\n"),
        Serves::Garbled => Answer::ok("<html>"),
        Serves::Stuck => Answer::ok(STUCK_PAGE),
        Serves::Well
        | Serves::Busy
        | Serves::Gone
        | Serves::Failing
        | Serves::Silent
        | Serves::Breaking
        | Serves::Unsharing
        | Serves::Verbose => Answer::ok(metrics_page(server.waiting)),
    }
}

/// How a server answers that is to compute a prompt for another; `None` for never.
fn prefilled(serves: Serves) -> Option<Answer> {
    let params = r#"{"do_remote_prefill":true,"remote_block_ids":[[1]],"remote_engine_id":"e",
        "remote_request_id":"r","remote_host":"10.0.0.1","remote_port":5600}"#;
    Some(match serves {
        Serves::Silent => return None,
        Serves::Busy | Serves::Loading => Answer::status(503),
        Serves::Failing => Answer::status(500),
        Serves::Gone => Answer::refused(),
        Serves::Breaking => Answer::broken(),
        Serves::Unsharing => Answer::ok(r#"{"kv_transfer_params":null}"#),
        Serves::Verbose => Answer::ok(vec![b' '; 2 << 20]),
        Serves::Well | Serves::Garbled | Serves::Stuck => {
            Answer::ok(format!("{{\"kv_transfer_params\":{params}}}"))
        }
    })
}

/// No call is waited for longer.
const HELD: Duration = Duration::from_secs(5);

/// The page of a vLLM that runs a request and makes no progress.
const STUCK_PAGE: &str = "vllm:num_requests_running{engine=\"0\"} 1.0\n\
    vllm:num_requests_waiting{engine=\"0\"} 0.0\n\
    vllm:kv_cache_usage_perc{engine=\"0\"} 0.1\n\
    vllm:prompt_tokens_total{engine=\"0\"} 1000.0\n\
    vllm:generation_tokens_total{engine=\"0\"} 50.0\n";

/// The page of an idle vLLM with `waiting` requests in its queue.
pub fn metrics_page(waiting: u32) -> String {
    format!(
        "vllm:num_requests_running{{engine=\"0\",model_name=\"sim-model\"}} 0.0\n\
         vllm:num_requests_waiting{{engine=\"0\",model_name=\"sim-model\"}} {waiting}.0\n\
         vllm:kv_cache_usage_perc{{engine=\"0\",model_name=\"sim-model\"}} 0.0\n"
    )
}

/// Brings a request to its end, in the pieces in which Envoy does.
fn drive(stream: &mut Stream, request: &Request) {
    const PIECE: usize = 10_000;
    let length = request.body.len().to_string();
    let mut headers: Vec<(&str, &[u8])> = vec![
        (":method", request.method.as_bytes()),
        (":path", request.path.as_bytes()),
        (":authority", b"test"),
        (":scheme", b"http"),
    ];
    let bodyless = request.framing == Framing::Length && request.body.is_empty();
    match request.framing {
        Framing::Length if bodyless => {}
        Framing::Length => headers.push(("content-length", length.as_bytes())),
        Framing::Chunked | Framing::Trailers => headers.push(("transfer-encoding", b"chunked")),
    }
    let own = request.headers.iter();
    headers.extend(own.map(|(name, value)| (name.as_str(), value.as_slice())));
    stream.headers(&headers, bodyless);
    if bodyless {
        return;
    }
    for piece in request.body.chunks(PIECE) {
        stream.body(piece, false);
    }
    if request.framing == Framing::Trailers {
        stream.trailers(&[("x-checksum", b"1")]);
    } else {
        stream.body(b"", true);
    }
}

fn texts(pairs: &[(Vec<u8>, Vec<u8>)]) -> Vec<(String, String)> {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    pairs
        .iter()
        .map(|(name, value)| (text(name), text(value)))
        .collect()
}

fn names(sent: &Sent) -> Vec<String> {
    texts(&sent.headers)
        .into_iter()
        .map(|(name, _)| name)
        .collect()
}
