#![expect(
    clippy::wildcard_enum_match_arm,
    reason = "a test looks for one kind of command"
)]

use super::*;
use crate::config::Config;
use crate::datalayer::EndpointId;

const CHAT: &str = r#"{"model":"m","messages":[{"role":"user","content":"What is a block?"}]}"#;

fn router(json: &str) -> Router {
    Router::new(Config::parse(json.as_bytes()).unwrap())
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
    stream.handle(router, Event::RequestBodyRead(bytes.to_vec()), at(2))
}

fn response(stream: &mut Stream, router: &mut Router, status: u16, from: &str) -> Step {
    let event = Event::ResponseHeaders {
        status,
        by_upstream: true,
        upstream: from.parse().ok(),
    };
    stream.handle(router, event, at(3))
}

/// The response with the status 200 and the first byte of its body.
fn answer(stream: &mut Stream, router: &mut Router, from: &str) -> Step {
    let step = response(stream, router, 200, from);
    let began = stream.handle(router, Event::ResponseBody, at(3));
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

#[test]
fn a_prompt_is_held_read_once_and_routed() {
    let mut router = one_pool("");
    let mut stream = Stream::default();
    let path = "/v1/chat/completions";
    let held = headers(&mut stream, &mut router, &post(path, &[]), false);
    assert_eq!(held.action, Action::Pause);
    let some = body(&mut stream, &mut router, 10, false);
    assert_eq!(
        some,
        Step {
            action: Action::Pause,
            commands: Vec::new()
        }
    );
    assert_eq!(
        body(&mut stream, &mut router, CHAT.len(), true),
        read_body(CHAT.len())
    );
    let sent = read(&mut stream, &mut router, CHAT.as_bytes());
    assert_eq!(sent.action, Action::Continue);
    assert_eq!(reason(&sent), Reason::Picked);
    let list = destination(&sent).unwrap();
    assert_eq!(
        list.split(',').count(),
        3,
        "the pick and two fallbacks: {list}"
    );
    assert_eq!(
        body(&mut stream, &mut router, CHAT.len(), true),
        Step::default()
    );
}

#[test]
fn trailers_complete_a_body_like_its_end() {
    let mut router = one_pool("");
    let mut stream = Stream::default();
    headers(
        &mut stream,
        &mut router,
        &post("/v1/chat/completions", &[]),
        false,
    );
    body(&mut stream, &mut router, CHAT.len(), false);
    let step = stream.handle(&mut router, Event::RequestTrailers, at(2));
    assert_eq!(step, read_body(CHAT.len()));
    assert_eq!(
        reason(&read(&mut stream, &mut router, CHAT.as_bytes())),
        Reason::Picked
    );
}

#[test]
fn what_holds_no_readable_prompt_is_routed_at_once_under_its_reason() {
    let gzip = [("content-encoding", "gzip")];
    let plain = [("content-encoding", "identity")];
    let upgrade = [("connection", "upgrade"), ("upgrade", "websocket")];
    let chat = "/v1/chat/completions";
    let none: &[(&str, &str)] = &[];
    let cases = [
        (chat, none, true, Some(Reason::NoBody)),
        (chat, &gzip, false, Some(Reason::EncodedBody)),
        (chat, &plain, false, None),
        (chat, &upgrade, false, Some(Reason::Upgrade)),
        ("/v1/embeddings", none, false, Some(Reason::UnknownPath)),
        ("/v1/models", none, true, Some(Reason::NoBody)),
    ];
    for (path, more, end, expected) in cases {
        let mut router = one_pool("");
        let step = headers(&mut Stream::default(), &mut router, &post(path, more), end);
        match expected {
            Some(expected) => {
                assert_eq!(step.action, Action::Continue, "{path} {more:?}");
                assert_eq!(reason(&step), expected);
                assert!(destination(&step).is_some());
            }
            None => assert_eq!(step.action, Action::Pause, "{path} {more:?}"),
        }
    }
}

#[test]
fn a_body_that_cannot_be_read_is_routed_by_load_under_its_reason() {
    let cases = [
        (
            r#"{"messages":[{"role":"user","content":"x""#,
            Reason::MalformedBody,
        ),
        (r#"{"prompt":"x"}"#, Reason::UnknownShape),
        (r#"{"messages":[]}"#, Reason::UnknownShape),
        (
            r#"{"messages":[{"content":[{"type":"image_url"}]}]}"#,
            Reason::UnknownShape,
        ),
    ];
    for (text, expected) in cases {
        let (_, step) = send(&mut one_pool(""), "/v1/chat/completions", text);
        assert_eq!(reason(&step), expected, "{text}");
        assert!(destination(&step).is_some());
        assert_eq!(step.action, Action::Continue);
    }
    let mut router = one_pool("");
    let mut stream = Stream::default();
    headers(
        &mut stream,
        &mut router,
        &post("/v1/chat/completions", &[]),
        false,
    );
    assert_eq!(
        reason(&body(&mut stream, &mut router, 0, true)),
        Reason::NoBody
    );
}

#[test]
fn a_body_too_long_to_hold_is_routed_by_the_part_read() {
    let limit = r#","maxBufferedBytes":1024"#;
    let long = format!(r#"{{"model":"m","prompt":"{}"}}"#, "x".repeat(5_000));
    // Announced: decided on the first piece, never held.
    let mut router = one_pool(limit);
    let mut stream = Stream::default();
    let announced = [("content-length", "5028")];
    headers(
        &mut stream,
        &mut router,
        &post("/v1/completions", &announced),
        false,
    );
    assert_eq!(body(&mut stream, &mut router, 600, false), read_body(600));
    let step = read(&mut stream, &mut router, &long.as_bytes()[..600]);
    assert_eq!(
        (reason(&step), step.action),
        (Reason::Picked, Action::Continue)
    );
    assert!(counts(&step).iter().any(|c| matches!(
        c,
        Count::Scored {
            total_blocks: 2,
            ..
        }
    )));
    // Not announced: decided when the limit is passed, with no more than the limit read.
    let mut stream = Stream::default();
    headers(
        &mut stream,
        &mut router,
        &post("/v1/completions", &[]),
        false,
    );
    assert_eq!(
        body(&mut stream, &mut router, 600, false).action,
        Action::Pause
    );
    assert_eq!(
        body(&mut stream, &mut router, 3_000, false),
        read_body(1_024)
    );
    let step = read(&mut stream, &mut router, &long.as_bytes()[..1_024]);
    assert!(counts(&step).iter().any(|c| matches!(
        c,
        Count::Scored {
            matched_blocks: 2,
            ..
        }
    )));
}

#[test]
fn the_debug_reason_tells_a_truncated_body() {
    let mut router = one_pool(r#","maxBufferedBytes":1024,"debugHeaders":true"#);
    let mut stream = Stream::default();
    let long = [("content-length", "9999")];
    headers(
        &mut stream,
        &mut router,
        &post("/v1/completions", &long),
        false,
    );
    body(&mut stream, &mut router, 14, false);
    // Nothing of the prompt is in the part read.
    read(&mut stream, &mut router, br#"{"model":"m","#);
    let step = response(&mut stream, &mut router, 200, "10.0.0.1:80");
    let shown = Command::SetResponseHeader("x-epp-reason", b"truncated_body".to_vec());
    assert!(step.commands.contains(&shown), "{step:?}");
}

#[test]
fn a_request_no_pool_fits_is_left_alone() {
    let mut router = one_pool("");
    let mut stream = Stream::default();
    let forged = [("x-gateway-destination-endpoint", "10.0.0.1:80")];
    let step = headers(&mut stream, &mut router, &post("/metrics", &forged), false);
    assert_eq!(step, Step::default());
    assert_eq!(body(&mut stream, &mut router, 10, true), Step::default());
    assert_eq!(
        response(&mut stream, &mut router, 200, "10.0.0.1:80"),
        Step::default()
    );
    assert_eq!(finish(&mut stream, &mut router, false), Step::default());
}

#[test]
fn the_first_pool_that_takes_the_model_gets_the_request() {
    let json = r#"{"pools":[
        {"name":"a","cluster":"a","match":{"models":["llama*"]},"endpoints":["10.0.0.1:80"]},
        {"name":"b","cluster":"b","match":{"models":["qwen*"]},"endpoints":["10.0.0.2:80"]}]}"#;
    let cases = [
        (r#"{"model":"llama-3","prompt":"x"}"#, Some("10.0.0.1:80")),
        (r#"{"model":"qwen-2","prompt":"x"}"#, Some("10.0.0.2:80")),
        (r#"{"model":"gpt","prompt":"x"}"#, None),
        // Unreadable: no model is asked for.
        (r#"{"model":"qwen-2","#, Some("10.0.0.1:80")),
    ];
    for (text, expected) in cases {
        let (_, step) = send(&mut router(json), "/v1/completions", text);
        assert_eq!(destination(&step).as_deref(), expected, "{text}");
        assert_eq!(step.action, Action::Continue);
    }
}

#[test]
fn control_headers_of_a_client_are_removed_before_anything_reads_them() {
    let mut router = one_pool("");
    let names = super::super::CONTROL_HEADERS;
    let forged: Vec<(&str, &str)> = names
        .iter()
        .map(|name| (*name, "169.254.169.254:80"))
        .collect();
    let pairs = post("/v1/chat/completions", &forged);
    let step = headers(&mut Stream::default(), &mut router, &pairs, false);
    for name in names {
        let removal = Command::RemoveRequestHeader(name.into());
        assert_eq!(
            step.commands.iter().filter(|&c| *c == removal).count(),
            1,
            "{name}"
        );
    }
    let mut custom = one_pool(r#","overrideHost":{"header":"x-my-destination"}"#);
    let pairs = post(
        "/v1/chat/completions",
        &[("x-my-destination", "169.254.169.254:80")],
    );
    let step = headers(&mut Stream::default(), &mut custom, &pairs, false);
    assert!(
        step.commands
            .contains(&Command::RemoveRequestHeader("x-my-destination".into()))
    );
}

#[test]
fn a_request_id_is_made_where_there_is_none_and_told_to_both_sides() {
    let mut router = one_pool("");
    let mut stream = Stream::default();
    let step = headers(&mut stream, &mut router, &post("/v1/models", &[]), true);
    let made = step.commands.iter().find_map(|command| match command {
        Command::SetRequestHeader(name, id) if name == "x-request-id" => Some(id.clone()),
        _ => None,
    });
    let answer = response(&mut stream, &mut router, 200, "10.0.0.1:80");
    let shown = Command::SetResponseHeader("x-request-id", made.unwrap());
    assert!(answer.commands.contains(&shown));

    let mut stream = Stream::default();
    let given = [("x-request-id", "mine")];
    let step = headers(&mut stream, &mut router, &post("/v1/models", &given), true);
    let sets_id = |command: &Command| matches!(command, Command::SetRequestHeader(name, _) if name == "x-request-id");
    assert!(!step.commands.iter().any(sets_id));
    let answer = response(&mut stream, &mut router, 200, "10.0.0.1:80");
    assert!(answer.commands.contains(&Command::SetResponseHeader(
        "x-request-id",
        b"mine".to_vec()
    )));
}

#[test]
fn the_next_turn_follows_the_first() {
    let mut router = one_pool(r#","debugHeaders":true"#);
    let (mut stream, step) = chat(&mut router);
    let first = destination(&step).unwrap();
    let picked = first.split(',').next().unwrap().to_owned();
    answer(&mut stream, &mut router, &picked);
    finish(&mut stream, &mut router, false);

    let longer = CHAT.replace(
        "}]}",
        r#"},{"role":"assistant","content":"A run of tokens."}]}"#,
    );
    let (mut stream, step) = send(&mut router, "/v1/chat/completions", &longer);
    assert_eq!(
        destination(&step).unwrap().split(',').next(),
        Some(picked.as_str())
    );
    let answer = response(&mut stream, &mut router, 200, &picked);
    let shown = |name, value: &str| {
        answer
            .commands
            .contains(&Command::SetResponseHeader(name, value.as_bytes().to_vec()))
    };
    assert!(
        shown("x-epp-endpoint", &picked) && shown("x-epp-reason", "picked"),
        "{answer:?}"
    );
}

#[test]
fn a_full_match_scores_as_the_formula_says() {
    let mut router = one_pool(r#","debugHeaders":true"#);
    for id in 0..3 {
        let metrics = crate::datalayer::EndpointMetrics::default();
        router
            .pool_mut(0)
            .unwrap()
            .update(EndpointId::new(id), at(1), &metrics);
    }
    for expected in ["0.4000", "1.0000"] {
        let (mut stream, step) = chat(&mut router);
        let picked = destination(&step)
            .unwrap()
            .split(',')
            .next()
            .unwrap()
            .to_owned();
        let answer = answer(&mut stream, &mut router, &picked);
        let score = Command::SetResponseHeader("x-epp-score", expected.as_bytes().to_vec());
        assert!(answer.commands.contains(&score), "{answer:?}");
        finish(&mut stream, &mut router, false);
    }
}

#[test]
fn every_way_to_end_closes_the_lease() {
    let mut router = one_pool("");
    let ends: [fn(&mut Stream, &mut Router); 4] = [
        |_, _| {},
        |stream, router| drop(response(stream, router, 200, "10.0.0.1:80")),
        |stream, router| drop(response(stream, router, 503, "10.0.0.2:80")),
        |stream, router| drop(response(stream, router, 200, "not an address")),
    ];
    for end in ends {
        let (mut stream, _) = chat(&mut router);
        assert_eq!(in_flight(&router).iter().sum::<u32>(), 1);
        end(&mut stream, &mut router);
        assert_eq!(in_flight(&router).iter().sum::<u32>(), 1);
        finish(&mut stream, &mut router, false);
        assert_eq!(in_flight(&router), [0, 0, 0]);
        assert_eq!(finish(&mut stream, &mut router, false), Step::default());
    }
}

#[test]
fn in_flight_counts_add_up_to_zero_even_when_the_request_moves() {
    let mut router = one_pool("");
    let (mut stream, sent) = chat(&mut router);
    let picked = destination(&sent).unwrap();
    let other = if picked.starts_with("10.0.0.1") {
        "10.0.0.2:80"
    } else {
        "10.0.0.1:80"
    };
    let moved = response(&mut stream, &mut router, 200, other);
    let ended = finish(&mut stream, &mut router, false);
    let mut sums = [0_i64; 3];
    for step in [&sent, &moved, &ended] {
        for count in counts(step) {
            if let Count::InFlight {
                endpoint, change, ..
            } = count
            {
                sums[endpoint.index()] += change;
            }
        }
    }
    assert_eq!(counts(&moved).len(), 2);
    assert_eq!(sums, [0, 0, 0]);
}

#[test]
fn a_response_broken_off_after_it_began_is_counted_at_who_broke_it() {
    let reset = |began: bool| {
        let mut router = one_pool("");
        let (mut stream, _) = chat(&mut router);
        if began {
            response(&mut stream, &mut router, 200, "10.0.0.3:80");
        }
        let step = finish(&mut stream, &mut router, true);
        let resets = counts(&step).into_iter().filter_map(|count| match count {
            Count::UpstreamReset { endpoint, .. } => Some(endpoint.index()),
            _ => None,
        });
        resets.collect::<Vec<usize>>()
    };
    assert_eq!(reset(true), [2]);
    assert_eq!(reset(false), [0_usize; 0]);
}

#[test]
fn a_held_request_that_is_aborted_was_never_sent() {
    let mut router = one_pool("");
    let mut stream = Stream::default();
    headers(
        &mut stream,
        &mut router,
        &post("/v1/chat/completions", &[]),
        false,
    );
    body(&mut stream, &mut router, 10, false);
    assert_eq!(finish(&mut stream, &mut router, false), Step::default());
    assert_eq!(in_flight(&router), [0, 0, 0]);
    assert_eq!(router.pools()[0].indexed_blocks(), 0);
}

#[test]
fn fail_close_answers_503_only_where_nobody_is_fit() {
    let unfit = |mode: &str| {
        router(&format!(
            r#"{{"failureMode":"{mode}","pools":[{{"name":"p","cluster":"c",
                "health":{{"staleFloor":0}},"endpoints":["10.0.0.1:80"]}}]}}"#
        ))
    };
    let (_, refused) = chat(&mut unfit("FailClose"));
    assert_eq!(reason(&refused), Reason::NoCandidates);
    let reply = refused.commands.iter().find_map(|command| match command {
        Command::Reply { status, body } => Some((*status, *body)),
        _ => None,
    });
    let (status, text) = reply.unwrap();
    assert_eq!(status, 503);
    assert!(serde_json::from_str::<serde_json::Value>(text).unwrap()["error"].is_object());
    assert_eq!(destination(&refused), None);

    let (_, served) = chat(&mut unfit("FailOpen"));
    assert_eq!(reason(&served), Reason::NoCandidates);
    assert_eq!(destination(&served).as_deref(), Some("10.0.0.1:80"));

    let (_, readable) = chat(&mut one_pool(r#","failureMode":"FailClose""#));
    assert_eq!(reason(&readable), Reason::Picked);
}
