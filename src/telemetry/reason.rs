//! Why a request was routed as it was.

macro_rules! reasons {
    ($($variant:ident $name:literal $meaning:literal;)*) => {
        /// The one reason a request ends with. The first two are routing decisions, the rest
        /// fallbacks: requests whose prompt alone did not decide, or not at all. They are picked by
        /// load where endpoints are known.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Reason {
            $(#[doc = $meaning] $variant,)*
        }

        impl Reason {
            /// Every reason, in the order of the documentation.
            pub const ALL: [Self; [$($name),*].len()] = [$(Self::$variant),*];

            /// The metric label and the value of `x-epp-reason`.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                }
            }

            /// When a request ends with it, in one sentence.
            pub const fn meaning(self) -> &'static str {
                match self {
                    $(Self::$variant => $meaning,)*
                }
            }
        }
    };
}

reasons! {
    Picked "picked"
        "Scored on the whole prompt.";
    TruncatedBody "truncated_body"
        "Scored on the part of the prompt that was read before `maxBufferedBytes`.";
    HeadersOnly "headers_only"
        "The host never delivers the body while headers are held.";
    NoBody "no_body"
        "The request has no body.";
    Upgrade "upgrade"
        "A protocol upgrade or CONNECT: its client waits for the answer before it sends.";
    EncodedBody "encoded_body"
        "The body carries a `content-encoding`.";
    MalformedBody "malformed_body"
        "The body is not JSON.";
    UnknownShape "unknown_shape"
        "JSON, but not of a shape this version reads a prompt from.";
    UnknownPath "unknown_path"
        "A path no parser is registered for.";
    NoCandidates "no_candidates"
        "Endpoints are known, none is healthy enough.";
    AllOverLimit "all_over_limit"
        "Every healthy endpoint has `maxQueue` or more requests waiting.";
    NoEndpoints "no_endpoints"
        "No endpoint is known.";
    Shed "shed"
        "Refused to protect the pool.";
}

impl Reason {
    /// Whether the request counts in `epp_fallback_total` instead of
    /// `epp_routing_decisions_total`.
    pub const fn is_fallback(self) -> bool {
        !matches!(self, Self::Picked | Self::TruncatedBody)
    }
}
