//! The other modes, and what decides whether a request is split.

use super::*;
use crate::config::OverrideMode;

#[test]
fn both_servers_of_sglang_get_the_request_at_once() {
    let mut router = sglang();
    let (mut stream, step) = completion(&mut router, TEXT);
    assert_eq!(step.action, Action::Pause);
    let asked = core::str::from_utf8(&call(&step).unwrap().body)
        .unwrap()
        .to_owned();
    let step = stream.handle(&mut router, Event::PrefillSent, at(3));
    assert_eq!((step.action, decisions(&step)), (Action::Continue, vec![]));
    assert_eq!(sent_body(&step, TEXT), asked);
    let room: Value = serde_json::from_str(&asked).unwrap();
    assert_eq!(
        (&room["bootstrap_host"], &room["bootstrap_port"]),
        (&json!("10.0.0.3"), &json!(8998))
    );
    assert!(
        room["bootstrap_room"]
            .as_u64()
            .is_some_and(|room| room < 1 << 63),
        "{asked}"
    );
    assert_eq!(request_header(&step, "x-envoy-max-retries"), Some("0"));
    assert_eq!(destination(&step).unwrap().split(',').count(), 1);
    assert_eq!(in_flight(&router), [1, 0, 1]);
    // Its answer changes nothing about the request.
    let end = PrefillEnd::Answered {
        status: 200,
        body: b"{}".to_vec(),
    };
    let step = ended(&mut stream, &mut router, end);
    assert_eq!(
        (step.action, decisions(&step)),
        (Action::Pause, vec![SplitDecision::PrefillDecode])
    );
    answer(&mut stream, &mut router, "10.0.0.1:80");
    assert_eq!(finish(&mut stream, &mut router, false), Step::default());
    assert_eq!((in_flight(&router), blocks(&router)), (vec![0, 0, 0], 2));
}

#[test]
fn nothing_is_split_where_a_session_filter_chooses_the_endpoint() {
    let mut config = nixl().config().clone();
    config.override_host.mode = OverrideMode::StatefulSession;
    let mut router = Router::new(config, &LedgerHandle::new(Ledger::alone())).unwrap();
    let (_, step) = completion(&mut router, TEXT);
    assert_eq!(step.action, Action::Continue);
    assert_eq!(call(&step), None);
    assert_eq!(decisions(&step), [SplitDecision::NotSplittable]);
}

#[test]
fn a_call_that_cannot_be_made_leaves_no_bootstrap_behind() {
    let mut router = sglang();
    let (mut stream, _) = completion(&mut router, TEXT);
    let step = ended(&mut stream, &mut router, PrefillEnd::Refused);
    assert_eq!(
        (step.action, sent_body(&step, TEXT).as_str()),
        (Action::Continue, TEXT)
    );
    assert_eq!(decisions(&step), [SplitDecision::PrefillRefused]);
}

#[test]
fn a_stream_that_ends_before_the_call_counts_once() {
    for (answers, decision) in [
        (true, SplitDecision::PrefillDecode),
        (false, SplitDecision::ClientGone),
    ] {
        let mut router = sglang();
        let (mut stream, _) = completion(&mut router, TEXT);
        stream.handle(&mut router, Event::PrefillSent, at(3));
        if answers {
            answer(&mut stream, &mut router, "10.0.0.1:80");
        }
        let step = finish(&mut stream, &mut router, false);
        assert_eq!(decisions(&step), [decision]);
    }
}

#[test]
fn tokens_are_estimated_by_what_answers_said_of_the_model() {
    let decider = json!({"type": "prefix-based-pd-decider", "name": "d", "parameters": {"nonCachedTokens": 100}});
    let mut router = split_pool("inline-nixl", &decider);
    let text = |name: &str| format!(r#"{{"model":"m","prompt":"{}"}}"#, name.repeat(320));
    // 320 bytes are 80 tokens of four.
    let (mut stream, step) = completion(&mut router, &text("a"));
    assert_eq!(decisions(&step), [SplitDecision::DecodeOnly]);
    answer(
        &mut stream,
        &mut router,
        destination(&step).unwrap().split(',').next().unwrap(),
    );
    assert!(stream.reads_response());
    for piece in [r#"{"choices":[],"us"#, r#"age":{"prompt_tokens":160}}"#] {
        stream.handle(&mut router, Event::ResponsePiece(piece.as_bytes()), at(4));
    }
    finish(&mut stream, &mut router, false);
    // They were 160 of two.
    let (_, step) = completion(&mut router, &text("b"));
    assert!(call(&step).is_some(), "{step:?}");
    // Another model is another matter.
    let (_, step) = completion(&mut router, &text("c").replace("\"m\"", "\"n\""));
    assert_eq!(decisions(&step), [SplitDecision::DecodeOnly]);
}

#[test]
fn four_identical_requests_of_436_bytes_are_split_once() {
    let decider = json!({"type": "prefix-based-pd-decider", "name": "d", "parameters": {"nonCachedTokens": 1}});
    let mut router = split_pool("inline-nixl", &decider);
    let text = format!(r#"{{"model":"m","prompt":"{}"}}"#, "x".repeat(436));
    let mut made = Vec::new();
    for _ in 0..4 {
        let (mut stream, step) = completion(&mut router, &text);
        made.extend(decisions(&step));
        let first = destination(&step)
            .unwrap()
            .split(',')
            .next()
            .unwrap()
            .to_owned();
        if call(&step).is_some() {
            stream.handle(&mut router, Event::PrefillSent, at(3));
            made.extend(decisions(&ended(&mut stream, &mut router, params(PARAMS))));
        }
        answer(&mut stream, &mut router, &first);
        finish(&mut stream, &mut router, false);
    }
    let local = SplitDecision::DecodeOnly;
    assert_eq!(made, [SplitDecision::PrefillDecode, local, local, local]);
}

#[test]
fn an_inline_mode_without_two_endpoints_to_name_is_refused() {
    let json = r#"{"pools":[{"name":"p","cluster":"c","endpoints":["10.0.0.1:80"],"disaggregation":{"mode":"inline-nixl"}}]}"#;
    let config = Config::parse(json.as_bytes()).unwrap();
    let error = Router::new(config, &LedgerHandle::new(Ledger::alone())).unwrap_err();
    assert_eq!(
        error.to_string(),
        "pools[0].disaggregation.mode: expected a disagg-profile-handler in endpointPickerConfig, \
         which names both endpoints, found inline-nixl without one"
    );
}

#[test]
fn off_tells_nobody_and_counts_nothing() {
    let always = json!({"type": "always-disagg-pd-decider", "name": "d"});
    for (mode, told, decisions_made) in [
        ("off", None, vec![]),
        ("header", Some("10.0.0.3:80"), vec![SplitDecision::Sidecar]),
    ] {
        let mut router = split_pool(mode, &always);
        let (_, step) = completion(&mut router, TEXT);
        assert_eq!((step.action, call(&step)), (Action::Continue, None));
        assert_eq!(request_header(&step, "x-prefiller-host-port"), told);
        assert_eq!(decisions(&step), decisions_made);
        assert_eq!(in_flight(&router), [1, 0, u32::from(told.is_some())]);
    }
}
