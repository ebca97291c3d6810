//! The plugin configuration as a JSON schema, for editors that complete and check it.
//!
//! It is made of the lists that the module itself reads by, so it allows what the module allows, as
//! far as a schema can tell: names that must be unique or exist elsewhere are beyond it.

use std::time::Duration;

use inline_epp::config::{KeyDoc, Kind, keys, picker_keys};
use inline_epp::scheduling::{PluginType, plugin_types};
use serde_json::{Map, Value, json};

/// The schema of the whole configuration (JSON Schema, 2020-12).
pub fn plugin_configuration() -> Value {
    let mut schema = Document(keys()).object("");
    let head = json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "inline-epp plugin configuration",
        "$defs": {"endpointPickerConfig": endpoint_picker_config()},
    });
    merge(&mut schema, head);
    schema
}

fn endpoint_picker_config() -> Value {
    let mut schema = Document(picker_keys()).object("");
    let plugin = &mut schema["properties"]["plugins"]["items"];
    let names: Vec<&str> = plugin_types().iter().map(|one| one.name).collect();
    merge(&mut plugin["properties"]["type"], json!({ "enum": names }));
    plugin["allOf"] = plugin_types().iter().map(parameters).collect();
    schema
}

/// What the parameters of a plugin type are.
fn parameters(plugin: &PluginType) -> Value {
    let mut parameters = Document(plugin.parameters).object("");
    parameters["type"] = json!(["object", "null"]);
    let is_optional = parameters.get("required").is_none();
    let mut then = json!({"properties": {"parameters": parameters}});
    if !is_optional {
        then["required"] = json!(["parameters"]);
    }
    json!({
        "if": {"required": ["type"], "properties": {"type": {"const": plugin.name}}},
        "then": then,
    })
}

/// A list of keys, their paths beginning at one object.
#[derive(Clone, Copy)]
struct Document(&'static [KeyDoc]);

impl Document {
    /// The object at `path`, with what is directly inside it.
    fn object(self, path: &str) -> Value {
        let mut properties = Map::new();
        let mut required = Vec::new();
        for key in self.0 {
            let Some(name) = name_in(key.path, path) else {
                continue;
            };
            if key.default.is_none() {
                required.push(json!(name));
            }
            properties.insert(name.to_owned(), self.property(key));
        }
        let mut object = json!({
            "type": "object",
            "properties": properties,
            "additionalProperties": false,
        });
        if !required.is_empty() {
            object["required"] = Value::Array(required);
        }
        object
    }

    fn property(self, key: &KeyDoc) -> Value {
        let mut schema = self.value(key);
        if key.default.is_some() {
            schema = or_null(schema);
        }
        schema["description"] = json!(key.meaning.replace('`', ""));
        let default = key.default.filter(|default| *default != "null");
        if let Some(default) = default {
            schema["default"] = serde_json::from_str(default).expect("defaults are JSON");
        }
        schema
    }

    fn value(self, key: &KeyDoc) -> Value {
        match key.kind {
            Kind::Section => self.object(key.path),
            Kind::Labels => json!({"type": "object", "additionalProperties": {"type": "string"}}),
            Kind::Object { .. } if key.path == "pools[].endpointPickerConfig" => {
                json!({"$ref": "#/$defs/endpointPickerConfig"})
            }
            Kind::Object { .. } => json!({"type": "object"}),
            Kind::List { min, max, .. } => {
                json!({"type": "array", "minItems": min, "maxItems": max, "items": self.items(key)})
            }
            Kind::Text(_) => json!({"type": "string"}),
            Kind::Flag => json!({"type": "boolean"}),
            Kind::Whole { min, max } => whole(min, max),
            Kind::AutoOrWhole => json!({"anyOf": [{"const": "auto"}, whole(1, u32::MAX)]}),
            Kind::Number { min, max } => number(min, max),
            Kind::Duration { min, max } => duration(min, max),
            Kind::Size { min, max } => json!({"anyOf": [
                whole(min, max),
                {"type": "string", "pattern": "^[0-9]+(Ki|Mi|Gi|k|K|M|G)?$"},
            ]}),
            Kind::Choice { names, .. } => choice(names),
        }
    }

    /// What a list holds: objects where the list of keys goes on inside it.
    fn items(self, key: &KeyDoc) -> Value {
        let inside = format!("{}[]", key.path);
        let has_fields = self
            .0
            .iter()
            .any(|one| name_in(one.path, &inside).is_some());
        if !has_fields {
            return json!({"type": "string"});
        }
        let object = self.object(&inside);
        // The one list whose entries have a shorter form.
        if key.path == "pools[].endpoints" {
            return json!({"anyOf": [{"type": "string"}, object]});
        }
        object
    }
}

/// What is left of `path` inside `section`, when that is one name.
fn name_in<'a>(path: &'a str, section: &str) -> Option<&'a str> {
    let rest = path.strip_prefix(section)?;
    let name = if section.is_empty() {
        rest
    } else {
        rest.strip_prefix('.')?
    };
    (!name.contains(['.', '['])).then_some(name)
}

/// `null` is as good as absent.
fn or_null(schema: Value) -> Value {
    if let Some(kind) = schema.get("type").and_then(Value::as_str) {
        let kind = json!([kind, "null"]);
        let mut schema = schema;
        schema["type"] = kind;
        return schema;
    }
    json!({"anyOf": [schema, {"type": "null"}]})
}

/// `20.0` is whole, too: both here and in the module.
fn whole(min: u32, max: u32) -> Value {
    let mut schema = json!({"type": "integer", "minimum": min});
    if max < u32::MAX {
        schema["maximum"] = json!(max);
    }
    schema
}

fn number(min: f64, max: f64) -> Value {
    let mut schema = json!({"type": "number"});
    if min > f64::MIN {
        schema["minimum"] = json!(min);
    }
    if max < f64::MAX {
        schema["maximum"] = json!(max);
    }
    schema
}

fn duration(min: Duration, max: Duration) -> Value {
    json!({"anyOf": [
        {"type": "string", "pattern": r"^[0-9]*\.?[0-9]+(ms|s|m)$"},
        number(min.as_secs_f64(), max.as_secs_f64()),
    ]})
}

/// The names first, for completion; then in any case.
fn choice(names: &[&str]) -> Value {
    let any_case = |name: &&str| -> String {
        let letter = |c: char| match c {
            c if c.is_ascii_alphabetic() => {
                format!("[{}{}]", c.to_ascii_lowercase(), c.to_ascii_uppercase())
            }
            '.' => r"\.".to_owned(),
            c => c.to_string(),
        };
        name.chars().map(letter).collect()
    };
    let any_case: Vec<String> = names.iter().map(any_case).collect();
    let pattern = format!("^({})$", any_case.join("|"));
    json!({"anyOf": [{"enum": names}, {"type": "string", "pattern": pattern}]})
}

/// Puts the fields of `more` into `object`.
fn merge(object: &mut Value, more: Value) {
    if let (Value::Object(object), Value::Object(more)) = (object, more) {
        object.extend(more);
    }
}
