//! Has the prompt of a held request computed at another endpoint than the one it goes to.
//!
//! With vLLM's NIXL connector one server comes after the other: the prefill endpoint is asked for the
//! prompt alone, and what it answers goes with the request to the decode endpoint, which fetches the
//! prompt's blocks from it. With `SGLang` both get the request at once, and meet at the prefill
//! endpoint. Whatever fails before the decode endpoint has the request, it computes the prompt itself.

use core::net::{IpAddr, SocketAddr};

use super::command::{Command, Count, PrefillCall, Replacement};
use super::event::PrefillEnd;
use super::request::Request;
use crate::config::SplitMode;
use crate::datalayer::EndpointId;
use crate::requestcontrol::{Pool, PrefillResult};
use crate::requesthandling::{Api, Body, Bootstrap, Edit, SplitBody, transfer_params};
use crate::telemetry::SplitDecision;
use crate::time::Timestamp;

/// Longest body that is sent to two servers: it is in memory as a whole, and that of a virtual
/// machine never shrinks. Four million tokens have as much.
const MAX_BODY: usize = 16 << 20;

/// Keeps Envoy from sending a request again: what it would send is for one server, and one time.
const NO_RETRIES: (&str, &[u8]) = ("x-envoy-max-retries", b"0");

/// Header that tells the server, and whoever logs it, that the body asks for another model than
/// the client did.
const REWRITE_HEADER: &str = "x-llm-d-model-name-rewrite";

/// How a held body becomes the one that is sent.
#[derive(Clone, Debug)]
pub(super) struct BodyChange {
    /// The body's length, where the client announced it.
    pub(super) content_length: Option<usize>,
    /// Bytes the host holds.
    pub(super) held: usize,
    /// What replaces the model's name, and the name.
    pub(super) model: Option<(Edit, String)>,
}

impl BodyChange {
    /// `edits` and the model's, in their order.
    fn with_model(&self, mut edits: Vec<Edit>) -> Vec<Edit> {
        edits.extend(self.model.iter().map(|(edit, _)| edit.clone()));
        Edit::sort(&mut edits);
        edits
    }

    /// Makes `edits`, and the model's.
    pub(super) fn command(&self, edits: Vec<Edit>) -> Option<Command> {
        let edits = self.with_model(edits);
        if edits.is_empty() {
            return None;
        }
        let model = self.model.iter();
        let mut headers: Vec<(&'static str, Vec<u8>)> = model
            .map(|(_, name)| (REWRITE_HEADER, name.clone().into_bytes()))
            .collect();
        if let Some(before) = self.content_length {
            let length = Edit::length_after(&edits, before).to_string();
            headers.push(("content-length", length.into_bytes()));
        }
        Some(Command::ReplaceBody(Replacement {
            edits,
            held: self.held,
            headers,
        }))
    }
}

/// A request whose prompt is computed elsewhere.
#[derive(Debug)]
pub(super) struct Prefill {
    pool: usize,
    split: SplitBody,
    change: BodyChange,
    /// The header that names the decode endpoint, and its address.
    destination: (String, Vec<u8>),
    /// Where both servers meet; `None`: one comes after the other.
    bootstrap: Option<Bootstrap>,
    started: Timestamp,
    /// When the call is given up.
    pub(super) deadline: Timestamp,
    /// The call is on its way.
    sent: bool,
}

/// What a split needs to know of its request.
pub(super) struct Parts<'a> {
    pub(super) pool: usize,
    pub(super) request: &'a Request,
    pub(super) api: Api,
    pub(super) change: &'a BodyChange,
    /// The header that names the endpoint, to Envoy's clusters.
    pub(super) header: &'a str,
    pub(super) prefill: EndpointId,
}

impl Prefill {
    /// The split and its call. `None` where the request cannot be shared.
    pub(super) fn new(
        parts: &Parts<'_>,
        decode: EndpointId,
        pool: &Pool,
        body: &mut dyn Body,
        now: Timestamp,
    ) -> Option<(Self, PrefillCall)> {
        let config = pool.config();
        let disaggregation = &config.disaggregation;
        let forwarded = parts.request.forwarded.as_deref()?;
        if body.len() > MAX_BODY {
            return None;
        }
        let split = SplitBody::read(parts.api, body)?;
        let prefill = pool.endpoint(parts.prefill)?;
        let bootstrap = (disaggregation.mode == SplitMode::InlineSglang).then(|| Bootstrap {
            host: host(prefill.address),
            port: disaggregation.bootstrap_port,
            room: parts.request.tie.0 >> 1,
        });
        let edits = match &bootstrap {
            Some(bootstrap) => split.for_both(bootstrap),
            None => split.for_prefill(),
        };
        let body = Edit::apply(&parts.change.with_model(edits), body);
        let fixed = [
            (":method", "POST"),
            (":path", &forwarded.path),
            (":authority", &forwarded.authority),
            (parts.header, &prefill.name),
        ];
        let headers = fixed
            .into_iter()
            .map(|(name, value)| (name.to_owned(), value.to_owned()));
        let others = forwarded.headers.iter();
        let others = others.map(|(name, value)| ((*name).to_owned(), value.clone()));
        let cluster = disaggregation.cluster.as_ref().unwrap_or(&config.cluster);
        let call = PrefillCall {
            cluster: cluster.clone(),
            headers: headers.chain(others).collect(),
            body,
            timeout: disaggregation.prefill_timeout,
        };
        let decode = pool.endpoint(decode)?.name.clone();
        let prefill = Self {
            pool: parts.pool,
            split,
            change: parts.change.clone(),
            destination: (parts.header.to_owned(), decode.into_bytes()),
            bootstrap,
            started: now,
            deadline: now.after(disaggregation.prefill_timeout),
            sent: false,
        };
        Some((prefill, call))
    }

    /// The call is on its way: what to do with the request, where it does not wait for the answer.
    pub(super) fn sent(&mut self) -> Option<Vec<Command>> {
        self.sent = true;
        let bootstrap = self.bootstrap.as_ref()?;
        Some(self.for_decode(self.split.for_both(bootstrap)))
    }

    /// Whether both servers have the request at once.
    pub(super) fn is_concurrent(&self) -> bool {
        self.bootstrap.is_some()
    }

    /// What the end of the call makes of the request, while it is held.
    pub(super) fn ended(&self, end: &PrefillEnd, now: Timestamp) -> (PrefillResult, Vec<Command>) {
        let (decision, result, params) = judge(end, self.is_concurrent());
        let mut commands = match params {
            Some(params) => self.for_decode(self.split.for_decode(params)),
            None => self
                .change
                .command(self.split.for_one())
                .into_iter()
                .collect(),
        };
        commands.extend(self.counts(decision, now));
        (result, commands)
    }

    /// What the end of the call says of a request that did not wait for it.
    pub(super) fn ended_beside(
        &self,
        end: &PrefillEnd,
        now: Timestamp,
    ) -> (PrefillResult, Vec<Command>) {
        let (decision, result, _) = judge(end, true);
        (result, self.counts(decision, now).collect())
    }

    /// The stream is over, and the call is not. `answered`: the decode endpoint gave an answer.
    pub(super) fn left(&self, answered: bool) -> Command {
        let decision = if answered && self.is_concurrent() {
            // It cannot answer without the prompt.
            SplitDecision::PrefillDecode
        } else {
            SplitDecision::ClientGone
        };
        self.count(decision)
    }

    fn for_decode(&self, edits: Vec<Edit>) -> Vec<Command> {
        let (header, decode) = &self.destination;
        let (no_retries, zero) = NO_RETRIES;
        let headers = [
            Command::SetRequestHeader(header.clone().into(), decode.clone()),
            Command::SetRequestHeader(no_retries.into(), zero.to_vec()),
        ];
        headers
            .into_iter()
            .chain(self.change.command(edits))
            .collect()
    }

    fn counts(&self, decision: SplitDecision, now: Timestamp) -> impl Iterator<Item = Command> {
        let took = now.since(self.started);
        let latency = self
            .sent
            .then_some(Command::Count(Count::Prefilled { took }));
        core::iter::once(self.count(decision)).chain(latency)
    }

    fn count(&self, decision: SplitDecision) -> Command {
        let pool = self.pool;
        Command::Count(Count::Split { pool, decision })
    }
}

/// What the end of a call means: for the counters, for the endpoint, and the parameters it brought.
fn judge(end: &PrefillEnd, concurrent: bool) -> (SplitDecision, PrefillResult, Option<&[u8]>) {
    let (decision, result) = match end {
        PrefillEnd::Answered { status: 200, body } => match transfer_params(body) {
            Some(params) => {
                return (
                    SplitDecision::PrefillDecode,
                    PrefillResult::Computed,
                    Some(params),
                );
            }
            None if concurrent => (SplitDecision::PrefillDecode, PrefillResult::Computed),
            // It computed the prompt all the same, and has it for others.
            None => (SplitDecision::PrefillNoParams, PrefillResult::Computed),
        },
        PrefillEnd::Oversized => (SplitDecision::PrefillOversized, PrefillResult::Computed),
        // What the client did wrong, and 429, says nothing about the server.
        PrefillEnd::Answered { status, .. } if *status < 500 => {
            (SplitDecision::PrefillError, PrefillResult::Rejected)
        }
        PrefillEnd::Answered { .. } => (SplitDecision::PrefillError, PrefillResult::Failed),
        PrefillEnd::Refused => (SplitDecision::PrefillRefused, PrefillResult::Failed),
        PrefillEnd::TimedOut => (SplitDecision::PrefillTimeout, PrefillResult::Failed),
        PrefillEnd::Broken => (SplitDecision::PrefillReset, PrefillResult::Failed),
    };
    (decision, result, None)
}

/// As in a URL.
fn host(address: SocketAddr) -> String {
    match address.ip() {
        IpAddr::V4(ip) => ip.to_string(),
        IpAddr::V6(ip) => format!("[{ip}]"),
    }
}
