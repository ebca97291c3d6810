//! What a host differs in.

use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use prost_types::{ListValue, Struct, Value, value::Kind};

use super::engine::Compiled;
use super::threads::Threads;
use super::vm::Rules;
use super::world::World;
use super::{Host, LogLine};

/// The module does not run, or refuses its configuration.
#[derive(Clone, Debug, thiserror::Error)]
#[error("the module does not start; its log: {log:#?}")]
pub struct StartError {
    /// What was logged until then.
    pub log: Vec<LogLine>,
}

/// Collects the differences; [`Host::setup`] makes it.
#[derive(Debug)]
pub struct Setup {
    module: PathBuf,
    workers: usize,
    rules: Rules,
    reload_interval: Duration,
    clusters: Vec<String>,
    version: Option<[u64; 3]>,
}

impl Setup {
    pub(super) fn new(module: &Path) -> Self {
        Self {
            module: module.to_owned(),
            workers: 1,
            rules: Rules {
                body_while_held: true,
                // That of the shipped configuration.
                buffer_limit: 34_603_008,
            },
            reload_interval: Duration::from_millis(50),
            clusters: vec!["model-servers".to_owned()],
            version: Some([1, 40, 0]),
        }
    }

    /// Loads this module instead.
    #[must_use]
    pub fn module(mut self, path: impl Into<PathBuf>) -> Self {
        self.module = path.into();
        self
    }

    /// Number of workers, 1 unless set.
    #[must_use]
    pub fn workers(mut self, workers: usize) -> Self {
        self.workers = workers;
        self
    }

    /// Another version of Envoy, or one that does not tell.
    #[must_use]
    pub fn version(mut self, version: Option<[u64; 3]>) -> Self {
        self.version = version;
        self
    }

    /// A host without `allow_on_headers_stop_iteration`.
    #[must_use]
    pub fn without_body_while_held(mut self) -> Self {
        self.rules.body_while_held = false;
        self
    }

    /// Bytes of a request's body that may be held, 33 MiB unless set.
    #[must_use]
    pub fn buffer_limit(mut self, bytes: usize) -> Self {
        self.rules.buffer_limit = bytes;
        self
    }

    /// Time after a VM's start in which its loss is not repaired, 50 ms unless set.
    #[must_use]
    pub fn reload_interval(mut self, interval: Duration) -> Self {
        self.reload_interval = interval;
        self
    }

    /// Adds a cluster that calls can go to, beside `model-servers`.
    #[must_use]
    pub fn cluster(mut self, name: &str) -> Self {
        self.clusters.push(name.to_owned());
        self
    }

    /// Starts all VMs, the canary first, with `plugin`, a JSON object that reaches the module as
    /// Envoy hands a `Struct` over.
    ///
    /// # Errors
    /// When the module traps or refuses the configuration: Envoy would not start.
    ///
    /// # Panics
    /// When the module is none.
    pub fn start(self, plugin: &serde_json::Value) -> Result<Host, StartError> {
        self.start_with(&struct_bytes(plugin))
    }

    /// The same with a configuration that reaches the module byte for byte, as Envoy hands a
    /// `StringValue` over.
    ///
    /// # Errors
    /// When the module traps or refuses the configuration: Envoy would not start.
    ///
    /// # Panics
    /// When the module is none.
    pub fn start_with(self, configuration: &[u8]) -> Result<Host, StartError> {
        let compiled = Compiled::load(&self.module);
        let mut world = World::new();
        world.calls.clusters.extend(self.clusters);
        world.version = self.version;
        let world = Rc::new(RefCell::new(world));
        let mut threads = Threads::new(compiled, &world, self.rules, self.reload_interval);
        threads.start(self.workers, configuration.into())?;
        Ok(Host {
            world,
            threads: Rc::new(RefCell::new(threads)),
        })
    }
}

/// `object` as a serialised `google.protobuf.Struct`, the form in which Envoy hands over what users
/// write as YAML.
///
/// # Panics
/// When it is no JSON object.
pub(super) fn struct_bytes(object: &serde_json::Value) -> Vec<u8> {
    let object = object
        .as_object()
        .expect("a plugin configuration is an object");
    prost::Message::encode_to_vec(&to_struct(object))
}

fn to_struct(object: &serde_json::Map<String, serde_json::Value>) -> Struct {
    let fields = object
        .iter()
        .map(|(key, value)| (key.clone(), to_value(value)));
    Struct {
        fields: fields.collect(),
    }
}

fn to_value(value: &serde_json::Value) -> Value {
    use serde_json::Value as Json;
    let kind = match value {
        Json::Null => Kind::NullValue(0),
        Json::Bool(value) => Kind::BoolValue(*value),
        Json::Number(value) => Kind::NumberValue(value.as_f64().expect("a number")),
        Json::String(value) => Kind::StringValue(value.clone()),
        Json::Array(values) => Kind::ListValue(ListValue {
            values: values.iter().map(to_value).collect(),
        }),
        Json::Object(object) => Kind::StructValue(to_struct(object)),
    };
    Value { kind: Some(kind) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The bytes of a real Envoy and their meaning.
    const BYTES: &[u8] = include_bytes!("../../../src/config/protobuf_struct/from_envoy.bin");
    const JSON: &str = include_str!("../../../src/config/protobuf_struct/from_envoy.json");

    #[test]
    fn a_configuration_has_the_wire_form_of_envoys() {
        let expected: Struct = prost::Message::decode(BYTES).expect("a Struct");
        let ours = struct_bytes(&serde_json::from_str(JSON).expect("JSON"));
        let ours: Struct = prost::Message::decode(ours.as_slice()).expect("a Struct");
        assert_eq!(ours, expected);
    }
}
