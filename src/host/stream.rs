//! One HTTP stream: callbacks become events, commands become host calls.

use core::cell::{Ref, RefCell};
use core::net::SocketAddr;
use std::rc::Rc;

use proxy_wasm::traits::{Context, HttpContext};
use proxy_wasm::types;

use super::abi::{self, Buffer, HeaderMap};
use super::body::{HeldBody, replace};
use super::calls;
use super::root::Shared;
use crate::flow::{
    Action, CONTROL_HEADERS, Command, Count, Event, Headers, PrefillCall, PrefillEnd, Router, Step,
    Stream,
};
use crate::requesthandling::USAGE_BYTES;
use crate::time::Timestamp;

pub(super) struct HttpStream {
    context_id: u32,
    stream: Rc<RefCell<Stream>>,
    shared: Rc<Shared>,
    /// The response's body has begun.
    answered: bool,
    /// The response is known to have come to its end.
    is_whole: bool,
}

impl HttpStream {
    pub(super) fn new(context_id: u32, shared: &Rc<Shared>) -> Self {
        Self {
            context_id,
            stream: Rc::default(),
            shared: Rc::clone(shared),
            answered: false,
            is_whole: false,
        }
    }

    fn handle(&self, event: Event<'_>) -> types::Action {
        run(&self.shared, &self.stream, event)
    }

    /// Whether `upstream` is where the request was sent first.
    fn is_pick(&self, upstream: Option<SocketAddr>) -> bool {
        let (Ok(router), Ok(stream)) = (self.shared.router.try_borrow(), self.stream.try_borrow())
        else {
            return false;
        };
        upstream.is_some() && stream.destination(&router) == upstream
    }

    /// Has the watchdog look after a stream that is held, while it is not known whether this host
    /// delivers bodies to held streams.
    fn watch(&self) {
        let unknown = |router: Ref<'_, Router>| router.delivery().is_unknown();
        if self.shared.router.try_borrow().is_ok_and(unknown) {
            self.shared
                .watchdog
                .watch(self.context_id, &self.stream, abi::now());
        }
    }
}

impl Context for HttpStream {
    /// The only calls of streams are those for prompts that are computed elsewhere.
    fn on_http_call_response(&mut self, _: u32, _: usize, body_size: usize, _: usize) {
        #[cfg(feature = "test-switches")]
        super::switches::trap_if_asked();
        let end = calls::prefill_end(body_size);
        if self.handle(Event::PrefillEnded(end)) == types::Action::Continue
            && let Err(error) = abi::continue_request()
        {
            log::warn!("inline-epp: the host refused to resume a request: {error:?}");
        }
    }
}

impl HttpContext for HttpStream {
    fn on_http_request_headers(&mut self, _: usize, end_of_stream: bool) -> types::Action {
        #[cfg(feature = "test-switches")]
        super::switches::trap_if_asked();
        self.shared.watchdog.something_else();
        let encoded = abi::header_pairs(HeaderMap::Request).unwrap_or_else(|error| {
            // More headers than the host shows at once: unseen ones must not steer either.
            log::warn!("inline-epp: the host shows no request headers: {error:?}");
            for name in CONTROL_HEADERS {
                obey(&self.shared, Command::RemoveRequestHeader(name.into()));
            }
            let router = self.shared.router.try_borrow();
            if let Ok(header) = router.map(|all| all.config().override_host.header.clone()) {
                obey(&self.shared, Command::RemoveRequestHeader(header.into()));
            }
            Vec::new()
        });
        let pairs = abi::pairs(&encoded);
        let headers = Headers::new(&pairs);
        let entropy = self.shared.entropy.next();
        let action = self.handle(Event::RequestHeaders {
            headers,
            end_of_stream,
            entropy,
        });
        if action == types::Action::Pause {
            self.watch();
        }
        action
    }

    fn on_http_request_body(&mut self, buffered: usize, end_of_stream: bool) -> types::Action {
        if self
            .shared
            .watchdog
            .follows_resume(self.context_id, abi::now)
            && buffered > 0
        {
            self.shared.body_was_withheld();
        }
        self.handle(Event::RequestBody {
            buffered,
            end_of_stream,
        })
    }

    fn on_http_request_trailers(&mut self, _: usize) -> types::Action {
        self.handle(Event::RequestTrailers)
    }

    fn on_http_response_headers(&mut self, _: usize, end_of_stream: bool) -> types::Action {
        self.shared.watchdog.something_else();
        self.is_whole = end_of_stream;
        let encoded = abi::header_pairs(HeaderMap::Response).unwrap_or_default();
        let pairs = abi::pairs(&encoded);
        let headers = Headers::new(&pairs);
        let (by_upstream, details) = origin(headers);
        let upstream = abi::property("upstream\0address").unwrap_or_default();
        let upstream = parse::<SocketAddr>(&upstream);
        let failed_attempts = if by_upstream && self.is_pick(upstream) {
            // Who was tried first comes up again only once all that were offered have failed.
            0
        } else {
            failed_attempts(&details, by_upstream)
        };
        self.handle(Event::ResponseHeaders {
            status: headers.value(":status").and_then(parse).unwrap_or(0),
            by_upstream,
            upstream,
            failed_attempts,
            content_length: headers.value("content-length").and_then(parse),
        })
    }

    fn on_http_response_body(&mut self, bytes: usize, end_of_stream: bool) -> types::Action {
        self.is_whole |= end_of_stream;
        // Mostly only the first byte means something, and a stream has thousands of pieces.
        if bytes > 0 && !self.answered {
            self.answered = true;
            self.handle(Event::ResponseBody {
                bytes,
                end_of_stream,
            });
        }
        let reads = |stream: Ref<'_, Stream>| stream.reads_response();
        if bytes > 0 && self.stream.try_borrow().is_ok_and(reads) {
            let start = bytes.saturating_sub(USAGE_BYTES);
            let end = abi::buffer_part(Buffer::ResponseBody, start, USAGE_BYTES);
            self.handle(Event::ResponsePiece(&end.unwrap_or_default()));
        }
        types::Action::Continue
    }

    fn on_log(&mut self) {
        self.shared.watchdog.forget(self.context_id);
        let upstream_reset = !self.is_whole
            && abi::property("response\0code_details")
                .is_ok_and(|details| details.starts_with(b"upstream_reset_after_response_started"));
        self.handle(Event::Finished { upstream_reset });
    }
}

/// Runs one event, and the body read it may ask for.
pub(super) fn run(shared: &Shared, stream: &RefCell<Stream>, event: Event<'_>) -> types::Action {
    // One look at the clock a callback: each is a call of the host.
    let now = abi::now();
    let mut step = step_of(shared, stream, event, now);
    if let Some(&Command::ReadBody(len)) = step.commands.first() {
        step = step_of(
            shared,
            stream,
            Event::RequestBodyRead(&mut HeldBody { len }),
            now,
        );
    }
    if let Some(&Command::ReadResponseBody(len)) = step.commands.first() {
        let start = abi::buffer(Buffer::ResponseBody, len).unwrap_or_default();
        step = step_of(shared, stream, Event::ResponseBodyRead(start), now);
    }
    if step.commands.iter().any(is_decision)
        && let Ok(metrics) = shared.metrics.try_borrow()
    {
        metrics.scoring_latency(abi::now().since(now));
    }
    carry_out(shared, stream, step)
}

/// Carries out the commands of `step`, and of the step that a call brings about.
fn carry_out(shared: &Shared, stream: &RefCell<Stream>, mut step: Step) -> types::Action {
    while let Some(call) = obey_all(shared, core::mem::take(&mut step.commands)) {
        let event = match calls::prefill(&call) {
            Ok(()) => Event::PrefillSent,
            Err(why) => {
                log::debug!("a prefill endpoint cannot be called: {why}");
                Event::PrefillEnded(PrefillEnd::Refused)
            }
        };
        step = step_of(shared, stream, event, abi::now());
    }
    match step.action {
        Action::Continue => types::Action::Continue,
        Action::Pause => types::Action::Pause,
    }
}

/// Obeys `commands`, but for a call, which comes last and is returned.
fn obey_all(shared: &Shared, commands: Vec<Command>) -> Option<PrefillCall> {
    for command in commands {
        if log::log_enabled!(log::Level::Debug) {
            tell(shared, &command);
        }
        if let Command::Prefill(call) = command {
            return Some(call);
        }
        obey(shared, command);
    }
    None
}

fn step_of(shared: &Shared, stream: &RefCell<Stream>, event: Event<'_>, now: Timestamp) -> Step {
    // No host call that is made while either is borrowed comes back to a context, so this never
    // fails; if it did, the request would go on unrouted.
    let (Ok(mut router), Ok(mut stream)) =
        (shared.router.try_borrow_mut(), stream.try_borrow_mut())
    else {
        return Step::default();
    };
    stream.handle(&mut router, event, now)
}

/// One line for what is counted. Model names are the client's words, so they are escaped.
fn tell(shared: &Shared, command: &Command) {
    let Command::Count(count) = command else {
        return;
    };
    let Ok(router) = shared.router.try_borrow() else {
        return;
    };
    let pool = |at: usize| router.pools().get(at);
    let name = |at: usize| pool(at).map_or("", |pool| pool.config().name.as_str());
    let pod = |at: usize, endpoint| {
        pool(at)
            .and_then(|pool| pool.endpoint(endpoint))
            .map_or("", |one| one.name.as_str())
    };
    match count {
        Count::Decision {
            pool,
            model,
            endpoint,
        } => log::debug!(
            "pool={} model={model:?} pod={} routed by its prompt",
            name(*pool),
            pod(*pool, *endpoint)
        ),
        Count::Fallback { pool, reason } => {
            log::debug!(
                "pool={} reason={} routed by load",
                name(*pool),
                reason.as_str()
            );
        }
        Count::Scored {
            pool,
            matched_blocks,
            total_blocks,
            score,
        } => log::debug!(
            "pool={} match={matched_blocks}/{total_blocks} score={score:.4}",
            name(*pool)
        ),
        Count::AdapterLoad { pool, adapter } => log::debug!(
            "pool={} adapter={adapter:?} is not loaded where it goes",
            name(*pool)
        ),
        Count::Split { pool, decision } => {
            log::debug!("pool={} split={}", name(*pool), decision.as_str());
        }
        Count::Prefilled { took } => log::debug!("prefill took {} ms", took.as_millis()),
        Count::UpstreamReset { pool, endpoint } => log::debug!(
            "pool={} pod={} broke a response off",
            name(*pool),
            pod(*pool, *endpoint)
        ),
    }
}

fn obey(shared: &Shared, command: Command) {
    let done = match command {
        Command::RemoveRequestHeader(name) => abi::remove_header(HeaderMap::Request, &name),
        Command::RemoveResponseHeader(name) => abi::remove_header(HeaderMap::Response, &name),
        Command::SetRequestHeader(name, value) => {
            abi::set_header(HeaderMap::Request, &name, &value)
        }
        Command::SetResponseHeader(name, value) => {
            abi::set_header(HeaderMap::Response, name, &value)
        }
        Command::ReplaceBody(replacement) => replace(&replacement).and_then(|()| {
            let mut headers = replacement.headers.iter();
            headers.try_for_each(|(name, value)| abi::set_header(HeaderMap::Request, name, value))
        }),
        Command::Reply { status, body } => abi::send_local_response(status, body),
        Command::Warn(line) => {
            log::warn!("inline-epp: {line}");
            Ok(())
        }
        Command::Trace(line) => {
            log::trace!("{line}");
            Ok(())
        }
        Command::Count(count) => {
            if let Ok(mut metrics) = shared.metrics.try_borrow_mut() {
                metrics.count(&count);
            }
            Ok(())
        }
        // Answered by `run` and `carry_out`.
        Command::ReadBody(_) | Command::ReadResponseBody(_) | Command::Prefill(_) => Ok(()),
    };
    if let Err(error) = done {
        log::debug!("the host refused a call: {error:?}");
    }
}

/// Whether a server gave the response with these `headers`, and Envoy's details of it, where they
/// were needed to tell: a property takes several times as long as a header.
fn origin(headers: Headers<'_>) -> (bool, Vec<u8>) {
    if headers.has(calls::SERVICE_TIME) {
        return (true, Vec::new());
    }
    // Envoy's own answer, or a router that adds no headers.
    let details = abi::property("response\0code_details").unwrap_or_default();
    (details == b"via_upstream", details)
}

/// How many endpoints were tried in vain: all but the last where a server answered, all of them
/// where none did, and none where the request never went out (a 413, say).
fn failed_attempts(details: &[u8], by_upstream: bool) -> usize {
    let by_endpoints = [
        b"upstream_reset".as_slice(),
        b"response_timeout",
        b"upstream_per_try",
        // A strict session whose host Envoy does not have, or thinks is down.
        b"no_healthy_upstream",
    ];
    if !by_upstream
        && !by_endpoints
            .iter()
            .any(|prefix| details.starts_with(prefix))
    {
        return 0;
    }
    let attempts = abi::property("upstream\0request_attempt_count").unwrap_or_default();
    let attempts = attempts
        .first_chunk()
        .map_or(1, |bytes| u64::from_le_bytes(*bytes));
    let attempts = usize::try_from(attempts).unwrap_or(usize::MAX);
    attempts.saturating_sub(usize::from(by_upstream))
}

fn is_decision(command: &Command) -> bool {
    matches!(
        command,
        Command::Count(Count::Decision { .. } | Count::Fallback { .. })
    )
}

fn parse<T: core::str::FromStr>(bytes: &[u8]) -> Option<T> {
    core::str::from_utf8(bytes).ok()?.parse().ok()
}
