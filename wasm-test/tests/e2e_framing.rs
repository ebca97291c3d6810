//! How a body comes: in chunks, in many HTTP/2 frames, with trailers, after a `100 Continue`,
//! slowly. Held to its end, decided before it, or resumed by a tick: the server gets every byte, and
//! one outcome is counted.

use std::time::Duration;

use futures_util::future::join;
use serde_json::json;
use tokio::sync::oneshot;
use tokio::time::sleep;
use wasm_test::scenario::digest;
use wasm_test::testbed::{Answer, Setup, Testbed, completion, eventually, prompt};

use client::Upload;
use client::Version::{H2c, Http1};

#[path = "framing/client.rs"]
mod client;

/// Every way in which a body's length is not known beforehand.
const UNANNOUNCED: [Upload; 5] = [
    Upload::new(Http1),
    Upload::new(Http1).with_trailers(),
    Upload::new(Http1).expecting_continue(),
    Upload::new(H2c),
    Upload::new(H2c).with_trailers(),
];

/// Every way in which it is.
const ANNOUNCED: [Upload; 4] = [
    Upload::new(Http1).announced(),
    Upload::new(Http1).announced().expecting_continue(),
    Upload::new(H2c).announced(),
    Upload::new(H2c).announced().with_trailers(),
];

fn every_way() -> impl Iterator<Item = Upload> {
    UNANNOUNCED.into_iter().chain(ANNOUNCED)
}

fn with_trailers(setup: Setup) -> Setup {
    setup.connection_manager(|manager| {
        manager["http_protocol_options"] = json!({ "enable_trailers": true });
    })
}

/// Without `allow_on_headers_stop_iteration`, as in a plain Istio `WasmPlugin`.
fn without_the_flag(setup: Setup) -> Setup {
    setup.connection_manager(|manager| {
        let filter = &mut manager["http_filters"][0]["typed_config"]["config"];
        filter["allow_on_headers_stop_iteration"] = json!(false);
    })
}

fn body(name: &str, bytes: usize) -> Vec<u8> {
    completion(&prompt(name, bytes)).to_string().into_bytes()
}

/// All that are counted: routed by their prompt or not.
async fn outcomes(testbed: &Testbed) -> (u64, u64) {
    (testbed.decisions().await, testbed.all_fallbacks().await)
}

/// Uploads `body`: it is answered by the pick, which got it whole, and counted once, under `reason`.
async fn upload(testbed: &Testbed, way: Upload, body: &[u8], reason: &str) -> Answer {
    let before = outcomes(testbed).await;
    let answer = way.send(testbed.envoy().address(), body).await;
    let what = format!("{way:?} {reason}");
    assert_arrived(&answer, body, reason, &what);
    let by_prompt = u64::from(matches!(reason, "picked" | "truncated_body"));
    let expected = (before.0 + by_prompt, before.1 + 1 - by_prompt);
    assert_eq!(outcomes(testbed).await, expected, "{what}");
    answer
}

fn assert_arrived(answer: &Answer, body: &[u8], reason: &str, what: &str) {
    assert_eq!(answer.status, 200, "{what} {answer:?}");
    assert_eq!(answer.reason(), reason, "{what}");
    assert_eq!(answer.server(), answer.picked(), "{what}");
    let received = answer.header("x-sim-body-sha256");
    assert_eq!(received, Some(digest(body).as_str()), "{what}");
}

/// Sends nothing of `body` before a tick resumed its request.
async fn upload_resumed(testbed: &Testbed, way: Upload, body: &[u8]) {
    let before = outcomes(testbed).await;
    let (begin, start) = oneshot::channel();
    let resumed = async {
        eventually("the request to be resumed", async || {
            let resumed = (before.0, before.1 + 1);
            (outcomes(testbed).await == resumed).then_some(())
        })
        .await;
        // Sooner it would look like a body that was withheld until then.
        sleep(Duration::from_millis(100)).await;
        begin.send(()).expect("it is waited for");
    };
    let answer = way.send_from(testbed.envoy().address(), body, start);
    let (answer, ()) = join(answer, resumed).await;
    assert_arrived(&answer, body, "headers_only", &format!("{way:?}"));
    assert_eq!(outcomes(testbed).await, (before.0, before.1 + 1), "{way:?}");
}

/// Sends nothing of `body` for many ticks; the request is held all the same.
async fn upload_late(testbed: &Testbed, way: Upload, body: &[u8]) -> Answer {
    let (begin, start) = oneshot::channel();
    let late = async {
        // More than a scrape interval, which is ten ticks.
        sleep(Duration::from_millis(300)).await;
        begin.send(()).expect("it is waited for");
    };
    let answer = way.send_from(testbed.envoy().address(), body, start);
    let (answer, ()) = join(answer, late).await;
    assert_arrived(&answer, body, "picked", &format!("{way:?}"));
    answer
}

#[tokio::test]
async fn a_body_is_held_to_its_end_however_it_comes() {
    let testbed = with_trailers(Testbed::with_servers(4)).start().await;
    let body = body("held", 100_000);
    let first = upload(&testbed, Upload::new(Http1), &body, "picked").await;
    for way in every_way() {
        let answer = upload(&testbed, way, &body, "picked").await;
        assert_eq!(answer.cache_match(), (391, 391), "{way:?}");
        assert_eq!(answer.server(), first.server(), "{way:?}");
    }
    let connections = "http.openai.downstream_cx_http2_total";
    let connections = testbed.envoy().counter(connections).await;
    let over_http2 = every_way().filter(|way| way.version == H2c).count();
    assert_eq!(connections.expect("a stat"), over_http2 as u64);
    testbed.nothing_in_flight().await;
    testbed.assert_no_vm_lost().await;
}

#[tokio::test]
async fn a_body_that_is_decided_before_its_end_goes_on_whole_however_it_comes() {
    let testbed = with_trailers(Testbed::with_servers(4))
        .plugin(|plugin| plugin["maxBufferedBytes"] = json!(20_000))
        .start()
        .await;
    let body = body("early", 100_000);
    for way in UNANNOUNCED {
        let answer = upload(&testbed, way, &body, "truncated_body").await;
        // As much as may be held, less the key before the prompt.
        assert_eq!(answer.cache_match().1, 77, "{way:?}");
    }
    for way in ANNOUNCED {
        let answer = upload(&testbed, way, &body, "truncated_body").await;
        // What had come when the body began.
        assert!(answer.cache_match().1 <= 77, "{way:?}");
    }
    testbed.nothing_in_flight().await;
    testbed.assert_no_vm_lost().await;
}

#[tokio::test]
async fn a_slow_body_that_a_tick_resumed_arrives_whole_however_it_comes() {
    let testbed = with_trailers(Testbed::with_servers(4)).start().await;
    let body = body("slow", 20_000);
    for way in every_way() {
        // None of these bodies comes while its request is held, so that each is resumed.
        upload_resumed(&testbed, way, &body).await;
    }
    // Once one did, all are waited for.
    upload(&testbed, Upload::new(H2c), &body, "picked").await;
    for way in every_way() {
        let answer = upload_late(&testbed, way, &body).await;
        assert_eq!(answer.cache_match(), (79, 79), "{way:?}");
    }
    testbed.nothing_in_flight().await;
    testbed.assert_no_vm_lost().await;
}

#[tokio::test]
async fn a_body_that_was_withheld_until_a_tick_arrives_whole_however_it_comes() {
    for way in every_way() {
        let testbed = with_trailers(without_the_flag(Testbed::with_servers(2)));
        let testbed = testbed.start().await;
        // Resumed by a tick at first; from the fourth on not held at all.
        for number in 0..5 {
            let body = body(&format!("withheld {number}"), 20_000);
            upload(&testbed, way, &body, "headers_only").await;
        }
        testbed.nothing_in_flight().await;
        testbed.assert_no_vm_lost().await;
    }
}
