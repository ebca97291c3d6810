//! What of a request decides where it goes: the README's table row by row, requests that were sent
//! to a real vLLM, and prompts that share what they should and nothing else.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use inline_epp::prefix::BlockHash;
use inline_epp::requesthandling::{Api, ParseError};
use serde_json::{Value, json};
use wasm_test::prompts::Prompts;
use wasm_test::shapes::SHAPES;

const BLOCK_TOKENS: u32 = 64;

fn blocks(api: Api, body: &str) -> Vec<BlockHash> {
    let read = Prompts::read(api, body.as_bytes(), false);
    let chain = read.unwrap_or_else(|error| panic!("{error:?}: {body}"));
    chain.chain(BLOCK_TOKENS).blocks
}

#[test]
fn every_row_of_the_table_of_shapes_is_true() {
    for row in SHAPES {
        let api = Api::from_path(row.path.as_bytes()).expect(row.path);
        let hashed = blocks(api, row.body);
        assert!(!hashed.is_empty(), "{}", row.body);
        assert!(
            !row.same.is_empty() && !row.other.is_empty(),
            "{}",
            row.shape
        );
        for same in row.same {
            assert_eq!(blocks(api, same), hashed, "{same}");
        }
        for other in row.other {
            assert_ne!(blocks(api, other), hashed, "{other}");
        }
    }
}

#[test]
fn every_api_has_a_row() {
    let rows: BTreeSet<String> = SHAPES
        .iter()
        .map(|row| format!("{:?}", Api::from_path(row.path.as_bytes())))
        .collect();
    for (path, api) in Api::paths() {
        assert!(rows.contains(&format!("{:?}", Some(api))), "{path}");
        let words = SHAPES.iter().map(|row| (row.path, row.shape));
        let is_named =
            |(row, shape): (&str, &str)| path == row || shape.contains(&format!("`{path}`"));
        assert!(words.into_iter().any(is_named), "{path} is in no row");
    }
}

/// A request as it was recorded: where, method and path, body.
struct Recorded {
    name: String,
    method: String,
    path: String,
    body: Vec<u8>,
}

fn recorded() -> Vec<Recorded> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("vectors/vllm");
    let mut found = Vec::new();
    let mut folders: Vec<PathBuf> = entries(&folder);
    folders.retain(|path| path.is_dir());
    for folder in folders {
        for path in entries(&folder) {
            if path
                .extension()
                .is_some_and(|extension| extension == "request")
            {
                found.push(read(&path));
            }
        }
    }
    found
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).expect("a folder");
    let mut paths: Vec<PathBuf> = entries
        .map(|entry| entry.expect("readable").path())
        .collect();
    paths.sort();
    paths
}

fn read(path: &Path) -> Recorded {
    let raw = fs::read(path).expect("readable");
    let head = String::from_utf8_lossy(&raw).into_owned();
    let mut words = head.split_whitespace();
    let mut word = || words.next().expect("a request line").to_owned();
    let (method, target) = (word(), word());
    let end = [&b"\r\n\r\n"[..], b"\n\n"]
        .iter()
        .find_map(|blank| {
            let at = raw.windows(blank.len()).position(|bytes| bytes == *blank)?;
            Some(at + blank.len())
        })
        .expect("a blank line");
    Recorded {
        name: path.display().to_string(),
        method,
        path: target,
        body: raw[end..].to_vec(),
    }
}

/// What a server computes for a request, as far as a parsed body tells: all but what never enters
/// the prompt.
fn asked(recorded: &Recorded, api: Api) -> Value {
    const BESIDE: [&str; 24] = [
        "max_tokens",
        "max_completion_tokens",
        "max_output_tokens",
        "temperature",
        "stream",
        "stream_options",
        "n",
        "logprobs",
        "top_logprobs",
        "echo",
        "priority",
        "return_token_ids",
        "sampling_params",
        "kv_transfer_params",
        "request_id",
        "session_id",
        "vllm_xargs",
        "seed",
        "ignore_eos",
        "min_tokens",
        "prompt_logprobs",
        "tool_choice",
        "stop",
        "zzz",
    ];
    let mut body: Value = serde_json::from_slice(&recorded.body).expect("JSON");
    let fields = body.as_object_mut().expect("an object");
    // What is no salt separates nobody; the server refuses it.
    let is_salt = |value: &Value| value.as_str().is_some_and(|salt| !salt.is_empty());
    fields.retain(|name, value| {
        !BESIDE.contains(&name.as_str()) && (name != "cache_salt" || is_salt(value))
    });
    json!([format!("{api:?}"), body])
}

#[test]
fn every_recorded_request_has_a_chain_of_its_own_or_a_named_reason() {
    let mut chains: BTreeMap<Vec<BlockHash>, (Value, String)> = BTreeMap::new();
    let mut reasons: BTreeMap<&str, usize> = BTreeMap::new();
    for request in recorded() {
        let api = Api::from_path(request.path.as_bytes());
        let reason = match api {
            _ if request.method == "GET" || request.body.is_empty() => "no_body",
            None => "unknown_path",
            Some(api) => match Prompts::read(api, &request.body, false) {
                Err(ParseError::Malformed) => "malformed_body",
                Err(ParseError::UnknownShape) => "unknown_shape",
                Ok(prompts) if prompts.chain(BLOCK_TOKENS).blocks.is_empty() => "unknown_shape",
                Ok(prompts) => {
                    let blocks = prompts.chain(BLOCK_TOKENS).blocks;
                    let asked = asked(&request, api);
                    let (known, name) = chains
                        .entry(blocks)
                        .or_insert_with(|| (asked.clone(), request.name.clone()));
                    assert!(
                        *known == asked || is_same_text(known, &asked),
                        "{name} and {}:\n{known}\n{asked}",
                        request.name
                    );
                    "picked"
                }
            },
        };
        *reasons.entry(reason).or_default() += 1;
    }
    let named: BTreeSet<&str> = reasons.keys().copied().collect();
    let expected = [
        "malformed_body",
        "no_body",
        "picked",
        "unknown_path",
        "unknown_shape",
    ];
    assert_eq!(named, BTreeSet::from(expected), "{reasons:?}");
    assert!(reasons["picked"] > 100, "{reasons:?}");
    assert!(chains.len() > 20, "{}", chains.len());
}

/// Whether two APIs were asked the same in their own forms: a server renders these alike.
fn is_same_text(one: &Value, other: &Value) -> bool {
    let text = |asked: &Value| {
        let mut strings = Vec::new();
        collect(&asked[1], &mut strings);
        strings.retain(|text| {
            !["text", "role", "user", "system", "input_text"].contains(&text.as_str())
        });
        strings.sort();
        strings
    };
    one[0] != other[0] && text(one) == text(other)
}

fn collect(value: &Value, strings: &mut Vec<String>) {
    match value {
        Value::String(text) => strings.push(text.clone()),
        Value::Array(items) => items.iter().for_each(|item| collect(item, strings)),
        Value::Object(fields) => fields.values().for_each(|item| collect(item, strings)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

fn turn(role: &str, name: &str) -> Value {
    json!({ "role": role, "content": wasm_test::testbed::prompt(name, 2_000) })
}

fn chat(messages: &[Value], more: &Value) -> Vec<BlockHash> {
    let mut body = json!({ "model": "m", "messages": messages });
    let fields = body.as_object_mut().expect("an object");
    for (name, value) in more.as_object().expect("an object") {
        fields.insert(name.clone(), value.clone());
    }
    blocks(Api::ChatCompletions, &body.to_string())
}

fn shared(one: &[BlockHash], other: &[BlockHash]) -> usize {
    one.iter().filter(|block| other.contains(block)).count()
}

#[test]
fn salts_adapters_and_models_share_no_block() {
    let messages = [turn("system", "s"), turn("user", "u")];
    let plain = chat(&messages, &json!({}));
    assert!(plain.len() > 10);
    let variants = [
        json!({ "cache_salt": "a" }),
        json!({ "cache_salt": "b" }),
        json!({ "model": "adapter-a" }),
        json!({ "model": "adapter-b" }),
        json!({ "model": "ma" }),
        json!({ "model": "m", "cache_salt": "aa" }),
        json!({ "reasoning_effort": "low" }),
        json!({ "tools": [{ "type": "function" }] }),
    ];
    let mut chains = vec![plain];
    chains.extend(variants.iter().map(|variant| chat(&messages, variant)));
    for (at, one) in chains.iter().enumerate() {
        for other in &chains[at + 1..] {
            assert_eq!(shared(one, other), 0, "{at}");
        }
    }
    let adapter = |name: &str| {
        let body = json!({ "text": wasm_test::testbed::prompt("x", 2_000), "lora_path": name });
        blocks(Api::SglangGenerate, &body.to_string())
    };
    assert_eq!(shared(&adapter("a"), &adapter("b")), 0);
}

#[test]
fn messages_in_another_order_share_the_common_head_only() {
    let (one, two) = (turn("user", "one"), turn("user", "two"));
    let none = json!({});
    let forth = chat(&[one.clone(), two.clone()], &none);
    let back = chat(&[two.clone(), one.clone()], &none);
    assert_eq!(shared(&forth, &back), 0);
    let system = turn("system", "s");
    let forth = chat(&[system.clone(), one.clone(), two.clone()], &none);
    let back = chat(&[system.clone(), two, one], &none);
    let head = chat(&[system], &none);
    // The block that the head ends in goes on differently.
    assert_eq!(shared(&forth, &back), head.len() - 1);
}

#[test]
fn another_temperature_shares_every_block() {
    let messages = [turn("system", "s"), turn("user", "u")];
    let cold = chat(&messages, &json!({ "temperature": 0, "max_tokens": 1 }));
    let hot = chat(
        &messages,
        &json!({ "temperature": 1.5, "stream": true, "x": [1] }),
    );
    assert_eq!(cold, hot);
}

#[test]
fn long_prompts_that_differ_in_the_last_block_match_on_all_others() {
    // 40,000 tokens, by 4 bytes and as ids.
    let text = |end: char| {
        let text = "x".repeat(4 * 40_000 - 1);
        blocks(
            Api::Completions,
            &json!({ "prompt": format!("{text}{end}") }).to_string(),
        )
    };
    let ids = |end: u32| {
        let ids: Vec<u32> = (1..40_000).chain([end]).collect();
        blocks(Api::Completions, &json!({ "prompt": ids }).to_string())
    };
    for (one, other) in [(text('a'), text('b')), (ids(1), ids(2))] {
        assert_eq!(one.len(), 40_000 / 64);
        let equal = one.iter().zip(&other).take_while(|(a, b)| a == b).count();
        assert_eq!(equal, one.len() - 1);
    }
}
