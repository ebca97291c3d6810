//! A plugin configuration the module refuses: Envoy does not start and its log says why, in one
//! line with the path.

use serde_json::{Value, json};
use wasm_test::envoy::{Builder, CANONICAL, Envoy};

/// The lines in which the module says what is wrong; empty when Envoy started.
async fn complaints(envoy: Builder) -> Vec<String> {
    match envoy.start().await {
        Ok(_) => Vec::new(),
        Err(error) => {
            let lines = error.log().lines().filter_map(complaint);
            lines.map(str::to_owned).collect()
        }
    }
}

/// What follows the module's name in a line at error level.
fn complaint(line: &str) -> Option<&str> {
    let (head, message) = line.split_once(" inline-epp: inline-epp: ")?;
    (head.contains("[error]") && head.contains("wasm log")).then_some(message)
}

/// Starts Envoy twice, with the changed configuration as a `Struct` and as text: each time the
/// module must complain in one line, which starts with `path` and
/// holds `words`.
async fn refused(
    change: impl Fn(&mut Value) + Clone + Send + Sync + 'static,
    path: &str,
    words: &[&str],
) {
    let as_struct = Envoy::builder(CANONICAL).plugin(change.clone());
    let as_text = Envoy::builder(CANONICAL).plugin(change).plugin_as_text();
    for envoy in [as_struct, as_text] {
        complains(envoy, path, words).await;
    }
}

/// The module complains in one line, which starts with `path` and holds `words`.
async fn complains(envoy: Builder, path: &str, words: &[&str]) {
    let lines = complaints(envoy).await;
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert!(lines[0].starts_with(path), "no {path:?} in {:?}", lines[0]);
    for word in words {
        assert!(lines[0].contains(word), "no {word:?} in {:?}", lines[0]);
    }
}

#[tokio::test]
async fn an_unknown_field_stops_the_start() {
    let patch = |plugin: &mut Value| plugin["pools"][0]["scoring"] = json!({ "maxQueues": 5 });
    refused(patch, "pools[0].scoring.maxQueues", &["maxQueue"]).await;
}

#[tokio::test]
async fn a_wrong_type_stops_the_start() {
    let patch = |plugin: &mut Value| plugin["pools"][0]["endpoints"] = json!("127.0.0.1:8000");
    refused(patch, "pools[0].endpoints", &["expected"]).await;
}

#[tokio::test]
async fn a_value_out_of_range_stops_the_start() {
    let patch = |plugin: &mut Value| plugin["pools"][0]["scoring"] = json!({ "minHealth": 1.5 });
    refused(patch, "pools[0].scoring.minHealth", &["1.5"]).await;
}

#[tokio::test]
async fn no_pools_stop_the_start() {
    let patch = |plugin: &mut Value| plugin["pools"] = json!([]);
    refused(patch, "pools", &["expected"]).await;
}

#[tokio::test]
async fn absent_pools_stop_the_start() {
    refused(|plugin: &mut Value| *plugin = json!({}), "", &["pools"]).await;
}

#[tokio::test]
async fn a_duplicate_pool_stops_the_start() {
    let patch = |plugin: &mut Value| {
        let first = plugin["pools"][0].clone();
        plugin["pools"] = json!([first, first]);
    };
    refused(patch, "pools[1].name", &["llama"]).await;
}

#[tokio::test]
async fn a_key_of_a_later_version_stops_the_start_with_advice() {
    let patch = |plugin: &mut Value| plugin["console"] = json!(true);
    refused(patch, "console", &["admin port"]).await;
}

#[tokio::test]
async fn text_that_is_not_json_stops_the_start() {
    let envoy = Envoy::builder(CANONICAL)
        .plugin_as_text()
        .bootstrap(|tree| {
            let listener = &mut tree["static_resources"]["listeners"][0];
            let manager = &mut listener["filter_chains"][0]["filters"][0]["typed_config"];
            let module = &mut manager["http_filters"][0]["typed_config"]["config"];
            module["configuration"]["value"] = json!("pools: [this is YAML]");
        });
    let lines = complaints(envoy).await;
    assert_eq!(lines.len(), 1, "{lines:?}");
}

/// Plugins, profiles, and whatever else an `EndpointPickerConfig` has.
async fn picker_refused(fields: Value, place: &str, text: &str) {
    let patch = move |plugin: &mut Value| {
        let mut document =
            json!({"apiVersion": "llm-d.ai/v1alpha1", "kind": "EndpointPickerConfig"});
        let fields = fields.as_object().expect("an object").clone();
        document.as_object_mut().expect("an object").extend(fields);
        plugin["pools"][0]["endpointPickerConfig"] = document;
    };
    let line = format!("pools[0].endpointPickerConfig{place}: {text}");
    complains(Envoy::builder(CANONICAL).plugin(patch), &line, &[]).await;
}

#[tokio::test]
async fn plugins_that_cannot_be_made_stop_the_start() {
    for (plugins, path, text) in [
        (
            json!([{"name": "x"}]),
            ".plugins[0].type",
            "plugin \"x\" is missing a type",
        ),
        (
            json!([{"type": "queue-scorer"}, {"type": "queue-scorer"}]),
            ".plugins[1].name",
            "duplicate plugin name \"queue-scorer\"",
        ),
        (
            json!([{"type": "queue-scorers"}]),
            ".plugins[0].type",
            "plugin type \"queue-scorers\" is not registered",
        ),
        (
            json!([{"type": "precise-prefix-cache-producer"}]),
            ".plugins[0].type",
            "precise-prefix-cache-producer is not available in version",
        ),
        (
            json!([{"type": "load-aware-scorer", "parameters": {"limit": 5}}]),
            ".plugins[0].parameters.limit",
            "unknown field, expected one of threshold",
        ),
        (
            json!([{"type": "disagg-profile-handler", "parameters": {"deciders": {"prefill": "x"}}}]),
            ".plugins[0].parameters.deciders.prefill",
            "a plugin has a dependency on the unregistered plugin \"x\"",
        ),
        (
            json!([{"type": "single-profile-handler"}, {"type": "disagg-profile-handler"}]),
            ".plugins[1]",
            "multiple profile handlers found",
        ),
        (
            json!([{"type": "endpoint-attribute-scorer", "parameters": {"attributeKey": "heat"}}]),
            ".plugins[0]",
            "plugin \"endpoint-attribute-scorer\" needs the attribute series \"heat\"",
        ),
    ] {
        picker_refused(json!({ "plugins": plugins }), path, text).await;
    }
}

#[tokio::test]
async fn profiles_that_cannot_be_put_together_stop_the_start() {
    let plugins = json!([
        {"type": "max-score-picker"}, {"type": "random-picker"}, {"type": "single-profile-handler"},
    ]);
    let refer = |names: &[&str]| -> Value {
        names
            .iter()
            .map(|name| json!({ "pluginRef": name }))
            .collect()
    };
    for (profiles, path, text) in [
        (json!([{}]), "[0].name", "the profile is missing a name"),
        (
            json!([{"name": "a"}, {"name": "a"}]),
            "[1].name",
            "duplicate profile name \"a\"",
        ),
        (
            json!([{"name": "a", "plugins": [{}]}]),
            "[0].plugins[0].pluginRef",
            "missing a 'pluginRef'",
        ),
        (
            json!([{"name": "a", "plugins": refer(&["b"])}]),
            "[0].plugins[0].pluginRef",
            "references undefined plugin \"b\"",
        ),
        (
            json!([{"name": "a", "plugins": refer(&["max-score-picker", "random-picker"])}]),
            "[0].plugins[1].pluginRef",
            "failed to set \"random-picker\" as picker, already have a registered picker plugin",
        ),
    ] {
        let fields = json!({"plugins": plugins, "schedulingProfiles": profiles});
        let path = format!(".schedulingProfiles{path}");
        picker_refused(fields, &path, text).await;
    }
    let two = json!([{"name": "a"}, {"name": "b"}]);
    let text = "no profile handler configured";
    picker_refused(json!({ "schedulingProfiles": two }), ".plugins", text).await;
    let text = "SingleProfileHandler cannot support multiple scheduling profiles";
    let fields = json!({"plugins": plugins, "schedulingProfiles": two});
    picker_refused(fields, ".plugins[2]", text).await;
}

#[tokio::test]
async fn an_envelope_that_is_not_offered_stops_the_start() {
    for (fields, path, text) in [
        (json!({"plugin": []}), ".plugin", "unknown field"),
        (
            json!({"apiVersion": "v1"}),
            ".apiVersion",
            "expected one of llm-d.ai/v1alpha1",
        ),
        (
            json!({"featureGates": ["x"]}),
            ".featureGates[0]",
            "feature gate \"x\" is unknown or unregistered",
        ),
        (
            json!({"featureGates": ["flowControl"]}),
            ".featureGates[0]",
            "flowControl is not available",
        ),
        (
            json!({"dataLayer": {"discovery": {}}}),
            ".dataLayer.discovery",
            "not available in version",
        ),
        (
            json!({"saturationDetector": {}}),
            ".saturationDetector",
            "not available in version",
        ),
    ] {
        picker_refused(fields, path, text).await;
    }
}
