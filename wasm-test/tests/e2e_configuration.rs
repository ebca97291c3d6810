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
        let lines = complaints(envoy).await;
        assert_eq!(lines.len(), 1, "{lines:?}");
        assert!(lines[0].starts_with(path), "no {path:?} in {:?}", lines[0]);
        for word in words {
            assert!(lines[0].contains(word), "no {word:?} in {:?}", lines[0]);
        }
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
