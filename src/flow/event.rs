//! What happens to a stream.

use core::net::SocketAddr;

use crate::requesthandling::Body;

/// Something the host tells about one stream.
#[derive(Debug)]
pub enum Event<'a> {
    /// The request's headers came.
    RequestHeaders {
        /// All of them.
        headers: Headers<'a>,
        /// Nothing follows.
        end_of_stream: bool,
        /// A number no other stream was given.
        entropy: u128,
    },
    /// Body bytes came.
    RequestBody {
        /// How many the host holds and can show, from the first on while they are held.
        buffered: usize,
        /// Nothing follows.
        end_of_stream: bool,
    },
    /// The bytes a [`super::Command::ReadBody`] asked for, to be read a part at a time.
    RequestBodyRead(&'a mut dyn Body),
    /// The stream is held, and no body came for longer than a host that delivers it would take.
    BodyOverdue,
    /// Trailers came: the body is complete, though its last piece did not say so.
    RequestTrailers,
    /// The call that a [`super::Command::Prefill`] asked for is on its way.
    PrefillSent,
    /// It ended, or never began.
    PrefillEnded(PrefillEnd),
    /// The response began.
    ResponseHeaders {
        /// HTTP status.
        status: u16,
        /// It comes from a server, not from Envoy.
        by_upstream: bool,
        /// The server's address.
        upstream: Option<SocketAddr>,
        /// How many endpoints were tried and failed before that.
        failed_attempts: usize,
        /// The length of its body, where the server announced it.
        content_length: Option<usize>,
    },
    /// The first bytes of the response's body came.
    ResponseBody {
        /// How many.
        bytes: usize,
        /// Nothing follows.
        end_of_stream: bool,
    },
    /// The bytes a [`super::Command::ReadResponseBody`] asked for.
    ResponseBodyRead(Vec<u8>),
    /// A piece of the response's body came that ends in these bytes, at least
    /// [`crate::requesthandling::USAGE_BYTES`] where it has so many. Told while
    /// [`super::Stream::reads_response`].
    ResponsePiece(&'a [u8]),
    /// Nothing more will happen.
    Finished {
        /// The server broke the response off after it had begun.
        upstream_reset: bool,
    },
}

/// How a call of a prefill endpoint ended.
#[derive(Clone, PartialEq, Eq)]
pub enum PrefillEnd {
    /// It answered.
    Answered {
        /// HTTP status.
        status: u16,
        /// The whole answer, [`MAX_ANSWER`] bytes at most.
        body: Vec<u8>,
    },
    /// It answered with more than [`MAX_ANSWER`] bytes.
    Oversized,
    /// It could not be reached.
    Refused,
    /// It did not answer in time.
    TimedOut,
    /// It broke off its answer.
    Broken,
}

impl core::fmt::Debug for PrefillEnd {
    /// Without the answer, which is the client's.
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Answered { status, .. } => write!(f, "Answered({status})"),
            Self::Oversized => f.write_str("Oversized"),
            Self::Refused => f.write_str("Refused"),
            Self::TimedOut => f.write_str("TimedOut"),
            Self::Broken => f.write_str("Broken"),
        }
    }
}

/// Bytes of a prefill endpoint's answer that are read. It is one token and the parameters, which name
/// the prompt's blocks: some bytes for each of ten thousands.
pub const MAX_ANSWER: usize = 1 << 20;

/// Request headers as bytes: a client's values need not be text.
#[derive(Clone, Copy, Debug)]
pub struct Headers<'a>(&'a [(&'a [u8], &'a [u8])]);

impl<'a> Headers<'a> {
    /// Names (lower case, pseudo-headers included) and values.
    pub const fn new(pairs: &'a [(&'a [u8], &'a [u8])]) -> Self {
        Self(pairs)
    }

    /// The first value of `name`.
    pub fn value(&self, name: &str) -> Option<&'a [u8]> {
        let mut pairs = self.0.iter();
        pairs
            .find(|(key, _)| *key == name.as_bytes())
            .map(|&(_, value)| value)
    }

    /// Whether `name` is there.
    pub fn has(&self, name: &str) -> bool {
        self.value(name).is_some()
    }
}
