//! What bodies cost the module's memory, which never shrinks, whatever they hold.

use serde_json::json;
use wasm_test::host::{Host, Progress, Stream, Thread};

/// A body many times as long as what is read at once.
const LONG: usize = 32 << 20;
/// What memory may grow by for it.
const GROWTH: usize = 16 << 20;
/// The same for shapes of which there are many.
const MEDIUM: usize = 6 << 20;
const MEDIUM_GROWTH: usize = 4 << 20;

fn start() -> Host {
    let plugin = json!({
        "pools": [{
            "name": "llama", "cluster": "model-servers", "endpoints": ["10.0.0.1:80", "10.0.0.2:80"],
            "models": [{"name": "support", "targets": [{"model": "billing-lora"}]}],
        }],
        "maxBufferedBytes": "64Mi",
        "debugHeaders": true,
    });
    let setup = Host::setup().buffer_limit(65 << 20);
    setup.start(&plugin).expect("a start")
}

/// Sends a body and returns what went on to the cluster.
fn send(host: &Host, path: &str, body: &[u8]) -> Vec<u8> {
    let mut stream: Stream = host.stream(0);
    let length = body.len().to_string();
    let head: [(&str, &[u8]); 4] = [
        (":method", b"POST"),
        (":path", path.as_bytes()),
        (":authority", b"test"),
        ("content-length", length.as_bytes()),
    ];
    assert_eq!(stream.headers(&head, false), Progress::Held);
    let pieces = body.chunks(1 << 20);
    let last = pieces.len() - 1;
    for (piece, at) in pieces.zip(0..) {
        stream.body(piece, at == last);
    }
    assert_eq!(stream.progress(), Progress::Sent, "{path}");
    let sent = stream.sent().expect("it was sent");
    stream.finish();
    sent.body
}

/// Repeats `item` between `head` and `tail` up to `len`.
fn filled(len: usize, head: &str, item: &str, tail: &str) -> String {
    let count = len / item.len();
    let mut body = String::with_capacity(len + head.len() + tail.len());
    body.push_str(head);
    body.extend(std::iter::repeat_n(item, count));
    body.push_str(tail);
    body
}

const COMPLETIONS: &str = "/v1/completions";
const CHAT: &str = "/v1/chat/completions";
const MESSAGE: &str = r#"{"role":"user","content":"a line of what somebody has to say\n"},"#;
const EMPTY: &str = r#"{"role":"user","content":"x"}]}"#;

/// Path, what a body begins with, what it repeats, and what it ends with.
const REPEATED: [(&str, &str, &str, &str); 18] = [
    (COMPLETIONS, r#"{"model":"m","prompt":""#, "text ", r#""}"#),
    (COMPLETIONS, r#"{"model":"m","prompt":["#, "1,", "1]}"),
    (
        COMPLETIONS,
        r#"{"model":"m","prompt":["#,
        "\"\",",
        "\"a\"]}",
    ),
    (
        COMPLETIONS,
        r#"{"model":"m","prompt":["#,
        "\"a\",",
        "\"a\"]}",
    ),
    (COMPLETIONS, r#"{"model":"m","prompt":["#, "[1],", "[1]]}"),
    (COMPLETIONS, r#"{"prompt":"a","x":"#, "[", ""),
    (COMPLETIONS, "{", "\"a\":1,", r#""prompt":"a"}"#),
    (COMPLETIONS, "{", "\"prompt\":\"a\",", r#""prompt":"a"}"#),
    (COMPLETIONS, "{", "\"model\":\"a\",", r#""prompt":"a"}"#),
    (CHAT, r#"{"messages":["#, MESSAGE, EMPTY),
    (CHAT, r#"{"messages":["#, "{},", EMPTY),
    (
        CHAT,
        r#"{"messages":["#,
        r#"{"content":"a","role":"b"},"#,
        EMPTY,
    ),
    (
        CHAT,
        r#"{"messages":[{"role":"user","content":["#,
        r#"{"type":"text","text":"a"},"#,
        "\"a\"]}]}",
    ),
    (
        CHAT,
        r#"{"messages":[{"role":"user","content":["#,
        "{},",
        "{}]}]}",
    ),
    (
        CHAT,
        r#"{"messages":[{"#,
        r#""role":"a","#,
        r#""content":"a"}]}"#,
    ),
    (
        CHAT,
        r#"{"messages":[{"role":"user","content":"a"}],"tools":["#,
        r#"{"a":[1, 2]},"#,
        "1]}",
    ),
    (
        "/v1/messages",
        r#"{"system":["#,
        r#"{"type":"text","text":"x-anthropic-billing-header"},"#,
        r#"{}],"messages":[{"role":"a"}]}"#,
    ),
    (
        "/v1/responses",
        r#"{"input":["#,
        r#"{"type":"reasoning"},"#,
        "{}]}",
    ),
];

#[test]
fn a_long_body_of_any_shape_takes_a_bounded_amount_of_memory() {
    for (path, head, item, tail) in REPEATED {
        let host = start();
        send(&host, COMPLETIONS, br#"{"model":"m","prompt":"warm up"}"#);
        let before = host.memory_bytes(Thread::Worker(0));
        let body = filled(MEDIUM, head, item, tail);
        assert_eq!(send(&host, path, body.as_bytes()).len(), body.len());
        let after = host.memory_bytes(Thread::Worker(0));
        assert!(
            after - before <= MEDIUM_GROWTH,
            "{path} {item}: {before} to {after}"
        );
    }
}

#[test]
fn a_chat_of_32_megabytes_takes_half_of_that_at_most() {
    let host = start();
    send(
        &host,
        "/v1/completions",
        br#"{"model":"m","prompt":"warm up"}"#,
    );
    let before = host.memory_bytes(Thread::Worker(0));
    let message = format!(r#"{{"role":"user","content":"{}\n"}},"#, "x".repeat(99));
    let body = filled(LONG, r#"{"messages":["#, &message, "{}]}");
    send(&host, "/v1/chat/completions", body.as_bytes());
    let after = host.memory_bytes(Thread::Worker(0));
    assert!(after - before <= GROWTH, "{before} to {after}");
}

#[test]
fn rewriting_a_name_at_the_end_of_a_long_body_takes_a_bounded_amount_of_memory() {
    let host = start();
    send(
        &host,
        "/v1/completions",
        br#"{"model":"m","prompt":"warm up"}"#,
    );
    let before = host.memory_bytes(Thread::Worker(0));
    let head = r#"{"prompt":""#;
    let body = filled(LONG, head, "text ", r#"","model":"support"}"#);
    let expected = filled(LONG, head, "text ", r#"","model":"billing-lora"}"#);
    let sent = send(&host, "/v1/completions", body.as_bytes());
    assert!(sent == expected.as_bytes(), "the body is another");
    let after = host.memory_bytes(Thread::Worker(0));
    assert!(after - before <= GROWTH, "{before} to {after}");
}

#[test]
fn a_body_takes_at_most_three_times_its_length() {
    for kib in [64, 512, 4_096] {
        let host = start();
        send(
            &host,
            "/v1/completions",
            br#"{"model":"m","prompt":"warm up"}"#,
        );
        let before = host.memory_bytes(Thread::Worker(0));
        let text = "{},".repeat(kib * 1_024 / 3);
        let body = format!(r#"{{"messages":[{text}{{"role":"user"}}]}}"#);
        send(&host, "/v1/chat/completions", body.as_bytes());
        let after = host.memory_bytes(Thread::Worker(0));
        // Memory comes in pages of 64 KiB, some at a time.
        let allowed = 3 * body.len() + (128 << 10);
        assert!(after - before <= allowed, "{kib}: {}", after - before);
    }
}
