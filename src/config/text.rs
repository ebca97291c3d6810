//! What a text may hold. Lengths are in bytes.

use core::fmt;

/// A restriction on text.
#[derive(Clone, Copy)]
pub struct TextRule {
    /// The "expected …" of an error.
    pub what: &'static str,
    /// Whether a text obeys.
    pub fits: fn(&str) -> bool,
}

/// A pool's name is part of stat names (`name|pool=…|pod=…`) and of shared keys: `|` would end it.
pub(super) const POOL_NAME: TextRule = TextRule {
    what: "text of 1 to 128 bytes without | or control characters",
    fits: |text| is_line(text, 128) && !text.contains('|'),
};

/// A cluster's name is only ever compared. `|` is fine: Istio's are `outbound|8000||name`.
pub(super) const CLUSTER_NAME: TextRule = TextRule {
    what: "text of 1 to 512 bytes without control characters",
    fits: |text| is_line(text, 512),
};

/// A path to ask for: it goes into `:path` as it is, so it must be one already.
pub(crate) const REQUEST_PATH: TextRule = TextRule {
    what: "a path of up to 512 visible ASCII characters that starts with /, without #",
    fits: |text| is_path(text) && !text.contains('#'),
};

/// A path prefix: paths are compared without their query.
pub(super) const PATH_PREFIX: TextRule = TextRule {
    what: "a path of up to 512 visible ASCII characters that starts with /, without ? or #",
    fits: |text| is_path(text) && !text.contains(['?', '#']),
};

/// A model's name: it goes into a body and into a header.
pub(super) const MODEL_NAME: TextRule = TextRule {
    what: "a model name of 1 to 256 bytes without control characters",
    fits: |text| is_line(text, 256),
};

/// A model pattern.
pub(super) const MODEL_PATTERN: TextRule = TextRule {
    what: "a pattern of 1 to 256 bytes without control characters, * for any text",
    fits: |text| is_line(text, 256),
};

/// A host pattern. Ports are cut from the request's host, so a pattern with one never fits;
/// colons remain only inside the brackets of an IPv6 address.
pub(super) const HOST_PATTERN: TextRule = TextRule {
    what: "a host pattern of 1 to 256 visible ASCII characters without a port, * for any text",
    fits: |text| {
        let after_address = text.rsplit_once(']').map_or(text, |(_, after)| after);
        is_line(text, 256)
            && text.bytes().all(|byte| byte.is_ascii_graphic())
            && !after_address.contains(':')
    },
};

/// A label's name or value.
pub(crate) const LABEL: TextRule = TextRule {
    what: "text of up to 256 bytes without control characters",
    fits: |text| text.is_empty() || is_line(text, 256),
};

/// The override header: a token of RFC 9110 §5.6.2, and none whose removal or change would break
/// the request, because the module removes what the client sent and writes its own.
pub(super) const HEADER_NAME: TextRule = TextRule {
    what: "a header name of 1 to 128 bytes that the request does not need for anything else",
    fits: |text| {
        (1..=128).contains(&text.len())
            && text.bytes().all(is_token_byte)
            && !TAKEN_HEADERS
                .iter()
                .any(|taken| taken.eq_ignore_ascii_case(text))
    },
};

/// Headers that mean something to Envoy, to the model server or to this module.
const TAKEN_HEADERS: [&str; 16] = [
    "accept",
    "authorization",
    "connection",
    "content-encoding",
    "content-length",
    "content-type",
    "cookie",
    "expect",
    "host",
    "keep-alive",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "x-request-id",
];

fn is_line(text: &str, max: usize) -> bool {
    (1..=max).contains(&text.len()) && !text.chars().any(char::is_control)
}

fn is_path(text: &str) -> bool {
    text.starts_with('/') && text.len() <= 512 && text.bytes().all(|byte| byte.is_ascii_graphic())
}

const fn is_token_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric()
        || matches!(
            byte,
            b'!' | b'#'
                | b'$'
                | b'%'
                | b'&'
                | b'\''
                | b'*'
                | b'+'
                | b'-'
                | b'.'
                | b'^'
                | b'_'
                | b'`'
                | b'|'
                | b'~'
        )
}

impl fmt::Debug for TextRule {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.what)
    }
}
