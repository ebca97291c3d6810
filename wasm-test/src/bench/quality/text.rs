//! A request as the servers get it: block numbers become text.
//!
//! One token here stands for [`TOKENS`] of the trace, in prompts, and for [`ANSWER_TOKENS`] in
//! answers, so that two processors can carry the bytes; the servers are slower by the same factors.
//! A block of 512 tokens is 128 words of one token each, 4.3 bytes on average, which depend on its
//! number alone.

use bytes::Bytes;
use rand::SeedableRng;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use serde_json::json;
use xxhash_rust::xxh64::xxh64;

use super::load::{BLOCK, Request};
use crate::sim::cache::{BlockHash, CacheScope, Chain};
use crate::sim::template::{Message, render};

/// Tokens of a trace's prompt that one token here stands for.
pub const TOKENS: u32 = 4;
/// Tokens of a trace's answer that one token here stands for.
pub const ANSWER_TOKENS: u32 = 16;

/// A request, ready to send.
#[derive(Debug, Clone)]
pub struct Prompt {
    /// Of `POST /v1/chat/completions`.
    pub body: Bytes,
    /// Of the first user message; what a client would let a consistent hash go by.
    pub key: String,
    /// The prompt's blocks as a server hashes them.
    pub hashes: Vec<BlockHash>,
    /// Length of the prompt as a server counts it.
    pub tokens: usize,
}

impl Prompt {
    /// `request` to a model called `model`, for servers with blocks of `block_size` tokens.
    pub fn new(request: &Request, model: &str, block_size: usize) -> Self {
        let messages = messages(request);
        let body = json!({
            "model": model,
            "messages": messages.iter().map(|one| json!({"role": one.role, "content": one.content})).collect::<Vec<_>>(),
            "max_tokens": request.output.div_ceil(ANSWER_TOKENS).max(1),
            "stream": true,
        });
        let first = messages.iter().find(|one| one.role == "user");
        let first = first.map_or("", |one| one.content.as_str());
        let tokens = render(&messages);
        let mut chain = Chain::new(&CacheScope::default(), block_size);
        Self {
            body: body.to_string().into(),
            key: format!("{:016x}", xxh64(first.as_bytes(), 0)),
            hashes: chain.extend(&tokens).to_vec(),
            tokens: tokens.len(),
        }
    }
}

/// The system message; the next block as the first user message, which tells conversations apart;
/// all others, after a word of the model, as a second one. So what is added at the end of a prompt
/// is added at the end of its text.
fn messages(request: &Request) -> Vec<Message> {
    let mut texts: Vec<String> = request
        .blocks
        .iter()
        .map(|block| words(*block, BLOCK))
        .collect();
    let whole = (request.blocks.len().saturating_sub(1)) as u32 * BLOCK;
    if let (Some(text), Some(block)) = (texts.last_mut(), request.blocks.last()) {
        *text = words(*block, request.input.saturating_sub(whole).clamp(1, BLOCK));
    }
    let rest = texts.split_off(request.system.min(texts.len()));
    let mut messages = vec![message("system", texts.concat())];
    let Some((first, rest)) = rest.split_first() else {
        messages.push(message("user", "Go on.".to_owned()));
        return messages;
    };
    messages.push(message("user", first.clone()));
    if !rest.is_empty() {
        messages.push(message("assistant", "Yes.".to_owned()));
        messages.push(message("user", rest.concat()));
    }
    messages
}

fn message(role: &str, content: String) -> Message {
    Message {
        role: role.to_owned(),
        content,
    }
}

/// The first `tokens` tokens of a block's text, in a trace's tokens.
fn words(block: u64, tokens: u32) -> String {
    let mut rng = StdRng::seed_from_u64(block);
    let mut text = String::new();
    for _ in 0..tokens.div_ceil(TOKENS) {
        text.push(' ');
        text.push_str(WORDS.choose(&mut rng).unwrap_or(&"word"));
    }
    text
}

/// Of at most five letters: with the space before it, each is one token of the servers.
const WORDS: [&str; 48] = [
    "ocean", "river", "stone", "cloud", "paper", "glass", "wood", "grain", "bread", "salt", "road",
    "ship", "law", "the", "of", "and", "to", "in", "is", "it", "for", "on", "as", "with", "at",
    "by", "from", "or", "an", "be", "not", "we", "he", "she", "you", "all", "one", "two", "can",
    "has", "had", "who", "way", "day", "time", "year", "new", "out",
];

#[cfg(test)]
mod tests {
    use super::*;

    fn prompt(blocks: &[u64], input: u32) -> Prompt {
        let request = Request {
            at: 0.0,
            blocks: blocks.to_vec(),
            system: 1,
            input,
            output: 100,
        };
        Prompt::new(&request, "m", 16)
    }

    #[test]
    fn a_block_has_a_quarter_of_its_tokens_and_the_template_few_more() {
        let tokens = prompt(&[1, 2, 3, 4], 3 * 512 + 100).tokens;
        let text = 3 * 128 + 25;
        assert!((text..text + 30).contains(&tokens), "{tokens}");
        let bytes = words(7, 512).len() as f64 / 128.0;
        assert!((3.9..4.7).contains(&bytes), "{bytes}");
    }

    #[test]
    fn a_longer_prompt_begins_with_the_shorter_one() {
        let short = prompt(&[1, 2, 3], 3 * 512);
        let long = prompt(&[1, 2, 3, 9, 9], 5 * 512);
        let same = short.hashes.iter().zip(&long.hashes);
        let same = same.take_while(|(one, other)| one == other).count();
        assert!(same * 16 >= 3 * 128 - 16, "{same}");
        assert_eq!(short.key, long.key);
        assert_ne!(short.key, prompt(&[1, 8, 3], 3 * 512).key);
    }

    #[test]
    fn a_prompt_of_one_block_still_has_a_question() {
        let body = prompt(&[5], 20).body;
        let body: serde_json::Value = serde_json::from_slice(&body).expect("JSON");
        assert_eq!(body["messages"].as_array().map(Vec::len), Some(2));
        assert_eq!(body["max_tokens"], 7);
    }
}
