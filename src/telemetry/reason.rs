//! Why a request was routed as it was.

/// The one reason a request ends with. The first two are routing decisions, the rest fallbacks:
/// requests whose prompt decided nothing, picked by load where endpoints are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reason {
    /// Scored on the whole prompt.
    Picked,
    /// Scored on the part of the prompt that was read before `maxBufferedBytes`.
    TruncatedBody,
    /// The host never delivers the body while headers are held.
    HeadersOnly,
    /// The request has no body.
    NoBody,
    /// A protocol upgrade or CONNECT: its client waits for the answer before it sends.
    Upgrade,
    /// The body carries a `content-encoding`.
    EncodedBody,
    /// The body is not JSON.
    MalformedBody,
    /// JSON, but not of a shape this version reads a prompt from.
    UnknownShape,
    /// A path no parser is registered for.
    UnknownPath,
    /// Endpoints are known, none is healthy enough.
    NoCandidates,
    /// Every healthy endpoint has `maxQueue` or more requests waiting.
    AllOverLimit,
    /// No endpoint is known.
    NoEndpoints,
    /// Refused to protect the pool.
    Shed,
}

impl Reason {
    /// Every reason, in the order of the documentation.
    pub const ALL: [Self; 13] = [
        Self::Picked,
        Self::TruncatedBody,
        Self::HeadersOnly,
        Self::NoBody,
        Self::Upgrade,
        Self::EncodedBody,
        Self::MalformedBody,
        Self::UnknownShape,
        Self::UnknownPath,
        Self::NoCandidates,
        Self::AllOverLimit,
        Self::NoEndpoints,
        Self::Shed,
    ];

    /// The metric label and the value of `x-epp-reason`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Picked => "picked",
            Self::TruncatedBody => "truncated_body",
            Self::HeadersOnly => "headers_only",
            Self::NoBody => "no_body",
            Self::Upgrade => "upgrade",
            Self::EncodedBody => "encoded_body",
            Self::MalformedBody => "malformed_body",
            Self::UnknownShape => "unknown_shape",
            Self::UnknownPath => "unknown_path",
            Self::NoCandidates => "no_candidates",
            Self::AllOverLimit => "all_over_limit",
            Self::NoEndpoints => "no_endpoints",
            Self::Shed => "shed",
        }
    }

    /// Whether the request counts in `epp_fallback_total` instead of
    /// `epp_routing_decisions_total`.
    pub const fn is_fallback(self) -> bool {
        !matches!(self, Self::Picked | Self::TruncatedBody)
    }
}
