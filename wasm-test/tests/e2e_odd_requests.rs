//! Requests whose prompt cannot be read, or only in part: each is answered by a server the module
//! chose, with its body untouched, is counted under its own reason, and harms nobody.

use bytes::Bytes;
use futures_util::stream;
use inline_epp::flow::CONTROL_HEADERS;
use reqwest::header::{HeaderName, HeaderValue};
use reqwest::{Body, Method, RequestBuilder};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use wasm_test::envoy::{Envoy, NO_FILTER};
use wasm_test::testbed::{Answer, COMPLETIONS, Setup, Testbed, completion, prompt};

const DESTINATION: &str = "x-gateway-destination-endpoint";

/// A context long enough for megabytes of prompt.
fn long_context(setup: Setup) -> Setup {
    setup.every_server(|config| {
        config.max_model_len = 2_000_000;
        config.num_gpu_blocks = 200_000;
    })
}

/// Sends `request` with `body`; the answer must come from the pick with the body's digest, and
/// exactly one counter, that of `reason`, must move by one.
async fn routed(testbed: &Testbed, request: RequestBuilder, body: &[u8], reason: &str) -> Answer {
    let before = counts(testbed, reason).await;
    let answer = Answer::to(request).await;
    assert_eq!(answer.reason(), reason, "{answer:?}");
    assert_eq!(answer.server(), answer.picked());
    assert_eq!(
        answer.header("x-sim-body-sha256"),
        Some(digest(body).as_str())
    );
    let after = counts(testbed, reason).await;
    assert_eq!(after, (before.0 + 1, before.1 + 1), "{reason}");
    answer
}

fn digest(body: &[u8]) -> String {
    let bytes = Sha256::digest(body);
    let digits = bytes.iter().flat_map(|byte| [byte >> 4, byte & 15]);
    let digits = digits.filter_map(|digit| char::from_digit(digit.into(), 16));
    digits.collect()
}

/// Requests counted under `reason`, and all that are counted.
async fn counts(testbed: &Testbed, reason: &str) -> (u64, u64) {
    let decisions = testbed.decisions().await;
    let under = match reason {
        "picked" | "truncated_body" => decisions,
        other => testbed.fallbacks(other).await,
    };
    (under, decisions + testbed.all_fallbacks().await)
}

fn post(testbed: &Testbed, body: &[u8]) -> RequestBuilder {
    testbed.post(COMPLETIONS, body.to_vec())
}

/// The same, of a length that is not announced.
fn post_chunked(testbed: &Testbed, body: &[u8]) -> RequestBuilder {
    let pieces: Vec<_> = body
        .chunks(10_000)
        .map(|piece| Ok::<_, std::io::Error>(Bytes::copy_from_slice(piece)))
        .collect();
    testbed.post(COMPLETIONS, Body::wrap_stream(stream::iter(pieces)))
}

fn json_body(bytes: usize) -> Vec<u8> {
    completion(&prompt("long", bytes)).to_string().into_bytes()
}

#[tokio::test]
async fn a_header_value_that_is_not_text_changes_nothing() {
    let testbed = Testbed::with_servers(2).start().await;
    let body = json_body(1_000);
    let latin1 = HeaderValue::from_bytes(b"caf\xe9").expect("bytes HTTP allows");
    for name in ["x-name", "x-request-id", "content-encoding", DESTINATION] {
        let reason = if name == "content-encoding" {
            "encoded_body"
        } else {
            "picked"
        };
        let request = post(&testbed, &body).header(name, latin1.clone());
        assert_eq!(routed(&testbed, request, &body, reason).await.status, 200);
        testbed.assert_no_vm_lost().await;
    }
}

#[tokio::test]
async fn a_get_is_routed_by_load() {
    let testbed = Testbed::with_servers(2).start().await;
    let request = testbed.request(Method::GET, "/v1/models");
    let answer = routed(&testbed, request, b"", "no_body").await;
    assert_eq!(answer.status, 200);
    // Everything but cached blocks: 0.20 + 0.10 + 0.05 + 0.05.
    assert_eq!(answer.score(), "0.4000");
    testbed.assert_no_vm_lost().await;
}

#[tokio::test]
async fn a_head_is_routed_by_load() {
    let testbed = Testbed::with_servers(2).start().await;
    let request = testbed.request(Method::HEAD, "/v1/models");
    let answer = routed(&testbed, request, b"", "no_body").await;
    assert_eq!(answer.status, 200);
    testbed.nothing_in_flight().await;
    testbed.assert_no_vm_lost().await;
}

#[tokio::test]
async fn a_post_without_a_body_is_routed_by_load() {
    let testbed = Testbed::with_servers(2).start().await;
    let request = testbed.post(COMPLETIONS, "");
    let answer = routed(&testbed, request, b"", "no_body").await;
    assert_eq!(answer.status, 400, "the server's own word");
    let request = post_chunked(&testbed, b"");
    routed(&testbed, request, b"", "no_body").await;
    testbed.assert_no_vm_lost().await;
}

#[tokio::test]
async fn a_truncated_json_body_is_routed_by_load() {
    let testbed = Testbed::with_servers(2).start().await;
    for body in [
        &br#"{"model": "sim-model", "prompt": "and the"#[..],
        b"{",
        b"not JSON",
        b"\0\0\0",
    ] {
        let answer = routed(&testbed, post(&testbed, body), body, "malformed_body").await;
        assert_eq!(answer.status, 400, "the server's own word");
    }
    testbed.assert_no_vm_lost().await;
}

#[tokio::test]
async fn text_that_is_none_is_routed_by_its_bytes() {
    let testbed = Testbed::with_servers(2).start().await;
    for text in [
        &b"\xff\xfe"[..],
        b"a\nb",
        b"a\0b",
        b"\xed\xa0\x80",
        b"\\ud800",
    ] {
        let body = [b"{\"model\": \"sim-model\", \"prompt\": \"", text, b"\"}"].concat();
        let answer = routed(&testbed, post(&testbed, &body), &body, "picked").await;
        assert!(
            matches!(answer.status.as_u16(), 200 | 400),
            "the server's own word"
        );
    }
    testbed.assert_no_vm_lost().await;
}

#[tokio::test]
async fn a_byte_order_mark_and_repeated_keys_change_nothing() {
    let testbed = Testbed::with_servers(4).start().await;
    let body = json_body(1_000);
    let plain = routed(&testbed, post(&testbed, &body), &body, "picked").await;
    let marked = [b"\xef\xbb\xbf", &body[..]].concat();
    let repeated = [b"{\"prompt\": \"no\",", &body[1..]].concat();
    for body in [marked, repeated] {
        let answer = routed(&testbed, post(&testbed, &body), &body, "picked").await;
        assert_eq!(answer.server(), plain.server());
        assert_eq!(answer.cache_match(), (4, 4));
    }
    testbed.assert_no_vm_lost().await;
}

#[tokio::test]
async fn json_of_an_unknown_shape_is_routed_by_load() {
    let testbed = Testbed::with_servers(2).start().await;
    let shapes: [Value; 6] = [
        json!({ "model": "sim-model", "prompt": [1, "a"], "max_tokens": 1 }),
        json!({ "model": "sim-model", "prompt": null }),
        json!({ "model": "sim-model", "prompt": "" }),
        json!({ "question": "of another API" }),
        json!([1, 2, 3]),
        json!("text"),
    ];
    for shape in shapes {
        let body = shape.to_string().into_bytes();
        routed(&testbed, post(&testbed, &body), &body, "unknown_shape").await;
    }
    testbed.assert_no_vm_lost().await;
}

#[tokio::test]
async fn deeply_nested_json_harms_nobody() {
    let testbed = Testbed::with_servers(2).start().await;
    let depth = 100_000;
    let nested = format!("{}{}", "[".repeat(depth), "]".repeat(depth));
    let unread = format!(r#"{{"model": "sim-model", "tools": {nested}, "prompt": "hello"}}"#);
    let body = unread.into_bytes();
    routed(&testbed, post(&testbed, &body), &body, "picked").await;
    let read = format!(r#"{{"model": "sim-model", "prompt": {nested}}}"#);
    let body = read.into_bytes();
    routed(&testbed, post(&testbed, &body), &body, "unknown_shape").await;
    testbed.assert_no_vm_lost().await;
}

#[tokio::test]
async fn a_body_of_megabytes_is_held_whole_with_the_shipped_limit() {
    let testbed = long_context(Testbed::with_servers(2)).start().await;
    let body = json_body(3_000_000);
    let first = routed(&testbed, post(&testbed, &body), &body, "picked").await;
    assert_eq!(first.status, 200);
    // maxTokens, 131,072 of 64 in a block.
    assert_eq!(first.cache_match(), (0, 2_048));
    let again = routed(&testbed, post_chunked(&testbed, &body), &body, "picked").await;
    assert_eq!(again.cache_match(), (2_048, 2_048));
    assert_eq!(again.server(), first.server());
    testbed.assert_no_vm_lost().await;
}

#[tokio::test]
async fn a_body_over_max_buffered_bytes_is_routed_by_the_part_read() {
    let testbed = long_context(Testbed::with_servers(2))
        .plugin(|plugin| plugin["maxBufferedBytes"] = json!(983_040))
        .pool(|pool| pool["prefix"] = json!({ "maxTokens": 1_000_000 }))
        .start()
        .await;
    let body = json_body(3_000_000);
    // Known by its content-length: routed by what the first read brings.
    let first = routed(&testbed, post(&testbed, &body), &body, "truncated_body").await;
    assert_eq!(first.status, 200);
    let (matched, total) = first.cache_match();
    assert!(matched == 0 && (1..=3_840).contains(&total), "{total}");
    // Of unknown length: held up to the limit, 3,840 blocks less the key before the prompt.
    let chunked = post_chunked(&testbed, &body);
    let chunked = routed(&testbed, chunked, &body, "truncated_body").await;
    assert_eq!(chunked.status, 200);
    let (matched, total) = chunked.cache_match();
    assert!((3_800..=3_840).contains(&total), "{total}");
    assert!(matched > 0, "the part read before is a prefix of this one");
    assert_eq!(chunked.server(), first.server());
    testbed.assert_no_vm_lost().await;
}

#[tokio::test]
async fn an_unknown_path_is_routed_by_load() {
    let testbed = Testbed::with_servers(2).start().await;
    let body = json_body(1_000);
    for path in ["/v1/files", "/v1/completions/extra", "/v1/", "/v1"] {
        let request = testbed.post(path, body.clone());
        let answer = routed(&testbed, request, &body, "unknown_path").await;
        assert_eq!(answer.status, 404, "the server's own word");
    }
    testbed.assert_no_vm_lost().await;
}

#[tokio::test]
async fn an_encoded_body_is_routed_by_load() {
    let testbed = Testbed::with_servers(2).start().await;
    let body = b"\x1f\x8b\x08 as far as anybody here can tell";
    for encoding in ["gzip", "zstd", "br", "GZIP", "identity, gzip"] {
        let request = post(&testbed, body).header("content-encoding", encoding);
        routed(&testbed, request, body, "encoded_body").await;
    }
    let body = json_body(1_000);
    let plain = post(&testbed, &body).header("content-encoding", "identity");
    routed(&testbed, plain, &body, "picked").await;
    testbed.assert_no_vm_lost().await;
}

#[tokio::test]
async fn an_upgrade_is_routed_at_once() {
    let testbed = Testbed::with_servers(2)
        .connection_manager(|manager| {
            manager["upgrade_configs"] = json!([{ "upgrade_type": "websocket" }]);
        })
        .start()
        .await;
    // Its client sends nothing more before it is answered: held, it would hang.
    let request = testbed
        .request(Method::GET, "/v1/realtime")
        .header("connection", "upgrade")
        .header("upgrade", "websocket")
        .header("sec-websocket-version", "13")
        .header("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ==");
    let answer = routed(&testbed, request, b"", "upgrade").await;
    assert_eq!(answer.status, 404, "the server's own word");
    testbed.assert_no_vm_lost().await;
}

#[tokio::test]
async fn a_client_cannot_choose_its_server() {
    let testbed = Testbed::with_servers(2).start().await;
    let body = json_body(1_000);
    let first = Answer::to(post(&testbed, &body)).await;
    let other = 1 - testbed.index_of(first.server());
    let other = testbed.servers()[other].address().to_string();
    for destination in ["169.254.169.254:80", &other, "", ",,,"] {
        let request = post(&testbed, &body)
            .header(DESTINATION, destination)
            .header(DESTINATION, &other);
        let answer = routed(&testbed, request, &body, "picked").await;
        assert_eq!(answer.status, 200);
        assert_eq!(answer.server(), first.server());
        assert!(!answer.headers_seen().contains(&DESTINATION));
    }
    // Nor where there is no prompt to route by: taken at its word, this would be a dead address.
    for _ in 0..10 {
        let request = testbed
            .request(Method::GET, "/v1/models")
            .header(DESTINATION, "169.254.169.254:80");
        let answer = routed(&testbed, request, b"", "no_body").await;
        assert_eq!(answer.status, 200);
    }
    testbed.assert_no_vm_lost().await;
}

#[tokio::test]
async fn no_control_header_of_a_client_reaches_a_server() {
    let testbed = Testbed::with_servers(2).start().await;
    let body = json_body(1_000);
    let mut request = post(&testbed, &body).header("x-own", "stays");
    for name in CONTROL_HEADERS {
        request = request.header(name, "first").header(name, "second");
    }
    let answer = routed(&testbed, request, &body, "picked").await;
    let seen = answer.headers_seen();
    assert!(seen.contains(&"x-own"), "{seen:?}");
    for name in CONTROL_HEADERS {
        assert!(!seen.contains(&name), "{name}");
    }
    testbed.assert_no_vm_lost().await;
}

#[tokio::test]
async fn a_destination_header_of_another_name_is_replaced_as_well() {
    let name = "x-my-destination";
    let testbed = Testbed::with_servers(2)
        .plugin(move |plugin| plugin["overrideHost"]["header"] = json!(name))
        .start()
        .await;
    let body = json_body(1_000);
    // The cluster does not read this header, so what the server sees of it is what the module set.
    let request = post(&testbed, &body)
        .header(name, "169.254.169.254:80")
        .header(name, "169.254.169.254:81");
    let answer = Answer::to(request).await;
    let seen = answer.headers_seen();
    assert_eq!(seen.iter().filter(|seen| **seen == name).count(), 1);
    testbed.assert_no_vm_lost().await;
}

#[tokio::test]
async fn a_body_that_ends_in_trailers_is_routed_by_its_prompt() {
    let testbed = Testbed::with_servers(4)
        .connection_manager(|manager| {
            manager["http_protocol_options"] = json!({ "enable_trailers": true });
        })
        .start()
        .await;
    let body = json_body(2_000);
    let first = Answer::to(post(&testbed, &body)).await;
    let mut request = b"POST /v1/completions HTTP/1.1\r\nhost: test\r\nconnection: close\r\n\
                        content-type: application/json\r\ntransfer-encoding: chunked\r\n\
                        trailer: x-checksum\r\n\r\n"
        .to_vec();
    request.extend(format!("{:x}\r\n", body.len()).bytes());
    request.extend(&body);
    request.extend(b"\r\n0\r\nx-checksum: 1\r\n\r\n");
    let mut stream = TcpStream::connect(testbed.envoy().address())
        .await
        .expect("a connection");
    stream.write_all(&request).await.expect("written");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.expect("an answer");
    assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
    assert!(answer.contains("x-epp-cache-match: 8/8"), "{answer}");
    let server = format!("x-sim-server: {}", first.server());
    assert!(answer.contains(&server), "{answer}");
    testbed.assert_no_vm_lost().await;
}

#[tokio::test]
async fn a_path_outside_every_pool_is_untouched() {
    let testbed = Testbed::with_servers(1).start().await;
    let plain = Envoy::builder(NO_FILTER);
    let plain = plain.endpoints(&[testbed.servers()[0].address()]);
    let plain = plain.start().await.expect("a start");
    let ask = async |envoy: &Envoy| {
        let request = reqwest::Client::new()
            .post(format!("{}/health/of/somebody/else", envoy.url()))
            .header("x-llm-d-slo-ttft-ms", "5")
            .header("x-prefiller-host-port", "10.0.0.1:80")
            .body(json_body(1_000));
        Answer::to(request).await
    };
    let answer = ask(testbed.envoy()).await;
    let expected = ask(&plain).await;

    assert_eq!(answer.status, 404, "the server's own word");
    assert_eq!(answer.headers_seen(), expected.headers_seen());
    assert!(answer.headers_seen().contains(&"x-prefiller-host-port"));
    let names = |answer: &Answer| -> Vec<HeaderName> { answer.headers.keys().cloned().collect() };
    assert_eq!(names(&answer), names(&expected));
    assert_eq!(
        answer.header("x-sim-body-sha256"),
        expected.header("x-sim-body-sha256")
    );
    assert_eq!(testbed.decisions().await, 0);
    assert_eq!(testbed.all_fallbacks().await, 0);
    assert_eq!(testbed.in_flight().await, [0]);
    testbed.assert_no_vm_lost().await;
}

#[tokio::test]
async fn a_model_no_pool_takes_is_untouched() {
    let testbed = Testbed::with_servers(2)
        .pool(|pool| pool["match"] = json!({ "models": ["sim-*"] }))
        .start()
        .await;
    let mut body = completion(&prompt("other", 1_000));
    body["model"] = json!("other-model");
    let answer = testbed.ask(COMPLETIONS, &body).await;
    assert_eq!(answer.status, 404, "the server's own word");
    assert_eq!(answer.reason(), "");
    assert_eq!(testbed.decisions().await + testbed.all_fallbacks().await, 0);
    testbed.assert_no_vm_lost().await;
    assert_eq!(testbed.decisions().await, 1);
}
