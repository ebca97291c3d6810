//! Prefill and decode on two simulated servers, by hand.

use std::time::Duration;

use reqwest::{Client, StatusCode};
use serde_json::{Value, json};
use wasm_test::sim::{Counters, LoadFailure, Preset, SimConfig, SimServer};
use wasm_test::testbed::eventually;

async fn server(change: impl FnOnce(&mut SimConfig)) -> SimServer {
    let mut config = SimConfig {
        preset: Preset::Instant,
        bytes_per_token: Some(4),
        kv_transfer: true,
        ..SimConfig::default()
    };
    change(&mut config);
    let any = "127.0.0.1:0".parse().expect("an address");
    SimServer::start(config, any).await.expect("a free port")
}

async fn ask(server: &SimServer, params: &Value) -> (StatusCode, Value) {
    let body = json!({"prompt": "x".repeat(436), "max_tokens": 1, "kv_transfer_params": params});
    let request = Client::new()
        .post(server.url("/v1/completions"))
        .json(&body);
    let answer = request.send().await.expect("an answer");
    let status = answer.status();
    (status, answer.json().await.expect("JSON"))
}

/// Has `server` compute the prompt for another one.
async fn prefill(server: &SimServer) -> Value {
    let (status, answer) = ask(server, &json!({"do_remote_decode": true})).await;
    assert_eq!(status, StatusCode::OK);
    answer["kv_transfer_params"].clone()
}

fn counters(server: &SimServer) -> Counters {
    server.state().counters
}

#[tokio::test]
async fn a_prompt_is_computed_once_and_handed_over_once() {
    let (prefiller, decoder) = (server(|_| {}).await, server(|_| {}).await);
    let params = prefill(&prefiller).await;
    assert_eq!(params["do_remote_prefill"], json!(true));
    assert_eq!(params["remote_num_tokens"], json!(109));
    assert_eq!(
        params["remote_block_ids"][0].as_array().map(Vec::len),
        Some(7)
    );
    // Its blocks are not free yet.
    assert!(prefiller.state().gauges.kv_cache_usage > 0.0);
    let (status, answer) = ask(&decoder, &params).await;
    assert_eq!(
        (status, &answer["kv_transfer_params"]),
        (StatusCode::OK, &Value::Null)
    );
    let (before, after) = (counters(&prefiller), counters(&decoder));
    assert_eq!(
        (before.prompt_tokens, before.kv_kept, before.kv_fetched),
        (109, 1, 1)
    );
    assert_eq!((after.external_tokens, after.prefix_cache_hits), (109, 0));
    assert!(prefiller.state().gauges.kv_cache_usage.abs() < f64::EPSILON);
    // The decoder has the prompt: all of it but the last block, which is not full.
    ask(&decoder, &Value::Null).await;
    assert_eq!(counters(&decoder).prefix_cache_hits, 96);
    // The parameters are of no use any more.
    let (status, _) = ask(&decoder, &params).await;
    assert_eq!(
        (status, counters(&decoder).kv_failed),
        (StatusCode::INTERNAL_SERVER_ERROR, 1)
    );
    let page = Client::new().get(decoder.url("/metrics")).send().await;
    let page = page.expect("a page").text().await.expect("text");
    for line in [
        "vllm:prompt_tokens_by_source_total{engine=\"0\",model_name=\"sim-model\",source=\"external_kv_transfer\"} 109.0",
        "vllm:external_prefix_cache_hits_total{engine=\"0\",model_name=\"sim-model\"} 109.0",
    ] {
        assert!(page.contains(line), "{line}");
    }
}

#[tokio::test]
async fn cached_tokens_of_a_split_request_are_the_other_servers() {
    let (prefiller, decoder) = (server(|_| {}).await, server(|_| {}).await);
    ask(&prefiller, &Value::Null).await;
    let params = prefill(&prefiller).await;
    let (_, answer) = ask(&decoder, &params).await;
    assert_eq!(
        answer["usage"]["prompt_tokens_details"]["cached_tokens"],
        json!(96)
    );
    assert_eq!(counters(&decoder).prefix_cache_hits, 0);
}

#[tokio::test]
async fn a_lease_ends_and_is_counted() {
    let prefiller = server(|config| config.kv_lease_ms = 50).await;
    let decoder = server(|_| {}).await;
    let params = prefill(&prefiller).await;
    eventually("the end of the lease", async || {
        (counters(&prefiller).kv_expired == 1).then_some(())
    })
    .await;
    assert!(prefiller.state().gauges.kv_cache_usage.abs() < f64::EPSILON);
    assert_eq!(
        ask(&decoder, &params).await.0,
        StatusCode::INTERNAL_SERVER_ERROR
    );
    assert_eq!(counters(&prefiller).kv_fetched, 0);
}

#[tokio::test]
async fn a_server_that_is_gone_hands_nothing_over() {
    for (policy, status) in [
        (LoadFailure::Fail, StatusCode::INTERNAL_SERVER_ERROR),
        (LoadFailure::Recompute, StatusCode::OK),
    ] {
        let prefiller = server(|_| {}).await;
        let decoder = server(|config| config.kv_load_failure_policy = policy).await;
        let params = prefill(&prefiller).await;
        prefiller.kill().await;
        assert_eq!(ask(&decoder, &params).await.0, status);
        // Another life does not know them.
        prefiller.restart().await.expect("its port");
        assert_eq!(ask(&decoder, &params).await.0, status);
        assert_eq!(counters(&decoder).kv_failed, 2);
    }
}

#[tokio::test]
async fn parameters_that_are_not_whole_hang_the_request() {
    let server = server(|_| {}).await;
    let params = json!({"do_remote_prefill": true});
    let asked = ask(&server, &params);
    let hangs = tokio::time::timeout(Duration::from_millis(300), asked).await;
    assert!(hangs.is_err());
    assert_eq!(counters(&server).kv_partial, 1);
}

#[tokio::test]
async fn a_server_without_a_connector_knows_nothing_of_it() {
    let server = server(|config| config.kv_transfer = false).await;
    let (status, answer) = ask(&server, &json!({"do_remote_prefill": true})).await;
    assert_eq!(
        (status, &answer["kv_transfer_params"]),
        (StatusCode::OK, &Value::Null)
    );
}
