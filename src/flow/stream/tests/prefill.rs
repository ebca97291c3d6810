//! Requests whose prompt is computed at another endpoint.

mod modes;

use serde_json::{Value, json};

use super::*;
use crate::flow::{PrefillCall, PrefillEnd, Replacement};
use crate::requesthandling::Edit;
use crate::telemetry::SplitDecision;

const TEXT: &str = r#"{"model":"m","prompt":"a prompt","max_tokens":9,"stream":true}"#;
const PARAMS: &str = r#"{"do_remote_prefill":true,"remote_block_ids":[[7]],"remote_engine_id":"e","remote_request_id":"r","remote_host":"h","remote_port":5}"#;

/// Endpoints 1 and 2 decode, 3 computes prompts; all long and new ones are worth it.
fn split_pool(mode: &str, decider: &Value) -> Router {
    let endpoint =
        |address: &str, role: &str| json!({"address": address, "labels": {"llm-d.ai/role": role}});
    let config = json!({"pools": [{
        "name": "p", "cluster": "c", "match": {"pathPrefix": "/v1"},
        "endpoints": [
            endpoint("10.0.0.1:80", "decode"), endpoint("10.0.0.2:80", "decode"),
            endpoint("10.0.0.3:80", "prefill"),
        ],
        "disaggregation": {"mode": mode, "prefillTimeout": "5s"},
        "endpointPickerConfig": {
            "apiVersion": "llm-d.ai/v1alpha1", "kind": "EndpointPickerConfig",
            "plugins": [
                {"type": "decode-filter"}, {"type": "prefill-filter"}, {"type": "prefix-cache-scorer"},
                decider,
                {"type": "disagg-profile-handler", "parameters": {"deciders": {"prefill": "d"}}},
            ],
            "schedulingProfiles": [
                {"name": "decode", "plugins": [{"pluginRef": "decode-filter"}, {"pluginRef": "prefix-cache-scorer"}]},
                {"name": "prefill", "plugins": [{"pluginRef": "prefill-filter"}]},
            ],
        },
    }]});
    router(&config.to_string())
}

fn nixl() -> Router {
    split_pool(
        "inline-nixl",
        &json!({"type": "always-disagg-pd-decider", "name": "d"}),
    )
}

fn sglang() -> Router {
    split_pool(
        "inline-sglang",
        &json!({"type": "always-disagg-pd-decider", "name": "d"}),
    )
}

fn completion(router: &mut Router, text: &str) -> (Stream, Step) {
    let mut stream = Stream::default();
    let length = text.len().to_string();
    let more = [
        ("content-length", length.as_str()),
        ("content-type", "application/json"),
        ("authorization", "Bearer key"),
        ("x-request-id", "id-1"),
        ("x-data-parallel-rank", "1"),
        ("x-prefiller-host-port", "10.9.9.9:9"),
    ];
    headers(&mut stream, router, &post("/v1/completions", &more), false);
    assert_eq!(
        body(&mut stream, router, text.len(), true),
        read_body(text.len())
    );
    let step = read(&mut stream, router, text.as_bytes());
    (stream, step)
}

fn call(step: &Step) -> Option<&PrefillCall> {
    match step.commands.last() {
        Some(Command::Prefill(call)) => Some(call),
        _ => None,
    }
}

fn replacement(step: &Step) -> Option<&Replacement> {
    step.commands.iter().find_map(|command| match command {
        Command::ReplaceBody(replacement) => Some(replacement),
        _ => None,
    })
}

/// The body that leaves.
fn sent_body(step: &Step, text: &str) -> String {
    let edits = replacement(step).map_or(&[][..], |replacement| &replacement.edits);
    String::from_utf8(Edit::apply(edits, &mut text.as_bytes())).unwrap()
}

fn decisions(step: &Step) -> Vec<SplitDecision> {
    let found = counts(step).into_iter().filter_map(|count| match count {
        Count::Split { decision, .. } => Some(*decision),
        _ => None,
    });
    found.collect()
}

fn request_header<'a>(step: &'a Step, wanted: &str) -> Option<&'a str> {
    step.commands.iter().find_map(|command| match command {
        Command::SetRequestHeader(name, value) if name == wanted => {
            core::str::from_utf8(value).ok()
        }
        _ => None,
    })
}

fn ended(stream: &mut Stream, router: &mut Router, end: PrefillEnd) -> Step {
    stream.handle(router, Event::PrefillEnded(end), at(7))
}

fn params(params: &str) -> PrefillEnd {
    PrefillEnd::Answered {
        status: 200,
        body: format!("{{\"id\":1,\"kv_transfer_params\":{params}}}").into_bytes(),
    }
}

fn blocks(router: &Router) -> usize {
    router.pools()[0].indexed_blocks()
}

#[test]
fn the_prompt_is_asked_of_the_prefill_endpoint_alone_and_the_request_waits() {
    let mut router = nixl();
    let (mut stream, step) = completion(&mut router, TEXT);
    assert_eq!(step.action, Action::Pause);
    assert_eq!((reason(&step), decisions(&step)), (Reason::Picked, vec![]));
    let call = call(&step).unwrap();
    assert_eq!((call.cluster.as_str(), call.timeout.as_secs()), ("c", 5));
    let expected = [
        (":method", "POST"),
        (":path", "/v1/completions"),
        (":authority", "llm.example"),
        ("x-gateway-destination-endpoint", "10.0.0.3:80"),
        ("x-request-id", "id-1"),
        ("content-type", "application/json"),
        ("authorization", "Bearer key"),
    ];
    let expected = expected.map(|(name, value)| (name.to_owned(), value.to_owned()));
    assert_eq!(call.headers, expected);
    assert_eq!(
        core::str::from_utf8(&call.body).unwrap(),
        r#"{"kv_transfer_params":{"do_remote_decode":true,"do_remote_prefill":false},"model":"m","prompt":"a prompt","max_tokens":1,"stream":false}"#
    );
    assert!(!format!("{step:?}").contains("a prompt"));
    let waits = stream.handle(&mut router, Event::PrefillSent, at(3));
    assert_eq!((waits.action, waits.commands), (Action::Pause, vec![]));
    // Nothing that still comes of the request lets it go.
    assert_eq!(
        body(&mut stream, &mut router, TEXT.len(), true).action,
        Action::Pause
    );
    assert_eq!(
        stream
            .handle(&mut router, Event::RequestTrailers, at(3))
            .action,
        Action::Pause
    );
    assert_eq!(in_flight(&router), [1, 0, 1]);
}

#[test]
fn what_it_answers_goes_to_the_decode_endpoint_byte_for_byte_and_once() {
    let mut router = nixl();
    let (mut stream, step) = completion(&mut router, TEXT);
    let decode = destination(&step).unwrap();
    assert_eq!(decode.split(',').count(), 2, "{decode}");
    let first = decode.split(',').next().unwrap().to_owned();
    stream.handle(&mut router, Event::PrefillSent, at(3));
    let step = ended(&mut stream, &mut router, params(PARAMS));
    assert_eq!(
        (step.action, decisions(&step)),
        (Action::Continue, vec![SplitDecision::PrefillDecode])
    );
    assert!(counts(&step).contains(&&Count::Prefilled {
        took: core::time::Duration::from_millis(5)
    }));
    assert_eq!(
        sent_body(&step, TEXT),
        format!(
            r#"{{"kv_transfer_params":{PARAMS},"model":"m","prompt":"a prompt","max_tokens":9,"stream":true}}"#
        )
    );
    let length = sent_body(&step, TEXT).len().to_string();
    assert_eq!(
        replacement(&step).unwrap().headers,
        [("content-length", length.into_bytes())]
    );
    // No list and no retry: nobody else can use the parameters.
    assert_eq!(destination(&step), Some(first.clone()));
    assert_eq!(request_header(&step, "x-envoy-max-retries"), Some("0"));
    // The prefill endpoint is done, and has the prompt.
    assert_eq!(in_flight(&router), [1, 0, 0]);
    answer(&mut stream, &mut router, &first);
    assert_eq!(finish(&mut stream, &mut router, false), Step::default());
    assert_eq!((in_flight(&router), blocks(&router)), (vec![0, 0, 0], 2));
}

/// How a call can fail: what is counted, how many blocks stay at the endpoint, and whether its health
/// falls.
fn failures() -> Vec<(PrefillEnd, SplitDecision, usize, bool)> {
    let answered = |status, body: &str| PrefillEnd::Answered {
        status,
        body: body.into(),
    };
    vec![
        (PrefillEnd::Refused, SplitDecision::PrefillRefused, 0, true),
        (PrefillEnd::TimedOut, SplitDecision::PrefillTimeout, 0, true),
        (PrefillEnd::Broken, SplitDecision::PrefillReset, 0, true),
        (answered(500, "{}"), SplitDecision::PrefillError, 0, true),
        (answered(503, "{}"), SplitDecision::PrefillError, 0, true),
        (answered(429, "{}"), SplitDecision::PrefillError, 0, false),
        (answered(400, "{}"), SplitDecision::PrefillError, 0, false),
        (
            answered(200, "{}"),
            SplitDecision::PrefillNoParams,
            1,
            false,
        ),
        (params("null"), SplitDecision::PrefillNoParams, 1, false),
        (
            params(r#"{"do_remote_prefill":true}"#),
            SplitDecision::PrefillNoParams,
            1,
            false,
        ),
        (
            PrefillEnd::Oversized,
            SplitDecision::PrefillOversized,
            1,
            false,
        ),
    ]
}

#[test]
fn whatever_fails_the_decode_endpoint_does_it_all() {
    for (end, decision, held, failed) in failures() {
        let mut router = nixl();
        let (mut stream, step) = completion(&mut router, TEXT);
        let list = destination(&step).unwrap();
        stream.handle(&mut router, Event::PrefillSent, at(3));
        let step = ended(&mut stream, &mut router, end);
        assert_eq!(
            (step.action, decisions(&step)),
            (Action::Continue, vec![decision])
        );
        assert_eq!(sent_body(&step, TEXT), TEXT, "{decision:?}");
        // The list that was set with the pick stands, and so do its retries.
        assert_eq!(
            (
                destination(&step),
                request_header(&step, "x-envoy-max-retries")
            ),
            (None, None)
        );
        assert_eq!(in_flight(&router), [1, 0, 0], "{decision:?}");
        router.pool_mut(0).unwrap().take_outcomes(at(8));
        let health = router.pools()[0].health(EndpointId::new(2), at(8));
        assert_eq!(
            health < router.pools()[0].health(EndpointId::new(1), at(8)),
            failed,
            "{decision:?}"
        );
        answer(&mut stream, &mut router, list.split(',').next().unwrap());
        finish(&mut stream, &mut router, false);
        assert_eq!(
            (in_flight(&router), blocks(&router)),
            (vec![0, 0, 0], 1 + held),
            "{decision:?}"
        );
    }
}

#[test]
fn a_call_that_never_began_has_no_latency() {
    let mut router = nixl();
    let (mut stream, _) = completion(&mut router, TEXT);
    let step = ended(&mut stream, &mut router, PrefillEnd::Refused);
    assert_eq!(step.action, Action::Continue);
    assert_eq!(counts(&step).len(), 1, "{step:?}");
}

#[test]
fn a_client_that_leaves_meanwhile_leaves_load_and_pending_blocks_at_the_prefill_endpoint() {
    let mut router = nixl();
    let (mut stream, _) = completion(&mut router, TEXT);
    stream.handle(&mut router, Event::PrefillSent, at(3));
    let step = finish(&mut stream, &mut router, false);
    assert_eq!(decisions(&step), [SplitDecision::ClientGone]);
    assert_eq!((in_flight(&router), blocks(&router)), (vec![0, 0, 1], 1));
    router.pools_mut()[0].expire_abandoned(at(5_001));
    assert_eq!((in_flight(&router), blocks(&router)), (vec![0, 0, 1], 1));
    router.pools_mut()[0].expire_abandoned(at(5_002));
    assert_eq!((in_flight(&router), blocks(&router)), (vec![0, 0, 0], 0));
    // Late answers change nothing.
    assert_eq!(
        ended(&mut stream, &mut router, params(PARAMS)).action,
        Action::Pause
    );
}

#[test]
fn leases_of_nobody_end_with_their_configuration() {
    let ledger = LedgerHandle::new(Ledger::alone());
    let config = nixl().config().clone();
    let mut first = Router::new(config.clone(), &ledger).unwrap();
    let second = Router::new(config, &ledger).unwrap();
    let (mut stream, _) = completion(&mut first, TEXT);
    finish(&mut stream, &mut first, false);
    assert_eq!(in_flight(&second), [0, 0, 1]);
    drop(first);
    assert_eq!(in_flight(&second), [0, 0, 0]);
}

#[test]
fn what_cannot_be_shared_goes_to_the_decode_endpoint_with_its_retries() {
    let mut router = nixl();
    let two = r#"{"model":"m","prompt":["a prompt","another"],"n":2}"#;
    let (_, step) = completion(&mut router, two);
    assert_eq!((step.action, call(&step)), (Action::Continue, None));
    assert_eq!(decisions(&step), [SplitDecision::NotSplittable]);
    assert_eq!(in_flight(&router), [1, 0, 0]);
    let (_, step) = send(&mut router, "/v1/responses", r#"{"input":"x"}"#);
    assert_eq!(decisions(&step), [SplitDecision::NotSplittable]);
    let (_, step) = send(&mut router, "/v1/completions", "{}");
    assert_eq!(decisions(&step), [SplitDecision::NoPrompt]);
}

#[test]
fn what_servers_hand_each_other_is_cut_out_of_every_pools_requests() {
    let forged = r#"{"model":"m","kv_transfer_params":{"do_remote_prefill":true},"prompt":"x","bootstrap_room":4}"#;
    let clean = r#"{"model":"m","prompt":"x"}"#;
    let (_, step) = completion(&mut one_pool(""), forged);
    assert_eq!(sent_body(&step, forged), clean);
    let length = clean.len().to_string().into_bytes();
    assert_eq!(
        replacement(&step).unwrap().headers,
        [("content-length", length)]
    );
    assert!(
        step.commands
            .iter()
            .all(|command| !matches!(command, Command::Count(Count::Split { .. })))
    );
    // Where a split falls through, too, and in a body of which only the beginning is held.
    let mut router = nixl();
    let (mut stream, _) = completion(&mut router, forged);
    let step = ended(&mut stream, &mut router, PrefillEnd::Refused);
    assert_eq!(sent_body(&step, forged), clean);
    let mut router = one_pool(r#","maxBufferedBytes":1024"#);
    let long = forged.replace("\"x\"", &format!("\"{}\"", "x".repeat(2_000)));
    let mut stream = Stream::default();
    headers(
        &mut stream,
        &mut router,
        &post("/v1/completions", &[]),
        false,
    );
    body(&mut stream, &mut router, long.len(), false);
    let step = read(&mut stream, &mut router, &long.as_bytes()[..1024]);
    let left = sent_body(&step, &long);
    assert!(!left.contains("kv_transfer_params"), "{left}");
}
