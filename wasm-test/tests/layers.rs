//! Who may know whom. The module's parts depend on each other in one direction, and only `host`
//! touches the world; this reads the sources and holds them to that.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use source::{Source, Word};

#[path = "layers/source.rs"]
mod source;

/// Each part of `src/` and what it may use, from the bottom up: a part uses only parts above it in
/// this list, so there is no cycle.
const MAY_USE: [(&str, &[&str]); 12] = [
    // Plain values.
    ("time", &[]),
    ("words", &[]),
    ("telemetry", &[]),
    ("config", &["time"]),
    // What a request says, what an endpoint says.
    ("requesthandling", &["words"]),
    ("datalayer", &["config", "time", "words"]),
    // What was sent where.
    ("prefix", &["config", "datalayer"]),
    // Who gets it. A scorer reads attributes; it knows neither hashes nor the index.
    ("scheduling", &["config", "datalayer", "telemetry"]),
    // What crosses VMs, and the state that follows from it.
    ("replication", &["datalayer", "prefix", "time"]),
    // What surrounds a pick.
    (
        "requestcontrol",
        &[
            "config",
            "datalayer",
            "prefix",
            "replication",
            "scheduling",
            "telemetry",
            "time",
        ],
    ),
    // One stream. It decides and returns what should be done.
    (
        "flow",
        &[
            "config",
            "datalayer",
            "prefix",
            "requestcontrol",
            "requesthandling",
            "scheduling",
            "telemetry",
            "time",
        ],
    ),
    // The translator: everything, and nobody uses it.
    (
        "host",
        &[
            "config",
            "datalayer",
            "flow",
            "replication",
            "requestcontrol",
            "requesthandling",
            "telemetry",
            "time",
        ],
    ),
];

/// What the core may not name: time, threads and the outside are arguments there.
const WORLD: [&[&str]; 13] = [
    &["std", "env"],
    &["std", "fs"],
    &["std", "io"],
    &["std", "net", "TcpListener"],
    &["std", "net", "TcpStream"],
    &["std", "net", "UdpSocket"],
    &["std", "process"],
    &["std", "sync"],
    &["std", "thread"],
    &["std", "time", "Instant"],
    &["std", "time", "SystemTime"],
    &["core", "sync"],
    &["proxy_wasm"],
];

/// Macros that write to where nobody reads, or make state global.
const MACROS: [&str; 6] = [
    "print",
    "println",
    "eprint",
    "eprintln",
    "dbg",
    "thread_local",
];

/// Lines of a file, its tests included.
const LONGEST_FILE: usize = 500;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("a folder of the repository")
}

/// The Rust files under `folder`, as paths relative to the repository.
fn rust_files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(root().join(folder)).expect("a folder") {
        let entry = entry.expect("readable");
        let path = folder.join(entry.file_name());
        if entry.file_type().expect("a type").is_dir() {
            found.extend(rust_files(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
    found.sort();
    found
}

fn text(path: &Path) -> String {
    fs::read_to_string(root().join(path)).expect("readable")
}

/// The sources of the module.
fn sources() -> Vec<Source> {
    let files = rust_files(Path::new("src"));
    let read = |path: PathBuf| Source::parse(&path, &text(&path)).expect("Rust");
    files.into_iter().map(read).collect()
}

/// The sources of the module's core.
fn core_sources() -> impl Iterator<Item = Source> {
    sources()
        .into_iter()
        .filter(|source| source.part() != Some("host"))
}

/// `violations`, one line each.
fn assert_none(violations: impl IntoIterator<Item = String>) {
    let violations: Vec<String> = violations.into_iter().collect();
    assert!(violations.is_empty(), "\n{}\n", violations.join("\n"));
}

#[test]
fn the_table_names_every_part_once_and_has_no_cycle() {
    let parts: BTreeSet<String> = sources()
        .iter()
        .filter_map(|source| source.part().map(str::to_owned))
        .collect();
    let listed: BTreeSet<String> = MAY_USE.iter().map(|(part, _)| (*part).to_owned()).collect();
    assert_eq!(parts, listed);
    for (at, (part, uses)) in MAY_USE.iter().enumerate() {
        let above: Vec<&str> = MAY_USE.iter().take(at).map(|(part, _)| *part).collect();
        for used in *uses {
            assert!(
                above.contains(used),
                "{part} uses {used}, which is not above it"
            );
        }
    }
}

#[test]
fn no_part_uses_what_it_may_not() {
    let table: BTreeMap<&str, &[&str]> = MAY_USE.into_iter().collect();
    let mut violations = Vec::new();
    for source in sources() {
        let Some(part) = source.part() else { continue };
        for used in source.parts_used() {
            if used.name != part && !table[part].contains(&used.name.as_str()) {
                violations.push(format!(
                    "{}: {part} uses {}",
                    source.at(used.line),
                    used.name
                ));
            }
        }
    }
    assert_none(violations);
}

#[test]
fn the_core_does_not_touch_the_world() {
    let mut violations = Vec::new();
    // Tests of the core read recorded files.
    for source in core_sources().filter(|source| !source.is_test()) {
        for path in source.paths() {
            if WORLD.iter().any(|banned| path.touches(banned)) {
                violations.push(format!("{}: {path}", source.at(path.line)));
            }
        }
        let words = source.words();
        let global = words.iter().filter(|word| {
            MACROS.iter().any(|name| word.is_macro(name)) || word.is_before("static", "mut")
        });
        violations.extend(global.map(|word| format!("{}: {word}", source.at(word.line))));
    }
    assert_none(violations);
}

#[test]
fn only_the_abi_is_unsafe() {
    let mut violations = Vec::new();
    for source in sources() {
        if source.path() == Path::new("src/host/abi.rs") {
            assert!(
                source.words().iter().any(Word::is_unsafe),
                "abi.rs has no unsafe?"
            );
            continue;
        }
        let words = source.words();
        let unsafes = words.iter().filter(|word| word.is_unsafe());
        violations.extend(unsafes.map(|word| format!("{}: unsafe", source.at(word.line))));
    }
    assert_none(violations);
}

/// Nearly every other wrapper of the SDK panics on a status that it does not expect.
#[test]
fn the_sdk_makes_one_host_call_only() {
    const CALL: [&str; 3] = ["proxy_wasm", "hostcalls", "dispatch_http_call"];
    let mut calls = 0;
    let mut violations = Vec::new();
    for source in sources() {
        for path in source.paths() {
            if path.segments == CALL {
                calls += 1;
            } else if path.touches(&["proxy_wasm", "hostcalls"]) {
                violations.push(format!("{}: {path}", source.at(path.line)));
            }
        }
    }
    assert_none(violations);
    assert_eq!(calls, 1);
}

/// The simulator must not agree with the router by construction.
#[test]
fn the_simulator_uses_nothing_of_the_module() {
    let files = rust_files(Path::new("wasm-test/src"));
    let is_sim = |path: &PathBuf| path.starts_with("wasm-test/src/sim") || path.ends_with("sim.rs");
    let files: Vec<PathBuf> = files.into_iter().filter(is_sim).collect();
    assert!(files.len() > 10, "{files:?}");
    let mut violations = Vec::new();
    for path in files {
        let source = Source::parse(&path, &text(&path)).expect("Rust");
        let words = source.words();
        let uses = words.iter().filter(|word| word.text == "inline_epp");
        violations.extend(uses.map(|word| source.at(word.line)));
    }
    assert_none(violations);
}

#[test]
fn a_part_is_a_file_beside_its_folder() {
    let folders = ["src", "wasm-test/src", "wasm-test/tests"];
    let files = folders
        .iter()
        .flat_map(|folder| rust_files(Path::new(folder)));
    let named_mod = files.filter(|path| path.ends_with("mod.rs"));
    assert_none(named_mod.map(|path| path.display().to_string()));
}

#[test]
fn no_file_is_longer_than_can_be_read_at_once() {
    let lengths = rust_files(Path::new("src")).into_iter().map(|path| {
        let lines = text(&path).lines().count();
        (path, lines)
    });
    let long = lengths.filter(|(_, lines)| *lines > LONGEST_FILE);
    assert_none(long.map(|(path, lines)| format!("{}: {lines} lines", path.display())));
}
