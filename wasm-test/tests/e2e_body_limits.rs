//! Long bodies: whatever their length and however they come, the server gets every byte and nobody
//! gets 413.

use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use futures_util::{StreamExt, stream};
use reqwest::{Body, RequestBuilder};
use serde_json::{Value, json};
use tokio::time::sleep;
use wasm_test::scenario::digest;
use wasm_test::sim::{Failure, Overrides, Status};
use wasm_test::testbed::{Answer, COMPLETIONS, Setup, Testbed, prompt};

/// `maxBufferedBytes` where the configuration says nothing.
const DEFAULT_LIMIT: usize = 983_040;

/// How a body comes.
#[derive(Clone, Copy, Debug)]
enum Way {
    /// As fast as the connection takes it, its length known.
    Burst,
    ChunkedBurst,
    /// In pieces with pauses between, its length known.
    Trickle,
    ChunkedTrickle,
}

use Way::{Burst, ChunkedBurst, ChunkedTrickle, Trickle};

const ANNOUNCED: [Way; 2] = [Burst, Trickle];
const ALL: [Way; 4] = [Burst, ChunkedBurst, Trickle, ChunkedTrickle];

/// A completion of exactly `bytes` bytes, most of them a field the server passes over.
fn body(name: &str, bytes: usize) -> Vec<u8> {
    let prompt = json!(prompt(name, 10_000));
    let start = format!(r#"{{"model":"sim-model","prompt":{prompt},"max_tokens":1,"user":""#);
    let padding = "u".repeat(bytes - start.len() - 2);
    format!("{start}{padding}\"}}").into_bytes()
}

fn post(testbed: &Testbed, way: Way, body: &[u8]) -> RequestBuilder {
    let (piece, pause) = match way {
        Burst | ChunkedBurst => (body.len(), Duration::ZERO),
        Trickle | ChunkedTrickle => (body.len() / 40 + 1, Duration::from_millis(5)),
    };
    let pieces: Vec<_> = body.chunks(piece).map(Bytes::copy_from_slice).collect();
    let pieces = stream::iter(pieces).then(move |piece| async move {
        sleep(pause).await;
        Ok::<_, std::io::Error>(piece)
    });
    let request = testbed.post(COMPLETIONS, Body::wrap_stream(pieces));
    match way {
        Burst | Trickle => request.header("content-length", body.len()),
        ChunkedBurst | ChunkedTrickle => request,
    }
}

/// Sends a body of `bytes` bytes; it is served, arrives as it was sent, and has `reason`.
async fn served(testbed: &Testbed, way: Way, bytes: usize, reason: &str) -> Answer {
    let body = body(&format!("{way:?} {bytes}"), bytes);
    assert_eq!(body.len(), bytes);
    let answer = Answer::to(post(testbed, way, &body)).await;
    assert_eq!(answer.status, 200, "{way:?} {bytes} {answer:?}");
    let received = answer.header("x-sim-body-sha256");
    assert_eq!(received, Some(digest(&body).as_str()), "{way:?} {bytes}");
    assert_eq!(answer.reason(), reason, "{way:?} {bytes}");
    assert_eq!(answer.server(), answer.picked(), "{way:?} {bytes}");
    answer
}

/// All of `ways` three times at once, and then nobody got 413 and each was counted once.
async fn all_served(testbed: &Testbed, ways: &[Way], bytes: usize, reason: &str) {
    let three_times = ways.iter().chain(ways).chain(ways);
    let answers = three_times.map(|way| served(testbed, *way, bytes, reason));
    let sent = join_all(answers).await.len() as u64;
    assert_eq!(testbed.decisions().await, sent);
    assert_eq!(testbed.all_fallbacks().await, 0);
    let refused = "http.openai.downstream_rq_too_large";
    let refused = testbed.envoy().counter(refused).await;
    assert_eq!(refused.expect("a stat of the listener"), 0);
    testbed.nothing_in_flight().await;
    testbed.assert_no_vm_lost().await;
}

fn default_limit(setup: Setup) -> Setup {
    setup.plugin(|plugin| remove(plugin, "maxBufferedBytes"))
}

/// Envoy buffers what its listener says, 1 MiB unless it says something.
fn without_route_limit(setup: Setup) -> Setup {
    setup.connection_manager(|manager| {
        let host = &mut manager["route_config"]["virtual_hosts"][0];
        remove(host, "request_body_buffer_limit");
    })
}

fn listener_limit(setup: Setup, bytes: usize) -> Setup {
    setup.bootstrap(move |tree| {
        let listener = &mut tree["static_resources"]["listeners"][0];
        listener["per_connection_buffer_limit_bytes"] = json!(bytes);
    })
}

fn remove(object: &mut Value, key: &str) {
    let removed = object.as_object_mut().and_then(|all| all.remove(key));
    assert!(removed.is_some(), "{key} was there");
}

#[tokio::test]
async fn eight_megabytes_are_held_whole_with_the_shipped_limits() {
    let testbed = Testbed::with_servers(2).start().await;
    all_served(&testbed, &ALL, 8_000_000, "picked").await;
}

#[tokio::test]
async fn eight_megabytes_are_routed_by_the_part_read_with_the_default_limit() {
    let testbed = default_limit(Testbed::with_servers(2)).start().await;
    all_served(&testbed, &ALL, 8_000_000, "truncated_body").await;
}

#[tokio::test]
async fn a_body_over_the_shipped_limit_is_routed_by_the_part_read() {
    let testbed = Testbed::with_servers(2).start().await;
    for way in ALL {
        served(&testbed, way, 40_000_000, "truncated_body").await;
    }
    testbed.assert_no_vm_lost().await;
}

#[tokio::test]
async fn a_body_of_known_length_is_never_refused_with_envoys_own_limit() {
    let testbed = without_route_limit(default_limit(Testbed::with_servers(2)));
    let testbed = testbed.start().await;
    all_served(&testbed, &ANNOUNCED, 8_000_000, "truncated_body").await;
    for way in ANNOUNCED {
        served(&testbed, way, DEFAULT_LIMIT, "picked").await;
        served(&testbed, way, DEFAULT_LIMIT + 1, "truncated_body").await;
    }
    testbed.assert_no_vm_lost().await;
}

#[tokio::test]
async fn eight_megabytes_are_replayed_to_the_next_server_of_the_list() {
    for limit in [DEFAULT_LIMIT, 33_554_432] {
        let testbed = Testbed::with_servers(2)
            .plugin(move |plugin| plugin["maxBufferedBytes"] = json!(limit))
            .start()
            .await;
        for way in ALL {
            let name = format!("{way:?}");
            let warm = Answer::to(post(&testbed, way, &body(&name, 12_000))).await;
            let failing = testbed.index_of(warm.server());
            testbed.servers()[failing].set_overrides(Overrides {
                fail: Some(Failure {
                    status: Status::new(503).expect("an error"),
                    times: Some(1),
                }),
                ..Overrides::default()
            });
            let body = body(&name, 8_000_000);
            let answer = Answer::to(post(&testbed, way, &body)).await;
            assert_eq!(answer.status, 200, "{way:?} {answer:?}");
            assert_eq!(testbed.index_of(answer.picked()), failing);
            assert_eq!(testbed.index_of(answer.server()), 1 - failing);
            let received = answer.header("x-sim-body-sha256");
            assert_eq!(received, Some(digest(&body).as_str()), "{way:?}");
        }
        testbed.nothing_in_flight().await;
        testbed.assert_no_vm_lost().await;
    }
}

#[tokio::test]
async fn a_body_beyond_the_listeners_buffer_is_held_whole_with_the_shipped_limits() {
    let testbed = listener_limit(Testbed::with_servers(2), 32_768);
    let testbed = testbed.start().await;
    all_served(&testbed, &ALL, 40_000, "picked").await;
}

#[tokio::test]
async fn a_body_beyond_the_only_buffer_is_routed_by_the_part_read_where_its_length_is_known() {
    let testbed = listener_limit(without_route_limit(Testbed::with_servers(2)), 32_768)
        .plugin(|plugin| plugin["maxBufferedBytes"] = json!(16_384))
        .start()
        .await;
    all_served(&testbed, &ANNOUNCED, 40_000, "truncated_body").await;
}

#[tokio::test]
async fn a_body_is_truncated_from_one_byte_over_the_limit_on() {
    for limit in [20_000, DEFAULT_LIMIT] {
        let testbed = Testbed::with_servers(2)
            .plugin(move |plugin| plugin["maxBufferedBytes"] = json!(limit))
            .start()
            .await;
        for way in ALL {
            served(&testbed, way, limit - 1, "picked").await;
            served(&testbed, way, limit, "picked").await;
            served(&testbed, way, limit + 1, "truncated_body").await;
        }
        testbed.nothing_in_flight().await;
        testbed.assert_no_vm_lost().await;
    }
}
