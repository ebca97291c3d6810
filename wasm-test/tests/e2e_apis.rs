//! Every API through a real Envoy: the second turn follows the first, and the server gets the very
//! bytes the client sent.

use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use wasm_test::testbed::{Answer, CHAT, Testbed, prompt, say};

fn digest(body: &[u8]) -> String {
    let bytes = Sha256::digest(body);
    let digits = bytes.iter().flat_map(|byte| [byte >> 4, byte & 15]);
    let digits = digits.filter_map(|digit| char::from_digit(digit.into(), 16));
    digits.collect()
}

/// Posts `body` and makes sure that it arrived as it was, at the pick.
async fn post(testbed: &Testbed, path: &str, body: &Value) -> Answer {
    // White space that no writer of JSON would leave in.
    let body = body.to_string().replacen('{', "{ \n\t", 1);
    let answer = Answer::to(testbed.post(path, body.clone())).await;
    let sent = digest(body.as_bytes());
    assert_eq!(answer.header("x-sim-body-sha256"), Some(sent.as_str()));
    assert_eq!(answer.reason(), "picked", "{answer:?}");
    assert_eq!(answer.server(), answer.picked());
    assert_eq!(answer.status, 200, "{answer:?}");
    let log = testbed.servers()[testbed.index_of(answer.server())].log();
    let entry = log.last().expect("a request");
    assert_eq!(entry.body_bytes, body.len());
    assert!(entry.headers.iter().any(|name| name == "content-length"));
    answer
}

/// Sends the turns of many conversations; each but the first must go where the one before went, and
/// find it in that server's cache.
async fn follow(path: &str, turns: impl Fn(&str) -> [Value; 2]) {
    let testbed = Testbed::with_servers(4)
        .pool(|pool| pool["match"] = json!({}))
        .start()
        .await;
    let mut servers = Vec::new();
    for name in ["Ada", "Bob", "Cid", "Dot", "Eve", "Fay"] {
        let [first, second] = turns(name);
        let first = post(&testbed, path, &first).await;
        let server = testbed.index_of(first.server());
        assert_eq!(first.cache_match().0, 0, "{path}: {name}");
        let hits = |server: usize| {
            let state = testbed.servers()[server].state();
            state.counters.prefix_cache_hits
        };
        let before = hits(server);
        let second = post(&testbed, path, &second).await;
        assert_eq!(second.server(), first.server(), "{path}: {name}");
        let (matched, total) = second.cache_match();
        assert!(
            matched >= 7 && matched <= total,
            "{path}: {matched}/{total}"
        );
        assert!(hits(server) - before > 300, "{path}: {name}");
        servers.push(server);
    }
    servers.sort_unstable();
    servers.dedup();
    assert!(servers.len() > 1, "{path}: all on one server");
    testbed.assert_no_vm_lost().await;
}

fn text(name: &str) -> String {
    prompt(name, 2_000)
}

#[tokio::test]
async fn completions() {
    follow("/v1/completions", |name| {
        let body = |prompt: String| json!({"model": "sim-model", "prompt": prompt});
        [body(text(name)), body(text(name) + " and more")]
    })
    .await;
}

#[tokio::test]
async fn completions_of_token_ids_and_of_lists() {
    follow("/v1/completions", |name| {
        let ids = |extra: u32| -> Vec<u32> {
            let own = u32::from(name.as_bytes()[0]);
            (300..900)
                .map(|id| id + own)
                .chain(300..300 + extra)
                .collect()
        };
        let body = |ids: Vec<u32>| json!({"model": "sim-model", "prompt": [ids, name]});
        [body(ids(0)), body(ids(50))]
    })
    .await;
}

#[tokio::test]
async fn chats_with_tools_and_parts() {
    follow(CHAT, |name| {
        let tools = json!([{"type": "function", "function": {"name": "f"}}]);
        let call =
            json!({"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}});
        let mut messages = vec![
            say("developer", "Be brief."),
            json!({"role": "user", "content": [{"type": "text", "text": text(name)}]}),
        ];
        let body = |messages: &[Value]| {
            json!({
                "messages": messages, "model": "sim-model", "max_tokens": 3, "tools": tools,
                "reasoning_effort": "low", "temperature": messages.len(),
            })
        };
        let first = body(&messages);
        messages.push(json!({"role": "assistant", "content": null, "tool_calls": [call]}));
        messages.push(json!({"role": "tool", "tool_call_id": "c1", "content": "4"}));
        [first, body(&messages)]
    })
    .await;
}

#[tokio::test]
async fn responses() {
    follow("/v1/responses", |name| {
        let mut items = vec![json!({"role": "user", "content": text(name)})];
        let body = |items: &[Value]| {
            json!({
                "model": "sim-model", "instructions": format!("You serve {name}."),
                "input": items, "max_output_tokens": 3, "store": false,
            })
        };
        let first = body(&items);
        items.push(json!({
            "type": "message", "role": "assistant", "id": "msg_1",
            "content": [{"type": "output_text", "text": "Well.", "annotations": []}],
        }));
        items.push(json!({"type": "function_call_output", "call_id": "c", "output": "4"}));
        [first, body(&items)]
    })
    .await;
}

#[tokio::test]
async fn messages_whose_billing_header_changes() {
    follow("/v1/messages", |name| {
        let mut messages = vec![json!({
            "role": "user",
            "content": [{"type": "text", "text": text(name), "cache_control": {"type": "ephemeral"}}],
        })];
        let body = |messages: &[Value], cch: &str| {
            // The simulator does not drop the header, so it stands behind what is to be found.
            json!({
                "model": "sim-model", "max_tokens": 3, "messages": messages, "metadata": {"x": cch},
                "system": [{"type": "text", "text": format!("You serve {name}.")}],
            })
        };
        let first = body(&messages, "36ee5");
        messages[0]["content"][0]["cache_control"] = Value::Null;
        messages.push(say("assistant", "Well."));
        messages.push(say("user", "And?"));
        [first, body(&messages, "0aaa9")]
    })
    .await;
}

#[tokio::test]
async fn a_changing_billing_header_changes_nothing() {
    let testbed = Testbed::with_servers(4).start().await;
    let body = |cch: &str| {
        json!({
            "model": "sim-model", "max_tokens": 1,
            "system": [
                {"type": "text", "text": format!("x-anthropic-billing-header: cc_version=2.1; cch={cch};")},
                {"type": "text", "text": text("system")},
            ],
            "messages": [{"role": "user", "content": "Hi"}],
        })
    };
    let first = post(&testbed, "/v1/messages", &body("36ee5")).await;
    let second = post(&testbed, "/v1/messages", &body("0aaa9")).await;
    assert_eq!(second.server(), first.server());
    let (matched, total) = second.cache_match();
    assert_eq!(matched, total);
    testbed.assert_no_vm_lost().await;
}

#[tokio::test]
async fn tokens_are_counted_where_the_prompt_is_and_nothing_is_recorded() {
    let testbed = Testbed::with_servers(4).start().await;
    let body = |name: &str| {
        json!({
            "model": "sim-model", "max_tokens": 1,
            "messages": [{"role": "user", "content": text(name)}],
        })
    };
    for _ in 0..2 {
        let counted = post(&testbed, "/v1/messages/count_tokens", &body("new")).await;
        assert_eq!(counted.cache_match().0, 0, "nothing was computed");
    }
    let asked = post(&testbed, "/v1/messages", &body("new")).await;
    let counted = post(&testbed, "/v1/messages/count_tokens", &body("new")).await;
    assert_eq!(counted.server(), asked.server());
    let (matched, total) = counted.cache_match();
    assert_eq!(matched, total);
    testbed.assert_no_vm_lost().await;
}

#[tokio::test]
async fn embeddings() {
    follow("/v1/embeddings", |name| {
        let body = |input: Vec<String>| json!({"model": "sim-model", "input": input});
        [
            body(vec![text(name)]),
            body(vec![text(name) + " and more", name.to_owned()]),
        ]
    })
    .await;
}

#[tokio::test]
async fn rendered_token_ids() {
    follow("/inference/v1/generate", |name| {
        let own = u32::from(name.as_bytes()[0]);
        let ids = |extra: u32| -> Vec<u32> {
            (300..900).map(|id| id + own).chain(300..300 + extra).collect()
        };
        let body = |ids: Vec<u32>| {
            json!({"model": "sim-model", "token_ids": ids, "sampling_params": {"max_tokens": 2}})
        };
        [body(ids(0)), body(ids(50))]
    })
    .await;
}

#[tokio::test]
async fn sglang_texts() {
    follow("/generate", |name| {
        let body = |text: String| json!({"text": text, "sampling_params": {"max_new_tokens": 2}});
        [body(text(name)), body(text(name) + " and more")]
    })
    .await;
}

#[tokio::test]
async fn a_response_is_gone_on_from_where_it_was_given() {
    let testbed = Testbed::with_servers(4).start().await;
    for name in ["Ada", "Bob", "Cid", "Dot", "Eve", "Fay"] {
        let mut body = json!({"model": "sim-model", "input": text(name), "max_output_tokens": 3});
        let first = post(&testbed, "/v1/responses", &body).await;
        let mut last = first.clone();
        for turn in 1..3 {
            let given: Value = serde_json::from_slice(&last.body).expect("JSON");
            body = json!({
                "model": "sim-model", "previous_response_id": given["id"], "max_output_tokens": 3,
                "input": format!("{} in turn {turn}", text("another")),
            });
            // Another server answers 404: it never heard of that response.
            last = post(&testbed, "/v1/responses", &body).await;
            assert_eq!(last.server(), first.server(), "{name}");
            assert_eq!(last.cache_match(), (1, 1));
        }
    }
    testbed.assert_no_vm_lost().await;
}

#[tokio::test]
async fn bodies_in_frames_of_http_2_are_read_like_any() {
    let testbed = Testbed::with_servers(4).start().await;
    let client = reqwest::Client::builder().http2_prior_knowledge();
    let client = client.build().expect("a client");
    let body = json!({"model": "sim-model", "prompt": prompt("frames", 300_000), "max_tokens": 1});
    let body = body.to_string();
    for matched in [0, 1_000] {
        let request = client
            .post(format!("{}/v1/completions", testbed.envoy().url()))
            .header("content-type", "application/json")
            .body(body.clone());
        let answer = Answer::to(request).await;
        assert_eq!(answer.reason(), "picked");
        let sent = digest(body.as_bytes());
        assert_eq!(answer.header("x-sim-body-sha256"), Some(sent.as_str()));
        assert!(
            answer.cache_match().0 >= matched,
            "{:?}",
            answer.cache_match()
        );
    }
    testbed.assert_no_vm_lost().await;
}

#[tokio::test]
async fn a_client_that_waits_for_100_continue_is_told_to_go_on() {
    let testbed = Testbed::with_servers(2).start().await;
    let body =
        json!({"model": "sim-model", "prompt": text("patient"), "max_tokens": 1}).to_string();
    let head = format!(
        "POST /v1/completions HTTP/1.1\r\nhost: test\r\nconnection: close\r\nexpect: 100-continue\r\n\
         content-type: application/json\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    let mut stream = TcpStream::connect(testbed.envoy().address())
        .await
        .expect("a connection");
    stream.write_all(head.as_bytes()).await.expect("written");
    let mut go_on = [0; 25];
    stream.read_exact(&mut go_on).await.expect("an answer");
    assert_eq!(&go_on, b"HTTP/1.1 100 Continue\r\n\r\n");
    stream.write_all(body.as_bytes()).await.expect("written");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.expect("an answer");
    assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
    assert!(answer.contains("x-epp-reason: picked"), "{answer}");
    testbed.assert_no_vm_lost().await;
}
