//! Whole answers, field for field as vLLM writes them.

use serde::Serialize;

use crate::sim::engine::Finish;
use crate::sim::openai::request::{Api, Ask};
use crate::sim::tokenizer::Token;
use crate::sim::transfer::Params;

/// A field this server never fills but always writes.
type Null = Option<()>;

/// What names one answer. Streamed chunks repeat it.
#[derive(Debug, Clone)]
pub struct Envelope {
    pub id: String,
    /// Unix seconds.
    pub created: u64,
}

pub const FINGERPRINT: &str = "vllm-0.32.0-51b0cafe";

/// One finished answer.
#[derive(Debug, Clone, Default)]
pub struct Choice {
    pub text: String,
    pub token_ids: Vec<u32>,
    pub finish: Option<Finish>,
}

/// Tokens of one exchange.
#[derive(Debug, Clone, Copy, Default, Serialize)]
#[expect(clippy::struct_field_names, reason = "the API's names")]
pub struct Usage {
    pub prompt_tokens: usize,
    pub total_tokens: usize,
    pub completion_tokens: usize,
}

#[derive(Debug, Serialize)]
struct FullUsage {
    #[serde(flatten)]
    usage: Usage,
    prompt_tokens_details: Details,
    completion_tokens_details: Null,
}

#[derive(Debug, Serialize)]
#[expect(clippy::struct_field_names, reason = "the API's names")]
struct Details {
    cached_tokens: usize,
    created_cache_tokens: Option<usize>,
    multimodal_tokens: Null,
}

#[derive(Debug, Serialize)]
struct Answer<C> {
    id: String,
    object: &'static str,
    created: u64,
    model: String,
    choices: Vec<C>,
    service_tier: Null,
    system_fingerprint: &'static str,
    usage: FullUsage,
    #[serde(flatten)]
    tail: Tail,
}

/// What follows `usage`.
#[derive(Debug, Serialize)]
#[serde(untagged)]
enum Tail {
    Chat {
        prompt_logprobs: Null,
        prompt_token_ids: Option<Vec<u32>>,
        prompt_text: Null,
        kv_transfer_params: Option<Params>,
        ec_transfer_params: Null,
        metrics: Null,
    },
    Completion {
        kv_transfer_params: Option<Params>,
        ec_transfer_params: Null,
        metrics: Null,
    },
}

#[derive(Debug, Serialize)]
struct ChatChoice {
    index: usize,
    message: ChatMessage,
    logprobs: Null,
    finish_reason: Option<&'static str>,
    stop_reason: Null,
    token_ids: Option<Vec<u32>>,
    routed_experts: Null,
}

#[derive(Debug, Default, Serialize)]
struct ChatMessage {
    role: &'static str,
    content: String,
    refusal: Null,
    annotations: Null,
    audio: Null,
    function_call: Null,
    reasoning: Null,
}

#[derive(Debug, Serialize)]
struct CompletionChoice {
    index: usize,
    text: String,
    logprobs: Null,
    finish_reason: Option<&'static str>,
    stop_reason: Null,
    token_ids: Option<Vec<u32>>,
    prompt_logprobs: Null,
    prompt_token_ids: Option<Vec<u32>>,
    routed_experts: Null,
}

impl Usage {
    pub fn new(prompt_tokens: usize, completion_tokens: usize) -> Self {
        let total_tokens = prompt_tokens + completion_tokens;
        Self {
            prompt_tokens,
            total_tokens,
            completion_tokens,
        }
    }
}

/// How vLLM writes the end of an answer.
pub fn finish_reason(finish: Finish) -> &'static str {
    match finish {
        Finish::Length => "length",
        Finish::Stop => "stop",
    }
}

/// The JSON of a finished exchange. `cached` is the last prompt's, as vLLM reports it.
pub fn body(
    ask: &Ask,
    envelope: Envelope,
    choices: Vec<Choice>,
    cached: usize,
    block_size: usize,
    kv_transfer_params: Option<Params>,
) -> serde_json::Result<Vec<u8>> {
    let completion_tokens = choices.iter().map(|choice| choice.token_ids.len()).sum();
    let prompt_tokens = ask.prompt_tokens();
    let created = created_cache_tokens(prompt_tokens, cached, block_size);
    let usage = FullUsage {
        usage: Usage::new(prompt_tokens, completion_tokens),
        prompt_tokens_details: Details {
            cached_tokens: cached,
            created_cache_tokens: (ask.api == Api::Chat).then_some(created),
            multimodal_tokens: None,
        },
        completion_tokens_details: None,
    };
    match ask.api {
        Api::Chat => serde_json::to_vec(&Answer {
            id: envelope.id,
            object: "chat.completion",
            created: envelope.created,
            model: ask.model.clone(),
            choices: indexed(choices, |index, choice| chat_choice(ask, index, choice)),
            service_tier: None,
            system_fingerprint: FINGERPRINT,
            usage,
            tail: Tail::Chat {
                prompt_logprobs: None,
                prompt_token_ids: prompt_ids(ask, 0),
                prompt_text: None,
                kv_transfer_params,
                ec_transfer_params: None,
                metrics: None,
            },
        }),
        Api::Completions => serde_json::to_vec(&Answer {
            id: envelope.id,
            object: "text_completion",
            created: envelope.created,
            model: ask.model.clone(),
            choices: indexed(choices, |index, choice| {
                completion_choice(ask, index, choice)
            }),
            service_tier: None,
            system_fingerprint: FINGERPRINT,
            usage,
            tail: Tail::Completion {
                kv_transfer_params,
                ec_transfer_params: None,
                metrics: None,
            },
        }),
    }
}

/// Prompt tokens this request added to the cache: its full blocks without the hits.
pub fn created_cache_tokens(prompt_tokens: usize, cached: usize, block_size: usize) -> usize {
    (prompt_tokens / block_size * block_size).saturating_sub(cached)
}

/// The ids of prompt `index`, when the client asked for them.
pub fn prompt_ids(ask: &Ask, index: usize) -> Option<Vec<u32>> {
    let prompt = ask.prompts.get(index).filter(|_| ask.return_token_ids)?;
    Some(
        prompt
            .tokens
            .iter()
            .map(|token: &Token| token.id())
            .collect(),
    )
}

fn indexed<C>(choices: Vec<Choice>, write: impl Fn(usize, Choice) -> C) -> Vec<C> {
    choices
        .into_iter()
        .enumerate()
        .map(|(index, choice)| write(index, choice))
        .collect()
}

fn chat_choice(ask: &Ask, index: usize, choice: Choice) -> ChatChoice {
    let message = ChatMessage {
        role: "assistant",
        content: choice.text,
        ..ChatMessage::default()
    };
    ChatChoice {
        index,
        message,
        logprobs: None,
        finish_reason: choice.finish.map(finish_reason),
        stop_reason: None,
        token_ids: ask.return_token_ids.then_some(choice.token_ids),
        routed_experts: None,
    }
}

fn completion_choice(ask: &Ask, index: usize, choice: Choice) -> CompletionChoice {
    CompletionChoice {
        index,
        text: choice.text,
        logprobs: None,
        finish_reason: choice.finish.map(finish_reason),
        stop_reason: None,
        token_ids: ask.return_token_ids.then_some(choice.token_ids),
        prompt_logprobs: None,
        prompt_token_ids: prompt_ids(ask, index / ask.n),
        routed_experts: None,
    }
}
