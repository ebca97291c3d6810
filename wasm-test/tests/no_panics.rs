//! A panic kills the VM of an Envoy worker and every stream in it, so the module has none of its
//! own. Lints keep the constructs out of `src/`; this looks at what the compiler made of it, library
//! code inlined and optimised, by the source line that each remaining panic blames.

use std::fs;

use wasm_test::artifact;
use wasm_test::wasm::{Module, PanicSite};

/// Panics of libraries that may end up inside our functions, by the start of their source file.
///
/// None of them depends on what a client or a model server sends.
const INLINED: [(&str, &str); 4] = [
    (
        "library/alloc/src/collections/btree/",
        "a map's invariants; its keys' order is derived and so total",
    ),
    (
        "library/alloc/src/string.rs",
        "`to_string`: a `Display` that fails; none of ours does, and a `String` takes everything",
    ),
    ("library/alloc/src/fmt.rs", "`format!`: the same"),
    (
        "library/alloc/src/str.rs",
        "`join`: more bytes than the address space holds",
    ),
];

/// Panics inside library functions, by the start of their source file: libraries that the module
/// calls or carries along. `*` stands for a version.
const LIBRARIES: [(&str, &str); 9] = [
    ("library/alloc/src/", "invariants of collections, as above"),
    (
        "library/core/src/",
        "bounds of fixed buffers while numbers, addresses and text are parsed and printed; sorting by \
         an order that is none",
    ),
    (
        "library/std/src/",
        "the standard library's own panic output, which runs when all is lost anyway",
    ),
    (
        "hashbrown-*/src/",
        "a table of more entries than memory holds",
    ),
    (
        "serde_json-*/src/",
        "the reader's place in its input, which it never moves past the end",
    ),
    (
        "xxhash-rust-*/src/",
        "what is left of a piece behind the part that fills a chunk: shorter pieces return before",
    ),
    (
        "proxy-wasm-*/src/dispatcher.rs",
        "a context or call the host never announced; Envoy announces each",
    ),
    (
        "proxy-wasm-*/src/hostcalls.rs",
        "wrappers that panic on a status they do not know: none is called, see below",
    ),
    (
        "proxy-wasm-*/src/traits.rs",
        "default methods on top of those wrappers: none is called, see below",
    ),
];

/// What our functions call of the SDK. Every other host call goes through `host/abi.rs`.
const SDK: [&str; 2] = [
    // Reports each status that Envoy returns for it.
    "proxy_wasm::hostcalls::dispatch_http_call",
    "proxy_wasm::dispatcher::",
];

fn module() -> Module {
    let path = artifact::module().expect("the module builds");
    Module::parse(&fs::read(path).expect("readable")).expect("WebAssembly")
}

fn is_ours(function: &str) -> bool {
    function.contains("inline_epp::")
}

/// Whether `file` starts as `pattern` does, its `*` standing for anything but a slash.
fn starts_as(file: &str, pattern: &str) -> bool {
    match pattern.split_once('*') {
        None => file.starts_with(pattern),
        Some((name, rest)) => file
            .strip_prefix(name)
            .and_then(|file| file.find('/').map(|at| &file[at..]))
            .is_some_and(|file| file.starts_with(rest)),
    }
}

/// The sites of `sites` that no row of `known` explains.
fn unexplained<'a>(
    sites: impl IntoIterator<Item = &'a PanicSite>,
    known: &[(&str, &str)],
) -> Vec<String> {
    let is_known = |site: &&PanicSite| {
        let Some(location) = &site.location else {
            return false;
        };
        known
            .iter()
            .any(|(file, _)| starts_as(&location.file, file))
    };
    let unexplained = sites.into_iter().filter(|site| !is_known(site));
    unexplained.map(ToString::to_string).collect()
}

#[test]
fn no_line_of_ours_can_panic() {
    let sites = module().panic_sites();
    let ours = sites.iter().filter(|site| {
        let location = site.location.as_ref();
        location.is_some_and(|location| location.file.starts_with("src/"))
    });
    let ours: Vec<String> = ours.map(ToString::to_string).collect();
    assert!(ours.is_empty(), "{}", ours.join("\n"));
}

#[test]
fn only_known_library_panics_are_inlined_into_our_functions() {
    let sites = module().panic_sites();
    let ours = sites.iter().filter(|site| is_ours(&site.function));
    let unexplained = unexplained(ours, &INLINED);
    assert!(unexplained.is_empty(), "{}", unexplained.join("\n"));
}

#[test]
fn every_panic_of_a_library_is_of_a_known_kind() {
    let sites = module().panic_sites();
    // Helpers that hand their caller's line on; the caller itself is in the list.
    let hands_on = |site: &PanicSite| {
        let helpers = ["core::cell::panic_", "std::sys::backtrace::"];
        site.location.is_none() && helpers.iter().any(|start| site.function.starts_with(start))
    };
    let libraries = sites
        .iter()
        .filter(|site| !is_ours(&site.function))
        .filter(|site| !hands_on(site));
    let unexplained = unexplained(libraries, &LIBRARIES);
    assert!(unexplained.is_empty(), "{}", unexplained.join("\n"));
}

#[test]
fn our_functions_call_no_panicking_wrapper_of_the_sdk() {
    let module = module();
    let calls = module.calls().filter(|(caller, called)| {
        let allowed = SDK.iter().any(|start| called.starts_with(start));
        is_ours(caller) && called.starts_with("proxy_wasm::") && !allowed
    });
    let calls: Vec<String> = calls
        .map(|(caller, called)| format!("{called} in {caller}"))
        .collect();
    assert!(calls.is_empty(), "{}", calls.join("\n"));
}

/// What the tests above rest on: names are there, ours are found, and so are lines.
#[test]
fn the_analysis_sees_functions_and_lines() {
    let module = module();
    assert!(module.functions().filter(|name| is_ours(name)).count() > 100);
    let sites = module.panic_sites();
    let in_dispatcher = sites.iter().filter(|site| {
        let location = site.location.as_ref();
        location.is_some_and(|at| starts_as(&at.file, "proxy-wasm-*/src/dispatcher.rs"))
    });
    assert!(in_dispatcher.count() > 10);
    let without_line = sites.iter().filter(|site| site.location.is_none());
    assert!(without_line.count() * 20 < sites.len());
}

#[test]
fn a_pattern_stands_for_every_version_and_no_other_crate() {
    assert!(starts_as("serde_json-1.0.1/src/de.rs", "serde_json-*/src/"));
    assert!(!starts_as(
        "serde_json-1.0.1/tests/de.rs",
        "serde_json-*/src/"
    ));
    assert!(!starts_as("src/de.rs", "serde_json-*/src/"));
    assert!(starts_as("library/alloc/src/fmt.rs", "library/alloc/"));
}
