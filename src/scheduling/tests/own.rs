//! Signals of one's own: series, labels, and the scorer that the README builds.

use serde_json::{Value, json};

use super::build::{pool_of, profile_of, refusal_of};
use super::*;
use crate::config::MetricSpec;
use crate::datalayer::Labels;

const AT: &str = "pools[0].endpointPickerConfig.plugins[0].parameters";

fn labelled(id: u16, name: &str, value: &str) -> Candidate {
    Candidate {
        labels: [(name.to_owned(), value.to_owned())]
            .into_iter()
            .collect::<Labels>(),
        ..idle(id)
    }
}

fn only(plugin: &Value) -> Profile {
    profile_of(&json!({ "plugins": [plugin] }))
}

fn scores(profile: &Profile, candidates: &[Candidate]) -> Vec<f64> {
    let candidates: Vec<&Candidate> = candidates.iter().collect();
    let scores = profile.composites(&request(7, 1), &candidates);
    scores
        .iter()
        .map(|score| (score * 1e9).round() / 1e9)
        .collect()
}

#[test]
fn a_series_is_asked_for_and_scored() {
    let (pool, scheduler) = pool_of(&json!({"plugins": [
        {"type": "metric-scorer", "name": "heat", "parameters": {"metric": "temperature{gpu=0}"}},
        {"type": "metric-scorer", "name": "room", "parameters": {
            "metric": "free_bytes", "better": "higher", "min": 0, "max": 100}},
    ]}))
    .unwrap();
    let specs: Vec<String> = pool
        .metrics
        .signals
        .iter()
        .map(MetricSpec::to_string)
        .collect();
    assert_eq!(specs, ["temperature{gpu=\"0\"}", "free_bytes"]);
    let with = |id, heat, room| {
        let mut candidate = idle(id);
        candidate.signals.set(0, heat);
        candidate.signals.set(1, room);
        candidate
    };
    let candidates = [with(0, 60.0, 25.0), with(1, 80.0, 400.0), idle(2)];
    assert_eq!(
        scores(&scheduler.profiles()[0], &candidates),
        [0.625, 0.5, 0.0]
    );
    let old = Candidate {
        freshness: 0.5,
        ..candidates[0].clone()
    };
    assert_eq!(scores(&scheduler.profiles()[0], &[old]), [0.312_5]);
}

#[test]
fn a_pool_reads_eight_series_at_most() {
    let plugins = |count: usize| -> Vec<Value> {
        let plugin = |at| {
            let name = format!("m{at}");
            json!({"type": "metric-scorer", "name": name, "parameters": {"metric": name}})
        };
        (0..count).map(plugin).collect()
    };
    assert!(pool_of(&json!({ "plugins": plugins(8) })).is_ok());
    assert_eq!(
        refusal_of(&json!({ "plugins": plugins(9) })),
        "pools[0].endpointPickerConfig.plugins[8].parameters.metric: expected at most 8 series in a \
         pool, found one more"
    );
    // One series for two scorers is one.
    let twice = json!({"plugins": [
        {"type": "metric-scorer", "name": "a", "parameters": {"metric": "m"}},
        {"type": "metric-scorer", "name": "b", "parameters": {"metric": "m", "better": "higher"}},
    ]});
    assert_eq!(pool_of(&twice).unwrap().0.metrics.signals.len(), 1);
}

#[test]
fn ranges_have_two_ends() {
    for (range, found) in [
        (json!({"min": 1}), "nothing"),
        (json!({"max": 1}), "1"),
        (json!({"min": 2, "max": 1}), "1"),
        (json!({"min": 1, "max": 1}), "1"),
    ] {
        let mut parameters = range;
        parameters["metric"] = json!("m");
        assert_eq!(
            refusal_of(&json!({"plugins": [{"type": "metric-scorer", "parameters": parameters}]})),
            format!("{AT}.max: expected min and max, min below max, or neither, found {found}")
        );
    }
    let line = refusal_of(
        &json!({"plugins": [{"type": "metric-scorer", "parameters": {"metric": "a-b"}}]}),
    );
    assert_eq!(
        line,
        format!("{AT}.metric: expected {}, found \"a-b\"", MetricSpec::WHAT)
    );
}

#[test]
fn labels_that_are_names_have_the_scores_they_are_given() {
    let profile = only(&json!({"type": "label-scorer", "parameters": {
        "label": "zone", "otherwise": 0.1,
        "values": [{"value": "a", "score": 1}, {"value": "b", "score": 0.5}],
    }}));
    let candidates = [
        labelled(0, "zone", "a"),
        labelled(1, "zone", "b"),
        labelled(2, "zone", "c"),
        idle(3),
    ];
    assert_eq!(scores(&profile, &candidates), [1.0, 0.5, 0.1, 0.1]);
    let twice =
        json!({"label": "z", "values": [{"value": "a", "score": 1}, {"value": "a", "score": 0}]});
    assert_eq!(
        refusal_of(&json!({"plugins": [{"type": "label-scorer", "parameters": twice}]})),
        format!("{AT}.values[1].value: expected a value that has no score yet, found \"a\" again")
    );
    let both = json!({"label": "z", "values": [{"value": "a", "score": 1}], "min": 0, "max": 1});
    assert_eq!(
        refusal_of(&json!({"plugins": [{"type": "label-scorer", "parameters": both}]})),
        format!("{AT}.max: expected values, or min and max, found both")
    );
}

#[test]
fn labels_that_are_numbers_are_compared() {
    let cost = |id, cost: &str| labelled(id, "cost-per-hour", cost);
    let profile =
        |parameters: Value| only(&json!({"type": "label-scorer", "parameters": parameters}));
    let candidates = [
        cost(0, "1.5"),
        cost(1, "4.5"),
        cost(2, " 3 "),
        cost(3, "free"),
        idle(4),
    ];
    let adaptive = profile(json!({"label": "cost-per-hour"}));
    assert_eq!(scores(&adaptive, &candidates), [1.0, 0.0, 0.5, 0.0, 0.0]);
    let fixed = profile(json!({"label": "cost-per-hour", "better": "higher", "min": 0, "max": 3}));
    assert_eq!(scores(&fixed, &candidates), [0.5, 1.0, 1.0, 0.0, 0.0]);
}

/// Five points of cache match are worth one of cost: the cheap endpoint is preferred until the
/// other holds 20 % of the prompt more.
#[test]
fn the_cheap_endpoint_is_preferred_while_the_gap_of_matches_is_under_20_points() {
    let profile = profile_of(&json!({
        "plugins": [
            {"type": "prefix-cache-scorer"},
            {"type": "label-scorer", "name": "cost", "parameters": {"label": "cost-per-hour"}},
        ],
        "schedulingProfiles": [{"name": "default", "plugins": [
            {"pluginRef": "prefix-cache-scorer", "weight": 5}, {"pluginRef": "cost", "weight": 1},
        ]}],
    }));
    let picked = |held_by_cheap, held_by_dear| {
        let pod = |id, cost, matched_blocks| Candidate {
            matched_blocks,
            total_blocks: 100,
            ..labelled(id, "cost-per-hour", cost)
        };
        let pods = [pod(0, "1.20", held_by_cheap), pod(1, "4.10", held_by_dear)];
        profile.run(&request(7, 1), &pods).ranking[0]
            .endpoint
            .index()
    };
    for (cheap, dear, expected) in [(0, 0, 0), (0, 19, 0), (0, 21, 1), (70, 89, 0), (70, 91, 1)] {
        assert_eq!(picked(cheap, dear), expected, "{cheap} {dear}");
    }
}

/// The README's scorer by itself, and in a profile with another.
#[test]
fn free_slots_weigh_unequal_hardware() {
    let with = |id, running, max_running| Candidate {
        running,
        max_running,
        ..idle(id)
    };
    let profile = only(&json!({"type": "free-slots-scorer"}));
    let candidates = [with(0, 0, 8), with(1, 4, 8), with(2, 4, 16), with(3, 9, 8)];
    assert_eq!(scores(&profile, &candidates), [1.0, 0.5, 0.75, 0.0]);

    let both = profile_of(&json!({
        "plugins": [{"type": "free-slots-scorer"}, {"type": "prefix-cache-scorer"}],
        "schedulingProfiles": [{"name": "p", "plugins": [
            {"pluginRef": "free-slots-scorer", "weight": 1}, {"pluginRef": "prefix-cache-scorer", "weight": 3},
        ]}],
    }));
    let picked = |matched_blocks| {
        let small = Candidate {
            matched_blocks,
            ..with(0, 4, 8)
        };
        both.run(&request(7, 1), &[small, with(1, 4, 16)]).ranking[0]
            .endpoint
            .index()
    };
    assert_eq!((picked(0), picked(1)), (1, 0));
}

#[test]
fn a_profile_explains_what_each_scorer_said_and_why() {
    let profile = five_factor(&config());
    let held_back = Candidate {
        guarded: true,
        adapter_ready: false,
        matched_blocks: 5,
        ..idle(0)
    };
    let told = profile.explain(&request(7, 1), &[&held_back], held_back.endpoint);
    let notes: Vec<_> = told
        .iter()
        .map(|one| (one.scorer, one.score.note))
        .collect();
    assert_eq!(
        notes,
        [
            ("prefix-cache-scorer", Some("behind the load guard")),
            ("load-scorer", None),
            ("queue-depth-scorer", None),
            ("health-scorer", None),
            ("adapter-scorer", Some("the adapter is not loaded")),
        ]
    );
    let composite: f64 = told.iter().map(|one| one.share * one.score.clamped()).sum();
    assert_close(
        composite,
        composite_of(&profile, &held_back),
        "the parts of the composite",
    );
    assert!(
        profile
            .explain(&request(7, 1), &[&held_back], EndpointId::new(9))
            .is_empty()
    );
}
