//! The envelope of an `EndpointPickerConfig`.

use serde_json::{Value, json};

use super::{full, minimal, parse, refusal, with};
use crate::config::EndpointPickerConfig;

const AT: &str = "pools[0].endpointPickerConfig";

/// A document with `fields`.
fn document(fields: Value) -> Value {
    let mut document = json!({"apiVersion": "llm-d.ai/v1alpha1", "kind": "EndpointPickerConfig"});
    let Value::Object(fields) = fields else {
        panic!("an object")
    };
    document.as_object_mut().unwrap().extend(fields);
    with(minimal(), AT, document)
}

#[track_caller]
fn read(fields: Value) -> EndpointPickerConfig {
    let config = parse(&document(fields)).unwrap_or_else(|error| panic!("{error}"));
    config.pools[0].endpoint_picker.clone().unwrap()
}

#[track_caller]
fn check(fields: Value, line: &str) {
    assert_eq!(refusal(&document(fields)), format!("{AT}{line}"));
}

#[test]
fn both_versions_of_the_api_are_one() {
    let read = |version: &str| {
        let document = json!({"apiVersion": version, "kind": "EndpointPickerConfig"});
        parse(&with(minimal(), AT, document)).map(|config| config.pools[0].endpoint_picker.clone())
    };
    let newer = read("llm-d.ai/v1alpha1").unwrap();
    assert!(newer.is_some());
    assert_eq!(
        read("inference.networking.x-k8s.io/v1alpha1").unwrap(),
        newer
    );
    assert_eq!(
        read("llm-d.ai/v1").unwrap_err().to_string(),
        format!(
            "{AT}.apiVersion: expected one of llm-d.ai/v1alpha1, \
             inference.networking.x-k8s.io/v1alpha1, found \"llm-d.ai/v1\""
        )
    );
    let line = refusal(&with(
        minimal(),
        AT,
        json!({"apiVersion": "llm-d.ai/v1alpha1"}),
    ));
    assert_eq!(
        line,
        format!("{AT}.kind: expected EndpointPickerConfig, found nothing")
    );
}

#[test]
fn names_and_weights_have_llm_ds_defaults() {
    let read = read(json!({
        "plugins": [{"type": "a"}, {"type": "a", "name": "b", "parameters": {"x": 1}}],
        "schedulingProfiles": [
            {"name": "p", "plugins": [{"pluginRef": "a"}, {"pluginRef": "b", "weight": 2.5}]},
        ],
        "dataLayer": {
            "injectDefaults": false,
            "sources": [{"pluginRef": "a", "extractors": [{"pluginRef": "b"}]}],
        },
        "requestHandler": {"parsers": [{"pluginRef": "c"}]},
        "parser": {"pluginRef": "d"},
    }));
    let names: Vec<&str> = read.plugins.iter().map(|one| &*one.name).collect();
    assert_eq!(names, ["a", "b"]);
    assert_eq!(read.plugins[1].type_name, "a");
    let profile = &read.profiles[0];
    let weights: Vec<f64> = profile.plugins.iter().map(|one| one.weight).collect();
    assert_eq!(weights, [1.0, 2.5]);
    assert_eq!(
        profile.plugins[1].path,
        format!("{AT}.schedulingProfiles[0].plugins[1].pluginRef")
    );
    let names = |of: &[crate::config::PluginRef]| -> Vec<String> {
        of.iter().map(|one| one.name.clone()).collect()
    };
    assert_eq!(names(&read.sources), ["a", "b"]);
    assert_eq!(names(&read.parsers), ["c", "d"]);
    assert!(!read.inject_defaults);
}

#[test]
fn gates_are_known_and_flow_control_stays_closed() {
    for gates in [
        json!([]),
        json!(["haPopulateNonLeaderDatastore", "flowControl=false"]),
        json!(["haPopulateNonLeaderDatastore=false"]),
    ] {
        read(json!({ "featureGates": gates }));
    }
    let version = env!("CARGO_PKG_VERSION");
    for gate in ["flowControl", "flowControl=true"] {
        check(
            json!({"featureGates": [gate]}),
            &format!(
                ".featureGates[0]: flowControl is not available in version {version}; limit queues \
                 with a queue-limit-filter, and requests in Envoy with circuit breakers or a rate \
                 limit"
            ),
        );
    }
    check(
        json!({"featureGates": ["dataLayer"]}),
        ".featureGates[0]: feature gate \"dataLayer\" is unknown or unregistered",
    );
    check(
        json!({"featureGates": ["flowControl=no"]}),
        ".featureGates[0]: expected a gate that is =true or =false, found \"flowControl=no\"",
    );
}

#[test]
fn what_is_wrong_with_names_and_references_is_said_in_llm_ds_words() {
    let plugins = json!([{"type": "a"}]);
    for (fields, line) in [
        (
            json!({"plugins": [{"name": "x"}]}),
            ".plugins[0].type: plugin \"x\" is missing a type",
        ),
        (
            json!({"plugins": [{"type": "a"}, {"type": "b", "name": "a"}]}),
            ".plugins[1].name: duplicate plugin name \"a\"",
        ),
        (
            json!({"schedulingProfiles": [{"plugins": []}]}),
            ".schedulingProfiles[0].name: the profile is missing a name",
        ),
        (
            json!({"schedulingProfiles": [{"name": "p"}, {"name": "p"}]}),
            ".schedulingProfiles[1].name: duplicate profile name \"p\"",
        ),
        (
            json!({"schedulingProfiles": [{"name": "p", "plugins": [{"weight": 1}]}]}),
            ".schedulingProfiles[0].plugins[0].pluginRef: missing a 'pluginRef'",
        ),
        (
            json!({"plugins": plugins, "schedulingProfiles": [{"name": "p", "plugins": [{"pluginRef": "b"}]}]}),
            ".schedulingProfiles[0].plugins[0].pluginRef: references undefined plugin \"b\"",
        ),
        (
            json!({"dataLayer": {"sources": [{"pluginRef": "b"}]}}),
            ".dataLayer.sources[0].pluginRef: references undefined plugin \"b\"",
        ),
        (
            json!({"plugins": plugins, "dataLayer": {"sources": [{"pluginRef": "a", "extractors": [{}]}]}}),
            ".dataLayer.sources[0].extractors[0].pluginRef: missing a 'pluginRef'",
        ),
        (
            json!({"requestHandler": {"parsers": [{}]}}),
            ".requestHandler.parsers[0].pluginRef: missing a 'pluginRef'",
        ),
        (
            json!({"schedulingProfiles": [{"name": "p", "plugins": [{"pluginRef": "a", "weight": -1}]}]}),
            ".schedulingProfiles[0].plugins[0].weight: expected a number from 0 to 1000000, found -1",
        ),
        (
            json!({"plugin": []}),
            ".plugin: unknown field, expected one of apiVersion, kind, featureGates, plugins, \
             schedulingProfiles, requestHandler, parser, dataLayer, flowControl",
        ),
        (
            json!({"plugins": [{"type": "a", "params": {}}]}),
            ".plugins[0].params: unknown field, expected one of name, type, parameters",
        ),
    ] {
        check(fields, line);
    }
}

#[test]
fn what_is_not_offered_says_what_to_do_instead() {
    for (fields, path, instead) in [
        (
            json!({"saturationDetector": {"pluginRef": "a"}}),
            "saturationDetector",
            "queue-limit-filter",
        ),
        (
            json!({"dataLayer": {"discovery": {"pluginRef": "a"}}}),
            "dataLayer.discovery",
            "the pool's endpoints",
        ),
        (
            json!({"dataLayer": {"peerDiscovery": {"pluginRef": "a"}}}),
            "dataLayer.peerDiscovery",
            "leave it out",
        ),
        (
            json!({"dataLayer": {"crossReplicaSyncInterval": "1s"}}),
            "dataLayer.crossReplicaSyncInterval",
            "leave it out",
        ),
        (
            json!({"dataLayer": {"crossReplicaSyncerPluginRef": "a"}}),
            "dataLayer.crossReplicaSyncerPluginRef",
            "leave it out",
        ),
    ] {
        let line = refusal(&document(fields));
        let start = format!("{AT}.{path}: not available in version ");
        assert!(line.starts_with(&start) && line.contains(instead), "{line}");
    }
}

#[test]
fn what_does_not_count_is_warned_of() {
    let warnings = |config| parse(&config).unwrap().warnings();
    assert_eq!(warnings(document(json!({}))), Vec::<String>::new());
    assert_eq!(
        warnings(document(json!({"flowControl": {"maxRequests": 5}}))),
        [format!("{AT}.flowControl: does not count")]
    );
    let beside =
        format!("{AT}: the preset, weights and maxQueue of scoring do not count beside it");
    for key in ["preset", "maxQueue", "weights"] {
        let value = full()["pools"][0]["scoring"][key].clone();
        let config = with(
            document(json!({})),
            &format!("pools[0].scoring.{key}"),
            value,
        );
        assert!(warnings(config).contains(&beside), "{key}");
    }
    let limits = with(document(json!({})), "pools[0].scoring.guardFloor", json!(5));
    assert_eq!(warnings(limits), Vec::<String>::new());
}
