//! One request through the module, driven step by step as Envoy's HTTP connection manager would.

use std::net::SocketAddr;

use super::engine::Trapped;
use super::guest::Pair;
use super::http::{HttpState, Phase, Reply};
use super::vm::{Head, Vm};
use super::{Host, Thread};

/// Header names (lower case, pseudo-headers included) and values.
pub type Pairs = Vec<(Vec<u8>, Vec<u8>)>;

/// A stream. Begin it with [`Stream::headers`], end it with one of [`Stream::finish`],
/// [`Stream::abort`] and [`Stream::reset`].
#[derive(Debug)]
pub struct Stream {
    host: Host,
    thread: Thread,
    /// The context and the VM it is in, once headers came.
    context: Option<(u32, u64)>,
    /// The VM was not there, or is no longer.
    failed: bool,
}

/// How far a request has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Progress {
    /// Envoy holds its headers.
    Held,
    /// It is on its way to the cluster, headers at least.
    Sent,
    /// Envoy or the module answered it; a loss of the VM that Envoy noticed is a 503.
    Replied(Reply),
    /// Its VM was lost, which Envoy will notice when anything more happens to it.
    Lost,
}

/// What went on to the cluster so far.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sent {
    pub headers: Pairs,
    pub body: Vec<u8>,
}

impl Sent {
    /// The first value of a header, where it is text.
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut pairs = self.headers.iter();
        let (_, value) = pairs.find(|(key, _)| key == name.as_bytes())?;
        std::str::from_utf8(value).ok()
    }
}

/// The head of a response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Response {
    pub status: u16,
    /// Beside `:status`.
    pub headers: Pairs,
    /// What `response.code_details` shows.
    pub details: String,
    /// The last server that was tried.
    pub upstream: Option<SocketAddr>,
    /// How many were tried.
    pub attempts: u64,
}

impl Response {
    /// An answer of `upstream` itself, the first that was tried.
    pub fn by(upstream: SocketAddr, status: u16) -> Self {
        Self {
            status,
            headers: Vec::new(),
            details: "via_upstream".to_owned(),
            upstream: Some(upstream),
            attempts: 1,
        }
    }
}

impl Stream {
    pub(super) fn new(host: &Host, thread: Thread) -> Self {
        Self {
            host: host.clone(),
            thread,
            context: None,
            failed: false,
        }
    }

    /// The request's headers came; nothing follows when `end`.
    pub fn headers(&mut self, pairs: &[(&str, &[u8])], end: bool) -> Progress {
        let pairs: Vec<Pair> = pairs
            .iter()
            .map(|(name, value)| (name.as_bytes().to_vec(), value.to_vec()))
            .collect();
        let mut threads = self.host.threads.borrow_mut();
        if threads.reload(self.thread) {
            self.context = threads.run(self.thread, |vm| {
                Ok((vm.request_headers(pairs, end)?, vm.generation))
            });
        }
        drop(threads);
        self.failed = self.context.is_none();
        self.progress()
    }

    /// A piece of the request's body came.
    pub fn body(&mut self, piece: &[u8], end: bool) -> Progress {
        self.step(|vm, id| vm.request_body(id, piece, end));
        self.progress()
    }

    /// The request's trailers came: nothing follows.
    pub fn trailers(&mut self, pairs: &[(&str, &[u8])]) -> Progress {
        let pairs = pairs
            .iter()
            .map(|(name, value)| (name.as_bytes().to_vec(), value.to_vec()))
            .collect();
        self.step(|vm, id| vm.request_trailers(id, pairs));
        self.progress()
    }

    /// The response begins; its headers as the client gets them, `None` when the VM is lost and
    /// the client gets a 503.
    pub fn respond(&mut self, response: &Response, end: bool) -> Option<Pairs> {
        let status = response.status.to_string().into_bytes();
        let mut pairs = vec![(b":status".to_vec(), status)];
        pairs.extend(response.headers.iter().cloned());
        let head = Head {
            pairs,
            status: response.status,
            details: response.details.clone(),
            upstream: response.upstream.map(|address| address.to_string()),
            attempts: response.attempts,
        };
        self.step(|vm, id| vm.response_headers(id, head, end))?;
        self.response_headers()
    }

    /// A piece of the response's body came. `false` when the VM is lost.
    pub fn response_body(&mut self, piece: &[u8], end: bool) -> bool {
        self.step(|vm, id| vm.response_body(id, piece, end))
            .is_some()
    }

    /// The response is complete: log, done, delete.
    pub fn finish(mut self) {
        self.step(|vm, id| vm.finish(id, None));
    }

    /// The client goes away.
    pub fn abort(mut self) {
        self.step(|vm, id| vm.finish(id, Some("downstream_remote_disconnect")));
    }

    /// The server breaks the response off.
    pub fn reset(mut self) {
        let details = "upstream_reset_after_response_started{connection_termination}";
        self.step(|vm, id| vm.finish(id, Some(details)));
    }

    /// How far it has come.
    pub fn progress(&self) -> Progress {
        if self.failed {
            return Progress::Replied(Reply {
                status: 503,
                details: "wasm_fail_stream".to_owned(),
                ..Reply::default()
            });
        }
        self.look(|stream| match &stream.phase {
            Phase::Held | Phase::Stopped => Progress::Held,
            Phase::Sent => Progress::Sent,
            Phase::Replied(reply) => Progress::Replied(reply.clone()),
        })
        .unwrap_or(Progress::Lost)
    }

    /// What went on to the cluster; `None` while nothing did.
    pub fn sent(&self) -> Option<Sent> {
        self.look(|stream| {
            (stream.phase == Phase::Sent).then(|| Sent {
                headers: stream.request_headers.pairs.clone(),
                body: stream.request_body.sent.clone(),
            })
        })
        .flatten()
    }

    /// The response's headers as the client gets them, once they passed the module.
    pub fn response_headers(&self) -> Option<Pairs> {
        self.look(|stream| stream.response_headers.pairs.clone())
    }

    /// Runs callbacks; `None` when the VM is not there, which ends the stream.
    fn step<T>(&mut self, action: impl FnOnce(&mut Vm, u32) -> Result<T, Trapped>) -> Option<T> {
        let (id, generation) = self.context?;
        let mut threads = self.host.threads.borrow_mut();
        let alive = threads
            .vm(self.thread)
            .is_some_and(|vm| vm.generation == generation);
        let result = alive
            .then(|| threads.run(self.thread, |vm| action(vm, id)))
            .flatten();
        self.failed |= result.is_none();
        result
    }

    fn look<T>(&self, reader: impl FnOnce(&HttpState) -> T) -> Option<T> {
        let (id, generation) = self.context?;
        let threads = self.host.threads.borrow();
        let vm = threads
            .vm(self.thread)
            .filter(|vm| vm.generation == generation)?;
        vm.guest().streams.get(&id).map(reader)
    }
}
