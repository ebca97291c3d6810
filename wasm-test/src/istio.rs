//! What istiod and its agent make of the manifests in `envoy/istio`, for the gateway of one test.
//!
//! Only what the manifests use is understood; everything else is an error, where Istio would pass
//! over it. In particular a patch that fits nothing is one.

mod envoy_filter;
mod merge;
mod wasm_plugin;

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::{Value, json};

pub use envoy_filter::EnvoyFilter;
pub use wasm_plugin::WasmPlugin;

/// Why a manifest was not applied.
#[derive(Debug, thiserror::Error)]
pub enum ApplyError {
    #[error("not understood: {0}")]
    Unknown(#[from] serde_json::Error),
    #[error("patch {at} ({kind}): {problem}")]
    Patch {
        /// Its number in the manifest.
        at: usize,
        kind: String,
        problem: String,
    },
}

/// How the gateway's Envoy gets the extension configurations.
#[derive(Clone, Debug)]
pub enum Delivery<'a> {
    /// Over ECDS, as Istio does; the folder is where a file takes the place of the control plane.
    Ecds(&'a Path),
    /// As part of the listener, for Envoy's `--mode validate`, which asks no control plane.
    Inline,
}

/// The gateway's configuration: listeners, routes and clusters as a static bootstrap, and what comes
/// over ECDS.
#[derive(Clone, Debug)]
pub struct Gateway {
    bootstrap: Value,
    extensions: BTreeMap<String, Value>,
}

impl Gateway {
    /// A gateway before any manifest.
    pub fn new(bootstrap: Value) -> Self {
        Self {
            bootstrap,
            extensions: BTreeMap::new(),
        }
    }

    /// The configuration of an extension, as the control plane has it.
    pub fn extension_mut(&mut self, name: &str) -> Option<&mut Value> {
        self.extensions.get_mut(name)
    }

    /// Every extension's `PluginConfig`.
    pub fn plugins_mut(&mut self) -> impl Iterator<Item = &mut Value> {
        let extensions = self.extensions.values_mut();
        extensions.map(|extension| &mut extension["typed_config"]["config"])
    }

    /// What Envoy is given. `module` is the file the agent has fetched; every remote module becomes it.
    pub fn bootstrap(mut self, module: &Path, delivery: &Delivery<'_>) -> Value {
        for plugin in self.plugins_mut() {
            let code = &mut plugin["vm_config"]["code"];
            if code.get("remote").is_some() {
                *code = json!({ "local": { "filename": module } });
            }
        }
        let extensions = &self.extensions;
        for filter in http_filters(&mut self.bootstrap) {
            if filter.get("config_discovery").is_none() {
                continue;
            }
            let name = filter["name"].as_str().unwrap_or_default().to_owned();
            let extension = extensions.get(&name);
            let extension = extension.unwrap_or_else(|| panic!("no extension {name}"));
            deliver(filter, extension, delivery);
        }
        self.bootstrap
    }
}

/// Leads `filter` to its configuration.
fn deliver(filter: &mut Value, extension: &Value, delivery: &Delivery<'_>) {
    match delivery {
        Delivery::Inline => {
            *filter = json!({ "name": filter["name"], "typed_config": extension["typed_config"] });
        }
        Delivery::Ecds(folder) => {
            let mut resource = extension.clone();
            resource["@type"] =
                json!("type.googleapis.com/envoy.config.core.v3.TypedExtensionConfig");
            let name = extension["name"].as_str().unwrap_or_default();
            let file = folder.join(format!("{name}.json"));
            let list = json!({ "resources": [resource] });
            std::fs::write(&file, list.to_string()).expect("a writable folder");
            let source = &mut filter["config_discovery"]["config_source"];
            source.as_object_mut().expect("an object").remove("ads");
            source["path_config_source"] = json!({ "path": file });
        }
    }
}

/// The filters of every HTTP connection manager.
fn http_filters(bootstrap: &mut Value) -> impl Iterator<Item = &mut Value> {
    managers(bootstrap).flat_map(|manager| items(&mut manager["http_filters"]))
}

/// The configuration of every HTTP connection manager.
fn managers(bootstrap: &mut Value) -> impl Iterator<Item = &mut Value> {
    items(&mut bootstrap["static_resources"]["listeners"])
        .flat_map(|listener| items(&mut listener["filter_chains"]))
        .flat_map(|chain| items(&mut chain["filters"]))
        .filter(|filter| filter["name"] == MANAGER)
        .map(|filter| &mut filter["typed_config"])
}

/// Name of the HTTP connection manager in Istio's listeners.
const MANAGER: &str = "envoy.filters.network.http_connection_manager";

/// Name of the last filter.
const ROUTER: &str = "envoy.filters.http.router";

/// The elements of `value`, none when it is not an array.
fn items(value: &mut Value) -> std::slice::IterMut<'_, Value> {
    value
        .as_array_mut()
        .map_or(&mut [][..], Vec::as_mut_slice)
        .iter_mut()
}

/// Puts `filter` in front of the router of every connection manager. How many there were.
fn insert_before_router(bootstrap: &mut Value, filter: &Value) -> usize {
    let mut inserted = 0;
    for manager in managers(bootstrap) {
        let Some(filters) = manager["http_filters"].as_array_mut() else {
            continue;
        };
        if let Some(at) = filters.iter().position(|one| one["name"] == ROUTER) {
            filters.insert(at, filter.clone());
            inserted += 1;
        }
    }
    inserted
}
