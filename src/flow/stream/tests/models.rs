//! Models under other names, and responses that are gone on from.

use super::*;
use crate::flow::Replacement;
use crate::requesthandling::Edit;

/// Two endpoints; `support` is `billing`, an adapter, or `base`, one to one.
fn models() -> Router {
    router(
        r#"{"pools":[{"name":"p","cluster":"c","match":{"pathPrefix":"/v1"},
            "endpoints":["10.0.0.1:80","10.0.0.2:80"],
            "models":[{"name":"support","targets":[{"model":"billing","adapter":true}]},
                      {"name":"mixed","targets":[{"model":"a"},{"model":"b"}]},
                      {"name":"same","targets":[{"model":"same"}]}]}]}"#,
    )
}

fn replacement(step: &Step) -> Option<&Replacement> {
    step.commands.iter().find_map(|command| match command {
        Command::ReplaceBody(replacement) => Some(replacement),
        _ => None,
    })
}

/// Sends a whole body whose length was announced.
fn announced(router: &mut Router, text: &str) -> Step {
    let mut stream = Stream::default();
    let length = text.len().to_string();
    let pairs = post("/v1/completions", &[("content-length", &length)]);
    headers(&mut stream, router, &pairs, false);
    body(&mut stream, router, text.len(), true);
    read(&mut stream, router, text.as_bytes())
}

#[test]
fn a_name_of_ours_is_replaced_by_the_targets() {
    let text = r#"{"prompt":"x","model":"support"}"#;
    let step = announced(&mut models(), text);
    let expected = Replacement {
        edits: vec![Edit::new(22..31, r#""billing""#)],
        held: 32,
        headers: vec![
            ("x-llm-d-model-name-rewrite", b"billing".to_vec()),
            ("content-length", b"32".to_vec()),
        ],
    };
    assert_eq!(replacement(&step), Some(&expected));
    assert!(destination(&step).is_some());
    // The client's name is what is counted, the target's what is loaded.
    let asked = counts(&step)
        .iter()
        .any(|count| matches!(count, Count::Decision { model, .. } if model == "support"));
    let loads = counts(&step)
        .iter()
        .any(|count| matches!(count, Count::AdapterLoad { adapter, .. } if adapter == "billing"));
    assert!(asked && loads, "{step:?}");
}

#[test]
fn a_length_that_was_not_announced_is_not_made_up() {
    let (_, step) = send(
        &mut models(),
        "/v1/completions",
        r#"{"model":"support","prompt":"x"}"#,
    );
    let headers = &replacement(&step).unwrap().headers;
    assert_eq!(headers.len(), 1);
}

#[test]
fn other_names_stay() {
    for model in [r#""gpt""#, r#""same""#, r#""Support""#, "5", "null"] {
        let text = format!(r#"{{"model":{model},"prompt":"x"}}"#);
        assert_eq!(
            replacement(&announced(&mut models(), &text)),
            None,
            "{model}"
        );
    }
    let without = announced(&mut models(), r#"{"prompt":"x"}"#);
    assert_eq!(replacement(&without), None);
}

#[test]
fn a_name_is_replaced_where_the_prompt_cannot_be_read() {
    let step = announced(&mut models(), r#"{"model":"support","prompt":5}"#);
    assert_eq!(reason(&step), Reason::UnknownShape);
    assert!(replacement(&step).is_some());
}

#[test]
fn a_conversation_keeps_its_target() {
    let mut router = models();
    let mut targets = Vec::new();
    for number in 0..40 {
        let target = |router: &mut Router, more: &str| {
            let text = format!(
                r#"{{"model":"mixed","messages":[{{"role":"user","content":"{number}"}}{more}]}}"#
            );
            let (_, step) = send(router, "/v1/chat/completions", &text);
            replacement(&step).unwrap().edits[0].bytes.clone()
        };
        let first = target(&mut router, "");
        assert_eq!(
            target(&mut router, r#",{"role":"assistant","content":"y"}"#),
            first
        );
        targets.push(first);
    }
    targets.sort();
    targets.dedup();
    assert_eq!(targets.len(), 2, "both are used");
}

#[test]
fn of_a_body_that_is_too_long_the_name_must_lie_in_the_part_that_is_held() {
    let mut router = router(
        r#"{"pools":[{"name":"p","cluster":"c","match":{"models":["support"]},
            "endpoints":["10.0.0.1:80"],
            "models":[{"name":"support","targets":[{"model":"billing"}]}]}],
            "maxBufferedBytes":1024}"#,
    );
    let prompt = "x".repeat(3_000);
    for (text, is_replaced) in [
        (
            format!(r#"{{"model":"support","prompt":"{prompt}"}}"#),
            true,
        ),
        (
            format!(r#"{{"prompt":"{prompt}","model":"support"}}"#),
            false,
        ),
        (
            format!(r#"{{"x":"{}","model":"support"}}"#, "x".repeat(1_000)),
            false,
        ),
    ] {
        let mut stream = Stream::default();
        let length = text.len().to_string();
        let pairs = post("/v1/completions", &[("content-length", &length)]);
        headers(&mut stream, &mut router, &pairs, false);
        body(&mut stream, &mut router, 1_100, false);
        let step = read(&mut stream, &mut router, &text.as_bytes()[..1_024]);
        let replacement = replacement(&step);
        assert_eq!(replacement.is_some(), is_replaced, "{step:?}");
        if let Some(replacement) = replacement {
            assert_eq!(replacement.held, 1_100);
        }
        // A model that is not known is not asked for: the pool takes it.
        assert!(destination(&step).is_some());
    }
}

#[test]
fn nothing_is_replaced_in_what_goes_nowhere() {
    let mut router = router(
        r#"{"pools":[{"name":"p","cluster":"c","match":{"models":["llama"]},
            "endpoints":["10.0.0.1:80"],
            "models":[{"name":"support","targets":[{"model":"billing"}]}]}]}"#,
    );
    let step = announced(&mut router, r#"{"model":"support","prompt":"x"}"#);
    assert_eq!(step, Step::default());
}

/// Asks for a response, which `from` gives with a body that begins with `start`.
fn respond(router: &mut Router, text: &str, start: &[u8]) -> Step {
    let (mut stream, step) = send(router, "/v1/responses", text);
    let from = destination(&step).unwrap();
    let from = from.split(',').next().unwrap();
    response(&mut stream, router, 200, from);
    let began = stream.handle(router, FIRST_PIECE, at(3));
    assert_eq!(began.commands, [Command::ReadResponseBody(512)]);
    let read = stream.handle(router, Event::ResponseBodyRead(start.to_vec()), at(3));
    assert_eq!(read, Step::default());
    finish(&mut stream, router, false);
    step
}

#[test]
fn a_response_is_gone_on_from_at_its_endpoint() {
    for start in [
        &br#"{"id":"resp_1","object":"response"}"#[..],
        b"event: response.created\ndata: {\"response\": {\"id\" : \"resp_1\",\"x\":1}}\n\n",
    ] {
        let mut router = one_pool("");
        let first = respond(&mut router, r#"{"model":"m","input":"x"}"#, start);
        let next = r#"{"model":"m","input":"y","previous_response_id":"resp_1"}"#;
        let (_, step) = send(&mut router, "/v1/responses", next);
        assert_eq!(destination(&step).unwrap(), destination(&first).unwrap());
        assert!(counts(&step).iter().any(|count| matches!(
            count,
            Count::Scored {
                matched_blocks: 1,
                total_blocks: 1,
                ..
            }
        )));
        // Nobody gave that one, and another tenant's is another.
        for other in [
            r#"{"model":"m","input":"y","previous_response_id":"resp_2"}"#,
            r#"{"model":"m","input":"y","previous_response_id":"resp_1","cache_salt":"s"}"#,
        ] {
            let (_, step) = send(&mut router, "/v1/responses", other);
            assert!(counts(&step).iter().any(|count| matches!(
                count,
                Count::Scored {
                    matched_blocks: 0,
                    ..
                }
            )));
        }
    }
}

#[test]
fn a_response_without_an_id_is_remembered_by_nobody() {
    for start in [
        &b""[..],
        b"{}",
        br#"{"id":5}"#,
        br#"{"id":"resp_"#,
        br#"{"id":"a\"b"}"#,
        b"\"id\"",
    ] {
        let mut router = one_pool("");
        respond(&mut router, r#"{"model":"m","input":"x"}"#, start);
        let blocks = router.pools()[0].indexed_blocks();
        assert_eq!(blocks, 1, "the prompt's own, {start:?}");
    }
}
