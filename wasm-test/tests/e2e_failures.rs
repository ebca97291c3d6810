//! Servers that die, refuse or answer with errors, and clients that go away.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use futures_util::future::{join, join_all};
use reqwest::Response;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use wasm_test::sim::{Hold, Overrides, Preset, SimServer};
use wasm_test::testbed::{Answer, COMPLETIONS, POOL, Testbed, completion, eventually, prompt};

/// How soon after its return a server has its share again.
const RETURN: Duration = Duration::from_secs(10);

const RETRIES: &str = "cluster.model-servers.upstream_rq_retry";

fn hold(server: &SimServer, hold: Hold) {
    server.set_overrides(Overrides {
        hold,
        ..Overrides::default()
    });
}

async fn retries(testbed: &Testbed) -> u64 {
    let counter = testbed.envoy().counter(RETRIES).await;
    counter.expect("a counter of every cluster")
}

/// An address that refuses connections for as long as the socket lives.
fn refusing() -> (TcpSocket, SocketAddr) {
    let socket = TcpSocket::new_v4().expect("a socket");
    let any = "127.0.0.1:0".parse().expect("an address");
    socket.bind(any).expect("a free port");
    let address = socket.local_addr().expect("bound");
    (socket, address)
}

/// A generation that goes on for minutes.
fn endless(name: &str) -> Value {
    let mut body = completion(&prompt(name, 600));
    body["stream"] = json!(true);
    body["max_tokens"] = json!(50_000);
    body
}

/// A stream of which the first token has come.
async fn begun(testbed: &Testbed, name: &str) -> (SocketAddr, Response) {
    let request = testbed.post(COMPLETIONS, endless(name).to_string());
    let mut response = request.send().await.expect("an answer");
    assert_eq!(response.status(), 200);
    let server = response.headers()["x-sim-server"].to_str().expect("text");
    let server = server.parse().expect("an address");
    assert!(response.chunk().await.expect("no error").is_some());
    (server, response)
}

/// Whether `response` brings something more, instead of breaking off.
async fn goes_on(response: &mut Response) -> bool {
    matches!(response.chunk().await, Ok(Some(_)))
}

/// Reads until the stream breaks off; what Envoy had already received still comes.
async fn breaks_off(mut response: Response) -> bool {
    loop {
        match response.chunk().await {
            Ok(Some(_)) => {}
            Ok(None) => return false,
            Err(_) => return true,
        }
    }
}

/// Waits until `count` requests are in flight and have reached their servers; returns how many at
/// each.
async fn in_flight(testbed: &Testbed, count: u64) -> Vec<u64> {
    let in_flight = eventually("all in flight", async || {
        let in_flight = testbed.in_flight().await;
        (in_flight.iter().sum::<u64>() == count).then_some(in_flight)
    })
    .await;
    let received = |server: &SimServer| server.log().len() as u64;
    eventually("all received", async || {
        let all: u64 = testbed.servers().iter().map(received).sum();
        (all == count).then_some(())
    })
    .await;
    in_flight
}

#[tokio::test]
async fn a_server_killed_under_load_costs_only_the_streams_it_had_begun() {
    let testbed = Testbed::with_servers(4)
        .workers(2)
        .every_server(|config| config.preset = Preset::A100Llama8b)
        .start()
        .await;
    let dying = &testbed.servers()[0];

    // 20 streams that have begun and 20 requests whose answer has not.
    let names: Vec<String> = (0..20).map(|number| format!("stream {number}")).collect();
    let streams = join_all(names.iter().map(|name| begun(&testbed, name))).await;
    for server in testbed.servers() {
        hold(server, Hold::Generations);
    }
    let unanswered = (0..20).map(|number| prompt(&format!("unanswered {number}"), 600));
    let kill = async {
        let in_flight = in_flight(&testbed, 40).await;
        dying.kill().await;
        for server in &testbed.servers()[1..] {
            hold(server, Hold::None);
        }
        in_flight[0]
    };
    let (answers, at_dying) = join(testbed.complete_all(unanswered), kill).await;

    for answer in &answers {
        assert_eq!(answer.status, 200);
        assert!(!answer.broken_off);
        assert_ne!(answer.server(), dying.address());
    }
    let (lost, mut alive): (Vec<_>, Vec<_>) = streams
        .into_iter()
        .partition(|(server, _)| *server == dying.address());
    let begun = lost.len() as u64;
    let repeated = at_dying - begun;
    assert!(begun >= 1 && repeated >= 1, "{begun} {repeated}");
    assert!(retries(&testbed).await >= repeated);
    for (_, response) in lost {
        assert!(breaks_off(response).await);
    }
    for (_, response) in &mut alive {
        assert!(goes_on(response).await);
    }
    eventually("the broken streams to be counted", async || {
        let resets = testbed.of_pod("epp_upstream_reset_total", dying.address());
        (resets.await == begun).then_some(())
    })
    .await;
    drop(alive);
    testbed.nothing_in_flight().await;
}

#[tokio::test]
async fn a_server_that_dies_before_its_first_token_leaves_no_blocks_behind() {
    let testbed = Testbed::with_servers(2)
        .every_server(|config| config.preset = Preset::A100Llama70b)
        .start()
        .await;
    // Many seconds of prefill; a stream's head does not wait for it.
    let text = prompt("long", 40_000);
    let mut body = completion(&text);
    body["stream"] = json!(true);
    let request = testbed.post(COMPLETIONS, body.to_string());
    let response = request.send().await.expect("an answer");
    assert_eq!(response.status(), 200);
    let answer = Answer::read(response, Instant::now());
    let kill = async {
        let in_flight = in_flight(&testbed, 1).await;
        let server = in_flight.iter().position(|count| *count == 1);
        testbed.servers()[server.expect("one")].kill().await;
    };
    let (answer, ()) = join(answer, kill).await;
    assert!(answer.broken_off);
    assert_eq!(answer.time_to_first_token, None);
    testbed.nothing_in_flight().await;
    let resets = testbed.of_pod("epp_upstream_reset_total", answer.server());
    assert_eq!(resets.await, 1);
    let request = testbed.post(COMPLETIONS, body.to_string());
    let next_turn = request.send().await.expect("an answer");
    assert_eq!(next_turn.headers()["x-epp-cache-match"], "0/157");
}

#[tokio::test]
async fn a_server_that_returns_has_its_share_again_within_ten_seconds() {
    // What a busy machine adds to the window is two seconds at most.
    let testbed = Testbed::with_servers(4)
        .workers(2)
        .pool(|pool| pool["health"]["errorWindow"] = json!("8s"))
        .start()
        .await;
    let dying = &testbed.servers()[0];
    // All at once, so that what is in flight shares them out: ten each.
    let round = async |name: &str| {
        let prompts = (0..40).map(|number| prompt(&format!("{name} {number}"), 600));
        let answers = testbed.complete_all(prompts).await;
        assert!(answers.iter().all(|answer| answer.status == 200));
        testbed.shares(&answers)[0]
    };
    dying.kill().await;
    assert_eq!(round("meanwhile").await, 0);

    dying.restart().await.expect("its port is still its own");
    let returned = Instant::now();
    let mut rounds = 0;
    eventually("its share to return", async || {
        rounds += 1;
        let share = round(&format!("round {rounds}")).await;
        (share >= 8).then_some(())
    })
    .await;
    assert!(returned.elapsed() < RETURN, "{:?}", returned.elapsed());
    testbed.nothing_in_flight().await;
}

#[tokio::test]
async fn an_endpoint_that_refuses_costs_a_retry_on_the_next_of_the_list() {
    let (_socket, dead) = refusing();
    let testbed = Testbed::with_servers(2)
        .further_endpoint(dead)
        .pool(|pool| {
            // Nobody looks after the servers while this runs: a tick is a tenth of the interval.
            pool["metrics"]["interval"] = json!("10m");
            // An endpoint that was never scraped is as good as the others then.
            pool["health"] = json!({ "staleFloor": 1.0 });
        })
        .start_unscraped()
        .await;
    let mut number = 0;
    let answer = eventually("the dead endpoint to be picked", async || {
        number += 1;
        let answer = testbed
            .complete(&prompt(&format!("try {number}"), 1_000))
            .await;
        assert_eq!(answer.status, 200);
        (answer.picked() == dead).then_some(answer)
    })
    .await;
    assert!(retries(&testbed).await >= 1);
    assert_eq!(answer.cache_match(), (0, 4));

    // The blocks are known to be where the answer came from.
    let again = testbed
        .complete(&prompt(&format!("try {number}"), 1_000))
        .await;
    assert_eq!(again.picked(), answer.server());
    assert_eq!(again.server(), answer.server());
    assert_eq!(again.cache_match(), (4, 4));
    testbed.nothing_in_flight().await;
    assert_eq!(testbed.of_pod("epp_inflight_requests", dead).await, 0);
}

#[tokio::test]
async fn a_server_that_answers_503_hands_its_request_and_its_blocks_to_the_next() {
    let testbed = Testbed::with_servers(3)
        .server(0, |config| config.max_num_queued_reqs = Some(0))
        .start()
        .await;
    let refusing = testbed.servers()[0].address();
    let mut number = 0;
    let answer = eventually("the refusing server to be picked", async || {
        number += 1;
        let answer = testbed
            .complete(&prompt(&format!("try {number}"), 1_000))
            .await;
        assert_eq!(answer.status, 200);
        (answer.picked() == refusing).then_some(answer)
    })
    .await;
    assert_ne!(answer.server(), refusing);

    let longer = prompt(&format!("try {number}"), 2_000);
    let next_turn = testbed.complete(&longer).await;
    assert_eq!(next_turn.picked(), answer.server());
    assert_eq!(next_turn.cache_match(), (3, 8));
    testbed.nothing_in_flight().await;
}

#[tokio::test]
async fn an_answer_with_an_error_leaves_no_blocks_behind() {
    let testbed = Testbed::with_servers(2).start().await;
    let mut body = completion(&prompt("unknown model", 1_000));
    body["model"] = json!("unknown");
    for _ in 0..5 {
        let answer = testbed.ask(COMPLETIONS, &body).await;
        assert_eq!(answer.status, 404);
        assert_eq!(answer.reason(), "picked");
        assert_eq!(answer.cache_match(), (0, 4));
    }
    eventually("the index to be empty", async || {
        let labels = [("pool", POOL)];
        let indexed = testbed.metric("epp_prefix_tree_nodes", &labels).await;
        (indexed == Some(0)).then_some(())
    })
    .await;
}

#[tokio::test]
async fn servers_that_all_refuse_leave_no_blocks_behind() {
    let testbed = Testbed::with_servers(3)
        .every_server(|config| config.max_num_queued_reqs = Some(0))
        .start()
        .await;
    for attempt in 1..=3 {
        let answer = testbed.complete(&prompt("nobody", 1_000)).await;
        assert_eq!(answer.status, 503);
        assert_eq!(answer.cache_match(), (0, 4));
        // One pick and two fallbacks.
        let tried: usize = testbed
            .servers()
            .iter()
            .map(|server| server.log().len())
            .sum();
        assert_eq!(tried, attempt * 3);
    }
    testbed.nothing_in_flight().await;
}

#[tokio::test]
async fn requests_survive_a_pool_that_is_all_dead_and_returns() {
    let testbed = Testbed::with_servers(2).start().await;
    for server in testbed.servers() {
        server.kill().await;
    }
    eventually("that to be found out", async || {
        let candidates = testbed.metric("epp_candidate_pods", &[]).await;
        (candidates == Some(0)).then_some(())
    })
    .await;
    eventually("the worker to know, too", async || {
        let answer = testbed.complete(&prompt("early", 1_000)).await;
        assert_eq!(answer.status, 503);
        (answer.reason() == "no_candidates").then_some(())
    })
    .await;
    for server in testbed.servers() {
        server.restart().await.expect("its port is still its own");
    }
    let answer = testbed.complete(&prompt("early", 1_000)).await;
    assert_eq!(answer.status, 200);
    assert_eq!(answer.cache_match(), (0, 4));
    testbed.nothing_in_flight().await;
}

#[tokio::test]
async fn a_client_that_goes_away_before_the_answer_is_no_longer_in_flight() {
    let testbed = Testbed::with_servers(2).start().await;
    for server in testbed.servers() {
        hold(server, Hold::Generations);
    }
    let text = prompt("impatient", 1_000);
    let request = testbed.complete(&text);
    let arrival = eventually("the request to arrive", async || {
        (testbed.in_flight().await.iter().sum::<u64>() == 1).then_some(())
    });
    tokio::select! {
        _ = request => panic!("answered while held"),
        () = arrival => {}
    }
    // Both futures are gone, and the client's connection with them.
    testbed.nothing_in_flight().await;
    for server in testbed.servers() {
        hold(server, Hold::None);
    }
    let again = testbed.complete(&text).await;
    assert_eq!(
        again.cache_match(),
        (0, 4),
        "nobody answered for these blocks"
    );
}

#[tokio::test]
async fn a_client_that_goes_away_mid_stream_is_no_longer_in_flight() {
    let testbed = Testbed::with_servers(2)
        .every_server(|config| config.preset = Preset::A100Llama8b)
        .start()
        .await;
    let (server, response) = begun(&testbed, "impatient").await;
    let index = testbed.index_of(server);
    assert_eq!(testbed.in_flight().await[index], 1);
    drop(response);
    testbed.nothing_in_flight().await;
    eventually("the server to notice", async || {
        let state = testbed.servers()[index].state();
        (state.counters.aborted == 1).then_some(())
    })
    .await;
    // It was the client's wish: no server broke anything off.
    assert_eq!(testbed.of_pod("epp_upstream_reset_total", server).await, 0);
    let answer = testbed.complete(&prompt("impatient", 600)).await;
    assert_eq!(answer.cache_match(), (3, 3), "its answer had begun");
}

#[tokio::test]
async fn a_client_that_goes_away_before_its_body_ends_leaves_no_trace() {
    let testbed = Testbed::with_servers(2).start().await;
    let active = async || {
        let counter = testbed
            .envoy()
            .counter("http.openai.downstream_rq_active")
            .await;
        counter.expect("a gauge of the listener")
    };
    let head = "POST /v1/completions HTTP/1.1\r\nhost: test\r\ncontent-type: application/json\r\n\
                content-length: 5000\r\n\r\n{\"prompt\": \"half";
    let mut stream = TcpStream::connect(testbed.envoy().address())
        .await
        .expect("a connection");
    stream.write_all(head.as_bytes()).await.expect("written");
    eventually("the request to be held", async || {
        (active().await == 1).then_some(())
    })
    .await;
    drop(stream);
    eventually("the request to be over", async || {
        (active().await == 0).then_some(())
    })
    .await;
    assert_eq!(testbed.decisions().await, 0);
    assert_eq!(testbed.all_fallbacks().await, 0);
    testbed.nothing_in_flight().await;
    assert!(
        testbed
            .servers()
            .iter()
            .all(|server| server.log().is_empty())
    );
}

#[tokio::test]
async fn a_body_that_comes_slowly_is_routed_by_all_of_it() {
    let testbed = Testbed::with_servers(4).start().await;
    let text = prompt("slow", 2_000);
    let first = testbed.complete(&text).await;
    let body = completion(&text).to_string();
    let mut stream = TcpStream::connect(testbed.envoy().address())
        .await
        .expect("a connection");
    let head = format!(
        "POST /v1/completions HTTP/1.1\r\nhost: test\r\ncontent-type: application/json\r\n\
         connection: close\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).await.expect("written");
    let received = async || {
        let counter = testbed
            .envoy()
            .counter("http.openai.downstream_cx_rx_bytes_total")
            .await;
        counter.expect("a counter of the listener")
    };
    for piece in body.as_bytes().chunks(500) {
        let before = received().await;
        stream.write_all(piece).await.expect("written");
        eventually("the piece to arrive", async || {
            (received().await >= before + piece.len() as u64).then_some(())
        })
        .await;
    }
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.expect("an answer");
    assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
    assert!(answer.contains("x-epp-cache-match: 8/8"), "{answer}");
    let server = format!("x-sim-server: {}", first.server());
    assert!(answer.contains(&server), "{answer}");
}

#[tokio::test]
async fn a_restarted_server_serves_again_with_an_empty_cache() {
    let testbed = Testbed::with_servers(1).start().await;
    let text = prompt("lost", 1_000);
    assert_eq!(testbed.complete(&text).await.status, 200);
    let server = &testbed.servers()[0];
    server.restart().await.expect("its port is still its own");
    let answer: Answer = testbed.complete(&text).await;
    assert_eq!(answer.status, 200);
    assert_eq!(server.state().counters.prefix_cache_hits, 0);
}
