//! Properties of the state machine of a stream: whatever events come in whatever order, and however
//! many streams share a VM, each ends in one outcome that is counted once, leaves nothing in flight,
//! and has no request header written after its request went on.

use std::net::SocketAddr;

use inline_epp::config::Config;
use inline_epp::datalayer::EndpointId;
use inline_epp::flow::{Action, Command, Count, Event, Headers, Router, Step, Stream};
use inline_epp::requestcontrol::{Ledger, LedgerHandle};
use inline_epp::time::Timestamp;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

const ENDPOINTS: u16 = 3;

fn router(fail_close: bool) -> Router {
    let mode = if fail_close { "FailClose" } else { "FailOpen" };
    let json = format!(
        r#"{{"pools":[
            {{"name":"p","cluster":"c","match":{{"pathPrefix":"/v1","models":["m*"]}},
              "endpoints":["10.0.0.1:80","10.0.0.2:80","10.0.0.3:80"]}}],
            "maxBufferedBytes":1024,"failureMode":"{mode}","debugHeaders":true}}"#
    );
    let config = Config::parse(json.as_bytes()).unwrap();
    Router::new(config, &LedgerHandle::new(Ledger::alone())).unwrap()
}

/// One of [`Event`], without what it borrows.
#[derive(Clone, Debug)]
enum Happening {
    RequestHeaders {
        path: &'static str,
        more: Vec<(&'static str, &'static str)>,
        end_of_stream: bool,
    },
    RequestBody {
        more: usize,
        end_of_stream: bool,
    },
    RequestTrailers,
    /// A tick found the stream held for too long.
    BodyOverdue,
    /// A body followed its stream's resume at once.
    BodyWasWithheld,
    ResponseHeaders {
        status: u16,
        by_upstream: bool,
        upstream: Option<&'static str>,
        failed_attempts: usize,
        content_length: Option<usize>,
    },
    ResponseBody {
        bytes: usize,
        end_of_stream: bool,
    },
    Finished {
        upstream_reset: bool,
    },
}

fn headers() -> impl Strategy<Value = Happening> {
    let path = select(vec![
        "/v1/completions",
        "/v1/chat/completions",
        "/v1/embeddings",
        "/elsewhere",
    ]);
    let more = select(vec![
        vec![],
        vec![("content-length", "600")],
        vec![("content-length", "5000")],
        vec![("content-encoding", "gzip")],
        vec![("upgrade", "websocket")],
        vec![
            ("x-gateway-destination-endpoint", "1.2.3.4:5"),
            ("x-request-id", "a"),
        ],
    ]);
    (path, more, prop::bool::weighted(0.2)).prop_map(|(path, more, end_of_stream)| {
        Happening::RequestHeaders {
            path,
            more,
            end_of_stream,
        }
    })
}

fn happening() -> impl Strategy<Value = Happening> {
    let upstream = select(vec![
        None,
        Some("10.0.0.1:80"),
        Some("10.0.0.3:80"),
        Some("10.9.9.9:80"),
    ]);
    let status = select(vec![200, 204, 404, 429, 500, 503]);
    let length = prop::option::of(1_usize..3);
    prop_oneof![
        1 => headers(),
        4 => (0_usize..700, prop::bool::weighted(0.2)).prop_map(|(more, end_of_stream)| {
            Happening::RequestBody { more, end_of_stream }
        }),
        1 => Just(Happening::RequestTrailers),
        1 => Just(Happening::BodyOverdue),
        1 => Just(Happening::BodyWasWithheld),
        2 => (status, any::<bool>(), upstream, 0_usize..4, length).prop_map(
            |(status, by_upstream, upstream, failed_attempts, content_length)| {
                Happening::ResponseHeaders {
                    status, by_upstream, upstream, failed_attempts, content_length,
                }
            }
        ),
        1 => (1_usize..3, any::<bool>()).prop_map(|(bytes, end_of_stream)| {
            Happening::ResponseBody { bytes, end_of_stream }
        }),
        1 => any::<bool>().prop_map(|upstream_reset| Happening::Finished { upstream_reset }),
    ]
}

/// Bodies a read may bring; the buffer says how much of it.
fn bodies() -> impl Strategy<Value = Vec<u8>> {
    let long = "x".repeat(3_000);
    select(vec![
        format!(r#"{{"model":"m","prompt":"{long}"}}"#),
        format!(r#"{{"model":"m","messages":[{{"role":"user","content":"{long}"}}]}}"#),
        format!(r#"{{"model":"of another pool","prompt":"{long}"}}"#),
        format!(r#"{{"prompt":"{long}","model":"m"}}"#),
        r#"{"model":"m","prompt":"short"}"#.to_owned(),
        r#"{"model":"m","prompt":[1,2]}"#.to_owned(),
        "no JSON".to_owned(),
    ])
    .prop_map(String::into_bytes)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Life {
    New,
    /// Its request's headers came.
    Begun,
    Over,
}

/// A stream and what its host and its operator saw of it.
struct Watched {
    stream: Stream,
    body: Vec<u8>,
    buffered: usize,
    life: Life,
    /// Its headers came and were not held, or are no longer.
    released: bool,
    /// Decisions and fallbacks counted.
    outcomes: u32,
    /// Answers that the module gave itself.
    replies: u32,
}

impl Watched {
    fn new(body: Vec<u8>) -> Self {
        Self {
            stream: Stream::default(),
            body,
            buffered: 0,
            life: Life::New,
            released: false,
            outcomes: 0,
            replies: 0,
        }
    }

    /// Lets `happening` happen as the host would, a read of the body included.
    fn happen(&mut self, router: &mut Router, happening: &Happening, now: Timestamp) {
        if self.life == Life::Begun && matches!(happening, Happening::RequestHeaders { .. }) {
            // The one thing no host says twice.
            return;
        }
        let step = match happening {
            Happening::RequestHeaders {
                path,
                more,
                end_of_stream,
            } => {
                if self.life == Life::New {
                    self.life = Life::Begun;
                }
                let fixed = [(":method", "POST"), (":path", *path), (":authority", "h")];
                let pairs: Vec<(&[u8], &[u8])> = fixed
                    .iter()
                    .chain(more)
                    .map(|(name, value)| (name.as_bytes(), value.as_bytes()))
                    .collect();
                let event = Event::RequestHeaders {
                    headers: Headers::new(&pairs),
                    end_of_stream: *end_of_stream,
                    entropy: now.as_nanos().into(),
                };
                self.stream.handle(router, event, now)
            }
            other => {
                let Some(event) = self.event(router, other) else {
                    return;
                };
                self.stream.handle(router, event, now)
            }
        };
        let Some(&Command::ReadBody(len)) = step.commands.first() else {
            return self.obey(step, happening);
        };
        assert_eq!(step.commands.len(), 1, "the read's step counts instead");
        let read = self.body.iter().copied().take(len.min(self.buffered));
        let read: Vec<u8> = read.collect();
        let event = Event::RequestBodyRead(&mut &read[..]);
        let step = self.stream.handle(router, event, now);
        assert!(
            !step
                .commands
                .iter()
                .any(|command| matches!(command, Command::ReadBody(_)))
        );
        self.obey(step, happening);
    }

    fn event(&mut self, router: &mut Router, happening: &Happening) -> Option<Event<'static>> {
        Some(match *happening {
            Happening::RequestHeaders { .. } => return None,
            Happening::RequestBody {
                more,
                end_of_stream,
            } => {
                self.buffered += more;
                Event::RequestBody {
                    buffered: self.buffered,
                    end_of_stream,
                }
            }
            Happening::RequestTrailers => Event::RequestTrailers,
            Happening::BodyOverdue => Event::BodyOverdue,
            Happening::BodyWasWithheld => {
                router.body_was_withheld();
                return None;
            }
            Happening::ResponseHeaders {
                status,
                by_upstream,
                upstream,
                failed_attempts,
                content_length,
            } => Event::ResponseHeaders {
                status,
                by_upstream,
                upstream: upstream.and_then(|address| address.parse::<SocketAddr>().ok()),
                failed_attempts,
                content_length,
            },
            Happening::ResponseBody {
                bytes,
                end_of_stream,
            } => Event::ResponseBody {
                bytes,
                end_of_stream,
            },
            Happening::Finished { upstream_reset } => {
                self.life = Life::Over;
                Event::Finished { upstream_reset }
            }
        })
    }

    fn obey(&mut self, step: Step, after: &Happening) {
        if self.life == Life::Over && !matches!(after, Happening::Finished { .. }) {
            assert!(
                step.commands.is_empty(),
                "after the end: {:?}",
                step.commands
            );
            return;
        }
        for command in step.commands {
            match command {
                Command::RemoveRequestHeader(name) | Command::SetRequestHeader(name, _) => {
                    assert!(!self.released, "{name} after the request went on");
                }
                Command::Count(Count::Decision { .. } | Count::Fallback { .. }) => {
                    assert!(!self.released, "decided after the request went on");
                    self.outcomes += 1;
                }
                Command::Reply { .. } => self.replies += 1,
                _ => {}
            }
        }
        // What is said to anything else lets go of nothing.
        let of_the_request = matches!(
            after,
            Happening::RequestHeaders { .. }
                | Happening::RequestBody { .. }
                | Happening::RequestTrailers
                | Happening::BodyOverdue
        );
        self.released |=
            self.life == Life::Begun && of_the_request && step.action == Action::Continue;
    }
}

/// Whether a request that `lived` so is the pool's; `None` where its body decides.
fn is_ours(lived: &[&Happening], body: &[u8]) -> Option<bool> {
    let path = lived.iter().find_map(|happening| match happening {
        Happening::RequestHeaders { path, .. } => Some(*path),
        _ => None,
    });
    let names_another = body.windows(7).any(|part| part == b"another");
    match path {
        None | Some("/elsewhere") => Some(false),
        Some(_) => (!names_another).then_some(true),
    }
}

proptest! {
    #[test]
    fn any_order_of_events_ends_in_one_outcome_and_nothing_in_flight(
        bodies in vec(bodies(), 1..4),
        first in vec(prop::option::weighted(0.9, headers()), 3),
        happenings in vec((0_usize..3, happening()), 0..40),
        fail_close in any::<bool>(),
    ) {
        let mut router = router(fail_close);
        let mut streams: Vec<Watched> = bodies.iter().cloned().map(Watched::new).collect();
        let count = streams.len();
        let last = Happening::Finished { upstream_reset: false };
        let end = (0..count).map(|stream| (stream, last.clone()));
        let first = first.into_iter().enumerate();
        let first = first.filter_map(|(stream, headers)| Some((stream, headers?)));
        let all: Vec<(usize, Happening)> = first.chain(happenings).chain(end).collect();
        for (at, (stream, happening)) in (1_u64..).zip(&all) {
            let now = Timestamp::from_nanos(at * 1_000_000);
            streams[stream % count].happen(&mut router, happening, now);
        }
        for (at, watched) in streams.iter().enumerate() {
            let mine = all.iter().filter(|(stream, _)| stream % count == at);
            let lived = mine.map(|(_, happening)| happening);
            let lived: Vec<_> = lived
                .take_while(|happening| !matches!(happening, Happening::Finished { .. }))
                .collect();
            match is_ours(&lived, &watched.body) {
                Some(false) => prop_assert_eq!(watched.outcomes, 0),
                Some(true) => prop_assert_eq!(watched.outcomes, u32::from(watched.released)),
                None => prop_assert!(watched.outcomes <= u32::from(watched.released)),
            }
            prop_assert!(watched.life == Life::Over && !watched.stream.is_held());
            prop_assert!(watched.replies <= u32::from(fail_close));
        }
        for id in 0..ENDPOINTS {
            prop_assert_eq!(router.pools()[0].open_at(EndpointId::new(id)), 0);
        }
    }
}
