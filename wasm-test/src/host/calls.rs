//! HTTP calls that modules make through Envoy's clusters.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::Thread;
use super::guest::{Pair, Status};

/// A call under way.
#[derive(Clone, Debug)]
pub struct Call {
    /// Tells it from every other call of the host.
    pub token: u32,
    /// Whose VM made it.
    pub thread: Thread,
    /// What was asked.
    pub request: Request,
    /// The root context that gets the answer, also of a call that a stream made.
    pub(super) root: u32,
    /// When Envoy gives up; `None` when the module set no limit.
    deadline: Option<Duration>,
    answer: Option<(Duration, Answer)>,
}

/// What a call asks for.
#[derive(Clone, Debug)]
pub struct Request {
    pub cluster: String,
    pub headers: Vec<(Vec<u8>, Vec<u8>)>,
    pub body: Vec<u8>,
}

impl Request {
    /// The first value of a header, where it is text.
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut pairs = self.headers.iter();
        let (_, value) = pairs.find(|(key, _)| key == name.as_bytes())?;
        std::str::from_utf8(value).ok()
    }
}

/// How a call ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// A whole response of a server.
    Response { status: u16, body: Vec<u8> },
    /// Envoy's own answer in place of a server's, with its cause.
    Local { status: u16, body: &'static str },
    /// The connection broke amid the answer: a response without any header.
    Reset,
}

impl Answer {
    /// 200 with `body`.
    pub fn ok(body: impl Into<Vec<u8>>) -> Self {
        Self::Response {
            status: 200,
            body: body.into(),
        }
    }

    /// A server's error without a body.
    pub fn status(status: u16) -> Self {
        Self::Response {
            status,
            body: Vec::new(),
        }
    }

    /// Nobody listens there.
    pub fn refused() -> Self {
        Self::Local {
            status: 503,
            body: "upstream connect error or disconnect/reset before headers. \
                   reset reason: remote connection failure",
        }
    }

    /// The connection broke before the answer began.
    pub fn broken() -> Self {
        Self::Local {
            status: 503,
            body: "upstream connect error or disconnect/reset before headers. \
                   reset reason: connection termination",
        }
    }

    fn timed_out() -> Self {
        Self::Local {
            status: 504,
            body: "upstream request timeout",
        }
    }

    pub(super) fn into_parts(self) -> (Vec<Pair>, Vec<u8>) {
        match self {
            Self::Response { status, body } => {
                let status = (b":status".to_vec(), status.to_string().into());
                let time = (b"x-envoy-upstream-service-time".to_vec(), b"1".to_vec());
                (vec![status, time], body)
            }
            Self::Local { status, body } => {
                let pairs = [
                    (":status", status.to_string()),
                    ("content-length", body.len().to_string()),
                    ("content-type", "text/plain".to_owned()),
                ];
                let pairs = pairs.map(|(name, value)| (name.into(), value.into()));
                (pairs.to_vec(), body.into())
            }
            Self::Reset => (Vec::new(), Vec::new()),
        }
    }
}

/// Answers calls as they are made: when, counted from the call, and how. `None` leaves one open.
pub type Responder = Box<dyn FnMut(&Call) -> Option<(Duration, Answer)>>;

#[derive(Default)]
pub(super) struct Calls {
    pub(super) clusters: BTreeSet<String>,
    /// Clusters that take no call: no host, or a circuit breaker is open.
    pub(super) exhausted: BTreeSet<String>,
    pub(super) responder: Option<Responder>,
    open: BTreeMap<u32, Call>,
    next: u32,
}

impl std::fmt::Debug for Calls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Calls")
            .field("open", &self.open)
            .finish_non_exhaustive()
    }
}

impl Calls {
    pub(super) fn start(
        &mut self,
        thread: Thread,
        root: u32,
        request: Request,
        now: Duration,
        timeout: Duration,
    ) -> Result<u32, Status> {
        let required = [":method", ":path", ":authority"];
        let complete = required.iter().all(|name| request.header(name).is_some());
        if !complete || !self.clusters.contains(&request.cluster) {
            return Err(Status::BadArgument);
        }
        if self.exhausted.contains(&request.cluster) {
            return Err(Status::InternalFailure);
        }
        self.next += 1;
        let mut call = Call {
            token: self.next,
            thread,
            request,
            root,
            deadline: (!timeout.is_zero()).then(|| now + timeout),
            answer: None,
        };
        let responder = self.responder.as_mut();
        let answer = responder.and_then(|responder| responder(&call));
        call.answer = answer.map(|(after, answer)| (now + after, answer));
        self.open.insert(call.token, call);
        Ok(self.next)
    }

    pub(super) fn open(&self) -> impl Iterator<Item = &Call> {
        self.open.values()
    }

    /// Sets how and when `token` ends; nothing when it has ended.
    pub(super) fn answer(&mut self, token: u32, at: Duration, answer: Answer) {
        if let Some(call) = self.open.get_mut(&token) {
            call.answer = Some((at, answer));
        }
    }

    /// Nobody waits for these any more.
    pub(super) fn cancel(&mut self, whose: impl Fn(&Call) -> bool) {
        self.open.retain(|_, call| !whose(call));
    }

    /// Takes a call whose end has come.
    pub(super) fn end(&mut self, token: u32) -> Option<(Call, Answer)> {
        let mut call = self.open.remove(&token)?;
        let answer = match (call.answer.take(), call.deadline) {
            (Some((at, answer)), deadline) if deadline.is_none_or(|limit| at <= limit) => answer,
            _ => Answer::timed_out(),
        };
        Some((call, answer))
    }
}

impl Call {
    /// When it ends, as things stand.
    pub(super) fn ends_at(&self) -> Option<Duration> {
        let answered = self.answer.as_ref().map(|(at, _)| *at);
        [answered, self.deadline].into_iter().flatten().min()
    }
}
