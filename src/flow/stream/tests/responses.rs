//! What a response and its end do.

use super::*;

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
    // Many of them: of three endpoints, chance alone brings a turn back one time in three.
    for conversation in 0..20 {
        let question = format!(
            "What is block {conversation}? {}",
            "Be thorough. ".repeat(40)
        );
        let text = CHAT.replace("What is a block?", &question);
        let (mut stream, step) = send(&mut router, "/v1/chat/completions", &text);
        let listed = destination(&step).unwrap();
        // The second choice serves: the next turn must follow it, not the first.
        let server = listed.split(',').nth(1).unwrap();
        answer(&mut stream, &mut router, server);
        finish(&mut stream, &mut router, false);

        let more = r#"},{"role":"assistant","content":"A run of tokens."}]}"#;
        let longer = text.replace("}]}", more);
        let (mut stream, step) = send(&mut router, "/v1/chat/completions", &longer);
        assert_eq!(destination(&step).unwrap().split(',').next(), Some(server));
        let shown = response(&mut stream, &mut router, 200, server).commands;
        let has = |name, value: &str| {
            shown.contains(&Command::SetResponseHeader(name, value.as_bytes().to_vec()))
        };
        assert!(
            has("x-epp-endpoint", server) && has("x-epp-reason", "picked"),
            "{shown:?}"
        );
        finish(&mut stream, &mut router, false);
    }
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
fn a_request_that_moves_counts_where_it_is_and_nowhere_at_its_end() {
    let mut router = one_pool("");
    let (mut stream, sent) = chat(&mut router);
    let picked = destination(&sent).unwrap();
    let (other, place) = if picked.starts_with("10.0.0.1") {
        ("10.0.0.2:80", 1)
    } else {
        ("10.0.0.1:80", 0)
    };
    response(&mut stream, &mut router, 200, other);
    let mut there = [0; 3];
    there[place] = 1;
    assert_eq!(in_flight(&router), there);
    finish(&mut stream, &mut router, false);
    assert_eq!(in_flight(&router), [0, 0, 0]);
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
        let mut router = router(&format!(
            r#"{{"failureMode":"{mode}","pools":[{{"name":"p","cluster":"c",
                "endpoints":["10.0.0.1:80"]}}]}}"#
        ));
        for _ in 0..20 {
            let pool = router.pool_mut(0).unwrap();
            pool.failed(EndpointId::new(0));
        }
        router
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

#[test]
fn an_answer_that_comes_whole_confirms_its_blocks_with_its_end() {
    let confirmed = |content_length, bytes, end_of_stream, broken_off| {
        let mut router = one_pool("");
        let (mut stream, _) = chat(&mut router);
        let head = Event::ResponseHeaders {
            status: 200,
            by_upstream: true,
            upstream: "10.0.0.1:80".parse().ok(),
            failed_attempts: 0,
            content_length,
        };
        stream.handle(&mut router, head, at(3));
        let first = Event::ResponseBody {
            bytes,
            end_of_stream,
        };
        stream.handle(&mut router, first, at(3));
        finish(&mut stream, &mut router, broken_off);
        assert_eq!(in_flight(&router), [0, 0, 0]);
        router.pools()[0].indexed_blocks()
    };
    let all = confirmed(None, 5, false, false);
    assert!(all > 0);
    assert_eq!(confirmed(Some(5), 5, false, false), all);
    assert_eq!(confirmed(None, 5, true, false), all);
    assert_eq!(confirmed(Some(50), 5, false, true), all);
}
