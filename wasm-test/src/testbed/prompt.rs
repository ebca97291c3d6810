//! Texts to ask for.

use serde_json::{Value, json};

/// A prompt of `bytes` bytes. Prompts of different `name`s share no block, not even the first;
/// of one name the shorter is the beginning of the longer.
pub fn prompt(name: &str, bytes: usize) -> String {
    let mut lines = (1..).map(|line| format!(" this is line {line} of what {name} has to say,"));
    let mut text = format!("{name}:");
    while text.len() < bytes {
        text.extend(lines.next());
    }
    text.truncate(bytes);
    text
}

/// The body of a completion of one token.
pub fn completion(prompt: &str) -> Value {
    json!({ "model": "sim-model", "prompt": prompt, "max_tokens": 1 })
}

/// The body of a chat completion of a few tokens.
pub fn chat(messages: &[Value]) -> Value {
    json!({ "model": "sim-model", "messages": messages, "max_tokens": 20 })
}

/// A chat message.
pub fn say(role: &str, content: &str) -> Value {
    json!({ "role": role, "content": content })
}
