//! Streamed answers: the server-sent events vLLM writes.

use serde::Serialize;

use crate::sim::engine::Finish;
use crate::sim::openai::request::{Api, Ask, StreamOptions};
use crate::sim::openai::response::{
    Envelope, FINGERPRINT, Usage, created_cache_tokens, finish_reason, prompt_ids,
};
use crate::sim::tokenizer::Token;

type Null = Option<()>;

/// Writes the events of one stream.
#[derive(Debug)]
pub struct Events {
    ask: Ask,
    options: StreamOptions,
    envelope: Envelope,
    block_size: usize,
    choices: Vec<Progress>,
    cached: usize,
}

#[derive(Debug, Clone, Copy, Default)]
struct Progress {
    tokens: usize,
    finished: bool,
}

#[derive(Serialize)]
struct Chunk<'a, C> {
    id: &'a str,
    object: &'static str,
    created: u64,
    model: &'a str,
    choices: Vec<C>,
    #[serde(skip_serializing_if = "Option::is_none")]
    usage: Option<ChunkUsage>,
    #[serde(skip_serializing_if = "Option::is_none")]
    system_fingerprint: Option<&'static str>,
}

#[derive(Serialize)]
struct ChunkUsage {
    #[serde(flatten)]
    usage: Usage,
    #[serde(skip_serializing_if = "Option::is_none")]
    prompt_tokens_details: Option<ChunkDetails>,
}

#[derive(Serialize)]
struct ChunkDetails {
    cached_tokens: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    created_cache_tokens: Option<usize>,
}

#[derive(Serialize)]
struct RoleChunk<'a> {
    id: &'a str,
    object: &'static str,
    created: u64,
    model: &'a str,
    choices: [RoleChoice; 1],
    prompt_token_ids: Option<Vec<u32>>,
    prompt_text: Null,
}

#[derive(Serialize)]
struct RoleChoice {
    index: usize,
    delta: RoleDelta,
    logprobs: Null,
    finish_reason: Null,
}

#[derive(Serialize)]
struct RoleDelta {
    role: &'static str,
    content: &'static str,
}

#[derive(Serialize)]
struct ChatDelta<'a> {
    index: usize,
    delta: Content<'a>,
    logprobs: Null,
    finish_reason: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    stop_reason: Option<Null>,
    token_ids: Option<[u32; 1]>,
}

#[derive(Serialize)]
struct Content<'a> {
    content: &'a str,
}

#[derive(Serialize)]
struct CompletionDelta<'a> {
    index: usize,
    text: &'a str,
    logprobs: Null,
    finish_reason: Option<&'static str>,
    stop_reason: Null,
    prompt_token_ids: Option<Vec<u32>>,
    token_ids: Option<[u32; 1]>,
}

impl Events {
    pub fn new(ask: Ask, options: StreamOptions, envelope: Envelope, block_size: usize) -> Self {
        let choices = vec![Progress::default(); ask.prompts.len() * ask.n];
        Self {
            ask,
            options,
            envelope,
            block_size,
            choices,
            cached: 0,
        }
    }

    /// The last prompt's hit, known when its prefill begins.
    pub fn set_cached(&mut self, cached: usize) {
        self.cached = cached;
    }

    /// The events of one token. The role goes before a chat's first.
    pub fn token(&mut self, choice: usize, text: &str, finish: Option<Finish>) -> String {
        let first = self.choices[choice].tokens == 0;
        self.choices[choice].tokens += 1;
        self.choices[choice].finished = finish.is_some();
        match self.ask.api {
            Api::Chat if first => self.role(choice) + &self.chat(choice, text, finish),
            Api::Chat => self.chat(choice, text, finish),
            Api::Completions => self.completion(choice, first, text, finish),
        }
    }

    /// What ends the stream: usage when asked for, then `[DONE]`.
    pub fn end(&self) -> String {
        let mut events = String::new();
        if self.options.include_usage {
            let created =
                created_cache_tokens(self.ask.prompt_tokens(), self.cached, self.block_size);
            let details = ChunkDetails {
                cached_tokens: self.cached,
                created_cache_tokens: (self.ask.api == Api::Chat).then_some(created),
            };
            let usage = ChunkUsage {
                usage: self.usage(),
                prompt_tokens_details: Some(details),
            };
            events.push_str(&event(&self.chunk::<()>(Vec::new(), Some(usage), true)));
        }
        events + "data: [DONE]\n\n"
    }

    fn role(&self, index: usize) -> String {
        let delta = RoleDelta {
            role: "assistant",
            content: "",
        };
        event(&RoleChunk {
            id: &self.envelope.id,
            object: self.object(),
            created: self.envelope.created,
            model: &self.ask.model,
            choices: [RoleChoice {
                index,
                delta,
                logprobs: None,
                finish_reason: None,
            }],
            prompt_token_ids: prompt_ids(&self.ask, 0),
            prompt_text: None,
        })
    }

    fn chat(&self, index: usize, text: &str, finish: Option<Finish>) -> String {
        let choice = ChatDelta {
            index,
            delta: Content { content: text },
            logprobs: None,
            finish_reason: finish.map(finish_reason),
            stop_reason: finish.map(|_| None),
            token_ids: self.token_ids(text),
        };
        self.delta(choice)
    }

    fn completion(&self, index: usize, first: bool, text: &str, finish: Option<Finish>) -> String {
        let prompt = index / self.ask.n;
        let echo = self
            .ask
            .prompts
            .get(prompt)
            .and_then(|prompt| prompt.text.as_deref());
        let echo = echo.filter(|_| first && self.ask.echo).unwrap_or_default();
        let choice = CompletionDelta {
            index,
            text: &[echo, text].concat(),
            logprobs: None,
            finish_reason: finish.map(finish_reason),
            stop_reason: None,
            prompt_token_ids: prompt_ids(&self.ask, prompt).filter(|_| first),
            token_ids: self.token_ids(text),
        };
        self.delta(choice)
    }

    fn delta<C: Serialize>(&self, choice: C) -> String {
        let ended = self.choices.iter().all(|choice| choice.finished);
        let usage = self.options.continuous_usage_stats && self.options.include_usage;
        let usage = usage.then(|| ChunkUsage {
            usage: self.usage(),
            prompt_tokens_details: None,
        });
        event(&self.chunk(vec![choice], usage, ended && !self.options.include_usage))
    }

    fn chunk<C>(
        &self,
        choices: Vec<C>,
        usage: Option<ChunkUsage>,
        fingerprint: bool,
    ) -> Chunk<'_, C> {
        Chunk {
            id: &self.envelope.id,
            object: self.object(),
            created: self.envelope.created,
            model: &self.ask.model,
            choices,
            usage,
            system_fingerprint: fingerprint.then_some(FINGERPRINT),
        }
    }

    fn object(&self) -> &'static str {
        match self.ask.api {
            Api::Chat => "chat.completion.chunk",
            Api::Completions => "text_completion",
        }
    }

    fn usage(&self) -> Usage {
        let generated = self.choices.iter().map(|choice| choice.tokens).sum();
        Usage::new(self.ask.prompt_tokens(), generated)
    }

    fn token_ids(&self, text: &str) -> Option<[u32; 1]> {
        self.ask
            .return_token_ids
            .then(|| [Token::of_piece(text).id()])
    }
}

/// Strings and numbers always serialize; an empty event would show as a parse error.
fn event(chunk: &impl Serialize) -> String {
    format!(
        "data: {}\n\n",
        serde_json::to_string(chunk).unwrap_or_default()
    )
}
