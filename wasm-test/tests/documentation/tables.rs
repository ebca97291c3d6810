//! The generated parts of the README.

use std::fmt::Write;

use inline_epp::config::{Config, KeyDoc, Kind, PendingCredit, keys, picker_keys};
use inline_epp::flow::CONTROL_HEADERS;
use inline_epp::prefix::BYTES_PER_ENTRY;
use inline_epp::requesthandling::WINDOW_BYTES;
use inline_epp::scheduling::{missing_types, plugin_types};
use inline_epp::telemetry::{Reason, SplitDecision, metric};
use serde_json::{Value, json};
use wasm_test::shapes::SHAPES;

/// Each part with its name.
pub fn all() -> Vec<(&'static str, String)> {
    vec![
        ("formula", formula()),
        ("presets", presets()),
        ("configuration", configuration(keys())),
        ("plugins", plugins()),
        ("plugin parameters", parameters()),
        ("endpoint picker", configuration(picker_keys())),
        ("missing plugins", missing_plugins()),
        ("example scorer", example_scorer()),
        ("control headers", control_headers()),
        ("shapes", shapes()),
        ("reasons", reasons()),
        ("split decisions", split_decisions()),
        ("metrics", metrics()),
        ("memory", memory()),
    ]
}

/// The least that is a configuration.
pub fn minimal() -> Value {
    json!({"pools": [{"name": "llama", "cluster": "model-servers", "endpoints": ["10.0.0.1:8000"]}]})
}

fn parse(configuration: &Value) -> Config {
    Config::parse(configuration.to_string().as_bytes()).expect("a valid configuration")
}

fn formula() -> String {
    let config = parse(&minimal());
    let weights = config.pools[0].scoring.weights;
    format!(
        "```text\nS = {:.2} · cacheMatch            matched blocks / blocks of the prompt\n  \
         + {:.2} · (1 − load)            GPU utilisation, else the fuller of KV cache and batch\n  \
         + {:.2} · (1 − queue/maxQueue)  waiting requests, those just sent included; 0 from maxQueue on\n  \
         + {:.2} · health                good answers lately, and fresh metrics\n  \
         + {:.2} · adapterMatch          1 when the adapter is loaded or none is needed\n```\n",
        weights.cache, weights.load, weights.queue, weights.health, weights.adapter,
    )
}

fn presets() -> String {
    let mut table = Table::new(&[
        "preset",
        "cache",
        "load",
        "queue",
        "health",
        "adapter",
        "maxQueue",
        "guardFloor",
        "pendingCredit",
    ]);
    let preset = keys()
        .iter()
        .find(|key| key.path == "pools[].scoring.preset");
    let Some(Kind::Choice { names, .. }) = preset.map(|key| key.kind) else {
        panic!("scoring.preset is a choice");
    };
    for name in names {
        let mut configuration = minimal();
        configuration["pools"][0]["scoring"] = json!({ "preset": name });
        let pool = parse(&configuration).pools.remove(0);
        let weights = pool.scoring.weights;
        let weights = [
            weights.cache,
            weights.load,
            weights.queue,
            weights.health,
            weights.adapter,
        ];
        let credit = match pool.prefix.pending_credit {
            PendingCredit::UnlessConfirmed => "unlessConfirmed",
            PendingCredit::Full => "full",
            PendingCredit::None => "none",
        };
        let mut row = vec![format!("`{name}`")];
        row.extend(weights.map(|weight| format!("{weight:.2}")));
        row.extend([
            pool.scoring.max_queue.to_string(),
            pool.scoring.guard_floor.to_string(),
            credit.to_owned(),
        ]);
        table.row(&row);
    }
    table.text
}

fn configuration(keys: &[KeyDoc]) -> String {
    let mut table = Table::new(&["key", "type", "default", "meaning"]);
    for key in keys {
        table.row(&[
            format!("`{}`", key.path),
            key.kind.to_string(),
            default(key),
            key.meaning.to_owned(),
        ]);
    }
    table.text
}

/// Own ones are marked.
fn plugins() -> String {
    let mut table = Table::new(&["type", "role", "what it does", "range", "what is not known"]);
    for plugin in plugin_types() {
        let own = if plugin.is_llmd { "" } else { " ¹" };
        let range = if plugin.range.is_empty() {
            "–"
        } else {
            plugin.range
        };
        table.row(&[
            format!("`{}`{own}", plugin.name),
            plugin.role.as_str().to_owned(),
            plugin.effect.to_owned(),
            range.to_owned(),
            plugin.missing.to_owned(),
        ]);
    }
    table.text
}

fn parameters() -> String {
    let mut table = Table::new(&["plugin", "parameter", "type", "default", "meaning"]);
    for plugin in plugin_types() {
        for key in plugin.parameters {
            table.row(&[
                format!("`{}`", plugin.name),
                format!("`{}`", key.path),
                key.kind.to_string(),
                default(key),
                key.meaning.to_owned(),
            ]);
        }
    }
    table.text
}

/// One row for each thing to do instead.
fn missing_plugins() -> String {
    let mut table = Table::new(&["instead", "of"]);
    let mut shown: Vec<&str> = Vec::new();
    for (_, instead) in missing_types() {
        if shown.contains(instead) {
            continue;
        }
        shown.push(instead);
        let same = missing_types().iter().filter(|(_, other)| other == instead);
        let names: Vec<String> = same.map(|(name, _)| format!("`{name}`")).collect();
        table.row(&[(*instead).to_owned(), names.join(", ")]);
    }
    table.text
}

/// The file, and its line in the registry.
fn example_scorer() -> String {
    const LINE: &str = "    scorer::free_slots::TYPE,\n";
    let file = include_str!("../../../src/scheduling/scorer/free_slots.rs");
    let registry = include_str!("../../../src/scheduling/registry.rs");
    assert!(registry.contains(LINE), "the registry has another line");
    assert!(file.lines().count() <= 30, "30 lines are promised");
    format!("```rust\n{file}```\n")
}

fn default(key: &KeyDoc) -> String {
    match (key.default, key.kind) {
        (None, _) => "required".to_owned(),
        (Some("null"), _) | (_, Kind::Section) => "–".to_owned(),
        (Some(default), _) => format!("`{}`", default.trim_matches('"')),
    }
}

fn control_headers() -> String {
    CONTROL_HEADERS
        .iter()
        .fold(String::new(), |mut list, name| {
            writeln!(list, "* `{name}`").expect("a String takes everything");
            list
        })
}

/// `request_shapes` tests every row.
fn shapes() -> String {
    let mut table = Table::new(&["API", "what a body holds", "what of it is hashed"]);
    let mut above = "";
    for row in SHAPES {
        let path = if row.path == above {
            String::new()
        } else {
            format!("`{}`", row.path)
        };
        above = row.path;
        table.row(&[path, row.shape.to_owned(), row.hashed.to_owned()]);
    }
    table.text
}

fn reasons() -> String {
    let mut table = Table::new(&["reason", "counted in", "when"]);
    for reason in Reason::ALL {
        let counter = if reason.is_fallback() {
            metric::FALLBACK
        } else {
            metric::ROUTING_DECISIONS
        };
        table.row(&[
            format!("`{}`", reason.as_str()),
            format!("`{}`", counter.name),
            reason.meaning().to_owned(),
        ]);
    }
    table.text
}

fn split_decisions() -> String {
    let mut table = Table::new(&["decision", "modes", "when"]);
    let is_in = |inline, decision| SplitDecision::of_mode(inline).any(|one| one == decision);
    for decision in SplitDecision::ALL {
        let modes = match (is_in(false, decision), is_in(true, decision)) {
            (true, true) => "all",
            (true, false) => "`header`",
            (false, _) => "inline",
        };
        table.row(&[
            format!("`{}`", decision.as_str()),
            modes.to_owned(),
            decision.meaning().to_owned(),
        ]);
    }
    table.text
}

fn metrics() -> String {
    let mut table = Table::new(&["metric", "kind", "labels", "meaning"]);
    for metric in metric::ALL {
        let labels: Vec<String> = metric
            .labels
            .iter()
            .map(|label| format!("`{label}`"))
            .collect();
        let kind = format!("{:?}", metric.kind).to_lowercase();
        table.row(&[
            format!("`{}`", metric.name),
            kind,
            labels.join(", "),
            metric.meaning.to_owned(),
        ]);
    }
    table.text
}

fn memory() -> String {
    let config = parse(&minimal());
    let prefix = config.pools[0].prefix;
    let entries = config.limits.index_bytes / BYTES_PER_ENTRY;
    let blocks = prefix.max_tokens / prefix.block_tokens;
    format!(
        "| what | bound | with the defaults |\n|---|---|---|\n\
         | prefix indexes of one worker | `limits.indexBytes`, shared evenly among the pools, {BYTES_PER_ENTRY} bytes an entry | {} MiB, {entries} entries |\n\
         | one open request | 8 bytes a block, `maxTokens` / `blockTokens` blocks, until the first byte of its answer | {blocks} blocks, {} KiB |\n\
         | one request while it is decided | {} KiB of its body at a time, whatever its length, and 8 bytes a block | {} KiB |\n",
        config.limits.index_bytes >> 20,
        blocks * 8 / 1024,
        WINDOW_BYTES / 1024,
        (WINDOW_BYTES + blocks as usize * 8) / 1024,
    )
}

/// A Markdown table.
struct Table {
    text: String,
}

impl Table {
    fn new(columns: &[&str]) -> Self {
        let mut table = Self {
            text: String::new(),
        };
        table.row(columns);
        table.row(&vec!["---"; columns.len()]);
        table
    }

    fn row(&mut self, cells: &[impl AsRef<str>]) {
        for cell in cells {
            // A bar ends a cell, in code too.
            let cell = cell.as_ref().replace('|', "\\|");
            write!(self.text, "| {cell} ").expect("a String takes everything");
        }
        self.text.push_str("|\n");
    }
}
