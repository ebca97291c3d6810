//! Streams that end before their time, a hundred at once: none stays in flight, and none costs the
//! next request anything.

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::Request;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::time::timeout;
use wasm_test::sim::{Overrides, Preset, Reset, ResetPoint};
use wasm_test::testbed::{
    Answer, COMPLETIONS, PATIENCE, POOL, Testbed, completion, eventually, prompt,
};

const STREAMS: usize = 100;

async fn start() -> Testbed {
    let testbed = Testbed::with_servers(2);
    let testbed = testbed.every_server(|config| config.preset = Preset::A100Llama8b);
    // Health is what answers make of it, however late scrapes are.
    let testbed = testbed.pool(|pool| pool["health"] = json!({ "staleFloor": 1.0 }));
    testbed.start().await
}

/// A generation that goes on for minutes.
fn endless(number: usize) -> Value {
    let mut body = completion(&prompt(&format!("client {number}"), 600));
    body["stream"] = json!(true);
    body["max_tokens"] = json!(50_000);
    body
}

/// Sends `body` and waits for the first event of the answer.
async fn begin(testbed: &Testbed, body: &Value) -> TcpStream {
    let body = body.to_string();
    let request = format!(
        "POST {COMPLETIONS} HTTP/1.1\r\nhost: test\r\ncontent-type: application/json\r\n\
         content-length: {}\r\n\r\n{body}",
        body.len()
    );
    let address = testbed.envoy().address();
    let mut stream = TcpStream::connect(address).await.expect("a connection");
    stream.write_all(request.as_bytes()).await.expect("written");
    let mut answer = Vec::new();
    while !answer.windows(6).any(|part| part == b"data: ") {
        let read = stream.read_buf(&mut answer).await.expect("an answer");
        assert!(read > 0, "{}", String::from_utf8_lossy(&answer));
    }
    stream
}

async fn resets(testbed: &Testbed) -> u64 {
    let labels = [("pool", POOL)];
    let count = testbed.metric("epp_upstream_reset_total", &labels).await;
    count.expect("it is exported from the start")
}

#[tokio::test]
async fn a_hundred_clients_that_reset_their_streams_leave_nothing_in_flight() {
    let testbed = start().await;
    let bodies: Vec<_> = (0..STREAMS).map(endless).collect();
    let streams = bodies.iter().map(|body| begin(&testbed, body));
    let streams = futures_util::future::join_all(streams).await;
    assert_eq!(testbed.in_flight().await.iter().sum::<u64>(), 100);
    for stream in streams {
        stream.set_zero_linger().expect("a TCP socket");
    }
    testbed.nothing_in_flight().await;
    eventually("the servers to notice", async || {
        let aborted = testbed
            .servers()
            .iter()
            .map(|one| one.state().counters.aborted);
        (aborted.sum::<u64>() == STREAMS as u64).then_some(())
    })
    .await;
    assert_eq!(testbed.decisions().await, 100);
    // It was the clients' wish.
    assert_eq!(resets(&testbed).await, 0);
    for server in testbed.servers() {
        let health = testbed
            .of_pod("epp_pod_health_score", server.address())
            .await;
        assert_eq!(health, 100);
    }
    testbed.assert_no_vm_lost().await;
}

#[tokio::test]
async fn a_hundred_streams_of_one_connection_that_are_reset_leave_nothing_in_flight() {
    let testbed = start().await;
    let stream = TcpStream::connect(testbed.envoy().address()).await;
    let io = TokioIo::new(stream.expect("a connection"));
    let (sender, connection) = http2::handshake(TokioExecutor::new(), io)
        .await
        .expect("a handshake");
    let connection = tokio::spawn(connection);
    // Each is read on until it is dropped: the connection's window is for all of them.
    let (begun, mut all_begun) = mpsc::channel(STREAMS);
    let streams: Vec<_> = (0..STREAMS)
        .map(|number| {
            let request = Request::post(format!("http://test{COMPLETIONS}"))
                .header("content-type", "application/json")
                .body(Full::new(Bytes::from(endless(number).to_string())));
            let answer = sender.clone().send_request(request.expect("a request"));
            let begun = begun.clone();
            tokio::spawn(async move {
                let mut answer = answer.await.expect("an answer");
                assert!(answer.body_mut().frame().await.is_some());
                begun.send(()).await.expect("it is waited for");
                while answer.body_mut().frame().await.is_some() {}
            })
        })
        .collect();
    for _ in 0..STREAMS {
        let begun = timeout(PATIENCE, all_begun.recv()).await;
        assert_eq!(begun.expect("another stream begins"), Some(()));
    }
    assert_eq!(testbed.in_flight().await.iter().sum::<u64>(), 100);
    // Each stream is reset, the connection stays.
    for stream in streams {
        stream.abort();
    }
    testbed.nothing_in_flight().await;
    assert!(!connection.is_finished());
    assert_eq!(testbed.decisions().await, 100);
    assert_eq!(resets(&testbed).await, 0);
    testbed.assert_no_vm_lost().await;
}

#[tokio::test]
async fn a_hundred_streams_that_servers_reset_leave_nothing_in_flight() {
    let testbed = start().await;
    for server in testbed.servers() {
        server.set_overrides(Overrides {
            reset: Some(Reset {
                at: ResetPoint::AfterChunks(2),
                times: None,
            }),
            ..Overrides::default()
        });
    }
    let ask = async |number| testbed.ask(COMPLETIONS, &endless(number)).await;
    let answers: Vec<Answer> = futures_util::future::join_all((0..STREAMS).map(ask)).await;
    assert!(
        answers
            .iter()
            .all(|answer| answer.status == 200 && answer.broken_off)
    );
    testbed.nothing_in_flight().await;
    assert_eq!(resets(&testbed).await, 100);
    let counted = testbed.decisions().await + testbed.all_fallbacks().await;
    assert_eq!(counted, 100);
    for server in testbed.servers() {
        server.set_overrides(Overrides::default());
    }
    // Nobody is left out for good.
    assert_eq!(testbed.complete(&prompt("after", 600)).await.status, 200);
    testbed.assert_no_vm_lost().await;
}
