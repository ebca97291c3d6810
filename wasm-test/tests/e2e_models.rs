//! Models under names of the gateway's own, through a real Envoy: only the name changes, wherever in
//! the body it stands.

use bytes::Bytes;
use futures_util::stream;
use reqwest::Body;
use serde_json::json;
use sha2::{Digest, Sha256};
use wasm_test::testbed::{Answer, COMPLETIONS, Setup, Testbed, prompt, say};

const REWRITE: &str = "x-llm-d-model-name-rewrite";

/// Servers that know `sim-model` and `billing`, and a pool that offers `support`.
fn pool(targets: serde_json::Value) -> Setup {
    Testbed::with_servers(2)
        .every_server(|config| {
            config.lora_modules = vec!["billing".into()];
            config.max_model_len = 4_000_000;
            config.num_gpu_blocks = 400_000;
        })
        .pool(move |pool| pool["models"] = json!([{ "name": "support", "targets": targets }]))
}

fn adapter() -> serde_json::Value {
    json!([{ "model": "billing", "adapter": true }])
}

fn digest(body: &str) -> String {
    let bytes = Sha256::digest(body);
    let digits = bytes.iter().flat_map(|byte| [byte >> 4, byte & 15]);
    let digits = digits.filter_map(|digit| char::from_digit(digit.into(), 16));
    digits.collect()
}

fn chunked(body: &str) -> Body {
    let pieces: Vec<_> = body
        .as_bytes()
        .chunks(10_000)
        .map(|piece| Ok::<_, std::io::Error>(Bytes::copy_from_slice(piece)))
        .collect();
    Body::wrap_stream(stream::iter(pieces))
}

/// The answer to `before` + name + `after`, of which the server must have received the target's.
async fn rewritten(testbed: &Testbed, before: &str, after: &str, announced: bool) -> Answer {
    let sent = format!("{before}\"support\"{after}");
    let expected = format!("{before}\"billing\"{after}");
    let body = if announced {
        Body::from(sent)
    } else {
        chunked(&sent)
    };
    let answer = Answer::to(testbed.post(COMPLETIONS, body)).await;
    assert_eq!(
        answer.header("x-sim-body-sha256"),
        Some(digest(&expected).as_str()),
        "{answer:?}"
    );
    assert_eq!(answer.status, 200);
    assert!(answer.headers_seen().contains(&REWRITE));
    assert_eq!(answer.headers_seen().contains(&"content-length"), announced);
    let body: serde_json::Value = serde_json::from_slice(&answer.body).expect("JSON");
    assert_eq!(body["model"], "billing", "the response names what answered");
    answer
}

#[tokio::test]
async fn the_name_changes_wherever_it_stands_and_nothing_else() {
    let testbed = pool(adapter()).start().await;
    let short = prompt("short", 1_000);
    // Behind more than is read at once, so the whole body is carried around.
    let long = prompt("long", 2_500_000);
    for (before, after) in [
        (
            "{\"model\":".to_owned(),
            format!(",\"prompt\":\"{short}\",\"max_tokens\":1}}"),
        ),
        (
            format!("{{\"prompt\":\"{short}\",\"max_tokens\":1, \"model\" : "),
            " }\n".to_owned(),
        ),
        (
            format!(
                "{{\"model\":\"no\",\"x\":{{\"model\":\"support\"}},\"prompt\":\"{short}\",\"model\":"
            ),
            ",\"max_tokens\":1}".to_owned(),
        ),
        (
            format!("{{\"prompt\":\"{long}\",\"model\":"),
            ",\"max_tokens\":1}".to_owned(),
        ),
        (
            "{\"max_tokens\":1,\"model\":".to_owned(),
            format!(",\"prompt\":\"{long}\"}}"),
        ),
        (
            format!("{{\"x\":\"{long}\",\"model\":"),
            format!(",\"prompt\":\"{short}\",\"max_tokens\":1}}"),
        ),
    ] {
        for announced in [true, false] {
            rewritten(&testbed, &before, &after, announced).await;
        }
    }
    testbed.assert_no_vm_lost().await;
}

#[tokio::test]
async fn blocks_and_adapters_are_the_targets() {
    let testbed = pool(adapter()).start().await;
    let text = prompt("shared", 1_000);
    let after = format!(",\"prompt\":\"{text}\",\"max_tokens\":1}}");
    let first = rewritten(&testbed, "{\"model\":", &after, true).await;
    assert_eq!(first.cache_match(), (0, 4));
    // Who asks for the adapter by its own name finds what was computed.
    let body = json!({ "model": "billing", "prompt": text, "max_tokens": 1 });
    let direct = testbed.ask(COMPLETIONS, &body).await;
    assert_eq!(
        (direct.server(), direct.cache_match()),
        (first.server(), (4, 4))
    );
    assert!(!direct.headers_seen().contains(&REWRITE));
    let base = testbed.complete(&text).await;
    assert_eq!(base.cache_match(), (0, 4));
    testbed.assert_no_vm_lost().await;
}

#[tokio::test]
async fn weights_share_out_conversations_and_each_keeps_its_target() {
    let targets = json!([{ "model": "billing", "weight": 3 }, { "model": "sim-model" }]);
    let testbed = pool(targets).start().await;
    let model = async |name: &str, more: &str| {
        let body = json!({
            "model": "support", "max_tokens": 1,
            "messages": [say("user", &prompt(name, 2_000)), say("user", more)],
        });
        let answer = testbed.ask("/v1/chat/completions", &body).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        let body: serde_json::Value = serde_json::from_slice(&answer.body).expect("JSON");
        body["model"].as_str().expect("a name").to_owned()
    };
    let mut billing = 0;
    for number in 0..60 {
        let name = format!("talk {number}");
        let first = model(&name, "").await;
        assert_eq!(model(&name, "go on").await, first, "{name}");
        billing += usize::from(first == "billing");
    }
    // 45 of 60; five standard deviations are 17.
    assert!((28..60).contains(&billing), "{billing}");
    testbed.assert_no_vm_lost().await;
}

#[tokio::test]
async fn of_a_body_too_long_to_hold_the_name_changes_if_it_was_read() {
    let testbed = pool(adapter())
        .plugin(|plugin| plugin["maxBufferedBytes"] = json!(100_000))
        .start()
        .await;
    let long = prompt("long", 2_500_000);
    let after = format!(",\"max_tokens\":1,\"prompt\":\"{long}\"}}");
    for announced in [true, false] {
        let answer = rewritten(&testbed, "{\"model\":", &after, announced).await;
        assert_eq!(answer.reason(), "truncated_body");
    }
    // Behind the cut, the server gets the name it came with, and says that it knows no such model.
    let body = format!("{{\"prompt\":\"{long}\",\"max_tokens\":1,\"model\":\"support\"}}");
    for body in [Body::from(body.clone()), chunked(&body)] {
        let answer = Answer::to(testbed.post(COMPLETIONS, body)).await;
        assert_eq!(answer.reason(), "truncated_body");
        assert_eq!(answer.status, 404);
        assert!(!answer.headers_seen().contains(&REWRITE));
    }
    testbed.assert_no_vm_lost().await;
}

#[tokio::test]
async fn a_client_cannot_rewrite_by_header() {
    let testbed = pool(adapter()).start().await;
    let body = json!({ "model": "sim-model", "prompt": "hello", "max_tokens": 1 }).to_string();
    let request = testbed
        .post(COMPLETIONS, body.clone())
        .header(REWRITE, "billing");
    let answer = Answer::to(request).await;
    assert_eq!(
        answer.header("x-sim-body-sha256"),
        Some(digest(&body).as_str())
    );
    assert!(!answer.headers_seen().contains(&REWRITE));
}
