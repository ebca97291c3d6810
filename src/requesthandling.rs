//! Body bytes to an inference request: one file for each API.
//!
//! Reading is permissive: only fields that form the prompt are looked at, everything else is the
//! model server's business. A shape the reader does not know is an error value, never an empty
//! prompt, because equal keys for different prompts would send them all to one endpoint.

mod chat_completions;
mod completions;
mod json;
mod truncated;

use std::borrow::Cow;

pub use truncated::close_cut_off;

/// An API whose prompts can be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Api {
    /// `/v1/completions`.
    Completions,
    /// `/v1/chat/completions`.
    ChatCompletions,
}

/// One API's path and reader; a further API is one more row and one more file.
type Row = (
    Api,
    &'static str,
    fn(&[u8]) -> Result<InferenceRequest<'_>, ParseError>,
);

const APIS: [Row; 2] = [
    (Api::Completions, "/v1/completions", completions::parse),
    (
        Api::ChatCompletions,
        "/v1/chat/completions",
        chat_completions::parse,
    ),
];

impl Api {
    /// The API that `path` (as in `:path`, query included) asks for. What precedes `/v1` is a
    /// route's own prefix.
    pub fn from_path(path: &[u8]) -> Option<Self> {
        let path = path
            .split(|&byte| byte == b'?' || byte == b'#')
            .next()
            .unwrap_or(path);
        let path = path.strip_suffix(b"/").unwrap_or(path);
        let row = APIS
            .iter()
            .find(|(_, suffix, _)| path.ends_with(suffix.as_bytes()));
        row.map(|&(api, ..)| api)
    }

    /// Reads `body`. Time and memory are linear in its length; text is borrowed where JSON holds
    /// it unescaped.
    pub fn parse(self, body: &[u8]) -> Result<InferenceRequest<'_>, ParseError> {
        let row = APIS.iter().find(|(api, ..)| *api == self);
        row.map_or(Err(ParseError::UnknownShape), |(.., parse)| parse(body))
    }
}

/// What routing needs of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InferenceRequest<'a> {
    /// The model asked for; a server with one model takes requests without.
    pub model: Option<Cow<'a, str>>,
    /// Separates tenants: only requests with the same salt share cached blocks.
    pub cache_salt: Option<Cow<'a, str>>,
    /// What the server will prefill, as far as it decides the cache key.
    pub prompt: Prompt<'a>,
}

/// A prompt in the order its text is hashed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Prompt<'a> {
    /// Pieces of text, hashed without separators (llm-d's scheme).
    pub pieces: Vec<Cow<'a, str>>,
    /// How many pieces come up to and including the first user message.
    pub first_user_end: Option<usize>,
}

impl Prompt<'_> {
    /// Whether there is no text at all.
    pub fn is_empty(&self) -> bool {
        self.pieces.iter().all(|piece| piece.is_empty())
    }
}

/// Why no prompt was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParseError {
    /// Not JSON.
    Malformed,
    /// JSON, but no prompt of a known shape in it.
    UnknownShape,
}

impl From<serde_json::Error> for ParseError {
    fn from(error: serde_json::Error) -> Self {
        match error.classify() {
            serde_json::error::Category::Data => Self::UnknownShape,
            serde_json::error::Category::Io
            | serde_json::error::Category::Syntax
            | serde_json::error::Category::Eof => Self::Malformed,
        }
    }
}

#[cfg(test)]
mod tests;
