//! Events in, commands out: what the tests of both directions share.

#![expect(
    clippy::wildcard_enum_match_arm,
    reason = "a test looks for one kind of command"
)]

mod adapters;
mod models;
mod prefill;
mod requests;
mod responses;
mod sessions;

use super::*;
use crate::config::Config;
use crate::datalayer::EndpointId;
use crate::requestcontrol::{Ledger, LedgerHandle};

const CHAT: &str = r#"{"model":"m","messages":[{"role":"user","content":"What is a block?"}]}"#;

fn router(json: &str) -> Router {
    let config = Config::parse(json.as_bytes()).unwrap();
    Router::new(config, &LedgerHandle::new(Ledger::alone())).unwrap()
}

/// One pool of three endpoints that takes `/v1`, with `extra` top-level keys.
fn one_pool(extra: &str) -> Router {
    router(&format!(
        r#"{{"pools":[{{"name":"p","cluster":"c","match":{{"pathPrefix":"/v1"}},
            "endpoints":["10.0.0.1:80","10.0.0.2:80","10.0.0.3:80"]}}]{extra}}}"#
    ))
}

fn at(millis: u64) -> Timestamp {
    Timestamp::from_nanos(millis * 1_000_000)
}

type Pairs<'a> = Vec<(&'a [u8], &'a [u8])>;

fn post<'a>(path: &'a str, more: &[(&'a str, &'a str)]) -> Pairs<'a> {
    let fixed = [
        (":method", "POST"),
        (":path", path),
        (":authority", "llm.example"),
    ];
    let all = fixed.iter().chain(more).copied();
    all.map(|(name, value)| (name.as_bytes(), value.as_bytes()))
        .collect()
}

fn headers(stream: &mut Stream, router: &mut Router, pairs: &Pairs<'_>, end: bool) -> Step {
    let event = Event::RequestHeaders {
        headers: Headers::new(pairs),
        end_of_stream: end,
        entropy: 0x1234_5678,
    };
    stream.handle(router, event, at(1))
}

fn body(stream: &mut Stream, router: &mut Router, buffered: usize, end: bool) -> Step {
    let event = Event::RequestBody {
        buffered,
        end_of_stream: end,
    };
    stream.handle(router, event, at(2))
}

fn read(stream: &mut Stream, router: &mut Router, bytes: &[u8]) -> Step {
    stream.handle(router, Event::RequestBodyRead(&mut &*bytes), at(2))
}

fn response(stream: &mut Stream, router: &mut Router, status: u16, from: &str) -> Step {
    let event = Event::ResponseHeaders {
        status,
        by_upstream: true,
        upstream: from.parse().ok(),
        failed_attempts: 0,
        content_length: None,
    };
    stream.handle(router, event, at(3))
}

/// The first bytes of a response that goes on.
const FIRST_PIECE: Event<'static> = Event::ResponseBody {
    bytes: 1,
    end_of_stream: false,
};

/// The response with the status 200 and the first byte of its body.
fn answer(stream: &mut Stream, router: &mut Router, from: &str) -> Step {
    let step = response(stream, router, 200, from);
    let began = stream.handle(router, FIRST_PIECE, at(3));
    assert_eq!(began, Step::default());
    step
}

fn finish(stream: &mut Stream, router: &mut Router, upstream_reset: bool) -> Step {
    stream.handle(router, Event::Finished { upstream_reset }, at(4))
}

/// Sends a whole request and returns the step that decided it.
fn send(router: &mut Router, path: &str, text: &str) -> (Stream, Step) {
    let mut stream = Stream::default();
    let step = headers(&mut stream, router, &post(path, &[]), false);
    if step.action == Action::Continue {
        return (stream, step);
    }
    assert_eq!(
        body(&mut stream, router, text.len(), true),
        read_body(text.len())
    );
    let step = read(&mut stream, router, text.as_bytes());
    (stream, step)
}

fn chat(router: &mut Router) -> (Stream, Step) {
    send(router, "/v1/chat/completions", CHAT)
}

fn counts(step: &Step) -> Vec<&Count> {
    let found = step.commands.iter().filter_map(|command| match command {
        Command::Count(count) => Some(count),
        _ => None,
    });
    found.collect()
}

/// The one reason the step counted.
fn reason(step: &Step) -> Reason {
    let mut reasons = counts(step).into_iter().filter_map(|count| match count {
        Count::Decision { .. } => Some(Reason::Picked),
        Count::Fallback { reason, .. } => Some(*reason),
        _ => None,
    });
    let first = reasons.next().unwrap();
    assert_eq!(reasons.next(), None, "counted twice");
    first
}

/// The destination header the step sets.
fn destination(step: &Step) -> Option<String> {
    step.commands.iter().find_map(|command| match command {
        Command::SetRequestHeader(name, value) if name == "x-gateway-destination-endpoint" => {
            Some(String::from_utf8(value.clone()).unwrap())
        }
        _ => None,
    })
}

fn in_flight(router: &Router) -> Vec<u32> {
    // Queue depth without scraped numbers is what is open.
    (0..3)
        .map(|id| router.pools()[0].queue_depth(EndpointId::new(id)))
        .collect()
}
