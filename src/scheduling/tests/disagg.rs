//! Prefill and decode: llm-d's decider rows, and which profiles run.

use serde_json::{Value, json};

use super::build::{refusal_of, scheduler_of};
use super::*;
use crate::datalayer::Labels;

/// One decode and one prefill endpoint.
fn pods() -> Vec<Candidate> {
    let with_role = |id, role: &str| Candidate {
        labels: [("llm-d.ai/role".to_owned(), role.to_owned())]
            .into_iter()
            .collect::<Labels>(),
        ..idle(id)
    };
    vec![with_role(0, "decode"), with_role(1, "prefill")]
}

/// The most quoted prefill/decode configuration, with `handler` and `decider`.
fn config(handler: &Value, decider: &Value) -> Value {
    json!({
        "plugins": [
            {"type": "disagg-headers-handler"},
            {"type": "prefill-filter"},
            {"type": "decode-filter"},
            {"type": "prefix-cache-scorer"},
            {"type": "queue-scorer"},
            {"type": "kv-cache-utilization-scorer"},
            {"type": "max-score-picker"},
            {"type": "disagg-profile-handler", "parameters": handler},
            decider,
        ],
        "schedulingProfiles": [
            {"name": "prefill", "plugins": [
                {"pluginRef": "prefill-filter"}, {"pluginRef": "max-score-picker"},
                {"pluginRef": "prefix-cache-scorer", "weight": 3}, {"pluginRef": "queue-scorer", "weight": 1},
            ]},
            {"name": "decode", "plugins": [
                {"pluginRef": "decode-filter"}, {"pluginRef": "max-score-picker"},
                {"pluginRef": "prefix-cache-scorer", "weight": 3}, {"pluginRef": "queue-scorer", "weight": 2},
                {"pluginRef": "kv-cache-utilization-scorer", "weight": 2},
            ]},
        ],
    })
}

fn always() -> Scheduler {
    let handler = json!({"deciders": {"prefill": "d"}});
    scheduler_of(&config(
        &handler,
        &json!({"type": "always-disagg-pd-decider", "name": "d"}),
    ))
}

fn prefix_based(parameters: &Value) -> Scheduler {
    let handler = json!({"deciders": {"prefill": "prefix-based-pd-decider"}});
    let decider = json!({"type": "prefix-based-pd-decider", "parameters": parameters});
    scheduler_of(&config(&handler, &decider))
}

/// Whom a scheduler chooses for decode and for prefill.
fn picks(scheduler: &Scheduler, request: &Request, pods: &[Candidate]) -> (usize, Option<usize>) {
    let schedule = scheduler.schedule(request, pods);
    let decode = schedule.decision.ranking[0].endpoint.index();
    (decode, schedule.prefill.map(EndpointId::index))
}

#[test]
fn prefix_based_pd_decider() {
    for (non_cached, prompt, cached, expected) in [
        (0, 0, 5, false),
        (5, 20, 0, false),
        (20, 0, 0, false),
        (5, 10, 5, true),
        (5, 0, 8, false),
        (5, 0, 5, true),
        (3, 0, 2, true),
        (1, 0, 10, false),
        (5, 0, 0, true),
    ] {
        let scheduler =
            prefix_based(&json!({"nonCachedTokens": non_cached, "promptTokens": prompt}));
        let mut pods = pods();
        pods[0].matched_blocks = cached;
        let request = Request {
            block_tokens: 1,
            prompt_tokens: 10.0,
            tokens_per_block: 1.0,
            ..request(7, 1)
        };
        let prefill = picks(&scheduler, &request, &pods).1;
        assert_eq!(
            prefill.is_some(),
            expected,
            "{non_cached} {prompt} {cached}"
        );
    }
    for parameter in ["nonCachedTokens", "promptTokens"] {
        let plugin = json!({"type": "prefix-based-pd-decider", "parameters": {parameter: -1}});
        let line = refusal_of(&json!({ "plugins": [plugin] }));
        assert!(
            line.ends_with("expected a whole number of at least 0, found -1"),
            "{line}"
        );
    }
}

/// 4096 tokens in blocks of 16, 240 of them cached: 256 left to compute.
#[test]
fn the_decider_counts_blocks_however_they_are_weighted() {
    let wide = |limit| {
        let mut pods = pods();
        pods[0].matched_blocks = 240;
        let request = Request {
            block_tokens: 16,
            total_blocks: 256,
            prompt_tokens: 4_096.0,
            tokens_per_block: 16.0,
            ..request(7, 1)
        };
        picks(
            &prefix_based(&json!({"nonCachedTokens": limit})),
            &request,
            &pods,
        )
        .1
    };
    assert_eq!(wide(512), None);
    assert_eq!(wide(256), Some(1));
}

#[test]
fn each_profile_runs_with_its_own_filters_and_weights() {
    assert_eq!(picks(&always(), &request(7, 3), &pods()), (0, Some(1)));
    let scheduler = always();
    // Two of each: matches count more than queues, queues more than nothing.
    let mut pods = [pods(), pods()].concat();
    for (id, pod) in (0..).zip(&mut pods) {
        pod.endpoint = EndpointId::new(id);
        pod.waiting = u32::from(id);
    }
    assert_eq!(picks(&scheduler, &request(7, 3), &pods), (0, Some(1)));
    (pods[2].matched_blocks, pods[3].matched_blocks) = (10, 10);
    assert_eq!(picks(&scheduler, &request(7, 3), &pods), (2, Some(3)));
    // 3 · 1 + 0 against 2 + 2 · (1 − .1).
    (pods[2].kv_utilisation, pods[0].kv_utilisation) = (Some(1.0), Some(0.1));
    assert_eq!(picks(&scheduler, &request(7, 3), &pods), (0, Some(3)));
}

#[test]
fn decode_goes_alone_where_prefill_has_nobody_or_no_prompt() {
    let scheduler = always();
    let decode_only = &pods()[..1];
    assert_eq!(picks(&scheduler, &request(7, 3), decode_only), (0, None));
    let unread = Request {
        total_blocks: 0,
        ..request(7, 3)
    };
    assert_eq!(picks(&scheduler, &unread, &pods()), (0, None));
    let mut ill = pods();
    ill[1].fitness = 0.0;
    assert_eq!(picks(&scheduler, &request(7, 3), &ill), (0, None));
    let mut both = idle(0);
    both.labels = [("llm-d.ai/role".to_owned(), "both".to_owned())]
        .into_iter()
        .collect();
    assert_eq!(
        picks(&scheduler, &request(7, 3), &[both]),
        (0, None),
        "its own prefill"
    );
}

#[test]
fn without_a_decider_prefill_never_runs_and_prefill_first_always_does() {
    let no_decider = json!({"type": "random-picker"});
    let picks_with = |handler: &Value| {
        let scheduler = scheduler_of(&config(handler, &no_decider));
        picks(&scheduler, &request(7, 3), &pods())
    };
    assert_eq!(picks_with(&json!({})), (0, None));
    for order in ["prefill-first", "PrefillFirst", "prefill_first", "prefill"] {
        assert_eq!(
            picks_with(&json!({"stageOrder": order})),
            (0, Some(1)),
            "{order}"
        );
    }
    assert_eq!(picks_with(&json!({"stageOrder": "decode"})), (0, None));
}

#[test]
fn older_names_are_read_and_do_not_mix() {
    let decider = json!({"type": "always-disagg-pd-decider"});
    for name in ["deciderPluginName", "prefillDeciderPluginName"] {
        let handler = json!({
            name: "always-disagg-pd-decider", "decodeProfile": "decode", "prefillProfile": "prefill",
        });
        let scheduler = scheduler_of(&config(&handler, &decider));
        assert_eq!(
            picks(&scheduler, &request(7, 3), &pods()),
            (0, Some(1)),
            "{name}"
        );
    }
    let path = "pools[0].endpointPickerConfig.plugins[7].parameters";
    let mixed = json!({"profiles": {"decode": "decode"}, "prefillProfile": "prefill"});
    assert_eq!(
        refusal_of(&config(&mixed, &decider)),
        format!("{path}: expected profiles and deciders, or the older flat names, found both")
    );
    let first =
        json!({"stageOrder": "prefill-first", "deciders": {"prefill": "always-disagg-pd-decider"}});
    assert_eq!(
        refusal_of(&config(&first, &decider)),
        format!(
            "{path}.deciders: expected no prefill decider with prefill first: prefill then always \
             runs, found one"
        )
    );
}
