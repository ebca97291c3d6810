//! `epp-check` on the shipped files and on broken ones.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::{Value, json};
use tempfile::NamedTempFile;
use wasm_test::check::{Report, check};
use wasm_test::testbed::split_pool;

const FILTER: &str = "static_resources.listeners[0].filter_chains[0].filters[0].typed_config\
                      .http_filters[0].typed_config.config";
const ROUTE: &str = "static_resources.listeners[0].filter_chains[0].filters[0].typed_config\
                     .route_config.virtual_hosts[0].routes[0]";
const CLUSTER: &str = "static_resources.clusters[0]";

/// JSON pointers to the same places.
const TO_FILTER: &str = "/static_resources/listeners/0/filter_chains/0/filters/0/typed_config\
                         /http_filters/0/typed_config/config";
const TO_HOST: &str = "/static_resources/listeners/0/filter_chains/0/filters/0/typed_config\
                       /route_config/virtual_hosts/0";
const TO_CLUSTER: &str = "/static_resources/clusters/0";

fn shipped(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../envoy")
        .join(name)
}

fn file(text: &str) -> NamedTempFile {
    let file = NamedTempFile::new().expect("a file");
    fs::write(file.path(), text).expect("writable");
    file
}

/// The canonical bootstrap, changed at the places that the pointers name.
fn changed(edits: &[(&str, &str, Value)]) -> NamedTempFile {
    changed_file("envoy.yaml", edits)
}

fn changed_file(name: &str, edits: &[(&str, &str, Value)]) -> NamedTempFile {
    let text = fs::read_to_string(shipped(name)).expect("readable");
    let mut tree: Value = serde_saphyr::from_str(&text).expect("YAML");
    for (base, key, value) in edits {
        let place = tree.pointer_mut(base).expect("the place is there");
        match key.rsplit_once('/') {
            None => place[*key] = value.clone(),
            Some((path, key)) => {
                let place = place.pointer_mut(&format!("/{path}"));
                place.expect("the place is there")[key] = value.clone();
            }
        }
    }
    file(&tree.to_string())
}

fn report(file: &NamedTempFile) -> Report {
    check(file.path()).unwrap_or_else(|error| panic!("{error}"))
}

/// The warnings of the only configuration of a file.
fn warnings(file: &NamedTempFile) -> Vec<String> {
    let report = report(file);
    assert_eq!(report.plugins.len(), 1);
    let warnings = report.plugins[0].warnings.iter();
    warnings.map(ToString::to_string).collect()
}

fn run(path: &Path) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_epp-check"));
    command.arg(path).output().expect("the binary starts")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("UTF-8")
}

#[test]
fn shipped_files_are_valid_and_raise_no_warning() {
    for name in [
        "envoy.yaml",
        "stateful-session.yaml",
        "dynamic/inline-epp.yaml",
        "plugin-config.yaml",
    ] {
        let output = run(&shipped(name));
        let printed = text(&output.stdout);
        assert!(output.status.success(), "{name}: {}", text(&output.stderr));
        assert!(printed.ends_with("  no warnings\n"), "{name}: {printed}");
    }
}

#[test]
fn what_is_read_is_printed() {
    let printed = text(&run(&shipped("envoy.yaml")).stdout);
    for shown in [
        &format!("envoy.yaml: {FILTER}.configuration.value\n"),
        "  pool llama, cluster model-servers\n",
        "    takes paths under /v1\n",
        "    4 endpoints: 127.0.0.1:8101, 127.0.0.1:8102, 127.0.0.1:8103, 127.0.0.1:8104\n",
        "    weights: cache 0.600 load 0.200 queue 0.100 health 0.050 adapter 0.050\n",
        "    limits: maxQueue 20, maxRunning 256, minHealth 0.3,",
        "  header x-gateway-destination-endpoint, fallbacks 2, FailOpen\n",
        "indexes 64 MiB, at most 1398101 entries; an open request 16 KiB; a request while it is \
         decided 96 MiB\n",
        "a held body 32 MiB\n",
    ] {
        assert!(printed.contains(shown), "{shown}\n{printed}");
    }
}

#[test]
fn profiles_are_printed_with_their_shares_and_their_plugins_are_checked() {
    let with = |plugins: Value| {
        let picker = json!({
            "apiVersion": "llm-d.ai/v1alpha1", "kind": "EndpointPickerConfig", "plugins": plugins,
        });
        let pool = json!({"name": "a", "cluster": "c", "endpoints": ["10.0.0.1:8000"],
                          "endpointPickerConfig": picker});
        file(&json!({"pools": [pool]}).to_string())
    };
    let printed = text(&run(with(json!([])).path()).stdout);
    let line = "    profile default: queue-scorer 0.286, kv-cache-utilization-scorer 0.286, \
                prefix-cache-scorer 0.429\n    limits: maxRunning 256,";
    assert!(printed.contains(line), "{printed}");
    let output = run(with(json!([{"type": "x"}])).path());
    assert_eq!(output.status.code(), Some(1));
    let error = text(&output.stderr);
    assert!(error.contains("pools[0].endpointPickerConfig.plugins[0].type: plugin type \"x\""));
}

#[test]
fn a_bootstrap_without_the_module_is_an_error() {
    let output = run(&shipped("no-filter.yaml"));
    assert_eq!(output.status.code(), Some(1));
    let error = text(&output.stderr);
    assert!(error.contains("no-filter.yaml: a bootstrap without an inline-epp filter"));
}

#[test]
fn errors_name_file_and_path_and_the_exit_code_is_1() {
    let pool = json!({"name": "a", "cluster": "c", "endpoints": ["10.0.0.1:8000"]});
    let mut wrong = pool.clone();
    wrong["scoring"] = json!({"maxQueue": 0});
    let bare = |pool: &Value| json!({"pools": [pool]}).to_string();
    let in_bootstrap = changed(&[(
        TO_FILTER,
        "configuration/value/pools/0/scoring",
        json!({"maxQueue": 0}),
    )]);
    let as_text = changed(&[(
        TO_FILTER,
        "configuration",
        json!({
            "@type": "type.googleapis.com/google.protobuf.StringValue",
            "value": bare(&wrong),
        }),
    )]);
    let in_filter = format!("{FILTER}.configuration.value.pools[0].scoring.maxQueue: expected");
    for (file, expected) in [
        (file("{pools: ["), "not valid YAML or JSON"),
        (file("pools: []\npools: []\n"), "not valid YAML or JSON"),
        (file(""), "configuration: expected an object"),
        (file("{}"), "pools: "),
        (file(&bare(&wrong)), "pools[0].scoring.maxQueue: expected"),
        (file(r#"{"pool": 1}"#), "pool: unknown field"),
        (in_bootstrap, &in_filter),
        (as_text, &in_filter),
    ] {
        let output = run(file.path());
        assert_eq!(output.status.code(), Some(1), "{expected}");
        let error = text(&output.stderr);
        let start = format!("epp-check: {}: {expected}", file.path().display());
        assert!(error.starts_with(&start), "{start}\n{error}");
        assert_eq!(error.lines().count(), 1, "{error}");
    }
}

#[test]
fn a_file_that_cannot_be_read_is_an_error() {
    let output = run(Path::new("no/such/file.yaml"));
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).starts_with("epp-check: no/such/file.yaml: "));
}

#[test]
fn a_filter_without_a_configuration_is_an_error() {
    for configuration in [
        json!(null),
        json!({"value": {}}),
        json!({"@type": "type.googleapis.com/google.protobuf.Struct", "value": "{}"}),
    ] {
        let file = changed(&[(TO_FILTER, "configuration", configuration)]);
        let error = check(file.path()).expect_err("no configuration");
        let expected = format!("{FILTER}.configuration: expected a Struct or a StringValue");
        assert!(error.to_string().ends_with(&expected), "{error}");
    }
}

#[test]
fn the_modules_own_warnings_are_passed_on() {
    let config = json!({
        "pools": [
            {"name": "a", "cluster": "c", "endpoints": ["10.0.0.1:8000"]},
            {"name": "b", "cluster": "c", "endpoints": ["10.0.0.1:8000"],
             "scoring": {"weights": {"cache": 1.2}}},
        ],
    });
    let warnings = warnings(&file(&config.to_string()));
    assert_eq!(warnings.len(), 2, "{warnings:?}");
    assert!(
        warnings
            .iter()
            .any(|line| line.contains("pool b gets no request"))
    );
    assert!(
        warnings
            .iter()
            .any(|line| line.contains("they sum to 1.600"))
    );
}

/// The change of one key is worth one warning, about that place and in those words.
fn costs_one_warning(base: &str, key: &str, value: Value, at: &str, said: &str) {
    let warnings = warnings(&changed(&[(base, key, value)]));
    assert_eq!(warnings.len(), 1, "{key}: {warnings:?}");
    let start = format!("{at}: ");
    assert!(warnings[0].starts_with(&start), "{}", warnings[0]);
    assert!(warnings[0].contains(said), "{}", warnings[0]);
}

#[test]
fn settings_of_the_filter_that_lose_requests_are_warned_of() {
    let key = "allow_on_headers_stop_iteration";
    for value in [json!(false), json!(null)] {
        costs_one_warning(
            TO_FILTER,
            key,
            value,
            &format!("{FILTER}.{key}"),
            "not true",
        );
    }
    let key = "failure_policy";
    for (value, found) in [(json!("FAIL_OPEN"), "FAIL_OPEN"), (json!(null), "unset")] {
        let said = format!("{found}, not FAIL_RELOAD");
        costs_one_warning(TO_FILTER, key, value, &format!("{FILTER}.{key}"), &said);
    }
}

#[test]
fn a_cluster_for_prefill_calls_that_is_missing_is_warned_of() {
    let addresses = [8101, 8102, 8103, 8104].map(|port| format!("127.0.0.1:{port}"));
    for (cluster, expected) in [("prefill-calls", 1), ("model-servers", 0)] {
        let mut pool = json!({ "endpoints": addresses });
        split_pool(1, "inline-nixl", 0)(&mut pool);
        pool["disaggregation"]["cluster"] = json!(cluster);
        let keys = ["endpoints", "disaggregation", "endpointPickerConfig"];
        let paths = keys.map(|key| format!("configuration/value/pools/0/{key}"));
        let changes: Vec<_> = keys
            .iter()
            .zip(&paths)
            .map(|(key, path)| (TO_FILTER, path.as_str(), pool[key].clone()))
            .collect();
        let found = warnings(&changed(&changes));
        assert_eq!(found.len(), expected, "{found:?}");
        let said = "pool llama: disaggregation: no cluster prefill-calls";
        assert!(found.iter().all(|line| line.contains(said)), "{found:?}");
    }
}

#[test]
fn a_cluster_that_cannot_obey_is_warned_of() {
    let missing = "pool llama: no cluster model-servers";
    costs_one_warning(TO_CLUSTER, "name", json!("others"), FILTER, missing);

    let policy = "load_balancing_policy";
    let sources =
        format!("{policy}/policies/0/typed_extension_config/typed_config/override_host_sources");
    for (key, value) in [
        (policy, json!(null)),
        (sources.as_str(), json!([{"header": "x-other"}])),
    ] {
        let at = format!("{CLUSTER}.{policy}");
        let said = "no override_host policy reads x-gateway-destination-endpoint";
        costs_one_warning(TO_CLUSTER, key, value, &at, said);
    }

    let address = "load_assignment/endpoints/0/lb_endpoints/0/endpoint/address/socket_address";
    costs_one_warning(
        TO_CLUSTER,
        &format!("{address}/port_value"),
        json!(8105),
        &format!("{CLUSTER}.load_assignment"),
        "only in the pool: 127.0.0.1:8101; only in the cluster: 127.0.0.1:8105",
    );
}

#[test]
fn a_session_that_nobody_behind_the_filter_reads_is_warned_of() {
    const TO_MANAGER: &str = "/static_resources/listeners/0/filter_chains/0/filters/0/typed_config";
    let file = "stateful-session.yaml";
    let name = "http_filters/1/typed_config/session_state/typed_config/name";
    let wasm = json!({ "@type": "type.googleapis.com/envoy.extensions.filters.http.wasm.v3.Wasm" });
    for (key, value) in [
        (name, json!("x-other")),
        ("http_filters/1/typed_config", wasm),
    ] {
        let warnings = warnings(&changed_file(file, &[(TO_MANAGER, key, value)]));
        let said = "no stateful_session filter behind it reads x-gateway-destination-endpoint";
        assert_eq!(warnings, [format!("{FILTER}: {said}: picks are ignored")]);
    }
    // In front of it, it reads what the client sent.
    let text = fs::read_to_string(shipped(file)).expect("readable");
    let mut tree: Value = serde_saphyr::from_str(&text).expect("YAML");
    let filters = tree.pointer_mut(&format!("{TO_MANAGER}/http_filters"));
    filters
        .expect("filters")
        .as_array_mut()
        .expect("a list")
        .swap(0, 1);
    let warnings = warnings(&self::file(&tree.to_string()));
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert!(warnings[0].contains("no stateful_session filter behind it"));
}

#[test]
fn a_route_that_holds_or_retries_too_little_is_warned_of() {
    let key = "request_body_buffer_limit";
    for (value, bytes) in [(json!("34603007"), 34_603_007), (json!(null), 1 << 20)] {
        let said = format!("{bytes} bytes are in force");
        costs_one_warning(TO_HOST, key, value, &format!("{ROUTE}.{key}"), &said);
    }
    let policy = "routes/0/route/retry_policy";
    for (key, value) in [
        (format!("{policy}/num_retries"), json!(1)),
        (policy.to_owned(), json!({})),
    ] {
        let at = format!("{ROUTE}.route.retry_policy.num_retries");
        let said = "1, less than overrideHost.fallbacks (2)";
        costs_one_warning(TO_HOST, &key, value, &at, said);
    }
}

#[test]
fn the_listeners_limit_and_the_virtual_hosts_retries_count_too() {
    let file = changed(&[
        (TO_HOST, "request_body_buffer_limit", json!(null)),
        (
            "/static_resources/listeners/0",
            "per_connection_buffer_limit_bytes",
            json!(34_603_008),
        ),
        (
            TO_HOST,
            "routes/0/route",
            json!({"cluster": "model-servers"}),
        ),
        (TO_HOST, "retry_policy", json!({"num_retries": 2})),
    ]);
    assert_eq!(warnings(&file), [""; 0]);
}

#[test]
fn clusters_found_elsewhere_are_not_judged() {
    for edits in [
        [
            (TO_CLUSTER, "name", json!("others")),
            ("", "dynamic_resources", json!({"cds_config": {}})),
        ],
        [
            (TO_CLUSTER, "type", json!("EDS")),
            (TO_CLUSTER, "load_assignment", json!(null)),
        ],
    ] {
        assert_eq!(warnings(&changed(&edits)), [""; 0]);
    }
}

#[test]
fn routes_to_other_clusters_do_not_matter() {
    let other = json!([{"match": {"prefix": "/"}, "route": {"cluster": "other"}}]);
    let file = changed(&[
        (TO_HOST, "routes", other),
        (TO_HOST, "request_body_buffer_limit", json!(1)),
    ]);
    assert_eq!(warnings(&file), [""; 0]);
}

#[test]
fn every_filter_of_a_bootstrap_is_checked_and_other_modules_are_not() {
    let text = fs::read_to_string(shipped("envoy.yaml")).expect("readable");
    let mut tree: Value = serde_saphyr::from_str(&text).expect("YAML");
    let listeners = tree["static_resources"]["listeners"].as_array_mut();
    let listeners = listeners.expect("a list");
    let second = listeners[0].clone();
    listeners.push(second);
    let filters = tree.pointer_mut(
        "/static_resources/listeners/0/filter_chains/0/filters/0/typed_config/http_filters",
    );
    let filters = filters.and_then(Value::as_array_mut).expect("a list");
    filters.push(json!({
        "name": "other",
        "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.filters.http.wasm.v3.Wasm",
            "config": {"name": "other", "vm_config": {"vm_id": "other"}},
        },
    }));
    let report = report(&file(&tree.to_string()));
    let places: Vec<&str> = report.plugins.iter().map(|one| one.at.as_str()).collect();
    let first = format!("{FILTER}.configuration.value");
    assert_eq!(
        places,
        [&first, &first.replace("listeners[0]", "listeners[1]")]
    );
}

#[test]
fn a_pool_that_follows_envoys_host_list_is_held_to_no_other_list() {
    let pools = "configuration/value/pools";
    let pool = |admin: &str| {
        json!([{
            "name": "llama", "cluster": "model-servers",
            "discovery": { "adminCluster": admin, "sources": [{ "cluster": "model-servers" }] },
        }])
    };
    let missing = changed(&[(TO_FILTER, pools, pool("envoy-admin"))]);
    let expected = format!("{FILTER}: pool llama: discovery: no cluster envoy-admin");
    assert_eq!(warnings(&missing), [expected]);
    let well = changed(&[(TO_FILTER, pools, pool("model-servers"))]);
    assert_eq!(warnings(&well), [""; 0]);
    let printed = text(&run(well.path()).stdout);
    let line = "endpoints from Envoy's host list of model-servers, read through model-servers\n";
    assert!(printed.contains(line), "{printed}");
    assert!(!printed.contains("0 endpoints"), "{printed}");
}
