//! The key list against the reader: nothing listed is ignored, no default is wrong.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::{full, minimal, parse, with};
use crate::config::{KeyDoc, Kind, keys};

/// Where `full()` has the key: the second endpoint is the one written as an object.
fn place(key: &KeyDoc) -> String {
    key.path
        .replace("endpoints[]", "endpoints[1]")
        .replace("[]", "[0]")
}

const PICKER: &str = ".endpointPickerConfig";

/// Paths of all fields in `value`, in the form of the key list.
fn paths(value: &Value, path: &str, found: &mut BTreeSet<String>) {
    match value {
        // Its keys are a list of their own.
        Value::Object(fields) if !path.ends_with(".labels") && !path.ends_with(PICKER) => {
            for (name, value) in fields {
                let at = if path.is_empty() {
                    name.clone()
                } else {
                    format!("{path}.{name}")
                };
                paths(value, &at, found);
                found.insert(at);
            }
        }
        Value::Array(items) => {
            for item in items {
                paths(item, &format!("{path}[]"), found);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Object(_) => {}
    }
}

#[test]
fn every_listed_key_is_in_the_full_configuration_and_no_other() {
    let mut written = BTreeSet::new();
    paths(&full(), "", &mut written);
    let listed: BTreeSet<String> = keys().iter().map(|key| key.path.to_owned()).collect();
    assert_eq!(written, listed);
    assert_eq!(listed.len(), keys().len(), "a key is listed twice");
}

/// A key that the reader never asks for would accept anything.
#[test]
fn every_listed_key_is_read() {
    for key in keys() {
        let path = place(key);
        let Err(error) = parse(&with(full(), &path, json!([[]]))) else {
            panic!("{path} accepts a list of lists");
        };
        assert!(error.path().starts_with(&path), "{path}: {error}");
    }
}

#[test]
fn a_listed_default_is_what_an_absent_key_reads_as() {
    let absent = parse(&minimal()).unwrap();
    let mut spelled = with(
        minimal(),
        "pools[0].endpoints[0]",
        json!({"address": "10.0.0.1:8000"}),
    );
    // What stands inside an object that is absent reads as nothing; it has tests of its own.
    let inside = |key: &KeyDoc| key.path.starts_with("pools[].discovery.");
    for key in keys().iter().filter(|key| !inside(key)) {
        let Some(default) = key.default else { continue };
        // A list that is empty has no entry to spell them in; and nothing else says where they are.
        if key.path.starts_with("pools[].models[]") || key.path == "pools[].endpoints" {
            continue;
        }
        let value: Value = serde_json::from_str(default).unwrap();
        let path = key.path.replace("[]", "[0]");
        spelled = with(spelled, &path, value);
        assert_eq!(parse(&spelled).unwrap(), absent, "{path} = {default}");
    }
    let model = json!([{"name": "a", "targets": [{"model": "b"}]}]);
    let mut spelled = with(minimal(), "pools[0].models", model);
    let absent = parse(&spelled).unwrap();
    for key in keys() {
        let Some(default) = key.default else { continue };
        if key.path.starts_with("pools[].models[]") {
            let value: Value = serde_json::from_str(default).unwrap();
            let path = key.path.replace("[]", "[0]");
            spelled = with(spelled, &path, value);
            assert_eq!(parse(&spelled).unwrap(), absent, "{path} = {default}");
        }
    }
}

#[test]
fn exactly_the_required_keys_cannot_be_left_out() {
    for key in keys() {
        let path = place(key);
        let mut rest = with(full(), &path, json!(null));
        if key.path == "pools[].metrics.cluster" {
            // The port is one of that cluster's.
            rest = with(rest, "pools[0].metrics.port", json!(null));
        }
        let result = parse(&rest);
        match key.default {
            Some(_) => assert!(result.is_ok(), "{path}: {}", result.unwrap_err()),
            None => assert!(
                result.unwrap_err().to_string().ends_with("found nothing"),
                "{path}"
            ),
        }
    }
}

#[test]
fn every_name_of_a_choice_is_accepted_and_means_something_else() {
    for key in keys() {
        let Kind::Choice { names } = key.kind else {
            continue;
        };
        let mut read = Vec::new();
        for name in names {
            let config = parse(&with(minimal(), &place(key), json!(name)));
            let config = config.unwrap_or_else(|error| panic!("{error}"));
            assert!(
                !read.contains(&config),
                "{}: {name} is another name twice",
                key.path
            );
            read.push(config);
        }
    }
}

#[test]
fn every_key_is_documented_on_one_line() {
    for key in keys() {
        assert!(key.meaning.ends_with('.'), "{}", key.path);
        for text in [key.meaning, &key.kind.to_string()] {
            assert!(!text.contains('\n'), "{}", key.path);
        }
    }
}
