//! How a request is read and routed.

use super::*;

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
fn a_body_that_never_comes_is_routed_by_headers() {
    let mut router = one_pool("");
    let mut stream = Stream::default();
    headers(
        &mut stream,
        &mut router,
        &post("/v1/chat/completions", &[]),
        false,
    );
    assert!(stream.is_held());
    let step = stream.handle(&mut router, Event::BodyOverdue, at(200));
    assert_eq!(
        (reason(&step), step.action),
        (Reason::HeadersOnly, Action::Continue)
    );
    assert!(destination(&step).is_some() && !stream.is_held());
    // The body after all, later than the resume: a slow client, and nothing is switched off.
    assert_eq!(body(&mut stream, &mut router, 10, true), Step::default());
    assert_eq!(router.delivery(), BodyDelivery::default());
}

#[test]
fn a_host_that_withholds_bodies_has_no_stream_held() {
    let mut router = one_pool("");
    while !router.body_was_withheld() {}
    let (stream, step) = chat(&mut router);
    assert_eq!(
        (reason(&step), step.action),
        (Reason::HeadersOnly, Action::Continue)
    );
    assert!(!stream.is_held());
    let get = headers(
        &mut Stream::default(),
        &mut router,
        &post("/v1/models", &[]),
        true,
    );
    assert_eq!(reason(&get), Reason::NoBody);
}

#[test]
fn a_stream_held_before_that_was_known_is_released_after() {
    let mut router = one_pool("");
    let mut stream = Stream::default();
    headers(
        &mut stream,
        &mut router,
        &post("/v1/chat/completions", &[]),
        false,
    );
    while !router.body_was_withheld() {}
    let step = stream.handle(&mut router, Event::BodyOverdue, at(200));
    assert_eq!(
        (reason(&step), step.action),
        (Reason::HeadersOnly, Action::Continue)
    );
    assert_eq!(
        body(&mut stream, &mut router, CHAT.len(), true),
        Step::default()
    );
}

#[test]
fn a_slow_upload_is_waited_for_once_any_body_came_while_held() {
    let mut router = one_pool("");
    chat(&mut router);
    let mut slow = Stream::default();
    headers(
        &mut slow,
        &mut router,
        &post("/v1/chat/completions", &[]),
        false,
    );
    let step = slow.handle(&mut router, Event::BodyOverdue, at(60_000));
    assert_eq!(
        step,
        Step {
            action: Action::Pause,
            commands: Vec::new()
        }
    );
    assert_eq!(
        body(&mut slow, &mut router, CHAT.len(), true),
        read_body(CHAT.len())
    );
    assert_eq!(
        reason(&read(&mut slow, &mut router, CHAT.as_bytes())),
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
        ("/v1/embeddings", none, false, None),
        ("/v1/files", none, false, Some(Reason::UnknownPath)),
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
        (r#"{"messages":[["content"]]}"#, Reason::UnknownShape),
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
fn a_body_cut_off_before_its_model_is_not_asked_for_one() {
    let json = r#"{"pools":[{"name":"p","cluster":"c","match":{"models":["llama*"]},
        "endpoints":["10.0.0.1:80"]}],"maxBufferedBytes":1024}"#;
    let prompt = "x".repeat(5_000);
    let route = |text: &str| {
        let (mut router, mut stream) = (router(json), Stream::default());
        let pairs = post("/v1/completions", &[]);
        headers(&mut stream, &mut router, &pairs, false);
        let read_first = body(&mut stream, &mut router, text.len(), false);
        assert_eq!(read_first, read_body(1_024));
        read(&mut stream, &mut router, &text.as_bytes()[..1_024])
    };
    // As OpenAI's own clients order it.
    let step = route(&format!(r#"{{"prompt":"{prompt}","model":"llama-3"}}"#));
    assert_eq!(destination(&step).as_deref(), Some("10.0.0.1:80"));
    assert_eq!(reason(&step), Reason::Picked);
    let step = route(&format!(r#"{{"model":"gpt","prompt":"{prompt}"}}"#));
    assert_eq!(destination(&step), None, "one that is read is asked for");
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
    let names = crate::flow::CONTROL_HEADERS;
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
fn at_trace_level_each_scorer_tells_what_it_said_of_those_named() {
    let told = |extra: &str| {
        let (_, step) = chat(&mut one_pool(extra));
        let lines = step.commands.iter().filter_map(|command| match command {
            Command::Trace(line) => Some(line.clone()),
            _ => None,
        });
        lines.collect::<Vec<_>>()
    };
    assert_eq!(told(r#","logLevel":"debug""#), Vec::<String>::new());
    let lines = told(r#","logLevel":"trace""#);
    assert_eq!(lines.len(), 3, "the pick and two fallbacks: {lines:?}");
    for line in lines {
        let scorers = [
            "prefix-cache-scorer 0.600×0.000",
            "load-scorer 0.200×1.000",
            "queue-depth-scorer 0.100×1.000",
        ];
        let is_whole = scorers.iter().all(|scorer| line.contains(scorer));
        assert!(is_whole && line.starts_with("pod=10.0.0."), "{line}");
    }
}
