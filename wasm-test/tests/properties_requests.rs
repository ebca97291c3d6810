//! Properties of the body readers: a naive reader says the same of every chat, cut-off bodies give
//! prefixes, and no bytes harm.

use inline_epp::requesthandling::{
    Api, Edit, ParseError, Request, SplitBody, prompt_tokens, transfer_params,
};
use proptest::prelude::*;
use serde_json::{Value, json};
use wasm_test::prompts::Prompts;

fn apis() -> impl Strategy<Value = Api> {
    let apis: Vec<Api> = Api::paths().map(|(_, api)| api).collect();
    prop::sample::select(apis)
}

/// JSON of any shape and some depth.
fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        any::<String>().prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 24, 5, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            prop::collection::vec((key(), inner), 0..5)
                .prop_map(|fields| Value::Object(fields.into_iter().collect())),
        ]
    })
}

/// Keys that mean something, in places where they do and where they do not.
fn key() -> impl Strategy<Value = String> {
    prop_oneof![
        prop::sample::select(vec![
            "model",
            "messages",
            "prompt",
            "input",
            "content",
            "role",
            "type",
            "text",
            "tools",
            "image_url",
            "url",
            "system",
            "token_ids",
            "tool_calls",
            "source",
            "name",
        ])
        .prop_map(str::to_owned),
        any::<String>(),
    ]
}

/// `value` as JSON with white space at every place that allows it, and keys in their own order.
fn airy(value: &Value, space: &str) -> String {
    let join = |open: &str, items: Vec<String>, close: &str| {
        let items = items.join(&format!("{space},{space}"));
        format!("{open}{space}{items}{space}{close}")
    };
    match value {
        Value::Array(items) => {
            let items = items.iter().map(|item| airy(item, space)).collect();
            join("[", items, "]")
        }
        Value::Object(fields) => {
            let field = |(key, value): (&String, &Value)| {
                format!("{}{space}:{space}{}", json!(key), airy(value, space))
            };
            join("{", fields.iter().map(field).collect(), "}")
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value.to_string(),
    }
}

fn record(field: u8, value: &Value) -> Vec<u8> {
    let says_nothing = matches!(value, Value::Null)
        || value.as_str() == Some("")
        || value.as_array().is_some_and(Vec::is_empty)
        || value.as_object().is_some_and(serde_json::Map::is_empty);
    if says_nothing {
        return Vec::new();
    }
    let bytes = value.to_string().into_bytes();
    let len = (bytes.len() as u32).to_le_bytes();
    [&[0xFF, field], &len[..], &bytes].concat()
}

/// A chat's prompt by the book, from a parsed body.
fn naive_chat(body: &Value) -> Vec<u8> {
    let mut prompt = Vec::new();
    for (name, field) in [("tools", 1), ("reasoning_effort", 2)] {
        prompt.extend(record(field, &body[name]));
    }
    for message in body["messages"].as_array().expect("a list") {
        prompt.extend(message["role"].as_str().unwrap_or_default().bytes());
        match &message["content"] {
            Value::String(text) => prompt.extend(text.bytes()),
            Value::Array(parts) => {
                for part in parts {
                    match part["text"].as_str() {
                        Some(text) if part["type"] == "text" => prompt.extend(text.bytes()),
                        _ => prompt.extend(record(40, part)),
                    }
                }
            }
            other => prompt.extend(record(41, other)),
        }
        for (name, field) in [("tool_calls", 33), ("tool_call_id", 34), ("name", 32)] {
            prompt.extend(record(field, &message[name]));
        }
    }
    if prompt.last() == Some(&0) && ends_in_text(body) {
        prompt.push(0xFF);
    }
    prompt
}

/// Whether the prompt ends in text that could end in a zero byte.
fn ends_in_text(body: &Value) -> bool {
    let last = body["messages"].as_array().and_then(|all| all.last());
    last.is_some_and(|message| {
        ["tool_calls", "tool_call_id", "name"]
            .iter()
            .all(|name| record(0, &message[*name]).is_empty())
    })
}

fn part() -> impl Strategy<Value = Value> {
    prop_oneof![
        3 => any::<String>().prop_map(|text| json!({"type": "text", "text": text})),
        1 => (any::<String>(), any_json()).prop_map(|(text, x)| json!({"type": "new", "text": text, "x": x})),
    ]
}

fn message() -> impl Strategy<Value = Value> {
    let content = prop_oneof![
        4 => any::<String>().prop_map(Value::from),
        2 => prop::collection::vec(part(), 0..4).prop_map(Value::from),
        1 => Just(Value::Null),
    ];
    let role = prop::sample::select(vec!["user", "assistant", "system", "tool", ""]);
    let further = || prop::option::of(any_json());
    (role, content, further(), further(), further(), any_json()).prop_map(
        |(role, content, calls, id, name, other)| {
            json!({
                "role": role, "content": content, "tool_calls": calls, "tool_call_id": id,
                "name": name, "other": other,
            })
        },
    )
}

fn chat() -> impl Strategy<Value = Value> {
    let messages = prop::collection::vec(message(), 0..5);
    (
        messages,
        any_json(),
        prop::option::of(any::<String>()),
        any_json(),
    )
        .prop_map(|(messages, tools, effort, other)| {
            json!({
                "messages": messages, "tools": tools, "reasoning_effort": effort, "other": other,
                "model": "m",
            })
        })
}

/// Bytes near JSON: a chat with a few bytes changed.
fn damaged() -> impl Strategy<Value = Vec<u8>> {
    let changes = prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4);
    (chat(), changes).prop_map(|(chat, changes)| {
        let mut body = chat.to_string().into_bytes();
        for (at, byte) in changes {
            let at = at.index(body.len());
            body[at] = byte;
        }
        body
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn any_bytes_are_a_body(
        bytes in prop::collection::vec(any::<u8>(), 0..400), api in apis(), cut_off: bool,
    ) {
        let _ = Prompts::read(api, &bytes, cut_off);
    }

    #[test]
    fn any_json_is_a_body(body in any_json(), api in apis(), cut_off: bool) {
        let read = Prompts::read(api, body.to_string().as_bytes(), cut_off);
        prop_assert_ne!(read, Err(ParseError::Malformed));
    }

    #[test]
    fn what_serde_json_accepts_is_not_malformed(body in damaged()) {
        if serde_json::from_slice::<serde::de::IgnoredAny>(&body).is_ok() {
            let read = Prompts::read(Api::ChatCompletions, &body, false);
            prop_assert_ne!(read, Err(ParseError::Malformed));
        }
    }

    #[test]
    fn a_chat_reads_as_a_naive_reader_reads_it(body in chat(), space in "[ \t\r\n]{0,3}") {
        let read = Prompts::read(Api::ChatCompletions, airy(&body, &space).as_bytes(), false);
        let read = read.expect("a chat");
        prop_assert_eq!(read.model.as_deref(), Some("m"));
        prop_assert_eq!(read.whole, vec![naive_chat(&body)]);
    }

    #[test]
    fn whatever_stands_beside_a_prompt_is_passed_over(
        value in any_json(), prompt: String, space in "[ \n]{0,2}",
    ) {
        let body = json!({"a": value, "prompt": prompt, "z": value});
        let read = Prompts::read(Api::Completions, airy(&body, &space).as_bytes(), false);
        let mut expected = prompt.into_bytes();
        if expected.last() == Some(&0) {
            expected.push(0xFF);
        }
        prop_assert_eq!(read.expect("a prompt").whole, vec![expected]);
    }

    #[test]
    fn a_cut_off_body_gives_a_prefix_of_the_whole_prompt(
        body in chat(), cut in any::<prop::sample::Index>(),
    ) {
        // The head is known only where it came before the cut; clients that send none have no doubt.
        let mut body = body;
        body["tools"] = Value::Null;
        body["reasoning_effort"] = Value::Null;
        let text = body.to_string();
        let whole = Prompts::read(Api::ChatCompletions, text.as_bytes(), false).expect("a chat");
        let part = &text.as_bytes()[..cut.index(text.len())];
        if let Ok(part) = Prompts::read(Api::ChatCompletions, part, true) {
            let (whole, part) = (whole.joined(), part.joined());
            prop_assert!(whole.starts_with(&part), "{:?} of {:?}", part, whole);
        }
    }
}

/// The body as a server reads it after `edits`, and as it reads it without them.
fn before_and_after(text: &str, edits: &[Edit]) -> (Value, Value) {
    let after = Edit::apply(edits, &mut text.as_bytes());
    assert_eq!(after.len(), Edit::length_after(edits, text.len()));
    let read = |bytes: &[u8]| serde_json::from_slice(bytes).expect("JSON");
    (read(text.as_bytes()), read(&after))
}

/// What servers hand each other.
const SERVERS_OWN: [&str; 4] = [
    "kv_transfer_params",
    "bootstrap_host",
    "bootstrap_port",
    "bootstrap_room",
];

/// A body with some of the members that two servers are told otherwise, among others.
fn split_body() -> impl Strategy<Value = (Value, String)> {
    let names = [
        &SERVERS_OWN[..],
        &[
            "max_tokens",
            "max_completion_tokens",
            "min_tokens",
            "stream",
            "stream_options",
        ],
        &["prompt", "model", "x"],
    ]
    .concat();
    let member = (prop::sample::select(names), any_json());
    let space = prop::sample::select(vec!["", " ", "\n\t"]);
    (prop::collection::vec(member, 0..10), space).prop_map(|(members, space)| {
        let body: serde_json::Map<String, Value> = members
            .into_iter()
            .map(|(name, value)| (name.to_owned(), value))
            .chain([("prompt".to_owned(), json!("p"))])
            .collect();
        let body = Value::Object(body);
        let text = airy(&body, space);
        (body, text)
    })
}

proptest! {
    /// Whatever stands around them, only the members in question change.
    #[test]
    fn a_split_changes_what_it_must_and_nothing_else((body, text) in split_body()) {
        let split = SplitBody::read(Api::Completions, &mut text.as_bytes()).expect("a shared body");
        let mut expected = body.clone();
        let fields = expected.as_object_mut().expect("an object");
        fields.retain(|name, _| !SERVERS_OWN.contains(&name.as_str()));
        let (before, after) = before_and_after(&text, &split.for_one());
        prop_assert_eq!(&before, &body);
        prop_assert_eq!(&after, &expected);
        let mut bytes = text.as_bytes();
        let mut request = Request::read(Api::Completions, &mut bytes, false).expect("an object");
        prop_assert_eq!(request.without_servers_own(), split.for_one());

        let params = br#"{"remote_port": 5, "x":[1]}"#;
        expected["kv_transfer_params"] = json!({"remote_port": 5, "x": [1]});
        prop_assert_eq!(&before_and_after(&text, &split.for_decode(params)).1, &expected);

        let fields = expected.as_object_mut().expect("an object");
        fields.remove("stream_options");
        for name in ["max_completion_tokens", "min_tokens", "stream"] {
            if let Some(value) = fields.get_mut(name) {
                *value = if name == "stream" { json!(false) } else { json!(1) };
            }
        }
        expected["max_tokens"] = json!(1);
        expected["kv_transfer_params"] = json!({"do_remote_decode": true, "do_remote_prefill": false});
        prop_assert_eq!(&before_and_after(&text, &split.for_prefill()).1, &expected);
    }

    /// No bytes harm, and what is cut out of a body that is cut off leaves the rest.
    #[test]
    fn edits_stay_inside_any_bytes((_, text) in split_body(), noise in any::<Vec<u8>>(), cut in any::<prop::sample::Index>()) {
        let end = cut.index(text.len() + 1);
        for bytes in [&noise[..], &text.as_bytes()[..end]] {
            for cut_off in [false, true] {
                let mut body = bytes;
                if let Ok(mut request) = Request::read(Api::Completions, &mut body, cut_off) {
                    let edits = request.without_servers_own();
                    prop_assert!(edits.iter().all(|edit| edit.place.end <= bytes.len()));
                    prop_assert!(edits.windows(2).all(|two| two[0].place.end <= two[1].place.start));
                }
            }
            let _ = SplitBody::read(Api::ChatCompletions, &mut &*bytes);
            let _ = transfer_params(bytes);
            let _ = prompt_tokens(bytes);
        }
    }
}
