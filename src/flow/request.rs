//! What a request's headers say about how to route it.

use std::borrow::Cow;

use super::command::Command;
use super::control_headers::CONTROL_HEADERS;
use super::event::Headers;
use crate::scheduling::picker::TieKey;
use crate::telemetry::Reason;

use xxhash_rust::xxh64::xxh64;

/// What is kept of a request's headers.
#[derive(Debug)]
pub(super) struct Request {
    /// Pools whose host and path rules fit, by their places; at least one.
    pub(super) pools: Vec<usize>,
    /// `x-request-id`, the client's or ours.
    pub(super) id: Vec<u8>,
    /// Decides among equals where there is no prompt to do it.
    pub(super) tie: TieKey,
    /// For a call of another endpoint on the request's behalf; kept where a pool makes such calls.
    pub(super) forwarded: Option<Box<Forwarded>>,
}

/// What of a request's headers goes with a call on its behalf.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Forwarded {
    pub(super) path: String,
    pub(super) authority: String,
    /// The rest, names and values.
    pub(super) headers: Vec<(&'static str, String)>,
}

/// Who asks, what the body is, and whose trace it belongs to. Nothing else: a header could steer the
/// prefill endpoint or the proxy in ways that are meant for the decode endpoint.
const FORWARDED: [&str; 7] = [
    "content-type",
    "authorization",
    "x-api-key",
    "x-session-id",
    "traceparent",
    "tracestate",
    "baggage",
];

impl Forwarded {
    /// `None` where path, authority or request id are no text: nobody can be called with them.
    pub(super) fn new(headers: Headers<'_>, id: &[u8]) -> Option<Self> {
        let text = |value: &[u8]| core::str::from_utf8(value).ok().map(str::to_owned);
        let named = |name: &'static str| Some((name, text(headers.value(name)?)?));
        let id = text(id)?;
        let others = FORWARDED.into_iter().filter_map(named);
        Some(Self {
            path: text(headers.value(":path")?)?,
            authority: text(headers.value(":authority")?)?,
            headers: core::iter::once(("x-request-id", id))
                .chain(others)
                .collect(),
        })
    }
}

impl Request {
    /// Reads `headers`; a missing request id becomes a UUID (version 4) made of `entropy`.
    pub(super) fn new(
        pools: Vec<usize>,
        headers: Headers<'_>,
        entropy: u128,
        commands: &mut Vec<Command>,
    ) -> Self {
        let given = headers.value("x-request-id").filter(|id| !id.is_empty());
        let id = given.map_or_else(|| uuid_v4(entropy).into_bytes(), <[u8]>::to_vec);
        if given.is_none() {
            commands.push(Command::SetRequestHeader("x-request-id".into(), id.clone()));
        }
        // Clients may repeat an id: the entropy keeps their requests apart.
        let tie = TieKey(xxh64(&entropy.to_le_bytes(), 0));
        Self {
            pools,
            id,
            tie,
            forwarded: None,
        }
    }
}

/// Removes what a client may not send.
pub(super) fn strip_control_headers(
    destination: &str,
    headers: Headers<'_>,
    commands: &mut Vec<Command>,
) {
    let names = CONTROL_HEADERS
        .into_iter()
        .filter(|&name| name != destination);
    let names = names
        .map(Cow::Borrowed)
        .chain([Cow::Owned(destination.to_owned())]);
    commands.extend(
        names
            .filter(|name| headers.has(name))
            .map(Command::RemoveRequestHeader),
    );
}

/// Why the prompt will not be read, as far as headers tell.
pub(super) fn unreadable(headers: Headers<'_>, end_of_stream: bool) -> Option<Reason> {
    let is_connect = headers.value(":method") == Some(b"CONNECT");
    if is_connect || headers.has("upgrade") {
        return Some(Reason::Upgrade);
    }
    if end_of_stream {
        return Some(Reason::NoBody);
    }
    let encoding = headers.value("content-encoding").unwrap_or_default();
    let encoded = !encoding.is_empty() && !encoding.eq_ignore_ascii_case(b"identity");
    encoded.then_some(Reason::EncodedBody)
}

/// The body's length in bytes, where the client announces it.
pub(super) fn content_length(headers: Headers<'_>) -> Option<usize> {
    let digits = core::str::from_utf8(headers.value("content-length")?).ok()?;
    Some(digits.trim().parse().unwrap_or(usize::MAX))
}

fn uuid_v4(entropy: u128) -> String {
    let version = entropy & !(0xF << 76) | 0x4 << 76;
    let id = version & !(0x3 << 62) | 0x2 << 62;
    format!(
        "{:08x}-{:04x}-{:04x}-{:04x}-{:012x}",
        id >> 96,
        id >> 80 & 0xFFFF,
        id >> 64 & 0xFFFF,
        id >> 48 & 0xFFFF,
        id & 0xFFFF_FFFF_FFFF
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_made_up_request_id_is_a_uuid_of_version_4() {
        assert_eq!(uuid_v4(0), "00000000-0000-4000-8000-000000000000");
        assert_eq!(uuid_v4(u128::MAX), "ffffffff-ffff-4fff-bfff-ffffffffffff");
    }

    #[test]
    fn a_content_length_that_is_no_number_counts_as_endless() {
        let length = |value: &[u8]| content_length(Headers::new(&[(b"content-length", value)]));
        assert_eq!(length(b"12"), Some(12));
        assert_eq!(length(b"99999999999999999999999999"), Some(usize::MAX));
        assert_eq!(length(b"\xff"), None);
        assert_eq!(content_length(Headers::new(&[])), None);
    }
}
