//! What should be done about a stream.

use core::time::Duration;
use std::borrow::Cow;

use crate::datalayer::EndpointId;
use crate::requesthandling::Edit;
use crate::telemetry::{Reason, SplitDecision};

/// What the host does after an event: the commands in their order, then the action.
#[derive(Debug, Default, PartialEq)]
pub struct Step {
    /// Whether the request goes on.
    pub action: Action,
    /// What to do first.
    pub commands: Vec<Command>,
}

/// Whether the request goes on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Action {
    /// Let go of what is held.
    #[default]
    Continue,
    /// Hold headers and body.
    Pause,
}

/// One thing to do.
#[derive(Clone, Debug, PartialEq)]
pub enum Command {
    /// Remove a request header, all its values.
    RemoveRequestHeader(Cow<'static, str>),
    /// Set a request header to one value, replacing what was there.
    SetRequestHeader(Cow<'static, str>, Vec<u8>),
    /// Remove a response header, all its values.
    RemoveResponseHeader(Cow<'static, str>),
    /// Set a response header to one value, replacing what was there.
    SetResponseHeader(&'static str, Vec<u8>),
    /// Let the stream read this many bytes of the held body, in a
    /// [`super::Event::RequestBodyRead`]; that event's step then counts instead of this one.
    ReadBody(usize),
    /// Let the stream see this many bytes of the response's body, in a
    /// [`super::Event::ResponseBodyRead`]; that event's step then counts instead of this one.
    ReadResponseBody(usize),
    /// Change the held body.
    ReplaceBody(Replacement),
    /// Have a prompt computed elsewhere, and tell the stream at once whether the call is on its way:
    /// [`super::Event::PrefillSent`], or [`super::Event::PrefillEnded`] where it is not. That event's
    /// step then says whether the request goes on. The last command of its step.
    Prefill(PrefillCall),
    /// Answer the client; the request goes nowhere.
    Reply {
        /// HTTP status.
        status: u16,
        /// A JSON text.
        body: &'static str,
    },
    /// Tell the operator, whatever the log level.
    Warn(String),
    /// Tell who asked for everything, at `logLevel: trace`.
    Trace(String),
    /// Count something.
    Count(Count),
}

/// A `POST` to one endpoint.
#[derive(Clone, PartialEq, Eq)]
pub struct PrefillCall {
    /// The Envoy cluster that holds it.
    pub cluster: String,
    /// All headers, the one that names the endpoint among them.
    pub headers: Vec<(String, String)>,
    /// The whole body.
    pub body: Vec<u8>,
    /// When to give up.
    pub timeout: Duration,
}

impl core::fmt::Debug for PrefillCall {
    /// Without headers and body: they are the client's secrets.
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let mut parts = f.debug_struct("PrefillCall");
        parts.field("cluster", &self.cluster);
        parts.finish_non_exhaustive()
    }
}

/// A change of the held body, of which the rest stays as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replacement {
    /// What goes and what comes, in the order of the body.
    pub edits: Vec<Edit>,
    /// How much of the body the host holds, at least up to the end of the last edit.
    pub held: usize,
    /// Request headers to set once the body is changed, and not if it cannot be.
    pub headers: Vec<(&'static str, Vec<u8>)>,
}

/// Something that happened, for the metrics. `pool` is the pool's place in the configuration.
#[derive(Clone, Debug, PartialEq)]
pub enum Count {
    /// A request was routed by its prompt.
    Decision {
        /// Which pool.
        pool: usize,
        /// The model asked for.
        model: String,
        /// The pick.
        endpoint: EndpointId,
    },
    /// A request was routed without its prompt's help.
    Fallback {
        /// Which pool.
        pool: usize,
        /// Why.
        reason: Reason,
    },
    /// A prompt was matched and scored.
    Scored {
        /// Which pool.
        pool: usize,
        /// Blocks of the prompt the pick holds.
        matched_blocks: u32,
        /// Blocks of the prompt.
        total_blocks: u32,
        /// The pick's composite score, in [0, 1].
        score: f64,
    },
    /// A request was sent to an endpoint that does not list its adapter, and so has to load it.
    AdapterLoad {
        /// Which pool.
        pool: usize,
        /// The adapter.
        adapter: String,
    },
    /// What became of computing a prompt elsewhere.
    Split {
        /// Which pool.
        pool: usize,
        /// What.
        decision: SplitDecision,
    },
    /// A call of a prefill endpoint ended.
    Prefilled {
        /// How long it took.
        took: Duration,
    },
    /// A response broke off after it had begun.
    UpstreamReset {
        /// Which pool.
        pool: usize,
        /// Who broke it off.
        endpoint: EndpointId,
    },
}
