//! The JSON schema of the plugin configuration: it is the one that is shipped, and it judges as the
//! module does.

use std::fs;

use inline_epp::config::Config;
use jsonschema::Validator;
use serde_json::{Value, json};
use wasm_test::schema::plugin_configuration;

use super::readme::Fence;
use super::{document, from_yaml, root, router};

fn validator() -> Validator {
    jsonschema::draft202012::new(&plugin_configuration()).expect("a schema")
}

fn is_accepted(config: &Value) -> bool {
    let parsed = Config::parse(config.to_string().as_bytes());
    parsed.and_then(router).is_ok()
}

#[test]
fn the_shipped_schema_is_the_generated_one() {
    let path = root().join("envoy/plugin-config.schema.json");
    let schema = plugin_configuration();
    jsonschema::meta::validate(&schema).expect("a schema of its draft");
    let text = format!("{schema:#}\n");
    if std::env::var_os("UPDATE_README").is_some() {
        fs::write(&path, &text).expect("writable");
    }
    let shipped = fs::read_to_string(path).unwrap_or_default();
    assert!(shipped == text, "UPDATE_README=1 rewrites it");
    let printed = std::process::Command::new(env!("CARGO_BIN_EXE_epp-check"))
        .arg("--schema")
        .output();
    let printed = printed.expect("the binary starts").stdout;
    assert_eq!(String::from_utf8(printed).expect("UTF-8"), text);
}

/// Every plugin configuration of the repository's documents.
fn examples() -> Vec<(String, Value)> {
    let mut examples = vec![(
        "plugin-config.yaml".to_owned(),
        from_yaml(document("envoy/plugin-config.yaml").text()),
    )];
    let bootstrap = from_yaml(document("envoy/envoy.yaml").text());
    let module = "/static_resources/listeners/0/filter_chains/0/filters/0/typed_config\
                  /http_filters/0/typed_config/config/configuration/value";
    let value = bootstrap
        .pointer(module)
        .expect("the module's configuration");
    examples.push(("envoy.yaml".to_owned(), value.clone()));
    for Fence { words, text } in document("README.md").fences() {
        if words.get(1).is_some_and(|word| word == "plugin") {
            examples.push((text.clone(), from_yaml(&text)));
        }
    }
    assert!(examples.len() >= 6);
    examples
}

#[test]
fn shipped_examples_are_valid() {
    let validator = validator();
    for (name, example) in examples() {
        let errors: Vec<String> = validator
            .iter_errors(&example)
            .map(|error| format!("{}: {error}", error.instance_path()))
            .collect();
        assert!(errors.is_empty(), "{name}\n{errors:#?}");
        assert!(is_accepted(&example), "{name}");
    }
}

/// A configuration with `value` at `pointer` of its pool.
fn pool_with(key: &str, value: Value) -> Value {
    let mut pool = json!({"name": "a", "cluster": "c", "endpoints": ["10.0.0.1:80"]});
    pool[key] = value;
    json!({ "pools": [pool] })
}

fn picker_with(fields: Value) -> Value {
    let mut document = json!({"apiVersion": "llm-d.ai/v1alpha1", "kind": "EndpointPickerConfig"});
    let Value::Object(fields) = fields else {
        panic!("an object")
    };
    document.as_object_mut().expect("an object").extend(fields);
    pool_with("endpointPickerConfig", document)
}

fn plugin(plugin: &Value) -> Value {
    picker_with(json!({ "plugins": [plugin] }))
}

#[test]
fn the_schema_accepts_what_the_module_accepts() {
    let validator = validator();
    for config in [
        pool_with(
            "scoring",
            json!({"preset": "BATCH", "maxQueue": 5.0, "weights": null}),
        ),
        pool_with(
            "metrics",
            json!({"interval": "1.5s", "timeout": 3, "engine": "vLLM"}),
        ),
        pool_with(
            "prefix",
            json!({"capacityBlocks": "auto", "maxTokens": 4096}),
        ),
        pool_with(
            "endpoints",
            json!(["10.0.0.1:80", {"address": "10.0.0.2:80", "labels": {"a": "b"}}]),
        ),
        picker_with(json!({})),
        plugin(&json!({"type": "queue-scorer", "parameters": null})),
        plugin(&json!({"type": "queue-scorer", "parameters": {}})),
        plugin(&json!({"type": "load-aware-scorer", "name": "x", "parameters": {"threshold": 5}})),
        plugin(
            &json!({"type": "metric-scorer", "parameters": {"metric": "a", "min": -5, "max": 1e9}}),
        ),
        plugin(&json!({"type": "label-selector-filter",
                      "parameters": {"matchExpressions": [{"key": "a", "operator": "in", "values": ["b"]}]}})),
        picker_with(json!({
            "plugins": [{"type": "disagg-profile-handler"}],
            "schedulingProfiles": [{"name": "decode"}],
        })),
    ] {
        let parsed = Config::parse(config.to_string().as_bytes()).and_then(router);
        assert!(parsed.is_ok(), "{:?}\n{config}", parsed.err());
        assert!(validator.is_valid(&config), "{config}");
    }
}

#[test]
fn the_schema_refuses_what_the_module_refuses() {
    let validator = validator();
    for config in [
        json!({}),
        json!({"pools": []}),
        json!({"pools": [{"name": "a", "cluster": "c"}], "pool": 1}),
        json!({"pools": [{"name": "a", "endpoints": ["10.0.0.1:80"]}]}),
        pool_with("scoring", json!({"maxQueues": 5})),
        pool_with("scoring", json!({"maxQueue": 0})),
        pool_with("scoring", json!({"minHealth": 1.5})),
        pool_with("scoring", json!({"preset": "fast"})),
        pool_with("metrics", json!({"interval": "1h"})),
        pool_with("metrics", json!({"path": 5})),
        pool_with("endpoints", json!([5])),
        pool_with(
            "endpointPickerConfig",
            json!({"kind": "EndpointPickerConfig"}),
        ),
        picker_with(json!({"featureGate": []})),
        plugin(&json!({"name": "x"})),
        plugin(&json!({"type": "precise-prefix-cache-producer"})),
        plugin(&json!({"type": "queue-scorer", "parameters": {"x": 1}})),
        plugin(&json!({"type": "load-aware-scorer", "parameters": {"threshold": "5"}})),
        plugin(&json!({"type": "metric-scorer"})),
        plugin(&json!({"type": "metric-scorer", "parameters": {"better": "lower"}})),
        plugin(&json!({"type": "prefix-cache-scorer", "parameters": {"matchLengthWeight": 2}})),
        picker_with(json!({"schedulingProfiles": [{"plugins": []}]})),
        picker_with(json!({"schedulingProfiles": [{"name": "a", "plugins": [{"weight": 1}]}]})),
        picker_with(json!({"dataLayer": {"peerDiscovery": {"pluginRef": "a"}}})),
    ] {
        assert!(!is_accepted(&config), "{config}");
        assert!(!validator.is_valid(&config), "{config}");
    }
}
