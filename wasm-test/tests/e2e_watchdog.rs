//! Hosts that never deliver the body of a held request, and clients that are merely slow with it.

use std::time::Duration;

use bytes::Bytes;
use futures_util::stream;
use reqwest::Body;
use serde_json::json;
use wasm_test::testbed::{Answer, COMPLETIONS, Setup, Testbed, completion, prompt};

/// Without `allow_on_headers_stop_iteration`, as in a plain Istio `WasmPlugin`.
fn without_the_flag(setup: Setup) -> Setup {
    setup.connection_manager(|manager| {
        let filter = &mut manager["http_filters"][0]["typed_config"]["config"];
        let removed = filter
            .as_object_mut()
            .unwrap()
            .remove("allow_on_headers_stop_iteration");
        assert_eq!(removed, Some(json!(true)));
    })
}

fn warnings(testbed: &Testbed) -> usize {
    testbed
        .envoy()
        .log()
        .matches("set allow_on_headers_stop_iteration: true")
        .count()
}

#[tokio::test]
async fn a_host_that_withholds_bodies_is_found_out_once_and_routed_by_load() {
    let testbed = without_the_flag(Testbed::with_servers(3)).start().await;
    for request in 0..20 {
        let text = prompt(&format!("withheld {request}"), 4_000);
        let answer = testbed.complete(&text).await;
        assert_eq!(answer.status, 200);
        assert_eq!(answer.reason(), "headers_only");
        assert_eq!(answer.server(), answer.picked());
    }
    assert_eq!(testbed.fallbacks("headers_only").await, 20);
    assert_eq!(warnings(&testbed), 1);
    testbed.nothing_in_flight().await;
    testbed.assert_no_vm_lost().await;
}

#[tokio::test]
async fn requests_held_together_are_all_resumed() {
    let testbed = without_the_flag(Testbed::with_servers(3)).start().await;
    let texts = (0..40).map(|request| prompt(&format!("together {request}"), 20_000));
    for answer in testbed.complete_all(texts).await {
        assert_eq!(answer.status, 200);
        assert_eq!(answer.reason(), "headers_only");
    }
    assert_eq!(testbed.fallbacks("headers_only").await, 40);
    assert_eq!(warnings(&testbed), 1);
    testbed.assert_no_vm_lost().await;
}

#[tokio::test]
async fn a_slow_upload_is_waited_for_and_switches_nothing_off() {
    let testbed = Testbed::with_servers(3).start().await;
    let first = testbed.complete(&prompt("quick", 2_000)).await;
    assert_eq!(first.reason(), "picked");
    for upload in 0..3 {
        let text = prompt(&format!("slow {upload}"), 2_000);
        let body = completion(&text).to_string();
        // Nothing of the body for more than a scrape interval, which is ten ticks.
        let late = stream::once(async move {
            tokio::time::sleep(Duration::from_millis(300)).await;
            Ok::<_, std::io::Error>(Bytes::from(body))
        });
        let answer = Answer::to(testbed.post(COMPLETIONS, Body::wrap_stream(late))).await;
        assert_eq!(answer.status, 200);
        assert_eq!(answer.reason(), "picked");
        let again = testbed.complete(&text).await;
        let (matched, total) = again.cache_match();
        assert_eq!(matched, total);
    }
    assert_eq!(warnings(&testbed), 0);
    testbed.assert_no_vm_lost().await;
}

#[tokio::test]
async fn a_first_client_that_is_slow_does_not_switch_body_routing_off() {
    let testbed = Testbed::with_servers(3).start().await;
    let body = completion(&prompt("slow and first", 2_000)).to_string();
    let late = stream::once(async move {
        tokio::time::sleep(Duration::from_millis(300)).await;
        Ok::<_, std::io::Error>(Bytes::from(body))
    });
    let answer = Answer::to(testbed.post(COMPLETIONS, Body::wrap_stream(late))).await;
    assert_eq!(answer.status, 200);
    assert_eq!(answer.reason(), "headers_only");
    let next = testbed.complete(&prompt("next", 2_000)).await;
    assert_eq!(next.reason(), "picked");
    assert_eq!(warnings(&testbed), 0);
    testbed.assert_no_vm_lost().await;
}
