//! A configuration file as a tree that a run adapts: ports, the module's path, addresses.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

const STRING_VALUE: &str = "type.googleapis.com/google.protobuf.StringValue";
const STRUCT: &str = "type.googleapis.com/google.protobuf.Struct";

/// Why a configuration file cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{path}: {problem}")]
pub struct BootstrapError {
    path: PathBuf,
    problem: String,
}

/// Envoy's bootstrap. JSON is what it is written as: Envoy reads both.
#[derive(Clone, Debug)]
pub(super) struct Bootstrap {
    path: PathBuf,
    tree: Value,
}

impl Bootstrap {
    /// Reads the YAML file at `path`.
    pub(super) fn load(path: PathBuf) -> Result<Self, BootstrapError> {
        match read_yaml(&path) {
            Ok(tree) => Ok(Self { path, tree }),
            Err(problem) => Err(BootstrapError { path, problem }),
        }
    }

    /// The tree itself, for patches that only one test needs.
    pub(super) fn tree_mut(&mut self) -> &mut Value {
        &mut self.tree
    }

    /// As the text Envoy is given.
    pub(super) fn to_json(&self) -> String {
        format!("{:#}", self.tree)
    }

    /// Lets the kernel choose the ports of the listeners and of admin.
    pub(super) fn set_dynamic_ports(&mut self) {
        for listener in array_mut(&mut self.tree["static_resources"]["listeners"]) {
            listener["address"]["socket_address"]["port_value"] = json!(0);
        }
        self.tree["admin"]["address"]["socket_address"]["port_value"] = json!(0);
    }

    /// Names of the listeners, in the file's order.
    pub(super) fn listener_names(&self) -> Vec<String> {
        self.tree["static_resources"]["listeners"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|listener| listener["name"].as_str().map(str::to_owned))
            .collect()
    }

    /// Replaces the endpoints of every cluster that lists some, and of every pool of the module, by
    /// `endpoints`.
    pub(super) fn set_endpoints(&mut self, endpoints: &[SocketAddr]) {
        let hosts: Vec<Value> = endpoints.iter().map(lb_endpoint).collect();
        for cluster in array_mut(&mut self.tree["static_resources"]["clusters"]) {
            if let Some(listed) = cluster.get_mut("load_assignment") {
                listed["endpoints"] = json!([{ "lb_endpoints": hosts }]);
            }
        }
        let addresses: Vec<String> = endpoints.iter().map(ToString::to_string).collect();
        for filter in self.wasm_filters() {
            for pool in array_mut(&mut filter["configuration"]["value"]["pools"]) {
                pool["endpoints"] = json!(addresses);
            }
        }
    }

    /// Whether the module is in the filter chain.
    pub(super) fn has_module(&mut self) -> bool {
        !self.wasm_filters().is_empty()
    }

    /// Loads the module from `path`.
    pub(super) fn set_module(&mut self, path: &Path) {
        for filter in self.wasm_filters() {
            filter["vm_config"]["code"]["local"]["filename"] = json!(path);
        }
    }

    /// Replaces the plugin configuration by the YAML file at `path`.
    pub(super) fn set_plugin_file(&mut self, path: PathBuf) -> Result<(), BootstrapError> {
        let value = match read_yaml(&path) {
            Ok(value) => value,
            Err(problem) => return Err(BootstrapError { path, problem }),
        };
        self.edit_plugin(|plugin| *plugin = value.clone())
    }

    /// Changes the plugin configuration, a JSON object that Envoy receives as a `Struct`.
    pub(super) fn edit_plugin(&mut self, edit: impl Fn(&mut Value)) -> Result<(), BootstrapError> {
        self.require_module()?;
        for filter in self.wasm_filters() {
            filter["configuration"]["@type"] = json!(STRUCT);
            edit(&mut filter["configuration"]["value"]);
        }
        Ok(())
    }

    /// The first module's plugin configuration.
    pub(super) fn plugin(&mut self) -> Result<Value, BootstrapError> {
        self.require_module()?;
        Ok(self.wasm_filters()[0]["configuration"]["value"].clone())
    }

    /// Hands the module its configuration as a `StringValue`: the current one as JSON text.
    pub(super) fn use_plugin_text(&mut self) -> Result<(), BootstrapError> {
        self.require_module()?;
        for filter in self.wasm_filters() {
            let text = filter["configuration"]["value"].to_string();
            filter["configuration"] = json!({ "@type": STRING_VALUE, "value": text });
        }
        Ok(())
    }

    fn require_module(&mut self) -> Result<(), BootstrapError> {
        if self.has_module() {
            return Ok(());
        }
        let problem = "no wasm filter whose configuration could be changed".to_owned();
        Err(BootstrapError {
            path: self.path.clone(),
            problem,
        })
    }

    /// The `PluginConfig` of every wasm HTTP filter.
    fn wasm_filters(&mut self) -> Vec<&mut Value> {
        array_mut(&mut self.tree["static_resources"]["listeners"])
            .iter_mut()
            .flat_map(|listener| array_mut(&mut listener["filter_chains"]))
            .flat_map(|chain| array_mut(&mut chain["filters"]))
            .flat_map(|filter| array_mut(&mut filter["typed_config"]["http_filters"]))
            .map(|filter| &mut filter["typed_config"])
            .filter(|config| {
                config["@type"]
                    .as_str()
                    .is_some_and(|kind| kind.ends_with("http.wasm.v3.Wasm"))
            })
            .map(|config| &mut config["config"])
            .collect()
    }
}

fn read_yaml(path: &Path) -> Result<Value, String> {
    let text = fs::read_to_string(path).map_err(|error| error.to_string())?;
    serde_saphyr::from_str(&text).map_err(|error| error.to_string())
}

/// The elements of `value`, none when it is not an array.
fn array_mut(value: &mut Value) -> &mut [Value] {
    value.as_array_mut().map_or(&mut [], Vec::as_mut_slice)
}

fn lb_endpoint(address: &SocketAddr) -> Value {
    json!({ "endpoint": { "address": { "socket_address": {
        "address": address.ip().to_string(),
        "port_value": address.port(),
    } } } })
}

#[cfg(test)]
mod tests;
