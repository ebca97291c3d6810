//! Body bytes to prompts: one file for each API.
//!
//! Reading is permissive: only fields that form the prompt are looked at, everything else is the
//! model server's business. A shape the reader does not know is an error value, never an empty
//! prompt, because equal keys for different prompts would send them all to one endpoint.
//!
//! A body is read twice or more, a window at a time: first over all of it, to learn where its
//! values begin, then the values in the order in which they make the prompt. So neither a body's
//! length nor the order of its keys costs memory.

mod api;
mod body;
mod chat_completions;
mod completions;
mod content;
mod edit;
mod encoder;
mod head;
mod json;
mod keys;
mod media;
mod messages;
mod pooling;
mod prompts;
mod responses;
mod sglang_generate;
mod split;
mod usage;
mod vllm_generate;

use core::ops::Range;

pub use api::Api;
pub use body::{Body, WINDOW_BYTES};
pub use edit::Edit;
pub use encoder::PromptSink;
pub use responses::continue_from;
pub use split::{Bootstrap, SplitBody, transfer_params};
pub use usage::{USAGE_BYTES, prompt_tokens};

use self::encoder::Encoder;
use self::json::{Kind, Reader, Stop};
use self::keys::{Key, TopLevel};

/// A body whose top level was read.
pub struct Request<'b> {
    api: Api,
    reader: Reader<'b>,
    body: TopLevel,
    model: Option<Model>,
    cache_salt: Option<Vec<u8>>,
}

/// The model a body asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Model {
    /// Its name; bytes that are no UTF-8 are replaced.
    pub name: String,
    /// Where the name stands in the body, quotes included.
    pub place: Range<usize>,
}

/// Why no prompt was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParseError {
    /// Not JSON.
    Malformed,
    /// JSON, but no prompt of a known shape in it.
    UnknownShape,
}

/// Longest model name and cache salt that are read, in bytes; a longer one is none.
const MAX_NAME: usize = 4_096;

impl<'b> Request<'b> {
    /// Reads the top level of `body`, of which the end is missing if it is `cut_off`. Time is linear
    /// in its length; memory is [`WINDOW_BYTES`].
    pub fn read(api: Api, body: &'b mut dyn Body, cut_off: bool) -> Result<Self, ParseError> {
        Self::with_reader(api, Reader::new(body, cut_off))
    }

    fn with_reader(api: Api, mut reader: Reader<'b>) -> Result<Self, ParseError> {
        let body = TopLevel::read(&mut reader).map_err(reason)?;
        let model = short_text(&body, Key::Model, &mut reader).map(|(name, place)| Model {
            name: String::from_utf8_lossy(&name).into_owned(),
            place,
        });
        let salt_key = if api == Api::SglangGenerate {
            Key::ExtraSalt
        } else {
            Key::CacheSalt
        };
        let cache_salt = short_text(&body, salt_key, &mut reader);
        Ok(Self {
            api,
            reader,
            body,
            model,
            cache_salt: cache_salt
                .map(|(salt, _)| salt)
                .filter(|salt| !salt.is_empty()),
        })
    }

    /// The model asked for; a server with one model takes requests without.
    pub fn model(&self) -> Option<&Model> {
        self.model.as_ref()
    }

    /// Separates tenants: only requests with the same salt share cached blocks.
    pub fn cache_salt(&self) -> Option<&[u8]> {
        self.cache_salt.as_deref()
    }

    /// The changes that cut out what servers hand each other and no client may send: a server that
    /// believes it could be made to hang, or to fetch from anywhere. Nothing for most bodies, and
    /// then it costs nothing.
    pub fn without_servers_own(&mut self) -> Vec<Edit> {
        let keys = [
            Key::TransferParams,
            Key::BootstrapHost,
            Key::BootstrapPort,
            Key::BootstrapRoom,
        ];
        if keys.iter().all(|&key| self.body.get(key).is_none()) {
            return Vec::new();
        }
        split::without_servers_own(&mut self.reader)
    }

    /// Reads the prompts into `sink`; of a body that is cut off, what stands before the cut, the
    /// last prompt then without its end. Time is linear in the body's length.
    pub fn read_prompts(&mut self, sink: &mut dyn PromptSink) -> Result<(), ParseError> {
        let read = self.api.reader();
        match read(&self.body, &mut self.reader, &mut Encoder::new(sink)) {
            Ok(()) | Err(Stop::CutOff | Stop::Full) => Ok(()),
            Err(stop) => Err(reason(stop)),
        }
    }
}

impl core::fmt::Debug for Request<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let mut parts = f.debug_struct("Request");
        parts.field("api", &self.api).field("model", &self.model);
        parts.finish_non_exhaustive()
    }
}

/// The string at `key` and where it stands, if it is one, whole, and short.
fn short_text(
    body: &TopLevel,
    key: Key,
    reader: &mut Reader<'_>,
) -> Option<(Vec<u8>, Range<usize>)> {
    if !body.find(key, reader) || reader.kind() != Ok(Kind::Text) {
        return None;
    }
    let start = reader.offset();
    let mut text = Vec::new();
    let mut fits = true;
    let end = reader.text(|piece| {
        fits &= text.len().saturating_add(piece.len()) <= MAX_NAME;
        if fits {
            text.extend_from_slice(piece);
        }
    });
    (end.is_ok() && fits).then_some((text, start..reader.offset()))
}

fn reason(stop: Stop) -> ParseError {
    match stop {
        Stop::Malformed => ParseError::Malformed,
        Stop::UnknownShape | Stop::CutOff | Stop::Full => ParseError::UnknownShape,
    }
}

#[cfg(test)]
mod tests;
