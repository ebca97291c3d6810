//! The documents against the code: what they list is what there is, and what they show works.
//!
//! Tables between `<!-- generated: name -->` and `<!-- end -->` are written by
//! `UPDATE_README=1 cargo test -p wasm-test --test documentation`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use inline_epp::config::{Config, ConfigError, Kind, keys};
use inline_epp::datalayer::EndpointId;
use inline_epp::flow::Router;
use inline_epp::requestcontrol::{Ledger, LedgerHandle, LoadGuard};
use inline_epp::scheduling::picker::TieKey;
use inline_epp::scheduling::{Candidate, Request, five_factor};
use readme::{Fence, Readme};
use serde_json::{Value, json};

#[path = "documentation/readme.rs"]
mod readme;
#[path = "documentation/schema.rs"]
mod schema;
#[path = "documentation/tables.rs"]
mod tables;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("a folder of the repository")
}

fn document(path: &str) -> Readme {
    let path = root().join(path);
    let text =
        fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    Readme::new(text)
}

/// Documents whose links and commands are checked.
fn documents() -> [(&'static str, Readme); 3] {
    ["README.md", "envoy/README.md", "CHANGELOG.md"].map(|path| (path, document(path)))
}

fn from_yaml(text: &str) -> Value {
    serde_saphyr::from_str(text).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

fn parse(configuration: &Value) -> Config {
    let parsed = Config::parse(configuration.to_string().as_bytes());
    // Plugins are part of what may be wrong.
    let router = parsed.and_then(router);
    let router = router.unwrap_or_else(|error| panic!("{error}\n{configuration:#}"));
    router.config().clone()
}

/// What a VM makes of `config`.
fn router(config: Config) -> Result<Router, ConfigError> {
    Router::new(config, &LedgerHandle::new(Ledger::alone()))
}

#[test]
fn generated_parts_equal_the_code() {
    let path = root().join("README.md");
    let mut readme = document("README.md");
    let parts = tables::all();
    let expected: BTreeSet<&str> = parts.iter().map(|(name, _)| *name).collect();
    let present: Vec<String> = readme
        .generated()
        .into_iter()
        .map(|(name, _)| name)
        .collect();
    let once: BTreeSet<&str> = present.iter().map(String::as_str).collect();
    assert_eq!(once, expected);
    assert_eq!(
        present.len(),
        expected.len(),
        "a part stands twice: {present:?}"
    );

    let stale: Vec<String> = parts
        .iter()
        .filter(|(name, text)| readme.replace_generated(name, text))
        .map(|(name, text)| format!("{name} should read:\n\n{text}"))
        .collect();
    if stale.is_empty() {
        return;
    }
    if std::env::var_os("UPDATE_README").is_some() {
        fs::write(path, readme.text()).expect("writable");
        return;
    }
    panic!(
        "README.md is not in step, UPDATE_README=1 rewrites it\n{}",
        stale.join("\n")
    );
}

#[test]
fn every_configuration_shown_is_valid() {
    let mut plugins = 0;
    for Fence { words, text } in document("README.md").fences() {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        match words.as_slice() {
            ["yaml" | "json", "plugin"] => {
                parse(&from_yaml(&text));
                plugins += 1;
            }
            // Part of a bootstrap: that it is YAML is all that can be said of it here.
            ["yaml" | "json", "envoy"] => {
                from_yaml(&text);
            }
            ["yaml" | "json", ..] => panic!("plugin or envoy?\n{text}"),
            _ => {}
        }
    }
    assert!(plugins >= 1, "README.md shows no plugin configuration");
}

#[test]
fn every_relative_link_leads_somewhere() {
    let mut followed = 0;
    for (document, readme) in documents() {
        let folder = root().join(document).parent().expect("a folder").to_owned();
        for link in readme.links() {
            if link.contains("://") {
                continue;
            }
            let (file, anchor) = link.split_once('#').unwrap_or((&link, ""));
            let target = if file.is_empty() {
                root().join(document)
            } else {
                folder.join(file)
            };
            assert!(target.exists(), "{document}: {link}");
            if !anchor.is_empty() {
                let text = fs::read_to_string(&target).expect("readable");
                let anchors = Readme::new(text).anchors();
                assert!(anchors.contains(anchor), "{document}: {link}");
            }
            followed += 1;
        }
    }
    assert!(followed > 10);
}

#[test]
fn the_changelog_has_this_version_and_every_metric_it_adds_exists() {
    let text = document("CHANGELOG.md").text().to_owned();
    let heading = format!("\n## {}\n", env!("CARGO_PKG_VERSION"));
    assert!(text.contains(&heading), "no {heading:?}");
    let readme = document("README.md").text().to_owned();
    let metrics = text.split('`').filter(|word| word.starts_with("epp_"));
    for metric in metrics {
        assert!(readme.contains(metric), "{metric}");
    }
}

#[test]
fn every_script_and_file_named_exists() {
    const FOLDERS: [&str; 5] = ["scripts/", "envoy/", "src/", "wasm-test/", ".ci/"];
    let mut named = BTreeSet::new();
    for (_, readme) in documents() {
        named.extend(readme.named_paths(&FOLDERS));
    }
    assert!(named.iter().any(|path| path.starts_with("scripts/")));
    let missing: Vec<&PathBuf> = named
        .iter()
        .filter(|path| !root().join(path).exists())
        .collect();
    assert!(missing.is_empty(), "{missing:?}");
}

/// Everything in `value` that is no section, by its path in the form of the key list.
fn leaves(value: &Value, path: &str, found: &mut BTreeMap<String, Value>) {
    let is_section = keys()
        .iter()
        .any(|key| key.path == path && matches!(key.kind, Kind::Section));
    match value {
        Value::Object(fields) if path.is_empty() || path.ends_with("[]") || is_section => {
            for (name, value) in fields {
                let at = if path.is_empty() {
                    name.clone()
                } else {
                    format!("{path}.{name}")
                };
                leaves(value, &at, found);
            }
            if is_section {
                found.insert(path.to_owned(), json!({}));
            }
        }
        Value::Array(items) if items.iter().any(Value::is_object) => {
            for item in items {
                leaves(item, &format!("{path}[]"), found);
            }
            found.insert(path.to_owned(), value.clone());
        }
        Value::Null
        | Value::Bool(_)
        | Value::Number(_)
        | Value::String(_)
        | Value::Array(_)
        | Value::Object(_) => {
            found.insert(path.to_owned(), value.clone());
        }
    }
}

/// Numbers compare by value: YAML's `0.60` and `20` are what JSON calls `0.6` and `20.0`.
fn is_same(one: &Value, other: &Value) -> bool {
    match (one.as_f64(), other.as_f64()) {
        (Some(one), Some(other)) => one.total_cmp(&other).is_eq(),
        _ => one == other,
    }
}

#[test]
fn plugin_config_yaml_spells_out_every_key_with_its_default() {
    let text = fs::read_to_string(root().join("envoy/plugin-config.yaml")).expect("readable");
    let written = from_yaml(&text);
    parse(&written);
    let mut found = BTreeMap::new();
    leaves(&written, "", &mut found);
    let listed: BTreeSet<&str> = keys().iter().map(|key| key.path).collect();
    assert_eq!(
        found.keys().map(String::as_str).collect::<BTreeSet<_>>(),
        listed
    );
    for key in keys() {
        let Some(default) = key.default else { continue };
        let default: Value = serde_json::from_str(default).expect("JSON");
        if found[key.path].is_object()
            || found[key.path]
                .as_array()
                .is_some_and(|all| !all.is_empty())
        {
            // An example of what may stand there; its own keys are looked at one by one.
            continue;
        }
        assert!(
            is_same(&found[key.path], &default),
            "{}: {} instead of {default}",
            key.path,
            found[key.path]
        );
    }
}

/// An endpoint with fresh metrics that holds `matched` of ten blocks.
fn candidate(matched: u32, load: f64, queue: u32) -> Candidate {
    Candidate {
        matched_blocks: matched,
        total_blocks: 10,
        waiting: queue,
        max_running: 256,
        gpu_utilisation: Some(load),
        ..Candidate::new(EndpointId::new(0))
    }
}

fn request() -> Request {
    Request {
        tie: TieKey(0),
        random: 0,
        attempts: 1,
        total_blocks: 10,
        block_tokens: 64,
        prompt_tokens: 640.0,
        tokens_per_block: 64.0,
    }
}

#[test]
fn the_worked_scores_are_what_the_scheduler_gives() {
    let scoring = parse(&tables::minimal()).pools.remove(0).scoring;
    let profile = five_factor(&scoring);
    let readme = document("README.md");
    for (matched, load, queue) in [(10, 0.8, 0), (0, 0.0, 0), (5, 0.3, 4)] {
        let score = profile.composites(&request(), &[&candidate(matched, load, queue)])[0];
        let shares = [
            f64::from(matched) / 10.0,
            load,
            f64::from(queue) / f64::from(scoring.max_queue),
        ];
        let [matched, load, queue] = shares.map(|share| format!("{share:.1}"));
        let shown = format!("| {matched} | {load} | {queue} | {score:.4} |");
        assert!(readme.text().contains(&shown), "{shown}");
    }
}

/// What load and queue are worth of the score of a healthy endpoint that holds nothing.
fn load_and_queue(preset: &str, load: f64, queue: u32) -> f64 {
    let mut configuration = tables::minimal();
    configuration["pools"][0]["scoring"] = json!({ "preset": preset });
    let scoring = parse(&configuration).pools.remove(0).scoring;
    let score = five_factor(&scoring).composites(&request(), &[&candidate(0, load, queue)])[0];
    score - scoring.weights.health - scoring.weights.adapter
}

#[test]
fn the_tuning_guide_says_what_the_presets_give() {
    let readme = document("README.md");
    for (preset, load, queue, shown) in [
        ("default", 0.4, 10, "waiting scores 0.17 for the two"),
        ("default", 0.8, 0, "one at 80 % with none 0.14"),
        ("low-latency", 0.8, 0, "the second wins, 0.32 against"),
        ("low-latency", 0.4, 9, "At nine waiting it is 0.09"),
    ] {
        assert!(readme.text().contains(shown), "{shown}");
        let value = load_and_queue(preset, load, queue);
        assert!(
            shown.contains(&format!("{value:.2}")),
            "{value} for {shown}"
        );
    }
    let cost = load_and_queue("many-adapter", 0.0, 0) - load_and_queue("many-adapter", 0.0, 15);
    assert!(
        readme
            .text()
            .contains(&format!("the queue costs {cost:.3}"))
    );
}

#[test]
fn the_worked_limits_are_those_of_the_defaults() {
    let scoring = parse(&tables::minimal()).pools.remove(0).scoring;
    let readme = document("README.md");
    for (open, shown) in [
        (79, "max(20, 1.5 × 20) = 30 open requests"),
        (20, "in all it stops at 20"),
    ] {
        let guard = LoadGuard::new(scoring.guard_floor, scoring.guard_ratio, open, 4);
        let closes_at = (0..100).find(|open| guard.holds(*open)).expect("it closes");
        assert!(readme.text().contains(shown), "{shown}");
        assert!(
            shown.contains(&closes_at.to_string()),
            "{closes_at} instead of {shown}"
        );
    }
    let band = scoring.tie_band;
    assert!(0.6190 >= 0.6200 - band && 0.6100 < 0.6200 - band);
    assert!(
        readme
            .text()
            .contains(&format!("the default of {band}, the first two"))
    );
    // What all but the match count together, in the sentence on two thirds.
    let weights = scoring.weights.normalised();
    let rest = 1.0 - weights.cache;
    assert!(readme.text().contains(&format!("count {rest:.2} together")));
    assert!(weights.cache * 2.0 / 3.0 >= rest - 1e-9);
}
