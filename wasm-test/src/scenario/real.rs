//! A real Envoy with simulated servers.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream;
use http_body::Frame;
use http_body_util::StreamBody;
use reqwest::header::HeaderMap;
use reqwest::{Body, Method};
use serde_json::json;

use super::{DESTINATION, Exchange, Framing, Gateway, Plan, Request, Serves, destinations};
use crate::sim::{
    Failure, Hold, MetricsAnswer, Overrides, Reset, ResetPoint, SimServer, Span, Status,
};
use crate::testbed::{Answer, TOKEN_BYTES, Testbed};

/// A real Envoy, one worker.
#[derive(Debug)]
pub struct RealGateway {
    testbed: Testbed,
    addresses: Vec<SocketAddr>,
}

/// Shows the client what the module wrote to the destination header.
const SHOWN: &str = "x-test-destinations";

impl Gateway for RealGateway {
    async fn start(plan: Plan) -> Self {
        let mut setup = Testbed::with_servers(plan.servers.len());
        for (index, serves) in plan.servers.iter().enumerate() {
            if *serves == Serves::Busy {
                setup = setup.server(index, |config| config.max_num_queued_reqs = Some(0));
            }
        }
        if plan.is_split {
            setup = setup.every_server(|config| {
                config.kv_transfer = true;
                config.bytes_per_token = u32::try_from(TOKEN_BYTES).ok();
            });
        }
        for patch in plan.patches {
            setup = setup.plugin(patch);
        }
        let setup = setup
            .connection_manager(|manager| {
                manager["http_protocol_options"] = json!({ "enable_trailers": true });
                manager["route_config"]["response_headers_to_add"] = json!([{
                    "header": { "key": SHOWN, "value": format!("%REQ({DESTINATION})%") },
                }]);
            })
            .cluster(|cluster| {
                // The filter that removes the destination header would hide it here as well.
                cluster["typed_extension_protocol_options"] = json!(null);
            });
        let testbed = if plan.looks_after_servers {
            setup.start().await
        } else {
            setup.start_unscraped().await
        };
        let servers = testbed.servers().iter();
        let addresses = servers.map(SimServer::address).collect();
        let gateway = Self { testbed, addresses };
        for (index, serves) in plan.servers.iter().enumerate() {
            if *serves != Serves::Busy {
                gateway.change(index, *serves).await;
            }
        }
        gateway
    }

    fn servers(&self) -> &[SocketAddr] {
        &self.addresses
    }

    async fn send(&self, request: Request) -> Exchange {
        let method = Method::from_bytes(request.method.as_bytes()).expect("a method");
        let mut sending = self.testbed.request(method, &request.path);
        for (name, value) in &request.headers {
            sending = sending.header(name, value.as_slice());
        }
        if request.framing == Framing::Trailers {
            sending = sending.header("trailer", "x-checksum");
        }
        if request.framing != Framing::Length || !request.body.is_empty() {
            sending = sending.body(body(&request));
        }
        self.exchange(&Answer::to(sending).await)
    }

    async fn metric(&self, name: &str, labels: &[(&str, &str)]) -> Option<u64> {
        self.testbed.metric(name, labels).await
    }

    async fn change(&self, index: usize, serves: Serves) {
        let changing = &self.testbed.servers()[index];
        let mut overrides = Overrides::default();
        match serves {
            Serves::Well => {}
            Serves::Gone => return changing.kill().await,
            Serves::Silent => overrides.hold = Hold::Generations,
            Serves::Breaking => {
                overrides.reset = Some(Reset {
                    at: ResetPoint::BeforeResponse,
                    times: None,
                });
            }
            Serves::Unsharing => overrides.no_kv_transfer = true,
            Serves::Verbose => overrides.padding = 2 << 20,
            Serves::Busy | Serves::Failing => {
                let code = if serves == Serves::Busy { 503 } else { 500 };
                let status = Status::new(code).expect("an error's");
                overrides.fail = Some(Failure {
                    status,
                    times: None,
                });
            }
            Serves::Loading => overrides.loading = Span::UntilCleared,
            Serves::Garbled => overrides.metrics = MetricsAnswer::Html,
            Serves::Stuck => {
                overrides.stuck = true;
                overrides.num_requests_running = Some(1.0);
            }
        }
        if !changing.is_running() {
            changing.restart().await.expect("its port is still its own");
        }
        changing.set_overrides(overrides);
    }

    async fn pass(&self, time: Duration) {
        tokio::time::sleep(time).await;
    }

    fn log(&self) -> String {
        self.testbed.envoy().log()
    }
}

impl RealGateway {
    fn exchange(&self, answer: &Answer) -> Exchange {
        let server: Option<SocketAddr> = answer
            .header("x-sim-server")
            .and_then(|address| address.parse().ok());
        let received = server.and_then(|address| {
            let log = self.testbed.servers()[self.testbed.index_of(address)].log();
            log.last().cloned()
        });
        let headers = answer.headers.iter();
        Exchange {
            status: answer.status.as_u16(),
            headers: headers
                .map(|(name, value)| {
                    let value = String::from_utf8_lossy(value.as_bytes()).into_owned();
                    (name.to_string(), value)
                })
                .collect(),
            server,
            destinations: destinations(answer.header(SHOWN).unwrap_or_default()),
            received_headers: server
                .map(|_| {
                    answer
                        .headers_seen()
                        .iter()
                        .map(ToString::to_string)
                        .collect()
                })
                .unwrap_or_default(),
            received_prompt: received
                .as_ref()
                .is_some_and(|entry| entry.transfer.as_deref() == Some("fetch")),
            received_request_id: received.and_then(|entry| entry.request_id),
            received_body: answer.header("x-sim-body-sha256").map(Into::into),
        }
    }
}

fn body(request: &Request) -> Body {
    const PIECE: usize = 10_000;
    if request.framing == Framing::Length {
        return Body::from(request.body.clone());
    }
    let pieces = request.body.chunks(PIECE);
    let mut frames: Vec<_> = pieces
        .map(|piece| Frame::data(Bytes::copy_from_slice(piece)))
        .collect();
    if request.framing == Framing::Trailers {
        let trailers = [("x-checksum", "1")].map(|(name, value)| {
            (
                name.parse().expect("a name"),
                value.parse().expect("a value"),
            )
        });
        frames.push(Frame::trailers(HeaderMap::from_iter(trailers)));
    }
    let frames = frames.into_iter().map(Ok::<_, std::io::Error>);
    Body::wrap(StreamBody::new(stream::iter(frames)))
}
