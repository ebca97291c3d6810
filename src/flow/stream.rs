//! The state machine of one stream.

mod prefilled;

use core::net::SocketAddr;

use super::command::{Action, Command, Count, Step};
use super::decide::{self, Outcome, Route};
use super::delivery::BodyDelivery;
use super::event::{Event, Headers};
use super::request::{Forwarded, Request, content_length, strip_control_headers, unreadable};
use super::router::Router;
use crate::config::OverrideMode;
use crate::requestcontrol::{Moved, Pool, Served};
use crate::requesthandling::{Api, Body};
use crate::telemetry::Reason;
use crate::time::Timestamp;

/// One HTTP stream. Its memory is bounded by the request's block hashes (8 bytes each).
#[derive(Debug, Default)]
pub struct Stream {
    state: State,
    /// A pool's host and path rules fit, so the header that carries picks is ours in both directions.
    fits: bool,
}

#[derive(Debug, Default)]
enum State {
    /// Nothing came yet.
    #[default]
    New,
    /// Headers and body are held until the prompt can be read.
    Held(Held),
    /// The same, until another endpoint has computed its prompt.
    Prefilling(Routed),
    /// A pool's request that went on its way.
    Routed(Routed),
    /// Not ours, answered here, or over.
    Passed,
}

#[derive(Debug)]
pub(super) struct Held {
    pub(super) request: Request,
    pub(super) api: Api,
    /// The body's length, where the client announced it.
    pub(super) content_length: Option<usize>,
    /// Bytes the host holds.
    pub(super) buffered: usize,
    /// The body exceeds, or will exceed, what may be held.
    pub(super) truncated: bool,
}

/// How a response began, as the host tells it.
#[derive(Clone, Copy)]
struct Response {
    status: u16,
    by_upstream: bool,
    upstream: Option<SocketAddr>,
    failed_attempts: usize,
    content_length: Option<usize>,
}

#[derive(Debug)]
struct Routed {
    request_id: Vec<u8>,
    route: Box<Route>,
    response_began: bool,
    /// It began with a 2xx.
    succeeded: bool,
    /// Bytes that the response's body was announced to have.
    content_length: Option<usize>,
}

impl Stream {
    /// Whether the request waits for its body.
    pub fn is_held(&self) -> bool {
        matches!(self.state, State::Held(_))
    }

    /// Whether it wants to see what the response's pieces end in.
    pub fn reads_response(&self) -> bool {
        let State::Routed(sent) = &self.state else {
            return false;
        };
        sent.succeeded && sent.route.usage.is_some()
    }

    /// Where the request was sent, until another endpoint turns out to have served it.
    pub fn destination(&self, router: &Router) -> Option<SocketAddr> {
        let State::Routed(sent) = &self.state else {
            return None;
        };
        let pool = router.pools().get(sent.route.pool)?;
        let endpoint = sent.route.ticket.as_ref()?.endpoint(pool)?;
        Some(pool.endpoint(endpoint)?.address)
    }

    /// Takes in `event` and says what to do about it.
    pub fn handle(&mut self, router: &mut Router, event: Event<'_>, now: Timestamp) -> Step {
        match event {
            Event::RequestHeaders {
                headers,
                end_of_stream,
                entropy,
            } => self.request_headers(router, headers, end_of_stream, entropy, now),
            Event::RequestBody {
                buffered,
                end_of_stream,
            } => self.request_body(router, buffered, end_of_stream, now),
            Event::RequestBodyRead(body) => self.request_body_read(router, body, now),
            Event::BodyOverdue => self.body_overdue(router, now),
            Event::RequestTrailers => self.request_trailers(router, now),
            Event::ResponseHeaders {
                status,
                by_upstream,
                upstream,
                failed_attempts,
                content_length,
            } => {
                let response = Response {
                    status,
                    by_upstream,
                    upstream,
                    failed_attempts,
                    content_length,
                };
                self.response_headers(router, response, now)
            }
            Event::PrefillSent => self.prefill_sent(),
            Event::PrefillEnded(end) => self.prefill_ended(router, &end, now),
            Event::ResponseBody {
                bytes,
                end_of_stream,
            } => self.response_body(router, bytes, end_of_stream),
            Event::ResponsePiece(end) => self.response_piece(end),
            Event::ResponseBodyRead(start) => self.response_body_read(router, &start, now),
            Event::Finished { upstream_reset } => self.finished(router, upstream_reset),
        }
    }

    fn request_headers(
        &mut self,
        router: &mut Router,
        headers: Headers<'_>,
        end_of_stream: bool,
        entropy: u128,
        now: Timestamp,
    ) -> Step {
        if !matches!(self.state, State::New) {
            return Step::default();
        }
        let pools = router.fitting_route(headers);
        if pools.is_empty() {
            self.state = State::Passed;
            return Step::default();
        }
        self.fits = true;
        let mut commands = Vec::new();
        strip_control_headers(
            &router.config().override_host.header,
            headers,
            &mut commands,
        );
        let mut request = Request::new(pools, headers, entropy, &mut commands);
        if router.makes_calls(&request.pools) {
            request.forwarded = Forwarded::new(headers, &request.id).map(Box::new);
        }
        let api = Api::from_path(headers.value(":path").unwrap_or_default());
        let unreadable = unreadable(headers, end_of_stream);
        let by_headers =
            || (router.delivery() == BodyDelivery::OnlyAfterResume).then_some(Reason::HeadersOnly);
        match (unreadable.or_else(by_headers), api) {
            (Some(reason), _) => self.route_unread(router, request, reason, now, commands),
            (None, None) => self.route_unread(router, request, Reason::UnknownPath, now, commands),
            (None, Some(api)) => {
                let content_length = content_length(headers);
                let truncated =
                    content_length.is_some_and(|len| len > router.config().max_buffered_bytes);
                self.state = State::Held(Held {
                    request,
                    api,
                    content_length,
                    buffered: 0,
                    truncated,
                });
                Step {
                    action: Action::Pause,
                    commands,
                }
            }
        }
    }

    fn request_body(
        &mut self,
        router: &mut Router,
        buffered: usize,
        end_of_stream: bool,
        now: Timestamp,
    ) -> Step {
        let State::Held(held) = &mut self.state else {
            return self.nothing_new();
        };
        router.delivery.came_while_held();
        held.buffered = buffered;
        let limit = router.config().max_buffered_bytes;
        if end_of_stream {
            return self.body_complete(router, now);
        }
        held.truncated |= buffered > limit;
        if held.truncated && buffered > 0 {
            return read_body(buffered.min(limit));
        }
        Step {
            action: Action::Pause,
            commands: Vec::new(),
        }
    }

    fn request_trailers(&mut self, router: &mut Router, now: Timestamp) -> Step {
        if self.is_held() {
            router.delivery.came_while_held();
            return self.body_complete(router, now);
        }
        self.nothing_new()
    }

    /// A held request stays held, others stay on their way.
    fn nothing_new(&self) -> Step {
        let action = if matches!(self.state, State::Prefilling(_)) {
            Action::Pause
        } else {
            Action::Continue
        };
        Step {
            action,
            commands: Vec::new(),
        }
    }

    /// Routes a held stream by its headers, unless this host is known to deliver bodies to them.
    fn body_overdue(&mut self, router: &mut Router, now: Timestamp) -> Step {
        if router.delivery() == BodyDelivery::WhileHeld {
            return Step {
                action: Action::Pause,
                commands: Vec::new(),
            };
        }
        match core::mem::replace(&mut self.state, State::Passed) {
            State::Held(held) => {
                self.route_unread(router, held.request, Reason::HeadersOnly, now, Vec::new())
            }
            other @ (State::New | State::Prefilling(_) | State::Routed(_) | State::Passed) => {
                self.state = other;
                Step::default()
            }
        }
    }

    /// The whole body is there: it is read, unless there is none.
    fn body_complete(&mut self, router: &mut Router, now: Timestamp) -> Step {
        let limit = router.config().max_buffered_bytes;
        match core::mem::replace(&mut self.state, State::Passed) {
            State::Held(held) if held.buffered == 0 => {
                self.route_unread(router, held.request, Reason::NoBody, now, Vec::new())
            }
            State::Held(mut held) => {
                held.truncated = held.buffered > limit;
                let len = held.buffered.min(limit);
                self.state = State::Held(held);
                read_body(len)
            }
            other @ (State::New | State::Prefilling(_) | State::Routed(_) | State::Passed) => {
                self.state = other;
                Step::default()
            }
        }
    }

    fn request_body_read(
        &mut self,
        router: &mut Router,
        body: &mut dyn Body,
        now: Timestamp,
    ) -> Step {
        match core::mem::replace(&mut self.state, State::Passed) {
            State::Held(held) => {
                let request_id = held.request.id.clone();
                let mut commands = Vec::new();
                let outcome = decide::by_prompt(router, held, body, now, &mut commands);
                self.settle(outcome, request_id, commands)
            }
            other @ (State::New | State::Prefilling(_) | State::Routed(_) | State::Passed) => {
                self.state = other;
                Step::default()
            }
        }
    }

    /// Routes a request whose prompt is not read.
    fn route_unread(
        &mut self,
        router: &mut Router,
        request: Request,
        reason: Reason,
        now: Timestamp,
        mut commands: Vec<Command>,
    ) -> Step {
        let outcome = decide::by_load(router, &request, reason, now, &mut commands);
        self.settle(outcome, request.id, commands)
    }

    fn settle(&mut self, outcome: Outcome, request_id: Vec<u8>, commands: Vec<Command>) -> Step {
        self.state = match outcome {
            Outcome::NotOurs | Outcome::Refused => State::Passed,
            Outcome::Routed(route) => {
                let waits = route.prefill.is_some();
                let routed = Routed {
                    request_id,
                    route,
                    response_began: false,
                    succeeded: false,
                    content_length: None,
                };
                if waits {
                    State::Prefilling(routed)
                } else {
                    State::Routed(routed)
                }
            }
        };
        Step {
            action: self.nothing_new().action,
            commands,
        }
    }

    fn response_headers(
        &mut self,
        router: &mut Router,
        response: Response,
        now: Timestamp,
    ) -> Step {
        let mut commands = Vec::new();
        let override_host = &router.config().override_host;
        let mode = override_host.mode;
        if self.fits && mode == OverrideMode::StatefulSession {
            // The session filter tells the client who served, unless that was the pick.
            let header = override_host.header.clone().into();
            commands.push(Command::RemoveResponseHeader(header));
        }
        let State::Routed(sent) = &mut self.state else {
            return Step {
                action: Action::Continue,
                commands,
            };
        };
        let id = sent.request_id.clone();
        commands.push(Command::SetResponseHeader("x-request-id", id));
        sent.response_began |= response.by_upstream;
        sent.succeeded = response.by_upstream && (200..300).contains(&response.status);
        sent.content_length = response.content_length;
        let pool = sent.route.pool;
        if let (Some(ticket), Some(state)) = (&mut sent.route.ticket, router.pool_mut(pool)) {
            let served = Served {
                by_upstream: response.by_upstream,
                endpoint: response.upstream.and_then(|address| state.find(address)),
                status: response.status,
                failed_attempts: response.failed_attempts,
            };
            let moved = ticket.served(state, served, now);
            commands.extend(moved.and_then(|moved| passed_over(state, mode, moved)));
        }
        if let Some(debug) = &sent.route.debug {
            debug.write(&mut commands);
        }
        Step {
            action: Action::Continue,
            commands,
        }
    }

    fn response_body(&mut self, router: &mut Router, bytes: usize, end_of_stream: bool) -> Step {
        let mut step = Step::default();
        let State::Routed(sent) = &mut self.state else {
            return step;
        };
        let is_whole = end_of_stream || sent.content_length == Some(bytes);
        if let (Some(ticket), Some(state)) =
            (&mut sent.route.ticket, router.pool_mut(sent.route.pool))
        {
            ticket.answered(state, is_whole);
        }
        if sent.route.continued.is_some() {
            step.commands
                .push(Command::ReadResponseBody(RESPONSE_START));
        }
        step
    }

    /// Remembers who gave the response that begins with `start`.
    fn response_body_read(&mut self, router: &mut Router, start: &[u8], now: Timestamp) -> Step {
        if let State::Routed(sent) = &self.state
            && let (Some(ticket), Some(continued)) = (&sent.route.ticket, sent.route.continued)
            && let Some(state) = router.pool_mut(sent.route.pool)
        {
            ticket.remember(state, &continued.blocks(start), now);
        }
        Step::default()
    }

    fn response_piece(&mut self, end: &[u8]) -> Step {
        if let State::Routed(sent) = &mut self.state
            && let Some(usage) = &mut sent.route.usage
        {
            usage.saw(end);
        }
        Step::default()
    }

    fn finished(&mut self, router: &mut Router, upstream_reset: bool) -> Step {
        let mut step = Step::default();
        let state = core::mem::replace(&mut self.state, State::Passed);
        let (State::Prefilling(sent) | State::Routed(sent)) = state else {
            return step;
        };
        let Route {
            pool,
            ticket,
            usage,
            prefill,
            ..
        } = *sent.route;
        let broken_off = upstream_reset && sent.response_began;
        let left = prefill.as_ref().map(|prefill| prefill.left(sent.succeeded));
        step.commands.extend(left);
        let (Some(mut ticket), Some(state)) = (ticket, router.pool_mut(pool)) else {
            return step;
        };
        if broken_off {
            if let Some(endpoint) = ticket.endpoint(state) {
                let reset = Count::UpstreamReset { pool, endpoint };
                step.commands.push(Command::Count(reset));
            }
            ticket.broken_off(state);
        } else if let Some(usage) = usage.filter(|_| sent.succeeded) {
            usage.learn(state);
        }
        match prefill {
            Some(prefill) => ticket.abandon(state, prefill.deadline),
            None => ticket.close(state),
        }
        step
    }
}

/// A line for the operator, the first time Envoy's cluster turns out not to hold an endpoint.
fn passed_over(pool: &mut Pool, mode: OverrideMode, moved: Moved) -> Option<Command> {
    let from = moved.from.filter(|_| moved.passed_over)?;
    if !pool.note_missing(from) {
        return None;
    }
    let config = pool.config();
    let pod = pool.endpoint(from).map_or("", |one| one.name.as_str());
    let hint = match mode {
        OverrideMode::Header => "",
        OverrideMode::StatefulSession => {
            " Is it healthy there, and is a stateful_session filter behind this one?"
        }
    };
    Some(Command::Warn(format!(
        "pool={} pod={pod}: Envoy sent its request elsewhere; is it an endpoint of cluster {}?{hint}",
        config.name, config.cluster
    )))
}

/// Bytes of a response that are looked at: its id comes first.
const RESPONSE_START: usize = 512;

fn read_body(len: usize) -> Step {
    Step {
        action: Action::Pause,
        commands: vec![Command::ReadBody(len)],
    }
}

#[cfg(test)]
mod tests;
