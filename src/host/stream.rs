//! One HTTP stream: callbacks become events, commands become host calls.

use core::net::SocketAddr;
use std::rc::Rc;

use proxy_wasm::traits::{Context, HttpContext};
use proxy_wasm::types;

use super::abi::{self, Buffer, HeaderMap};
use super::root::Shared;
use crate::flow::{Action, CONTROL_HEADERS, Command, Count, Event, Headers, Step, Stream};

pub(super) struct HttpStream {
    stream: Stream,
    shared: Rc<Shared>,
    /// The response's body has begun.
    answered: bool,
}

impl HttpStream {
    pub(super) fn new(shared: &Rc<Shared>) -> Self {
        Self {
            stream: Stream::default(),
            shared: Rc::clone(shared),
            answered: false,
        }
    }

    /// Runs one event, and the body read it may ask for.
    fn handle(&mut self, event: Event<'_>) -> types::Action {
        let started = abi::now();
        let mut step = self.step(event);
        if let Some(&Command::ReadBody(len)) = step.commands.first() {
            // An unreadable buffer is an empty body: routed by load, with a reason.
            let body = abi::buffer(Buffer::RequestBody, len).unwrap_or_default();
            step = self.step(Event::RequestBodyRead(body));
        }
        if step.commands.iter().any(is_decision)
            && let Ok(metrics) = self.shared.metrics.try_borrow()
        {
            metrics.scoring_latency(abi::now().since(started));
        }
        for command in step.commands {
            if log::log_enabled!(log::Level::Debug) {
                self.tell(&command);
            }
            self.obey(command);
        }
        match step.action {
            Action::Continue => types::Action::Continue,
            Action::Pause => types::Action::Pause,
        }
    }

    fn step(&mut self, event: Event<'_>) -> Step {
        // Nothing borrows the router across a host call, so this never fails; if it did, the
        // request would go on unrouted.
        let Ok(mut router) = self.shared.router.try_borrow_mut() else {
            return Step::default();
        };
        self.stream.handle(&mut router, event, abi::now())
    }

    /// One line for what is counted. Model names are the client's words, so they are escaped.
    fn tell(&self, command: &Command) {
        let Command::Count(count) = command else {
            return;
        };
        let Ok(router) = self.shared.router.try_borrow() else {
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
            Count::InFlight {
                pool,
                endpoint,
                change,
            } => {
                log::trace!(
                    "pool={} pod={} inflight{change:+}",
                    name(*pool),
                    pod(*pool, *endpoint)
                );
            }
            Count::UpstreamReset { pool, endpoint } => log::debug!(
                "pool={} pod={} broke a response off",
                name(*pool),
                pod(*pool, *endpoint)
            ),
        }
    }

    fn obey(&self, command: Command) {
        let done = match command {
            Command::RemoveRequestHeader(name) => abi::remove_header(HeaderMap::Request, &name),
            Command::SetRequestHeader(name, value) => {
                abi::set_header(HeaderMap::Request, &name, &value)
            }
            Command::SetResponseHeader(name, value) => {
                abi::set_header(HeaderMap::Response, name, &value)
            }
            Command::Reply { status, body } => abi::send_local_response(status, body),
            Command::Count(count) => {
                if let Ok(mut metrics) = self.shared.metrics.try_borrow_mut() {
                    metrics.count(&count);
                }
                Ok(())
            }
            // Answered by `handle`.
            Command::ReadBody(_) => Ok(()),
        };
        if let Err(error) = done {
            log::debug!("the host refused a call: {error:?}");
        }
    }
}

impl Context for HttpStream {}

impl HttpContext for HttpStream {
    fn on_http_request_headers(&mut self, _: usize, end_of_stream: bool) -> types::Action {
        let encoded = abi::header_pairs(HeaderMap::Request).unwrap_or_else(|error| {
            // More headers than the host shows at once: unseen ones must not steer either.
            log::warn!("inline-epp: the host shows no request headers: {error:?}");
            for name in CONTROL_HEADERS {
                self.obey(Command::RemoveRequestHeader(name.into()));
            }
            let router = self.shared.router.try_borrow();
            if let Ok(header) = router.map(|all| all.config().override_host.header.clone()) {
                self.obey(Command::RemoveRequestHeader(header.into()));
            }
            Vec::new()
        });
        let pairs = abi::pairs(&encoded);
        let headers = Headers::new(&pairs);
        let entropy = self.shared.entropy.next();
        self.handle(Event::RequestHeaders {
            headers,
            end_of_stream,
            entropy,
        })
    }

    fn on_http_request_body(&mut self, buffered: usize, end_of_stream: bool) -> types::Action {
        self.handle(Event::RequestBody {
            buffered,
            end_of_stream,
        })
    }

    fn on_http_request_trailers(&mut self, _: usize) -> types::Action {
        self.handle(Event::RequestTrailers)
    }

    fn on_http_response_headers(&mut self, _: usize, _: bool) -> types::Action {
        let status = abi::header(HeaderMap::Response, ":status").unwrap_or_default();
        let details = abi::property("response\0code_details").unwrap_or_default();
        let upstream = abi::property("upstream\0address").unwrap_or_default();
        self.handle(Event::ResponseHeaders {
            status: parse(&status).unwrap_or(0),
            by_upstream: details == b"via_upstream",
            upstream: parse::<SocketAddr>(&upstream),
        })
    }

    fn on_http_response_body(&mut self, bytes: usize, _: bool) -> types::Action {
        // Only the first byte means something, and a stream has thousands of pieces.
        if bytes > 0 && !self.answered {
            self.answered = true;
            return self.handle(Event::ResponseBody);
        }
        types::Action::Continue
    }

    fn on_log(&mut self) {
        let details = abi::property("response\0code_details").unwrap_or_default();
        let upstream_reset = details.starts_with(b"upstream_reset_after_response_started");
        self.handle(Event::Finished { upstream_reset });
    }
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
