//! Replays what a real vLLM was asked and holds the simulator's answers to what it said.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

use reqwest::{Client, Method, StatusCode};
use serde_json::Value;
use wasm_test::sim::{Preset, Sim, SimConfig};

/// Requests to /v1/completions and /v1/chat/completions at block size 128, in recorded order.
const BLOCK_128: &[&str] = &[
    "completions",
    "completions-2-cached",
    "completions-logprobs",
    "completions-echo",
    "completions-n2",
    "completions-prompt-list",
    "completions-token-ids-prompt",
    "completions-stream",
    "completions-stream-usage",
    "completions-stream-usage-continuous",
    "chat",
    "chat-2-cached",
    "chat-stream",
    "chat-stream-usage",
    "chat-parts",
    "chat-logprobs",
    "chat-return-token-ids",
    "chat-priority",
];

/// The same at block size 32 with 64 blocks, adapters and salts, and what follows a cache reset.
const BLOCK_32: &[&str] = &[
    "kv1-first",
    "kv2-same-again",
    "kv3-long-decode",
    "kv4-salt-A",
    "kv5-salt-A-again",
    "kv6-salt-B",
    "kv7-chat-salt-A",
    "kv8-lora-a",
    "kv9-lora-a-again",
    "kv10-lora-a-salt",
    "kv10b-lora-b",
    "kv11-chat-long",
    "kv12-chat-long-other",
    "kv13-evict-0",
    "kv13-evict-1",
    "kv13-evict-2",
    "kv13-evict-3",
    "kv13-evict-4",
    "kv13-evict-5",
    "kv13-evict-6",
    "kv14-first-after-evict",
    "dev-reset_prefix_cache",
    "kv15-after-reset",
    "report-mode-full-warm",
    "report-mode-full",
    "session-header",
    "request-id-header",
    "body-request-id",
];

/// Recorded errors of what the simulator does not have: other APIs, checks of sampling and tool
/// settings it ignores, and a smaller vocabulary.
const OTHER_ERRORS: &[&str] = &[
    "bad-temperature",
    "token-out-of-vocab",
    "too-long-messages-api",
    "tool-choice-auto-not-enabled",
    "unknown-model-messages",
    "unknown-model-responses",
];

struct Recorded {
    method: Method,
    path: String,
    headers: Vec<(String, String)>,
    body: String,
    status: StatusCode,
    answer: String,
}

fn directory(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("vectors/vllm")
        .join(name)
}

/// Head lines and body of a raw HTTP message.
fn split(raw: &str) -> (Vec<String>, String) {
    let raw = raw.replace("\r\n", "\n");
    let (head, body) = raw.split_once("\n\n").expect("a head and a body");
    (head.lines().map(str::to_owned).collect(), body.to_owned())
}

fn recorded(set: &str, name: &str) -> Recorded {
    let read = |kind: &str| {
        let path = directory(set).join(format!("{name}.{kind}"));
        let bytes = fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        split(&String::from_utf8_lossy(&bytes))
    };
    let (head, body) = read("request");
    let (answer_head, answer) = read("response");
    let mut words = head[0].split(' ');
    let header = |line: &String| {
        let (name, value) = line.split_once(": ").expect("a header");
        (name != "Host").then(|| (name.to_owned(), value.to_owned()))
    };
    Recorded {
        method: words
            .next()
            .and_then(|word| word.parse().ok())
            .expect("a method"),
        path: words.next().expect("a path").to_owned(),
        headers: head[1..].iter().filter_map(header).collect(),
        body,
        status: answer_head[0]
            .split(' ')
            .nth(1)
            .expect("a status")
            .parse()
            .expect("a number"),
        answer,
    }
}

impl Recorded {
    async fn replay(&self, sim: &Sim) -> (StatusCode, String) {
        let mut request = Client::new().request(self.method.clone(), sim[0].url(&self.path));
        for (name, value) in &self.headers {
            request = request.header(name, value);
        }
        let response = request
            .body(self.body.clone())
            .send()
            .await
            .expect("an answer");
        (response.status(), response.text().await.expect("a body"))
    }
}

/// The JSON documents of an answer: one, or those of an event stream.
fn documents(answer: &str) -> Vec<Value> {
    if !answer.starts_with("data: ") {
        return vec![serde_json::from_str(answer).expect("JSON")];
    }
    let events: Vec<&str> = answer
        .split("\n\n")
        .filter(|event| !event.trim().is_empty())
        .collect();
    assert_eq!(events.last(), Some(&"data: [DONE]"));
    let json = |event: &&str| serde_json::from_str(event.strip_prefix("data: ")?).ok();
    events[..events.len() - 1]
        .iter()
        .map(|event| json(event).expect("JSON"))
        .collect()
}

fn cached_tokens(answer: &str) -> Option<u64> {
    documents(answer)
        .last()?
        .pointer("/usage/prompt_tokens_details/cached_tokens")?
        .as_u64()
}

/// A document with its keys, list lengths and constants, but no text or number that may differ.
fn shape(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            let field = |(name, value): (&String, &Value)| match name.as_str() {
                "object" | "finish_reason" | "role" | "index" | "completion_tokens" => {
                    (name.clone(), value.clone())
                }
                _ => (name.clone(), shape(value)),
            };
            Value::Object(fields.iter().map(field).collect())
        }
        Value::Array(items) if items.iter().all(Value::is_number) && !items.is_empty() => {
            "numbers".into()
        }
        Value::Array(items) => items.iter().map(shape).collect(),
        Value::String(_) => "text".into(),
        Value::Number(_) => "number".into(),
        other => other.clone(),
    }
}

async fn block_128() -> Sim {
    let config = SimConfig {
        preset: Preset::Instant,
        block_size: 128,
        max_model_len: 1024,
        served_model_name: vec!["tiny-llama".into()],
        ..SimConfig::default()
    };
    Sim::start(&config, 1).await.expect("a free port")
}

async fn block_32() -> Sim {
    let config = SimConfig {
        preset: Preset::Instant,
        block_size: 32,
        num_gpu_blocks: 64,
        max_model_len: 1024,
        served_model_name: vec!["tiny-llama".into()],
        lora_modules: vec!["lora-a".into(), "lora-b".into()],
        ..SimConfig::default()
    };
    Sim::start(&config, 1).await.expect("a free port")
}

/// Replays `names` in order; returns how many answers told a hit count, each equal to vLLM's.
async fn replay_hits(sim: &Sim, set: &str, names: &[&str]) -> usize {
    let mut compared = 0;
    for name in names {
        let recorded = recorded(set, name);
        let (status, answer) = recorded.replay(sim).await;
        assert_eq!(status, recorded.status, "{name}: {answer}");
        if recorded.answer.starts_with("{\"success\"") {
            assert_eq!(answer, recorded.answer, "{name}");
            continue;
        }
        let expected = cached_tokens(&recorded.answer);
        assert_eq!(cached_tokens(&answer), expected, "{name}: {answer}");
        compared += usize::from(expected.is_some());
    }
    compared
}

#[tokio::test]
async fn hits_equal_vllms_at_block_size_128() {
    // Two of the streams did not ask for usage.
    let compared = replay_hits(&block_128().await, "responses", BLOCK_128).await;
    assert_eq!(compared, BLOCK_128.len() - 2);
}

#[tokio::test]
async fn hits_equal_vllms_with_salts_adapters_eviction_and_reset() {
    let compared = replay_hits(&block_32().await, "responses-block32-lora", BLOCK_32).await;
    assert_eq!(compared, BLOCK_32.len() - 1);
}

#[test]
fn every_recorded_generation_is_replayed() {
    for (set, names, all) in [
        ("responses", BLOCK_128, true),
        ("responses-block32-lora", BLOCK_32, false),
    ] {
        let stems: BTreeSet<String> = fs::read_dir(directory(set))
            .expect("vectors")
            .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
            .filter_map(|file| file.strip_suffix(".request").map(str::to_owned))
            .filter(|stem| all || stem.starts_with("kv"))
            .collect();
        for stem in stems {
            let path = recorded(set, &stem).path;
            if ["/v1/completions", "/v1/chat/completions"].contains(&path.as_str()) {
                assert!(names.contains(&stem.as_str()), "{set}/{stem}");
            }
        }
    }
}

#[tokio::test]
async fn answers_have_vllms_fields_and_events() {
    let sim = block_128().await;
    for name in BLOCK_128.iter().filter(|name| !name.ends_with("-logprobs")) {
        let recorded = recorded("responses", name);
        let (_, answer) = recorded.replay(&sim).await;
        let shapes = |answer: &str| documents(answer).iter().map(shape).collect::<Vec<_>>();
        assert_eq!(shapes(&answer), shapes(&recorded.answer), "{name}");
    }
}

#[tokio::test]
async fn models_health_and_version_answer_as_vllms() {
    for (sim, set, name) in [
        (block_128().await, "responses", "models"),
        (block_32().await, "responses-block32-lora", "models"),
        (block_128().await, "responses", "version"),
    ] {
        let recorded = recorded(set, name);
        let (status, answer) = recorded.replay(&sim).await;
        assert_eq!(status, recorded.status);
        let shapes = |answer: &str| shape(&documents(answer)[0]);
        assert_eq!(shapes(&answer), shapes(&recorded.answer), "{set}/{name}");
    }
    let health = recorded("responses", "health");
    assert_eq!(
        health.replay(&block_128().await).await,
        (health.status, health.answer)
    );
}

#[tokio::test]
async fn errors_are_vllms_word_for_word() {
    let sim = block_128().await;
    let mut compared = 0;
    for entry in fs::read_dir(directory("errors")).expect("vectors") {
        let file = entry
            .expect("readable")
            .file_name()
            .into_string()
            .expect("UTF-8");
        let Some(name) = file.strip_suffix(".request") else {
            continue;
        };
        if OTHER_ERRORS.contains(&name) {
            continue;
        }
        let recorded = recorded("errors", name);
        let (status, answer) = recorded.replay(&sim).await;
        assert_eq!(status, recorded.status, "{name}: {answer}");
        if !status.is_success() {
            assert_eq!(answer, recorded.answer, "{name}");
            compared += 1;
        }
    }
    assert!(compared >= 15, "{compared} errors compared");
}

#[tokio::test]
async fn request_ids_become_part_of_the_answers_id() {
    let sim = block_32().await;
    for (name, id) in [
        ("request-id-header", "cmpl-req-777"),
        ("body-request-id", "chatcmpl-body-888"),
    ] {
        let (_, answer) = recorded("responses-block32-lora", name).replay(&sim).await;
        assert_eq!(documents(&answer)[0]["id"], id, "{name}");
    }
}
