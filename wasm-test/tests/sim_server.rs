//! Simulated servers as their clients see them: streams, queues, disconnects, kills.

use std::collections::HashSet;
use std::io::ErrorKind;
use std::time::Duration;

use reqwest::{Client, Response, StatusCode};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::timeout;
use wasm_test::sim::{Overrides, Preset, Sim, SimConfig, SimServer};

/// Upper bound of every wait; a test that gets here has failed.
const DEADLINE: Duration = Duration::from_secs(30);

fn instant() -> SimConfig {
    SimConfig {
        preset: Preset::Instant,
        ..SimConfig::default()
    }
}

/// So slow that nothing ends by itself within a test.
fn frozen() -> SimConfig {
    SimConfig {
        preset: Preset::A100Llama70b,
        time_scale: 1e-6,
        ..SimConfig::default()
    }
}

/// 12 ms for each of the tokens of [`LONG`]: it starts soon and lasts for minutes.
fn slow_decode() -> SimConfig {
    SimConfig {
        preset: Preset::A100Llama8b,
        ..SimConfig::default()
    }
}

/// Output tokens of a request that does not end within a test.
const LONG: u32 = 100_000;

async fn start(config: &SimConfig) -> Sim {
    Sim::start(config, 1).await.expect("a free port")
}

async fn post(server: &SimServer, path: &str, body: &Value) -> reqwest::Result<Response> {
    Client::new().post(server.url(path)).json(body).send().await
}

async fn complete(server: &SimServer, body: &Value) -> Value {
    let answer = post(server, "/v1/completions", body)
        .await
        .expect("an answer");
    answer.json().await.expect("JSON")
}

fn cached(answer: &Value) -> u64 {
    answer["usage"]["prompt_tokens_details"]["cached_tokens"]
        .as_u64()
        .expect("a hit count")
}

/// Polls until `holds`; fails after the deadline.
async fn until(what: &str, holds: impl Fn() -> bool) {
    let poll = async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    timeout(DEADLINE, poll)
        .await
        .unwrap_or_else(|_| panic!("never: {what}"));
}

fn load(server: &SimServer) -> (u64, u64) {
    let gauges = server.state().gauges;
    (gauges.num_requests_running, gauges.num_requests_waiting)
}

/// Sends one request by hand and leaves the connection open.
async fn raw_request(server: &SimServer, method: &str, path: &str, body: &str) -> TcpStream {
    let mut stream = TcpStream::connect(server.address())
        .await
        .expect("a listener");
    let head = format!(
        "{method} {path} HTTP/1.1\r\nHost: sim\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\n\r\n",
        body.len()
    );
    stream
        .write_all((head + body).as_bytes())
        .await
        .expect("sent");
    stream
}

/// Reads until the connection ends; what came, and how it ended.
async fn read_to_end(stream: &mut TcpStream) -> (String, std::io::Result<()>) {
    let mut bytes = Vec::new();
    let read = timeout(DEADLINE, stream.read_to_end(&mut bytes))
        .await
        .expect("in time");
    (
        String::from_utf8_lossy(&bytes).into_owned(),
        read.map(|_| ()),
    )
}

#[tokio::test]
async fn the_next_turn_of_a_chat_hits_prompt_and_answer() {
    let sim = start(&instant()).await;
    let mut messages = vec![json!({"role": "system", "content": "You are brief. ".repeat(20)})];
    let mut held = 0;
    for turn in 0..5 {
        messages.push(json!({"role": "user", "content": format!("Question number {turn}?")}));
        let body = json!({"messages": messages, "max_tokens": 50});
        let answer = post(&sim[0], "/v1/chat/completions", &body)
            .await
            .expect("an answer");
        let answer: Value = answer.json().await.expect("JSON");
        assert_eq!(cached(&answer), held, "turn {turn}");
        // The newest token is never computed, so it fills no block.
        let total = answer["usage"]["total_tokens"].as_u64().expect("a count");
        held = (total - 1) / 16 * 16;
        messages.push(answer["choices"][0]["message"].clone());
    }
}

#[tokio::test]
async fn without_a_limit_the_model_stops_by_itself() {
    let sim = start(&instant()).await;
    let body = json!({"messages": [{"role": "user", "content": "hello"}]});
    let answer = post(&sim[0], "/v1/chat/completions", &body)
        .await
        .expect("an answer");
    let answer: Value = answer.json().await.expect("JSON");
    assert_eq!(answer["choices"][0]["finish_reason"], "stop");
    assert_eq!(sim[0].state().counters.finished_stop, 1);
}

#[tokio::test]
async fn a_stream_says_the_same_as_a_whole_answer() {
    let sim = start(&instant()).await;
    let mut body = json!({"prompt": "tell me", "max_tokens": 30});
    let whole = complete(&sim[0], &body).await;
    body["stream"] = true.into();
    let streamed = post(&sim[0], "/v1/completions", &body)
        .await
        .expect("an answer");
    let streamed = streamed.text().await.expect("text");
    let text: String = streamed
        .split("\n\n")
        .filter_map(|event| serde_json::from_str::<Value>(event.strip_prefix("data: ")?).ok())
        .filter_map(|chunk| chunk["choices"][0]["text"].as_str().map(str::to_owned))
        .collect();
    assert_eq!(whole["choices"][0]["text"], text.as_str());
    assert!(streamed.ends_with("data: [DONE]\n\n"));
}

#[tokio::test]
async fn a_streams_head_does_not_wait_for_the_engine() {
    let sim = start(&frozen()).await;
    let body = json!({"prompt": "hello", "stream": true});
    let answer = timeout(DEADLINE, post(&sim[0], "/v1/completions", &body)).await;
    let mut answer = answer.expect("in time").expect("an answer");
    assert_eq!(answer.status(), StatusCode::OK);
    assert_eq!(load(&sim[0]), (1, 0));
    assert!(
        timeout(Duration::from_millis(20), answer.chunk())
            .await
            .is_err()
    );
}

#[tokio::test]
async fn queue_drains_in_order_as_clients_disconnect() {
    let sim = start(&SimConfig {
        max_num_seqs: 1,
        ..slow_decode()
    })
    .await;
    let mut clients = Vec::new();
    for index in 0..5 {
        let body = format!("{{\"prompt\": \"request {index}\", \"max_tokens\": {LONG}}}");
        clients.push(raw_request(&sim[0], "POST", "/v1/completions", &body).await);
        let waiting = index;
        until("the request is in the engine", || {
            load(&sim[0]) == (1, waiting)
        })
        .await;
    }
    assert!(sim[0].state().gauges.kv_cache_usage > 0.0);
    for waiting in (0..4).rev() {
        drop(clients.remove(0));
        until("the next request runs", || load(&sim[0]) == (1, waiting)).await;
    }
    clients.clear();
    until("all blocks are free", || {
        sim[0].state().gauges.kv_cache_usage <= 0.0
    })
    .await;
    assert_eq!(load(&sim[0]), (0, 0));
    assert_eq!(sim[0].state().counters.aborted, 5);
}

#[tokio::test]
async fn a_client_that_leaves_mid_stream_frees_its_blocks() {
    let sim = start(&slow_decode()).await;
    let body = json!({"prompt": "hello", "stream": true, "max_tokens": LONG});
    let mut answer = post(&sim[0], "/v1/completions", &body)
        .await
        .expect("an answer");
    assert!(
        timeout(DEADLINE, answer.chunk())
            .await
            .expect("in time")
            .is_ok()
    );
    assert_eq!(load(&sim[0]), (1, 0));
    drop(answer);
    until("the slot is free", || load(&sim[0]) == (0, 0)).await;
    assert!(sim[0].state().gauges.kv_cache_usage <= 0.0);
}

#[tokio::test]
async fn requests_beyond_the_queue_limit_get_503_and_health_stays_good() {
    let config = SimConfig {
        max_num_queued_reqs: Some(2),
        ..frozen()
    };
    let sim = start(&config).await;
    let _clients = [
        raw_request(&sim[0], "POST", "/v1/completions", "{\"prompt\": \"a\"}").await,
        raw_request(&sim[0], "POST", "/v1/completions", "{\"prompt\": \"b\"}").await,
    ];
    until("the queue is full", || load(&sim[0]) == (1, 1)).await;
    let refused = post(&sim[0], "/v1/completions", &json!({"prompt": "c"})).await;
    let refused = refused.expect("an answer");
    assert_eq!(refused.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert!(!refused.headers().contains_key("retry-after"));
    let error: Value = refused.json().await.expect("JSON");
    assert_eq!(error["error"]["type"], "Service Unavailable");
    let health = Client::new()
        .get(sim[0].url("/health"))
        .send()
        .await
        .expect("an answer");
    assert_eq!(health.status(), StatusCode::OK);
    assert_eq!(sim[0].state().counters.rejected, 1);
}

#[tokio::test]
async fn a_kill_resets_connections_and_closes_the_port() {
    let sim = start(&slow_decode()).await;
    let stream = format!("{{\"prompt\": \"a\", \"stream\": true, \"max_tokens\": {LONG}}}");
    let mut streaming = raw_request(&sim[0], "POST", "/v1/completions", &stream).await;
    let mut first = [0; 1];
    streaming
        .read_exact(&mut first)
        .await
        .expect("a stream's first byte");
    let body = format!("{{\"prompt\": \"b\", \"max_tokens\": {LONG}}}");
    let mut unanswered = raw_request(&sim[0], "POST", "/v1/completions", &body).await;
    let mut idle = TcpStream::connect(sim[0].address())
        .await
        .expect("a listener");
    until("both requests run", || load(&sim[0]) == (2, 0)).await;

    sim[0].kill().await;
    assert!(!sim[0].is_running());
    for stream in [&mut streaming, &mut unanswered, &mut idle] {
        let (_, end) = read_to_end(stream).await;
        assert_eq!(
            end.map_err(|error| error.kind()),
            Err(ErrorKind::ConnectionReset)
        );
    }
    let refused = TcpStream::connect(sim[0].address()).await;
    assert_eq!(
        refused.err().map(|error| error.kind()),
        Some(ErrorKind::ConnectionRefused)
    );
    assert_eq!(sim[0].log().len(), 2);
}

#[tokio::test]
async fn the_port_of_a_killed_server_stays_its_own() {
    let sim = start(&instant()).await;
    sim[0].kill().await;
    let socket = TcpSocket::new_v4().expect("a socket");
    let taken = socket.bind(sim[0].address());
    assert_eq!(
        taken.err().map(|error| error.kind()),
        Some(ErrorKind::AddrInUse)
    );
}

#[tokio::test]
async fn a_restart_takes_the_same_port_with_an_empty_cache() {
    let sim = start(&instant()).await;
    let body = json!({"prompt": "word ".repeat(100), "max_tokens": 1});
    complete(&sim[0], &body).await;
    assert!(cached(&complete(&sim[0], &body).await) > 0);
    sim[0].set_overrides(Overrides {
        gpu_util: Some(80.0),
        ..Overrides::default()
    });
    let before = sim[0].state();

    sim[0].kill().await;
    sim[0].restart().await.expect("the port is still free");
    let after = sim[0].state();
    assert_eq!(after.address, before.address);
    assert!(after.started > before.started);
    assert_eq!(
        (after.gauges.cached_blocks, after.counters.prompt_tokens),
        (0, 0)
    );
    assert_eq!(after.overrides, Overrides::default());
    assert_eq!(cached(&complete(&sim[0], &body).await), 0);
    assert_eq!(sim[0].log().len(), 3);
}

#[tokio::test]
async fn a_body_of_megabytes_is_read_whole() {
    let sim = start(&instant()).await;
    let body = json!({"prompt": "short", "max_tokens": 1, "padding": "x".repeat(5_000_000)});
    let answer = post(&sim[0], "/v1/completions", &body).await;
    assert_eq!(answer.expect("an answer").status(), StatusCode::OK);
    assert!(sim[0].log()[0].body_bytes > 5_000_000);
}

#[tokio::test]
async fn dropping_a_server_closes_its_port() {
    let sim = start(&instant()).await;
    let address = sim[0].address();
    drop(sim);
    let closed = async { while TcpStream::connect(address).await.is_ok() {} };
    timeout(DEADLINE, closed).await.expect("the port closes");
}

#[tokio::test]
async fn idle_connections_are_closed_after_the_keep_alive() {
    let sim = start(&SimConfig {
        keep_alive_ms: 30,
        ..instant()
    })
    .await;
    let mut stream = raw_request(&sim[0], "GET", "/health", "").await;
    let (answer, end) = read_to_end(&mut stream).await;
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    assert!(end.is_ok(), "{end:?}");
}

#[tokio::test]
async fn sixty_four_servers_answer_and_share_nothing() {
    let sim = Sim::start(&instant(), 64).await.expect("free ports");
    let distinct: HashSet<_> = sim.addresses().into_iter().collect();
    assert_eq!(distinct.len(), 64);
    let client = Client::new();
    let body = json!({"prompt": "word ".repeat(100), "max_tokens": 5});
    let asked = sim.servers().iter().map(|server| {
        client
            .post(server.url("/v1/completions"))
            .json(&body)
            .send()
    });
    for (server, answer) in sim
        .servers()
        .iter()
        .zip(futures_util::future::join_all(asked).await)
    {
        let answer = answer.expect("an answer");
        assert_eq!(
            answer.headers()["x-sim-server"],
            server.address().to_string()
        );
        assert_eq!(cached(&answer.json().await.expect("JSON")), 0);
        assert_eq!(server.state().counters.generation_tokens, 5);
    }
}

#[tokio::test]
async fn rendering_tells_the_tokens_that_the_prompt_is_counted_as() {
    let sim = start(&instant()).await;
    let chat = json!({"model": "sim-model", "max_tokens": 1, "messages": [
        {"role": "system", "content": "keep answers short"}, {"role": "user", "content": "hi"},
    ]});
    let json = async |path: &str, body: &Value| {
        let answer = post(&sim[0], path, body).await.expect("an answer");
        answer.json::<Value>().await.expect("JSON")
    };
    let answer = json("/v1/chat/completions", &chat).await;
    let rendered = json("/v1/chat/completions/render", &chat).await;
    let count = rendered["token_ids"].as_array().map(Vec::len);
    assert_eq!(
        count.map(|count| json!(count)),
        Some(answer["usage"]["prompt_tokens"].clone())
    );

    let two = json!({"model": "sim-model", "prompt": [[5, 6, 7], [8]]});
    let rendered = json("/v1/completions/render", &two).await;
    let ids = |at: usize| rendered[at]["token_ids"].clone();
    assert_eq!([ids(0), ids(1)], [json!([5, 6, 7]), json!([8])]);
    let unknown = json!({"model": "nobody", "prompt": "hi"});
    let refused = post(&sim[0], "/v1/completions/render", &unknown).await;
    assert_eq!(refused.expect("an answer").status(), StatusCode::NOT_FOUND);
}
