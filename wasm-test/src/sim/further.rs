//! Further APIs. Each is computed as the completion or chat that vLLM makes of it, and answered in
//! its own form, whole: `stream` is not honoured.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use axum::Json;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use serde_json::{Map, Value, json};

use crate::sim::generate::begin;
use crate::sim::instance::Instance;
use crate::sim::observe::LogSeq;
use crate::sim::openai::request::{Api, Ask};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Further {
    Responses,
    Messages,
    CountTokens,
    Embeddings,
    VllmGenerate,
    SglangGenerate,
}

/// Responses a server remembers.
const STORED: usize = 1_000;

/// The conversations behind the last responses, by their ids: only the server that gave a response
/// can go on from it.
#[derive(Debug, Default)]
pub struct ResponseStore(Mutex<VecDeque<(String, Vec<Value>)>>);

impl ResponseStore {
    fn get(&self, id: &str) -> Option<Vec<Value>> {
        let stored = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let found = stored.iter().find(|(known, _)| known == id);
        found.map(|(_, messages)| messages.clone())
    }

    fn put(&self, id: String, messages: Vec<Value>) {
        let mut stored = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if stored.len() == STORED {
            stored.pop_front();
        }
        stored.push_back((id, messages));
    }
}

impl Further {
    pub async fn answer(
        self,
        instance: Arc<Instance>,
        seq: LogSeq,
        headers: &HeaderMap,
        body: &[u8],
    ) -> Response {
        let given: Value = serde_json::from_slice(body).unwrap_or_default();
        let earlier = match given["previous_response_id"].as_str() {
            Some(id) => match instance.responses.get(id) {
                Some(earlier) => earlier,
                None => return not_found(id),
            },
            None => Vec::new(),
        };
        let (api, asked) = self.translate(&given, earlier);
        // What is no object has its error from the API it is translated to.
        let asked = match &given {
            Value::Object(_) => Value::Object(asked).to_string().into_bytes(),
            _ => body.to_vec(),
        };
        if self == Self::CountTokens {
            return match Ask::parse(api, &instance.config, headers, &asked) {
                Ok(ask) => Json(json!({"input_tokens": ask.prompt_tokens()})).into_response(),
                Err(error) => error.into_response(),
            };
        }
        let begun = begin(api, Arc::clone(&instance), seq, headers, &asked);
        let (ask, mut exchange) = match begun {
            Ok(begun) => begun,
            Err(error) => return error.into_response(),
        };
        let (choices, cached) = exchange.collect(&ask).await;
        let text: String = choices.iter().map(|choice| choice.text.as_str()).collect();
        let usage = Usage {
            prompt: ask.prompt_tokens(),
            cached,
            output: choices.iter().map(|choice| choice.token_ids.len()).sum(),
        };
        let id = format!("{:016x}", rand::random::<u64>());
        if self == Self::Responses {
            let asked: Value = serde_json::from_slice(&asked).unwrap_or_default();
            let mut messages = asked["messages"].as_array().cloned().unwrap_or_default();
            messages.push(json!({"role": "assistant", "content": text}));
            instance.responses.put(format!("resp_{id}"), messages);
        }
        Json(self.body(&ask, &id, &text, usage)).into_response()
    }

    /// The completion or chat that is computed.
    fn translate(self, given: &Value, earlier: Vec<Value>) -> (Api, Map<String, Value>) {
        let (api, prompt) = match self {
            Self::Responses => (Api::Chat, json!({"messages": responses(given, earlier)})),
            Self::Messages | Self::CountTokens => (Api::Chat, json!({"messages": messages(given)})),
            Self::Embeddings => (Api::Completions, json!({"prompt": given["input"]})),
            Self::VllmGenerate => (Api::Completions, json!({"prompt": given["token_ids"]})),
            Self::SglangGenerate => {
                let prompt = given.get("input_ids").unwrap_or(&given["text"]);
                (Api::Completions, json!({"prompt": prompt}))
            }
        };
        let mut asked = Map::new();
        for name in ["model", "cache_salt", "tools"] {
            if let Some(value) = given.get(name) {
                asked.insert(name.to_owned(), value.clone());
            }
        }
        let limits = [
            &given["max_tokens"],
            &given["max_output_tokens"],
            &given["sampling_params"]["max_tokens"],
            &given["sampling_params"]["max_new_tokens"],
        ];
        let limit = limits.into_iter().find(|limit| limit.is_number());
        asked.insert("max_tokens".to_owned(), limit.cloned().unwrap_or(json!(1)));
        asked.extend(prompt.as_object().cloned().unwrap_or_default());
        (api, asked)
    }

    /// The answer, in the fields that clients read.
    fn body(self, ask: &Ask, id: &str, text: &str, usage: Usage) -> Value {
        let Usage {
            prompt,
            cached,
            output,
        } = usage;
        match self {
            Self::Responses => json!({
                "id": format!("resp_{id}"), "object": "response", "model": ask.model,
                "output": [{
                    "id": format!("msg_{id}"), "type": "message", "role": "assistant",
                    "status": "completed",
                    "content": [{"type": "output_text", "text": text, "annotations": []}],
                }],
                "usage": {
                    "input_tokens": prompt, "output_tokens": output,
                    "input_tokens_details": {"cached_tokens": cached},
                },
            }),
            Self::Messages | Self::CountTokens => json!({
                "id": format!("chatcmpl-{id}"), "type": "message", "role": "assistant",
                "model": ask.model, "content": [{"type": "text", "text": text}],
                "usage": {
                    "input_tokens": prompt - cached, "output_tokens": output,
                    "cache_read_input_tokens": cached,
                },
            }),
            Self::Embeddings => json!({
                "object": "list", "model": ask.model,
                "data": (0..ask.prompts.len())
                    .map(|index| json!({"object": "embedding", "index": index, "embedding": [0.0]}))
                    .collect::<Vec<_>>(),
                "usage": {"prompt_tokens": prompt, "total_tokens": prompt},
            }),
            Self::VllmGenerate => json!({"request_id": id, "choices": [{"text": text}]}),
            Self::SglangGenerate => {
                json!({"text": text, "meta_info": {"prompt_tokens": prompt, "cached_tokens": cached}})
            }
        }
    }
}

/// Tokens of one exchange.
#[derive(Debug, Clone, Copy)]
struct Usage {
    prompt: usize,
    cached: usize,
    output: usize,
}

fn not_found(id: &str) -> Response {
    let message = format!("Response with id '{id}' not found.");
    let error = json!({"error": {
        "message": message, "type": "invalid_request_error", "param": "response_id", "code": 404,
    }});
    (StatusCode::NOT_FOUND, Json(error)).into_response()
}

fn responses(given: &Value, mut messages: Vec<Value>) -> Vec<Value> {
    if given["instructions"].is_string() {
        messages.retain(|message| message["role"] != "system");
        messages.insert(
            0,
            json!({"role": "system", "content": given["instructions"]}),
        );
    }
    match &given["input"] {
        Value::Array(items) => messages.extend(items.iter().map(item)),
        input => messages.push(json!({"role": "user", "content": input})),
    }
    messages
}

/// A message as it is; anything else as its JSON.
fn item(item: &Value) -> Value {
    if item.get("role").is_some() {
        item.clone()
    } else {
        json!({"role": "tool", "content": item.to_string()})
    }
}

fn messages(given: &Value) -> Vec<Value> {
    let system = given.get("system").filter(|system| !system.is_null());
    let system = system.map(|content| json!({"role": "system", "content": content}));
    let rest = given["messages"].as_array().cloned().unwrap_or_default();
    system
        .into_iter()
        .chain(rest.into_iter().map(flat))
        .collect()
}

/// Blocks that are no text become their JSON.
fn flat(mut message: Value) -> Value {
    if let Some(blocks) = message["content"].as_array_mut() {
        for block in blocks.iter_mut().filter(|block| block["type"] != "text") {
            *block = json!({"type": "text", "text": block.to_string()});
        }
    }
    message
}
