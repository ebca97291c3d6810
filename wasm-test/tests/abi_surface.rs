//! What the built module asks of its host, and what it offers. An Envoy that lacks an import does
//! not load the module, and an operator may restrict imports (`capability_restriction_config`), so
//! a change here is a change for users.

use std::collections::BTreeSet;
use std::fs;

use wasm_test::artifact;
use wasm_test::wasm::Module;

/// Who needs an import.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Needs {
    /// `src/host/abi.rs`: without it the module does not work.
    Ours,
    /// The SDK's dispatcher, or the one SDK call that is used: the same.
    Sdk,
    /// Default methods of the SDK's traits: linked, never called.
    Unused,
    /// The standard library's panic output and environment: never called while all is well.
    Std,
}

const IMPORTS: [(&str, Needs); 40] = [
    ("env.proxy_continue_stream", Needs::Ours),
    ("env.proxy_define_metric", Needs::Ours),
    ("env.proxy_get_buffer_bytes", Needs::Ours),
    ("env.proxy_get_header_map_pairs", Needs::Ours),
    ("env.proxy_get_header_map_value", Needs::Ours),
    ("env.proxy_get_property", Needs::Ours),
    ("env.proxy_get_shared_data", Needs::Ours),
    ("env.proxy_increment_metric", Needs::Ours),
    ("env.proxy_log", Needs::Ours),
    ("env.proxy_record_metric", Needs::Ours),
    ("env.proxy_remove_header_map_value", Needs::Ours),
    ("env.proxy_replace_header_map_value", Needs::Ours),
    ("env.proxy_send_local_response", Needs::Ours),
    ("env.proxy_set_buffer_bytes", Needs::Ours),
    ("env.proxy_set_effective_context", Needs::Ours),
    ("env.proxy_set_shared_data", Needs::Ours),
    ("env.proxy_set_tick_period_milliseconds", Needs::Ours),
    ("wasi_snapshot_preview1.clock_time_get", Needs::Ours),
    ("env.proxy_http_call", Needs::Sdk),
    ("env.proxy_add_header_map_value", Needs::Unused),
    ("env.proxy_call_foreign_function", Needs::Unused),
    ("env.proxy_close_stream", Needs::Unused),
    ("env.proxy_dequeue_shared_queue", Needs::Unused),
    ("env.proxy_done", Needs::Unused),
    ("env.proxy_enqueue_shared_queue", Needs::Unused),
    ("env.proxy_get_current_time_nanoseconds", Needs::Unused),
    ("env.proxy_get_status", Needs::Unused),
    ("env.proxy_grpc_call", Needs::Unused),
    ("env.proxy_grpc_cancel", Needs::Unused),
    ("env.proxy_grpc_close", Needs::Unused),
    ("env.proxy_grpc_send", Needs::Unused),
    ("env.proxy_grpc_stream", Needs::Unused),
    ("env.proxy_register_shared_queue", Needs::Unused),
    ("env.proxy_resolve_shared_queue", Needs::Unused),
    ("env.proxy_set_header_map_pairs", Needs::Unused),
    ("env.proxy_set_property", Needs::Unused),
    ("wasi_snapshot_preview1.environ_get", Needs::Std),
    ("wasi_snapshot_preview1.environ_sizes_get", Needs::Std),
    ("wasi_snapshot_preview1.fd_write", Needs::Std),
    ("wasi_snapshot_preview1.proc_exit", Needs::Std),
];

/// All from the SDK, but for the memory and `_initialize`, which is the start of a WASI reactor. Those
/// the module does not use stay: of them Envoy calls `proxy_on_done` for every stream and
/// `proxy_on_response_trailers` for some, and leaving them out changed Envoy's CPU time a request by
/// less than it differs from run to run.
const EXPORTS: [&str; 29] = [
    "_initialize",
    "memory",
    "proxy_abi_version_0_2_1",
    "proxy_on_configure",
    "proxy_on_context_create",
    "proxy_on_delete",
    "proxy_on_done",
    "proxy_on_downstream_connection_close",
    "proxy_on_downstream_data",
    "proxy_on_foreign_function",
    "proxy_on_grpc_close",
    "proxy_on_grpc_receive",
    "proxy_on_grpc_receive_initial_metadata",
    "proxy_on_grpc_receive_trailing_metadata",
    "proxy_on_http_call_response",
    "proxy_on_log",
    "proxy_on_memory_allocate",
    "proxy_on_new_connection",
    "proxy_on_queue_ready",
    "proxy_on_request_body",
    "proxy_on_request_headers",
    "proxy_on_request_trailers",
    "proxy_on_response_body",
    "proxy_on_response_headers",
    "proxy_on_response_trailers",
    "proxy_on_tick",
    "proxy_on_upstream_connection_close",
    "proxy_on_upstream_data",
    "proxy_on_vm_start",
];

fn module() -> Module {
    let path = artifact::module().expect("the module builds");
    Module::parse(&fs::read(path).expect("readable")).expect("WebAssembly")
}

fn set<'a>(names: impl IntoIterator<Item = &'a str>) -> BTreeSet<&'a str> {
    names.into_iter().collect()
}

#[test]
fn the_module_imports_what_is_listed_and_nothing_else() {
    let module = module();
    let expected = set(IMPORTS.iter().map(|(name, _)| *name));
    assert_eq!(set(module.imports.iter().map(String::as_str)), expected);
    assert_eq!(expected.len(), IMPORTS.len(), "an import is listed twice");
}

#[test]
fn the_module_exports_what_is_listed_and_nothing_else() {
    let module = module();
    let expected = set(EXPORTS);
    assert_eq!(set(module.exports.iter().map(String::as_str)), expected);
}

/// The list of imports that `host/abi.rs` declares is the list of what is ours.
#[test]
fn our_own_imports_are_those_that_abi_rs_declares() {
    let source = include_str!("../../src/host/abi.rs");
    let declared = source.split("pub(super) fn ").skip(1);
    let declared = declared.filter_map(|rest| rest.split_once('(').map(|(name, _)| name));
    let declared: BTreeSet<&str> = declared
        .filter(|name| name.starts_with("proxy_") || *name == "clock_time_get")
        .collect();
    let ours = IMPORTS.iter().filter(|(_, needs)| *needs == Needs::Ours);
    let ours = ours.filter_map(|(name, _)| name.split_once('.').map(|(_, name)| name));
    assert_eq!(set(ours), declared);
}

/// What operators may restrict the module to is what it uses: neither more nor less.
#[test]
fn the_shipped_capabilities_are_the_imports_that_are_used_and_callbacks_that_exist() {
    let text = include_str!("../../envoy/fragments/capabilities.yaml");
    let tree: serde_json::Value = serde_saphyr::from_str(text).expect("YAML");
    let listed = &tree["capability_restriction_config"]["allowed_capabilities"];
    let listed = listed.as_object().expect("a list");
    let (callbacks, calls): (BTreeSet<&str>, BTreeSet<&str>) = listed
        .keys()
        .map(String::as_str)
        .partition(|name| name.starts_with("proxy_on_"));
    let used = IMPORTS.iter().filter_map(|(name, needs)| match needs {
        Needs::Ours | Needs::Sdk => name.split_once('.').map(|(_, name)| name),
        Needs::Unused | Needs::Std => None,
    });
    assert_eq!(calls, used.collect());
    assert!(callbacks.is_subset(&set(EXPORTS)), "{callbacks:?}");
}
