//! From an `EndpointPickerConfig` to profiles: defaults and refusals.

use serde_json::{Value, json};

use super::*;
use crate::config::{Capacity, Config, ConfigError, PoolConfig};

/// A pool with an `EndpointPickerConfig` of `fields`.
pub(super) fn pool_of(fields: &Value) -> Result<(PoolConfig, Scheduler), ConfigError> {
    let mut document = json!({"apiVersion": "llm-d.ai/v1alpha1", "kind": "EndpointPickerConfig"});
    let fields = fields.as_object().unwrap().clone();
    document.as_object_mut().unwrap().extend(fields);
    let config = json!({"pools": [{
        "name": "p", "cluster": "c", "endpoints": ["10.0.0.1:80"], "endpointPickerConfig": document,
    }]});
    let config = Config::parse(config.to_string().as_bytes())?;
    let mut pool = config.pools[0].clone();
    let scheduler = Scheduler::new(&mut pool)?;
    Ok((pool, scheduler))
}

#[track_caller]
pub(super) fn scheduler_of(fields: &Value) -> Scheduler {
    let built = pool_of(fields).unwrap_or_else(|error| panic!("{error}"));
    built.1
}

/// The only profile of such a pool.
#[track_caller]
pub(super) fn profile_of(fields: &Value) -> Profile {
    let mut profiles = scheduler_of(fields).into_profiles();
    assert_eq!(profiles.len(), 1);
    profiles.pop().unwrap()
}

#[track_caller]
pub(super) fn refusal_of(fields: &Value) -> String {
    pool_of(fields).unwrap_err().to_string()
}

/// Names and shares of a profile's scorers.
fn shares(profile: &Profile) -> Vec<(String, f64)> {
    let candidate = idle(0);
    let explained = profile.explain(&request(7, 1), &[&candidate], candidate.endpoint);
    let share = |one: &Explained<'_>| (one.scorer.to_owned(), (one.share * 1e6).round() / 1e6);
    explained.iter().map(share).collect()
}

fn named(shares: &[(&str, f64)]) -> Vec<(String, f64)> {
    let named = shares
        .iter()
        .map(|(name, share)| ((*name).to_owned(), *share));
    named
        .map(|(name, share)| (name, (share * 1e6).round() / 1e6))
        .collect()
}

#[test]
fn nothing_declared_is_queue_kv_cache_and_prefix_of_2_2_and_3() {
    let profile = profile_of(&json!({}));
    assert_eq!(profile.name(), "default");
    let expected = [
        ("queue-scorer", 2.0 / 7.0),
        ("kv-cache-utilization-scorer", 2.0 / 7.0),
        ("prefix-cache-scorer", 3.0 / 7.0),
    ];
    assert_eq!(shares(&profile), named(&expected));
}

#[test]
fn a_full_match_with_the_longest_queue_wins_while_little_of_its_kv_cache_is_in_use() {
    let profile = profile_of(&json!({}));
    let warm = |used| Candidate {
        matched_blocks: 10,
        waiting: 30,
        kv_utilisation: Some(used),
        ..idle(1)
    };
    let picked = |used| profile.run(&request(7, 1), &[idle(0), warm(used)]).ranking[0];
    let (loses, wins) = (picked(0.6), picked(0.4));
    assert_eq!(loses.endpoint.index(), 0);
    assert_close(loses.score, 4.0 / 7.0, "the cold one");
    assert_eq!(wins.endpoint.index(), 1);
    assert_close(wins.score, 4.2 / 7.0, "the warm one");
}

#[test]
fn without_profiles_there_is_one_of_everything_in_order() {
    let scheduler = scheduler_of(&json!({"plugins": [
        {"type": "prefix-cache-scorer", "name": "mine"},
        {"type": "always-disagg-pd-decider"},
        {"type": "random-picker"},
        {"type": "decode-filter"},
        {"type": "queue-scorer"},
        {"type": "approx-prefix-cache-producer"},
    ]}));
    let profile = &scheduler.profiles()[0];
    assert_eq!(profile.name(), "default");
    assert_eq!(
        shares(profile),
        named(&[("mine", 0.5), ("queue-scorer", 0.5)])
    );
    assert!(format!("{profile:?}").contains("picker: Random"));
}

#[test]
fn a_profile_without_a_picker_takes_the_first_declared_else_the_highest_score() {
    let picker = |plugins: Value| {
        let profile = profile_of(&json!({
            "plugins": plugins,
            "schedulingProfiles": [{"name": "p", "plugins": [{"pluginRef": "queue-scorer"}]}],
        }));
        format!("{:?}", profile.picker())
    };
    assert!(picker(json!([{"type": "queue-scorer"}])).starts_with("MaxScore"));
    let two = json!([
        {"type": "queue-scorer"}, {"type": "weighted-random-picker"}, {"type": "random-picker"},
    ]);
    assert!(picker(two).starts_with("WeightedRandom"));
}

#[test]
fn producers_set_the_pool_up() {
    let (pool, _) = pool_of(&json!({"plugins": [
        {"type": "approx-prefix-cache-producer", "parameters": {
            "autoTune": false, "blockSizeTokens": 128, "maxPrefixTokensToMatch": 4096,
            "lruCapacityPerServer": 500,
        }},
        {"type": "metrics-data-source", "parameters": {"path": "/stats", "interval": "250ms"}},
        {"type": "prefix-cache-scorer",
         "parameters": {"prefixMatchInfoProducerName": "approx-prefix-cache-producer"}},
    ]}))
    .unwrap();
    assert_eq!(pool.prefix.block_tokens, 128);
    assert_eq!(pool.prefix.max_tokens, 4096);
    assert_eq!(pool.prefix.capacity_blocks, Capacity::Blocks(500));
    assert!(!pool.prefix.auto_tune);
    assert_eq!(pool.metrics.path, "/stats");
    assert_eq!(pool.metrics.interval.as_millis(), 250);

    let prefix = |parameters: Value| {
        let plugin = json!({"type": "approx-prefix-cache-producer", "parameters": parameters});
        pool_of(&json!({ "plugins": [plugin] })).unwrap().0.prefix
    };
    // As llm-d, which says so in no release note.
    assert_eq!(prefix(json!({"blockSizeTokens": 16})).block_tokens, 64);
    assert_eq!(prefix(json!({"blockSize": 256})).block_tokens, 256);
    assert_eq!(
        prefix(json!({"maxPrefixBlocksToMatch": 10})).max_tokens,
        640
    );
    assert_eq!(prefix(json!({})).max_tokens, 131_072);
}

#[test]
fn declared_order_does_not_matter() {
    let scheduler = scheduler_of(&json!({
        "plugins": [
            {"type": "disagg-profile-handler", "parameters": {"deciders": {"prefill": "d"}}},
            {"type": "endpoint-attribute-scorer", "parameters": {"attributeKey": "heat"}},
            {"type": "always-disagg-pd-decider", "name": "d"},
            {"type": "core-metrics-extractor", "parameters": {"engineConfigs": [
                {"name": "any", "customMetrics": [{"attributeKey": "heat", "metricSpec": "t{gpu=0}"}]},
            ]}},
        ],
        "schedulingProfiles": [
            {"name": "decode", "plugins": [{"pluginRef": "endpoint-attribute-scorer"}]},
            {"name": "prefill"},
        ],
    }));
    assert_eq!(scheduler.profiles().len(), 2);
}

const AT: &str = "pools[0].endpointPickerConfig";

#[test]
fn what_is_wrong_with_profiles_is_said_in_llm_ds_words() {
    let two = json!([{"name": "a"}, {"name": "b"}]);
    for (fields, line) in [
        (
            json!({"plugins": [{"type": "queu-scorer"}]}),
            ".plugins[0].type: plugin type \"queu-scorer\" is not registered",
        ),
        (
            json!({"plugins": [
                {"type": "max-score-picker"}, {"type": "random-picker"}, {"type": "queue-scorer"},
            ]}),
            ".plugins[1]: failed to set \"random-picker\" as picker, already have a registered picker \
             plugin \"max-score-picker\"",
        ),
        (
            json!({"plugins": [{"type": "single-profile-handler"}, {"type": "disagg-profile-handler"}]}),
            ".plugins[1]: multiple profile handlers found: after \"single-profile-handler\"",
        ),
        (
            json!({ "schedulingProfiles": two }),
            ".plugins: no profile handler configured",
        ),
        (
            json!({"plugins": [{"type": "single-profile-handler"}], "schedulingProfiles": two}),
            ".plugins[0]: SingleProfileHandler cannot support multiple scheduling profiles",
        ),
        (
            json!({"plugins": [{"type": "disagg-profile-handler"}], "schedulingProfiles": two}),
            ".plugins[0]: there is no profile \"decode\" for decode",
        ),
        (
            json!({"plugins": [{"type": "disagg-profile-handler"}],
                   "schedulingProfiles": [{"name": "decode"}, {"name": "b"}]}),
            ".plugins[0]: profile \"b\" would never run",
        ),
    ] {
        assert_eq!(refusal_of(&fields), format!("{AT}{line}"));
    }
}

#[test]
fn what_is_wrong_with_references_and_parameters_is_said_in_llm_ds_words() {
    for (fields, line) in [
        (
            json!({"plugins": [{"type": "disagg-profile-handler", "parameters": {"deciders": {"prefill": "x"}}}]}),
            ".plugins[0].parameters.deciders.prefill: a plugin has a dependency on the unregistered \
             plugin \"x\"",
        ),
        (
            json!({"plugins": [{"type": "disagg-profile-handler", "parameters": {"deciderPluginName": "q"}},
                               {"type": "queue-scorer", "name": "q"}]}),
            ".plugins[0].parameters.deciderPluginName: expected a decider, found \"q\"",
        ),
        (
            json!({"plugins": [{"type": "prefix-cache-scorer",
                                "parameters": {"prefixMatchInfoProducerName": "precise"}}]}),
            ".plugins[0].parameters.prefixMatchInfoProducerName: a plugin has a dependency on the \
             unregistered plugin \"precise\"",
        ),
        (
            json!({"plugins": [{"type": "queue-scorer"}], "requestHandler": {"parsers": [{"pluginRef": "queue-scorer"}]}}),
            ".requestHandler.parsers[0].pluginRef: expected a parser, found scorer",
        ),
        (
            json!({"plugins": [{"type": "always-disagg-pd-decider"}],
                   "schedulingProfiles": [{"name": "p", "plugins": [{"pluginRef": "always-disagg-pd-decider"}]}]}),
            ".schedulingProfiles[0].plugins[0].pluginRef: expected a filter, a scorer or a picker, \
             found \"always-disagg-pd-decider\"",
        ),
        (
            json!({"plugins": [{"type": "load-aware-scorer", "parameters": {"treshold": 1}}]}),
            ".plugins[0].parameters.treshold: unknown field, expected one of threshold",
        ),
        (
            json!({"plugins": [{"type": "queue-scorer", "parameters": {"x": 1}}]}),
            ".plugins[0].parameters.x: unknown field: there are none",
        ),
        (
            json!({"plugins": [{"type": "queue-scorer", "parameters": 5}]}),
            ".plugins[0].parameters: expected an object of parameters, found 5",
        ),
        (
            json!({"plugins": [{"type": "approx-prefix-cache-producer"},
                               {"type": "approx-prefix-cache-producer", "name": "b"}]}),
            ".plugins[1].parameters: a pool has one prefix index, and \
             \"approx-prefix-cache-producer\" sets it up",
        ),
    ] {
        assert_eq!(refusal_of(&fields), format!("{AT}{line}"));
    }
}

#[test]
fn an_unmet_need_names_who_has_it_and_what_it_is() {
    for (fields, line) in [
        (
            json!({"plugins": [{"type": "queue-scorer", "name": "q"}], "dataLayer": {"injectDefaults": false}}),
            ".plugins[0]: plugin \"q\" needs the attribute metrics, which no producer provides; leave \
             dataLayer.injectDefaults on, or declare metrics-data-source and core-metrics-extractor \
             and list them under dataLayer.sources",
        ),
        (
            json!({"plugins": [{"type": "endpoint-attribute-scorer", "parameters": {"attributeKey": "heat"}}]}),
            ".plugins[0]: plugin \"endpoint-attribute-scorer\" needs the attribute series \"heat\", \
             which no producer provides; give a series that name under core-metrics-extractor's \
             customMetrics",
        ),
    ] {
        assert_eq!(refusal_of(&fields), format!("{AT}{line}"));
    }
    scheduler_of(&json!({
        "plugins": [
            {"type": "queue-scorer"}, {"type": "metrics-data-source"}, {"type": "core-metrics-extractor"},
        ],
        "dataLayer": {"injectDefaults": false, "sources": [
            {"pluginRef": "metrics-data-source", "extractors": [{"pluginRef": "core-metrics-extractor"}]},
        ]},
    }));
}

#[test]
fn what_is_not_offered_says_what_to_do_instead() {
    for (name, instead) in missing_types() {
        let line = refusal_of(&json!({"plugins": [{ "type": name }]}));
        let version = env!("CARGO_PKG_VERSION");
        let expected = format!(
            "{AT}.plugins[0].type: {name} is not available in version {version}; {instead}"
        );
        assert_eq!(line, expected);
        assert!(
            plugin_types().iter().all(|one| one.name != *name),
            "{name} is there"
        );
    }
    for (plugin, line) in [
        (
            json!({"type": "token-producer", "parameters": {"vllm": {"url": "http://localhost"}}}),
            "vllm: not available in version",
        ),
        (
            json!({"type": "metrics-data-source", "parameters": {"port": 9090}}),
            "port: not available in version",
        ),
        (
            json!({"type": "disagg-profile-handler", "parameters": {"deciders": {"encode": "x"}}}),
            "deciders.encode: not available in version",
        ),
    ] {
        let refusal = refusal_of(&json!({ "plugins": [plugin] }));
        let start = format!("{AT}.plugins[0].parameters.{line}");
        assert!(refusal.starts_with(&start), "{refusal}");
    }
}

#[test]
fn every_plugin_type_is_found_by_one_name_and_described() {
    let mut names: Vec<&str> = plugin_types().iter().map(|one| one.name).collect();
    names.sort_unstable();
    let count = names.len();
    names.dedup();
    assert_eq!(names.len(), count);
    for one in plugin_types() {
        assert!(
            !one.effect.is_empty() && !one.missing.is_empty(),
            "{}",
            one.name
        );
        assert_eq!(
            one.range.is_empty(),
            one.role != Role::Scorer,
            "{}",
            one.name
        );
    }
}
