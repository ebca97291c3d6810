//! The APIs whose prompts are read, by their paths.

use super::encoder::Encoder;
use super::json::{Reader, Stop};
use super::keys::TopLevel;
use super::{
    chat_completions, completions, messages, pooling, responses, sglang_generate, vllm_generate,
};

/// An API whose prompts can be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Api {
    /// `/v1/completions`.
    Completions,
    /// `/v1/chat/completions`.
    ChatCompletions,
    /// `/v1/responses`.
    Responses,
    /// `/v1/embeddings` and other calls that generate no text.
    Pooling,
    /// Anthropic's `/v1/messages`.
    Messages,
    /// Anthropic's `/v1/messages/count_tokens`.
    CountTokens,
    /// vLLM's `/inference/v1/generate`.
    VllmGenerate,
    /// `SGLang`'s `/generate`.
    SglangGenerate,
}

/// Reads the prompts of one API's bodies.
pub(super) type Read = fn(&TopLevel, &mut Reader<'_>, &mut Encoder<'_>) -> Result<(), Stop>;

/// Each API's paths. The first of which a request's path is the end decides.
const PATHS: [(&str, Api); 12] = [
    ("/v1/completions", Api::Completions),
    ("/v1/chat/completions", Api::ChatCompletions),
    ("/v1/responses", Api::Responses),
    ("/v1/embeddings", Api::Pooling),
    ("/pooling", Api::Pooling),
    ("/classify", Api::Pooling),
    ("/score", Api::Pooling),
    ("/rerank", Api::Pooling),
    ("/v1/messages", Api::Messages),
    ("/v1/messages/count_tokens", Api::CountTokens),
    ("/inference/v1/generate", Api::VllmGenerate),
    ("/generate", Api::SglangGenerate),
];

impl Api {
    /// The API that `path` (as in `:path`, query included) asks for. What precedes an API's path is
    /// a route's own prefix.
    pub fn from_path(path: &[u8]) -> Option<Self> {
        let path = path
            .split(|&byte| byte == b'?' || byte == b'#')
            .next()
            .unwrap_or(path);
        let path = path.strip_suffix(b"/").unwrap_or(path);
        let row = PATHS
            .iter()
            .find(|(suffix, _)| path.ends_with(suffix.as_bytes()));
        row.map(|&(_, api)| api)
    }

    /// Every path that is read, with its API.
    pub fn paths() -> impl Iterator<Item = (&'static str, Self)> {
        PATHS.into_iter()
    }

    /// Whether the server computes the prompt, so that its blocks are in its cache afterwards.
    pub fn fills_cache(self) -> bool {
        self != Self::CountTokens
    }

    pub(super) fn reader(self) -> Read {
        match self {
            Self::Completions => completions::read,
            Self::ChatCompletions => chat_completions::read,
            Self::Responses => responses::read,
            Self::Pooling => pooling::read,
            Self::Messages | Self::CountTokens => messages::read,
            Self::VllmGenerate => vllm_generate::read,
            Self::SglangGenerate => sglang_generate::read,
        }
    }
}
