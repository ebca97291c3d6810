//! The probe on both hosts: the same request, byte for byte, and what the probe logged of it.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use wasm_test::envoy::{Builder, CANONICAL, Envoy};
use wasm_test::host::{Answer, Host, Progress, Response, Stream};
use wasm_test::sim::{Hold, MetricsAnswer, Overrides, SimConfig, SimServer, Status};
use wasm_test::testbed::eventually;

/// A request whose body is sent in chunks, each after the one before it arrived.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Script {
    pub(crate) path: &'static str,
    /// Sizes of the chunks.
    pub(crate) pieces: &'static [usize],
    pub(crate) trailers: bool,
    /// The answer comes before the end of the body, which is never sent.
    pub(crate) cut_short: bool,
    /// The client goes away once it has sent everything.
    pub(crate) leaves: bool,
    /// What becomes of the probe's own calls, once the request has arrived.
    pub(crate) calls: Calls,
    /// What Envoy's configuration differs in.
    pub(crate) rules: Rules,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Calls {
    Answered,
    /// Never: Envoy's time-out ends them.
    Unanswered,
    /// The server is gone.
    Refused,
    /// The server dies before it answers.
    Broken,
    /// The server says 503.
    Busy,
    /// The cluster's circuit breaker is open.
    Exhausted,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rules {
    Shipped,
    /// `allow_on_headers_stop_iteration` is off.
    WithoutTheFlag,
    /// Bodies of more than this many bytes cannot be held.
    Limit(usize),
    /// Seconds after a VM's start in which its loss is not repaired.
    ReloadInterval(u64),
}

impl Script {
    pub(crate) fn new(path: &'static str, pieces: &'static [usize]) -> Self {
        Self {
            path,
            pieces,
            trailers: false,
            cut_short: false,
            leaves: false,
            calls: Calls::Answered,
            rules: Rules::Shipped,
        }
    }

    /// Plays it on both hosts; the probe's lines, which must be the same, and the status that the
    /// client got, 0 for one that left.
    pub(crate) async fn play(self) -> (Vec<String>, u16) {
        let fake = self.on_the_fake();
        let real = self.on_envoy().await;
        assert_eq!(fake, real, "the fake (left) against Envoy");
        real
    }

    fn on_the_fake(&self) -> (Vec<String>, u16) {
        let host = fake_host(self.rules);
        let calls = self.calls;
        host.set_exhausted("model-servers", calls == Calls::Exhausted);
        host.answer_calls(move |_| match calls {
            Calls::Answered => Some((Duration::ZERO, Answer::ok("a page"))),
            Calls::Refused => Some((Duration::ZERO, Answer::refused())),
            Calls::Broken => Some((Duration::ZERO, Answer::broken())),
            Calls::Busy => Some((Duration::ZERO, Answer::status(503))),
            Calls::Unanswered | Calls::Exhausted => None,
        });
        let mut stream = host.stream(0);
        stream.headers(&head(self.path), self.pieces.is_empty());
        for &piece in self.pieces {
            stream.body(&vec![b'x'; piece], false);
        }
        match (self.has_end(), self.trailers) {
            (false, _) => {}
            (true, true) => drop(stream.trailers(&[("x-checksum", b"1")])),
            (true, false) => drop(stream.body(b"", true)),
        }
        let status = if self.leaves {
            stream.abort();
            host.advance(Duration::from_mins(1));
            0
        } else {
            host.advance(Duration::from_mins(1));
            answered(stream, self.pieces.iter().sum())
        };
        (
            said(host.log().iter().map(|line| line.text.as_str())),
            status,
        )
    }

    async fn on_envoy(&self) -> (Vec<String>, u16) {
        let server = SimServer::start(SimConfig::default(), "127.0.0.1:0".parse().expect("any"));
        let server = server.await.expect("a free port");
        let (calls, rules) = (self.calls, self.rules);
        if calls == Calls::Refused {
            server.kill().await;
        } else if calls == Calls::Busy {
            server.set_overrides(Overrides {
                metrics: MetricsAnswer::Status(Status::new(503).expect("an error's")),
                ..Overrides::default()
            });
        } else if self.path.contains("call-") {
            hold(&server, Hold::All);
        }
        let envoy = real_host(&server, rules).bootstrap(move |tree| {
            if calls == Calls::Exhausted {
                close_circuit(tree);
            }
        });
        let envoy = envoy.start().await.expect("a start");
        let mut client = Client::connect(&envoy).await;
        self.send(&mut client).await;
        let status = if self.leaves {
            drop(client);
            logged(&envoy, &["probe: delete"]).await;
            hold(&server, Hold::None);
            logged(&envoy, &["probe: act as"]).await;
            0
        } else {
            if calls == Calls::Answered {
                hold(&server, Hold::None);
            }
            if calls == Calls::Broken {
                under_way(&envoy).await;
                server.kill().await;
            }
            let status = client.status().await;
            logged(&envoy, &["probe: delete", "as the path says"]).await;
            status
        };
        (said(envoy.log().lines()), status)
    }

    /// Whether the end of the body is sent by itself.
    fn has_end(&self) -> bool {
        !self.pieces.is_empty() && !self.cut_short
    }

    async fn send(&self, client: &mut Client<'_>) {
        let framing = match (self.pieces.is_empty(), self.trailers) {
            (true, _) => "",
            (false, false) => "transfer-encoding: chunked\r\n",
            (false, true) => "transfer-encoding: chunked\r\ntrailer: x-checksum\r\n",
        };
        client.head(self.path, framing).await;
        for &piece in self.pieces {
            client.chunk(piece).await;
        }
        if self.has_end() {
            let end = if self.trailers {
                "0\r\nx-checksum: 1\r\n\r\n"
            } else {
                "0\r\n\r\n"
            };
            client.write(end).await;
        }
    }
}

/// The probe's configuration in which it logs ticks.
pub(crate) fn ticking() -> Value {
    json!({ "ticks": true })
}

/// A fake with the probe.
pub(crate) fn fake_host(rules: Rules) -> Host {
    let setup = Host::setup().module(module());
    let setup = match rules {
        Rules::Shipped => setup,
        Rules::WithoutTheFlag => setup.without_body_while_held(),
        Rules::Limit(bytes) => setup.buffer_limit(bytes),
        Rules::ReloadInterval(seconds) => setup.reload_interval(Duration::from_secs(seconds)),
    };
    setup.start(&json!({})).expect("a start")
}

/// The request's headers as the fake gets them.
pub(crate) fn head(path: &str) -> [(&str, &[u8]); 5] {
    [
        (":method", b"POST"),
        (":path", path.as_bytes()),
        (":authority", b"test"),
        ("x-twice", b"first"),
        ("x-twice", b"second"),
    ]
}

/// Has a server answer a request that went on its way with a body of `length` bytes, and ends the
/// stream; the status the client gets.
pub(crate) fn answered(mut stream: Stream, length: usize) -> u16 {
    let status = match stream.progress() {
        Progress::Replied(reply) => reply.status,
        Progress::Sent => {
            let sent = stream.sent().expect("it is on its way");
            assert_eq!(sent.body.len(), length);
            let upstream = "10.0.0.1:8000".parse().expect("an address");
            let passed = stream.respond(&Response::by(upstream, 404), false);
            stream.response_body(b"{}", true);
            passed.map_or(503, |_| 404)
        }
        other @ (Progress::Held | Progress::Lost) => panic!("{other:?}"),
    };
    stream.finish();
    status
}

/// A real Envoy with the probe and one worker.
pub(crate) fn real_host(server: &SimServer, rules: Rules) -> Builder {
    Envoy::builder(CANONICAL)
        .module(module())
        .endpoints(&[server.address()])
        .concurrency(1)
        .plugin(|plugin| *plugin = json!({}))
        .bootstrap(move |tree| adapt(tree, rules))
}

/// Waits until the probe's call is on its way.
async fn under_way(envoy: &Envoy) {
    const ACTIVE: &str = "cluster.model-servers.upstream_rq_active";
    eventually("the call to be made", async || {
        (envoy.counter(ACTIVE).await.ok()? == 1).then_some(())
    })
    .await;
}

fn hold(server: &SimServer, hold: Hold) {
    server.set_overrides(Overrides {
        hold,
        ..Overrides::default()
    });
}

/// Waits until the log has one of `texts`.
async fn logged(envoy: &Envoy, texts: &[&str]) {
    eventually("a line in the log", async || {
        let log = envoy.log();
        texts.iter().any(|text| log.contains(text)).then_some(())
    })
    .await;
}

/// A connection to Envoy on which what is written has arrived before more is.
pub(crate) struct Client<'a> {
    envoy: &'a Envoy,
    stream: TcpStream,
}

impl<'a> Client<'a> {
    pub(crate) async fn connect(envoy: &'a Envoy) -> Self {
        let stream = TcpStream::connect(envoy.address()).await;
        let stream = stream.expect("a connection");
        Self { envoy, stream }
    }

    pub(crate) async fn head(&mut self, path: &str, framing: &str) {
        let head = format!(
            "POST {path} HTTP/1.1\r\nhost: test\r\nconnection: close\r\nx-twice: first\r\n\
             x-twice: second\r\n{framing}\r\n"
        );
        self.write(&head).await;
    }

    pub(crate) async fn chunk(&mut self, size: usize) {
        self.write(&format!("{size:x}\r\n{}\r\n", "x".repeat(size)))
            .await;
    }

    async fn write(&mut self, text: &str) {
        let received = async || {
            let counter = self
                .envoy
                .counter("http.openai.downstream_cx_rx_bytes_total")
                .await;
            counter.expect("a counter of the listener")
        };
        let wanted = received().await + text.len() as u64;
        self.stream
            .write_all(text.as_bytes())
            .await
            .expect("written");
        eventually("Envoy to read", async || {
            (received().await >= wanted).then_some(())
        })
        .await;
    }

    /// The status of the answer.
    pub(crate) async fn status(&mut self) -> u16 {
        let mut answer = String::new();
        self.stream
            .read_to_string(&mut answer)
            .await
            .expect("an answer");
        let status = answer
            .split(' ')
            .nth(1)
            .and_then(|status| status.parse().ok());
        status.unwrap_or_else(|| panic!("no status: {answer:?}"))
    }
}

fn close_circuit(tree: &mut Value) {
    let closed = json!({ "max_connections": 0, "max_pending_requests": 0, "max_requests": 0 });
    let cluster = &mut tree["static_resources"]["clusters"][0];
    cluster["circuit_breakers"]["thresholds"] = json!([closed]);
}

fn adapt(tree: &mut Value, rules: Rules) {
    let listener = &mut tree["static_resources"]["listeners"][0];
    let manager = &mut listener["filter_chains"][0]["filters"][0]["typed_config"];
    manager["http_protocol_options"] = json!({ "enable_trailers": true });
    let plugin = &mut manager["http_filters"][0]["typed_config"]["config"];
    match rules {
        Rules::Shipped => {}
        Rules::WithoutTheFlag => plugin["allow_on_headers_stop_iteration"] = json!(false),
        Rules::ReloadInterval(seconds) => {
            let interval = format!("{seconds}s");
            plugin["reload_config"] = json!({ "backoff": { "base_interval": interval } });
        }
        Rules::Limit(bytes) => {
            // The larger of the two limits holds.
            manager["route_config"]["virtual_hosts"][0]["request_body_buffer_limit"] = json!(bytes);
            listener["per_connection_buffer_limit_bytes"] = json!(bytes);
        }
    }
}

/// What the probe said.
fn said<'a>(log: impl Iterator<Item = &'a str>) -> Vec<String> {
    let said = log.filter_map(|line| line.split_once("probe: "));
    said.map(|(_, text)| text.to_owned()).collect()
}

/// The probe, built once in a process.
pub(crate) fn module() -> &'static Path {
    static MODULE: OnceLock<PathBuf> = OnceLock::new();
    MODULE.get_or_init(|| {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
        let module = folder.join(format!("probe-{}.wasm", std::process::id()));
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/host_model/probe.rs");
        let built = Command::new("rustc")
            .args([
                "--edition",
                "2024",
                "--target",
                "wasm32-wasip1",
                "--crate-type",
                "cdylib",
            ])
            .args([
                "-C",
                "panic=abort",
                "-C",
                "opt-level=s",
                "-C",
                "strip=symbols",
                "-D",
                "warnings",
            ])
            .arg("-o")
            .args([&module, &source])
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .status();
        assert!(
            built.expect("rustc runs").success(),
            "the probe does not build"
        );
        module
    })
}
