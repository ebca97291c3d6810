//! One body for two servers: one computes the prompt, the other goes on from there.
//!
//! Only a few members at the top level change; every other byte is the client's.

use super::api::Api;
use super::body::Body;
use super::edit::{Edit, cut};
use super::json::{Kind, Member, Members, Reader, Stop};

macro_rules! fields {
    ($($variant:ident $name:literal,)*) => {
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        enum Field {
            $($variant,)*
        }

        const NAMES: [&[u8]; [$(Field::$variant),*].len()] = [$($name.as_bytes()),*];
    };
}

fields! {
    TransferParams "kv_transfer_params",
    BootstrapHost "bootstrap_host",
    BootstrapPort "bootstrap_port",
    BootstrapRoom "bootstrap_room",
    MaxTokens "max_tokens",
    MaxCompletionTokens "max_completion_tokens",
    MinTokens "min_tokens",
    Stream "stream",
    StreamOptions "stream_options",
    Choices "n",
    BestOf "best_of",
    Echo "echo",
    PromptLogprobs "prompt_logprobs",
    BeamSearch "use_beam_search",
}

/// What servers hand each other: no client may send it.
const SERVERS_OWN: [Field; 4] = [
    Field::TransferParams,
    Field::BootstrapHost,
    Field::BootstrapPort,
    Field::BootstrapRoom,
];

/// What several sequences share, or all of the prompt is needed for at the server that answers.
const UNSHARED: [(Field, &[&[u8]]); 5] = [
    (Field::Choices, &[b"1", b"null"]),
    (Field::BestOf, &[b"1", b"null"]),
    (Field::Echo, &[b"false", b"null"]),
    (Field::PromptLogprobs, &[b"null"]),
    (Field::BeamSearch, &[b"false", b"null"]),
];

/// What asks vLLM for the prompt alone, its blocks kept for another server.
const REMOTE_DECODE: &[u8] = br#"{"do_remote_decode":true,"do_remote_prefill":false}"#;

/// Where a body is changed for either server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SplitBody {
    is_chat: bool,
    members: Members<{ NAMES.len() }>,
}

/// Where a decode server meets a prefill server of `SGLang`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bootstrap {
    /// The prefill server's address.
    pub host: String,
    /// Its port for this.
    pub port: u16,
    /// The request's number there.
    pub room: u64,
}

impl SplitBody {
    /// Reads a whole `body`. `None` where two servers cannot share it: it asks for several sequences,
    /// or for what only computing the whole prompt brings up; or its API does not take part.
    pub fn read(api: Api, body: &mut dyn Body) -> Option<Self> {
        let is_chat = match api {
            Api::Completions | Api::Messages => false,
            Api::ChatCompletions => true,
            Api::Responses
            | Api::Pooling
            | Api::CountTokens
            | Api::VllmGenerate
            | Api::SglangGenerate => return None,
        };
        let mut reader = Reader::new(body, false);
        let members = members(&mut reader).ok()?;
        let read = Self { is_chat, members };
        let is_shared = |&(field, harmless): &(Field, &[&[u8]])| {
            let Some(member) = read.get(field) else {
                return true;
            };
            reader.seek(member.value.start);
            let mut text = Vec::new();
            let whole = reader.compact(|piece| {
                if text.len() < MAX_SETTING {
                    text.extend_from_slice(piece);
                }
            });
            whole.is_ok() && harmless.contains(&text.as_slice())
        };
        UNSHARED.iter().all(is_shared).then_some(read)
    }

    /// For vLLM's prefill server: the prompt alone, in one piece.
    pub fn for_prefill(&self) -> Vec<Edit> {
        let mut edits = self.cut(&[
            Field::BootstrapHost,
            Field::BootstrapPort,
            Field::BootstrapRoom,
            Field::StreamOptions,
        ]);
        self.set(Field::TransferParams, REMOTE_DECODE, &mut edits);
        self.set(Field::MaxTokens, b"1", &mut edits);
        if self.is_chat || self.get(Field::MaxCompletionTokens).is_some() {
            self.set(Field::MaxCompletionTokens, b"1", &mut edits);
        }
        if self.get(Field::MinTokens).is_some() {
            self.set(Field::MinTokens, b"1", &mut edits);
        }
        if self.get(Field::Stream).is_some() {
            self.set(Field::Stream, b"false", &mut edits);
        }
        ordered(edits)
    }

    /// For vLLM's decode server: as the client sent it, with what the prefill server answered.
    pub fn for_decode(&self, params: &[u8]) -> Vec<Edit> {
        let mut edits = self.cut(&[
            Field::BootstrapHost,
            Field::BootstrapPort,
            Field::BootstrapRoom,
        ]);
        self.set(Field::TransferParams, params, &mut edits);
        ordered(edits)
    }

    /// For both servers of `SGLang`: as the client sent it, with where they meet.
    pub fn for_both(&self, bootstrap: &Bootstrap) -> Vec<Edit> {
        let Bootstrap { host, port, room } = bootstrap;
        let mut edits = self.cut(&[Field::TransferParams]);
        let host = format!("\"{host}\"");
        self.set(Field::BootstrapHost, host.as_bytes(), &mut edits);
        let port = port.to_string();
        self.set(Field::BootstrapPort, port.as_bytes(), &mut edits);
        let room = room.to_string();
        self.set(Field::BootstrapRoom, room.as_bytes(), &mut edits);
        ordered(edits)
    }

    /// For one server that does it all: as the client sent it, less what clients may not send.
    pub fn for_one(&self) -> Vec<Edit> {
        ordered(self.cut(&SERVERS_OWN))
    }

    fn cut(&self, fields: &[Field]) -> Vec<Edit> {
        cut(fields.iter().filter_map(|&field| self.get(field)))
    }

    /// Gives a member this value; a new one comes first.
    fn set(&self, field: Field, value: &[u8], edits: &mut Vec<Edit>) {
        if let Some(member) = self.get(field) {
            edits.push(Edit::new(member.value.clone(), value));
            return;
        }
        let name = NAMES.get(field as usize).copied().unwrap_or_default();
        let member = [b"\"", name, b"\":", value, b","].concat();
        let start = self.members.start;
        edits.push(Edit::new(start..start, member));
    }

    fn get(&self, field: Field) -> Option<&Member> {
        self.members.found.get(field as usize)?.as_ref()
    }
}

/// Bytes of a setting that are compared: all harmless ones have fewer.
const MAX_SETTING: usize = 16;

/// Cuts out of a body what servers hand each other and no client may send. `cut_off` as in
/// [`super::Request::read`].
pub(super) fn without_servers_own(reader: &mut Reader<'_>) -> Vec<Edit> {
    reader.seek(0);
    let Ok(members) = members(reader) else {
        return Vec::new();
    };
    let own = SERVERS_OWN
        .iter()
        .filter_map(|&field| members.found.get(field as usize)?.as_ref());
    ordered(cut(own))
}

fn ordered(mut edits: Vec<Edit>) -> Vec<Edit> {
    Edit::sort(&mut edits);
    edits
}

fn members(reader: &mut Reader<'_>) -> Result<Members<{ NAMES.len() }>, Stop> {
    reader.skip_byte_order_mark();
    reader.members(&NAMES)
}

/// What a decode server needs to fetch a prompt: each is there and not null. A vLLM that is told to
/// fetch without one of them may hang and die.
const NEEDED: [&[u8]; 6] = [
    b"do_remote_prefill",
    b"remote_block_ids",
    b"remote_engine_id",
    b"remote_request_id",
    b"remote_host",
    b"remote_port",
];

/// The transfer parameters in a prefill server's `answer`, byte for byte; `None` where they are not
/// there, or not whole.
pub fn transfer_params(answer: &[u8]) -> Option<&[u8]> {
    let mut body = answer;
    let mut reader = Reader::new(&mut body, false);
    let [member] = reader.members(&[b"kv_transfer_params"]).ok()?.found;
    let place = member?.value;
    reader.seek(place.start);
    let fields = reader.fields(&NEEDED).ok()?;
    for needed in 0..NEEDED.len() {
        reader.seek(fields.get(needed)?);
        if reader.kind() == Ok(Kind::Null) {
            return None;
        }
    }
    reader.seek(fields.get(0)?);
    let mut asks = Vec::new();
    reader.compact(|piece| asks.extend_from_slice(piece)).ok()?;
    answer.get(place).filter(|_| asks == b"true")
}

#[cfg(test)]
mod tests;
