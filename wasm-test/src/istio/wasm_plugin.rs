//! A `WasmPlugin` as istiod turns it into a filter.

use serde::Deserialize;
use serde_json::{Value, json};

use super::{ApplyError, Gateway, insert_before_router};

const WASM: &str = "type.googleapis.com/envoy.extensions.filters.http.wasm.v3.Wasm";

/// The part of a `WasmPlugin` that the manifests use.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct WasmPlugin {
    #[serde(rename = "apiVersion")]
    _api_version: String,
    #[serde(rename = "kind")]
    _kind: String,
    metadata: Metadata,
    spec: Spec,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Metadata {
    name: String,
    namespace: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Spec {
    #[serde(rename = "targetRefs")]
    _target_refs: Vec<Value>,
    url: String,
    plugin_name: String,
    fail_strategy: FailStrategy,
    plugin_config: Value,
}

#[derive(Clone, Copy, Debug, Deserialize)]
enum FailStrategy {
    #[serde(rename = "FAIL_RELOAD")]
    Reload,
}

impl WasmPlugin {
    /// Adds the filter to `gateway`, where a plugin without a phase belongs: before the router.
    ///
    /// # Errors
    /// When the manifest has anything that is not understood.
    pub fn apply(manifest: &Value, gateway: &mut Gateway) -> Result<(), ApplyError> {
        let plugin: Self = serde_json::from_value(manifest.clone())?;
        let Metadata { name, namespace } = plugin.metadata;
        let name = format!("{namespace}.{name}");
        let FailStrategy::Reload = plugin.spec.fail_strategy;
        let config = json!({
            "name": name,
            "root_id": plugin.spec.plugin_name,
            "failure_policy": "FAIL_RELOAD",
            // No vm_id: all WasmPlugins of a proxy share what they store.
            "vm_config": {
                "runtime": "envoy.wasm.runtime.v8",
                "code": { "remote": { "http_uri": {
                    "uri": plugin.spec.url, "timeout": "30s", "cluster": "_" } } },
                "environment_variables": { "key_values": {
                    "ISTIO_META_WASM_PLUGIN_RESOURCE_VERSION": "1" } },
            },
            "configuration": {
                "@type": "type.googleapis.com/google.protobuf.StringValue",
                "value": plugin.spec.plugin_config.to_string(),
            },
        });
        let filter = json!({ "name": name, "config_discovery": {
            "config_source": { "ads": {}, "initial_fetch_timeout": "0s", "resource_api_version": "V3" },
            "type_urls": [WASM],
        } });
        let extension =
            json!({ "name": name, "typed_config": { "@type": WASM, "config": config } });
        gateway.extensions.insert(name, extension);
        match insert_before_router(&mut gateway.bootstrap, &filter) {
            0 => Err(ApplyError::Patch {
                at: 0,
                kind: "WasmPlugin".to_owned(),
                problem: "no router to stand before".to_owned(),
            }),
            _ => Ok(()),
        }
    }
}
