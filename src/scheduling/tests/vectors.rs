//! llm-d's own inputs and outputs, one row each; where the outcome differs, the row says why.

use serde_json::{Value, json};

use super::build::{profile_of, refusal_of};
use super::*;
use crate::datalayer::{Adapters, Labels};

/// The scores that the plugin `type_name` gives `candidates`.
#[track_caller]
fn scores(type_name: &str, parameters: &Value, candidates: &[Candidate]) -> Vec<f64> {
    let plugin = json!({"type": type_name, "parameters": parameters});
    let profile = profile_of(&json!({ "plugins": [plugin] }));
    let candidates: Vec<&Candidate> = candidates.iter().collect();
    let request = Request {
        block_tokens: 1,
        ..request(7, 1)
    };
    profile.composites(&request, &candidates)
}

#[track_caller]
fn check(type_name: &str, parameters: &Value, candidates: &[Candidate], expected: &[f64]) {
    let actual = scores(type_name, parameters, candidates);
    assert_eq!(actual.len(), expected.len());
    for (actual, expected) in actual.iter().zip(expected) {
        let close = (actual - expected).abs() < 1e-9;
        assert!(close, "{type_name}: {actual} instead of {expected}");
    }
}

/// A candidate for each of `values`, which `set` gives it.
fn each<T: Copy>(values: &[T], set: impl Fn(&mut Candidate, T)) -> Vec<Candidate> {
    let one = |(id, value): (u16, &T)| {
        let mut candidate = idle(id);
        set(&mut candidate, *value);
        candidate
    };
    (0..).zip(values).map(one).collect()
}

fn waiting(depths: &[u32]) -> Vec<Candidate> {
    each(depths, |one, depth| one.waiting = depth)
}

#[test]
fn queue_scorer() {
    let none = json!({});
    check(
        "queue-scorer",
        &none,
        &waiting(&[10, 5, 0]),
        &[0.0, 0.5, 1.0],
    );
    check("queue-scorer", &none, &waiting(&[5, 5]), &[1.0, 1.0]);
    check("queue-scorer", &none, &waiting(&[0, 0]), &[1.0, 1.0]);
}

#[test]
fn running_requests_size_scorer() {
    let running = |counts: &[u32]| each(counts, |one, count| one.running = count);
    let none = json!({});
    let name = "running-requests-size-scorer";
    check(name, &none, &running(&[10, 5, 0]), &[0.0, 0.5, 1.0]);
    check(name, &none, &running(&[5, 5]), &[1.0, 1.0]);
    check(name, &none, &running(&[0, 0]), &[1.0, 1.0]);
}

#[test]
fn kv_cache_utilization_scorer() {
    let used = |shares: &[f64]| each(shares, |one, share| one.kv_utilisation = Some(share));
    let none = json!({});
    let name = "kv-cache-utilization-scorer";
    check(name, &none, &used(&[0.8, 0.5, 0.0]), &[0.2, 0.5, 1.0]);
    check(name, &none, &used(&[0.6, 0.6]), &[0.4, 0.4]);
    check(name, &none, &used(&[1.0, 0.5]), &[0.0, 0.5]);
}

#[test]
fn load_aware_scorer() {
    let of_ten = json!({"threshold": 10});
    check(
        "load-aware-scorer",
        &of_ten,
        &waiting(&[2, 0, 15]),
        &[0.4, 0.5, 0.0],
    );
    check("load-aware-scorer", &json!({}), &waiting(&[64]), &[0.25]);
}

/// Adapters that run, that wait, and how many can be loaded.
type Lora<'a> = (&'a [&'a str], &'a [&'a str], u32);

fn with_adapters(model: &str, all: &[Lora<'_>]) -> Vec<Candidate> {
    each(all, |one, (running, waiting, most)| {
        let mut adapters: Adapters = running.iter().copied().collect();
        for name in waiting {
            adapters.insert_waiting(name);
        }
        adapters.allow(most);
        one.adapter = AdapterFit::of(Some(&adapters), model);
    })
}

#[test]
fn lora_affinity_scorer() {
    let rows: [(Lora<'_>, f64); 4] = [
        ((&["m"], &[], 5), 1.0),
        ((&["a", "b"], &["m"], 2), 0.6),
        ((&["m2"], &["m3"], 2), 0.0),
        ((&[], &[], 0), 0.0),
    ];
    for (row, expected) in rows {
        check(
            "lora-affinity-scorer",
            &json!({}),
            &with_adapters("m", &[row]),
            &[expected],
        );
    }
    let mixed: [Lora<'_>; 5] = [
        (&["m"], &[], 2),
        (&["a"], &["m"], 5),
        (&["a"], &[], 2),
        (&["a"], &["m"], 2),
        (&["a", "b"], &[], 2),
    ];
    let expected = [1.0, 0.8, 0.8, 0.6, 0.0];
    check(
        "lora-affinity-scorer",
        &json!({}),
        &with_adapters("m", &mixed),
        &expected,
    );
    assert_eq!(AdapterFit::of(None, "m"), AdapterFit::Full);
}

fn matched(all: &[(u32, u32)]) -> Vec<Candidate> {
    each(all, |one, (matched, total)| {
        (one.matched_blocks, one.total_blocks) = (matched, total);
    })
}

#[test]
fn prefix_cache_scorer() {
    let name = "prefix-cache-scorer";
    check(name, &json!({}), &matched(&[(5, 10), (2, 10)]), &[0.5, 0.2]);
    check(name, &json!({}), &matched(&[(0, 0)]), &[0.0]);
    let length = json!({"matchLengthWeight": 0.5, "matchLengthScaleTokens": 100});
    check(
        name,
        &length,
        &matched(&[(5, 10), (50, 100)]),
        &[0.251_25, 0.375],
    );
    // Not llm-d's: what the load guard holds back counts for nothing.
    let guarded = Candidate {
        matched_blocks: 5,
        guarded: true,
        ..idle(0)
    };
    check(name, &json!({}), &[guarded], &[0.0]);
    for (parameter, value) in [
        ("matchLengthWeight", json!(-0.1)),
        ("matchLengthWeight", json!(1.1)),
        ("matchLengthScaleTokens", json!(0)),
    ] {
        let plugin = json!({"type": name, "parameters": {parameter: value}});
        let line = refusal_of(&json!({ "plugins": [plugin] }));
        let path = format!("pools[0].endpointPickerConfig.plugins[0].parameters.{parameter}: ");
        assert!(line.starts_with(&path), "{line}");
    }
}

/// A pool's scorer of the attribute `x`, and candidates with its values.
#[track_caller]
fn check_attribute(algorithm: &Value, values: &[Option<f64>], expected: &[f64]) {
    let series = json!([{"attributeKey": "x", "metricSpec": "x"}]);
    let profile = profile_of(&json!({
        "plugins": [
            {"type": "endpoint-attribute-scorer", "parameters": {"attributeKey": "x", "algorithm": algorithm}},
            {"type": "core-metrics-extractor",
             "parameters": {"engineConfigs": [{"name": "vllm", "customMetrics": series}]}},
        ],
    }));
    let candidates = each(values, |one, value| {
        if let Some(value) = value {
            one.signals.set(0, value);
        }
    });
    let candidates: Vec<&Candidate> = candidates.iter().collect();
    let actual = profile.composites(&request(7, 1), &candidates);
    for (actual, expected) in actual.iter().zip(expected) {
        assert_close(*actual, *expected, &algorithm.to_string());
    }
    assert_eq!(actual.len(), expected.len());
}

#[test]
fn endpoint_attribute_scorer() {
    let lower = json!({"type": "linear_lower_is_better"});
    let some = |values: &[f64]| values.iter().copied().map(Some).collect::<Vec<_>>();
    check_attribute(&lower, &some(&[10.0, 5.0, 0.0]), &[0.0, 0.5, 1.0]);
    check_attribute(&lower, &some(&[7.0, 7.0]), &[1.0, 1.0]);
    check_attribute(&lower, &[Some(10.0), None, Some(0.0)], &[0.0, 0.0, 1.0]);
    check_attribute(&lower, &[None, None], &[0.0, 0.0]);
    let higher = json!({
        "type": "linear_higher_is_better",
        "normalization": {"adaptiveRange": {}},
    });
    check_attribute(&higher, &some(&[10.0, 5.0, 0.0]), &[1.0, 0.5, 0.0]);
    let fixed = json!({
        "type": "linear_lower_is_better",
        "normalization": {"fixedRange": {"min": 0, "max": 10}},
    });
    check_attribute(&fixed, &some(&[10.0, 5.0, 0.0]), &[0.0, 0.5, 1.0]);
    check_attribute(&fixed, &some(&[7.0, 7.0]), &[0.3, 0.3]);
    check_attribute(&fixed, &some(&[15.0, -5.0]), &[0.0, 1.0]);
}

/// Never scraped is as stale as can be, which halves what metrics are worth; in llm-d such an
/// endpoint looks idle.
#[test]
fn scores_of_old_metrics_are_worth_less() {
    let fresh_and_old = |freshness| {
        [
            Candidate {
                waiting: 4,
                ..idle(0)
            },
            Candidate {
                freshness,
                ..idle(1)
            },
        ]
    };
    check("queue-scorer", &json!({}), &fresh_and_old(1.0), &[0.0, 1.0]);
    check("queue-scorer", &json!({}), &fresh_and_old(0.5), &[0.0, 0.5]);
    check(
        "load-aware-scorer",
        &json!({}),
        &fresh_and_old(0.5),
        &[0.5 * 124.0 / 128.0, 0.25],
    );
    check(
        "kv-cache-utilization-scorer",
        &json!({}),
        &fresh_and_old(0.5),
        &[1.0, 0.5],
    );
    let unknown = Candidate {
        kv_utilisation: None,
        ..idle(0)
    };
    check(
        "kv-cache-utilization-scorer",
        &json!({}),
        &[unknown],
        &[0.0],
    );
    let sent = Candidate { own: 3, ..idle(0) };
    check(
        "queue-scorer",
        &json!({}),
        &[sent.clone(), idle(1)],
        &[0.0, 1.0],
    );
    check(
        "running-requests-size-scorer",
        &json!({}),
        &[sent, idle(1)],
        &[0.0, 1.0],
    );
}

/// The composite is llm-d's divided by the sum of the weights.
#[test]
fn weights_are_divided_by_their_sum() {
    let profile = |weights: [f64; 2]| {
        profile_of(&json!({
            "plugins": [{"type": "kv-cache-utilization-scorer"}, {"type": "prefix-cache-scorer"}],
            "schedulingProfiles": [{"name": "p", "plugins": [
                {"pluginRef": "kv-cache-utilization-scorer", "weight": weights[0]},
                {"pluginRef": "prefix-cache-scorer", "weight": weights[1]},
            ]}],
        }))
    };
    let candidate = Candidate {
        kv_utilisation: Some(0.7),
        matched_blocks: 8,
        ..idle(0)
    };
    let total = |weights: [f64; 2]| {
        let sum: f64 = weights.iter().sum();
        composite_of(&profile(weights), &candidate) * sum
    };
    assert_close(total([1.0, 1.0]), 1.1, "1, 1");
    assert_close(total([60.0, 40.0]), 50.0, "60, 40");
    assert_close(
        composite_of(&profile([0.0, 0.0]), &candidate),
        0.0,
        "no weights",
    );
}

#[test]
fn a_score_is_clamped() {
    for (value, clamped) in [(-0.5, 0.0), (1.5, 1.0), (0.0, 0.0), (1.0, 1.0), (0.5, 0.5)] {
        assert_close(scorer::Score::from(value).clamped(), clamped, "clamped");
    }
    // In llm-d a NaN passes.
    assert_close(scorer::Score::from(f64::NAN).clamped(), 0.0, "no number");
}

#[test]
fn the_scheduler_test() {
    let profile = profile_of(&json!({"plugins": [
        {"type": "kv-cache-utilization-scorer"}, {"type": "queue-scorer"},
        {"type": "prefix-cache-scorer"}, {"type": "lora-affinity-scorer"},
    ]}));
    let lora: [Lora<'_>; 3] = [
        (&["foo", "bar"], &[], 2),
        (&["foo", "critical"], &[], 2),
        (&["foo"], &[], 2),
    ];
    let mut pods = with_adapters("critical", &lora);
    for (pod, (queue, used)) in pods.iter_mut().zip([(0, 0.2), (0, 0.2), (10, 0.8)]) {
        (pod.waiting, pod.kv_utilisation) = (queue, Some(used));
    }
    let ranking = profile.run(&request(7, 3), &pods).ranking;
    assert_eq!(ranking[0].endpoint.index(), 1);
    assert_close(ranking[0].score * 4.0, 2.8, "the sum");
}

fn labelled(labels: &[(&str, &str)]) -> Candidate {
    let labels = labels
        .iter()
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    Candidate {
        labels: labels.collect::<Labels>(),
        ..idle(0)
    }
}

/// Whether the filter keeps `candidate` beside one that every filter keeps.
fn keeps(plugin: &Value, candidate: &Candidate) -> bool {
    let profile = profile_of(&json!({ "plugins": [plugin] }));
    profile.is_for(&request(7, 1), candidate)
}

#[test]
fn role_filters() {
    for (role, decode, prefill) in [
        (Some("decode"), true, false),
        (Some("prefill"), false, true),
        (Some("prefill-decode"), true, true),
        (Some("both"), true, true),
        (Some("encode-prefill-decode"), true, true),
        (Some("encode"), false, false),
        (Some("encode-prefill"), false, true),
        (None, true, false),
    ] {
        let labels: Vec<(&str, &str)> = role
            .map(|role| ("llm-d.ai/role", role))
            .into_iter()
            .collect();
        let pod = labelled(&labels);
        assert_eq!(
            keeps(&json!({"type": "decode-filter"}), &pod),
            decode,
            "{role:?}"
        );
        assert_eq!(
            keeps(&json!({"type": "prefill-filter"}), &pod),
            prefill,
            "{role:?}"
        );
    }
}

#[test]
fn label_selector_filter() {
    let pod = labelled(&[("zone", "a"), ("gpu", "l4")]);
    let expression = |key: &str, operator: &str, values: &[&str]| json!({"matchExpressions": [{"key": key, "operator": operator, "values": values}]});
    for (selector, kept) in [
        (json!({}), true),
        (json!({"matchLabels": {"zone": "a"}}), true),
        (json!({"matchLabels": {"zone": "a", "gpu": "h100"}}), false),
        (json!({"matchLabels": {"rack": ""}}), false),
        (expression("gpu", "In", &["l4", "a10"]), true),
        (expression("gpu", "In", &["h100"]), false),
        (expression("rack", "In", &["1"]), false),
        (expression("gpu", "NotIn", &["h100"]), true),
        (expression("gpu", "notin", &["l4"]), false),
        (expression("rack", "NotIn", &["1"]), true),
        (expression("gpu", "Exists", &[]), true),
        (expression("rack", "Exists", &[]), false),
        (expression("rack", "DoesNotExist", &[]), true),
        (expression("gpu", "DoesNotExist", &[]), false),
    ] {
        let plugin = json!({"type": "label-selector-filter", "parameters": selector});
        assert_eq!(keeps(&plugin, &pod), kept, "{selector}");
    }
    for (selector, line) in [
        (
            expression("a", "In", &[]),
            "matchExpressions[0].values: expected at least one value for this operator, found none",
        ),
        (
            expression("a", "Exists", &["b"]),
            "matchExpressions[0].values: expected no values for this operator, found some",
        ),
        (
            expression("a", "Is", &["b"]),
            "matchExpressions[0].operator: expected one of In, NotIn, Exists, DoesNotExist, found \"Is\"",
        ),
    ] {
        let plugin = json!({"type": "label-selector-filter", "parameters": selector});
        let refusal = refusal_of(&json!({ "plugins": [plugin] }));
        let path = "pools[0].endpointPickerConfig.plugins[0].parameters";
        assert_eq!(refusal, format!("{path}.{line}"));
    }
}

/// In llm-d the request is refused with 429; here it is served by whom the other filters leave.
#[test]
fn a_filter_that_would_leave_nobody_is_passed_over_and_said() {
    let profile = profile_of(&json!({"plugins": [{"type": "prefill-filter"}]}));
    let decision = profile.run(&request(7, 5), &[idle(0), idle(1)]);
    assert_eq!(decision.exception, Some(Reason::NoCandidates));
    assert_eq!(decision.ranking.len(), 2);
    let limited = profile_of(&json!({"plugins": [
        {"type": "queue-limit-filter", "parameters": {"maxQueue": 3}},
    ]}));
    let free = Candidate {
        max_running: 1,
        running: 1,
        waiting: 2,
        ..idle(0)
    };
    let full = Candidate {
        own: 1,
        ..free.clone()
    };
    let full = Candidate {
        endpoint: EndpointId::new(1),
        ..full
    };
    let decision = limited.run(&request(7, 5), &[free, full.clone()]);
    assert_eq!(decision.ranking.len(), 1);
    let decision = limited.run(&request(7, 5), &[full]);
    assert_eq!(decision.exception, Some(Reason::AllOverLimit));
}
