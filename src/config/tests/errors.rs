//! The exact line of each kind of error.

use serde_json::{Value, json};

use super::{full, minimal, parse, refusal, with};
use crate::config::Config;

#[track_caller]
fn check_bytes(json: &str, line: &str) {
    assert_eq!(
        Config::parse(json.as_bytes()).unwrap_err().to_string(),
        line
    );
}

/// The minimal configuration with `value` at `path` is refused with `line`.
#[track_caller]
fn check(path: &str, value: Value, line: &str) {
    assert_eq!(refusal(&with(minimal(), path, value)), line);
}

#[test]
fn text_that_is_no_json_is_named_by_line_and_column() {
    check_bytes(
        "{\"pools\": [\n  {\"name\" \"x\"}]}",
        "configuration: not valid JSON: expected `:` at line 2 column 11",
    );
    check_bytes(
        "{} {}",
        "configuration: not valid JSON: trailing characters at line 1 column 4",
    );
    check_bytes(
        &"[".repeat(10_000),
        "configuration: not valid JSON: recursion limit exceeded at line 1 column 128",
    );
}

#[test]
fn nothing_and_what_is_no_object_is_no_configuration() {
    for (json, found) in [("", "nothing"), (" \n", "nothing"), ("null", "null")] {
        let line = format!("configuration: expected an object with pools, found {found}");
        check_bytes(json, &line);
    }
    let line = "configuration: expected an object with pools, found an empty list";
    check_bytes("[]", line);
}

#[test]
fn an_unknown_field_lists_the_known_ones() {
    check(
        "pools[0].metrics",
        json!({"intervall": "1s"}),
        "pools[0].metrics.intervall: unknown field, \
         expected one of path, interval, timeout, cluster, port, engine, gpuCluster, gpuPort",
    );
    check(
        "pool",
        json!([]),
        "pool: unknown field, expected one of pools, overrideHost, maxBufferedBytes, \
         failureMode, limits, debugHeaders, logLevel",
    );
    check(
        "pools[0].endpoints[0]",
        json!({"adress": null}),
        "pools[0].endpoints[0].adress: unknown field, expected one of address, labels, maxRunning",
    );
}

#[test]
fn an_unknown_field_is_named_before_the_required_one_it_was_meant_to_be() {
    let pool = json!({"name": "a", "clutser": "b", "endpoints": ["10.0.0.1:1"]});
    let line = refusal(&json!({ "pools": [pool] }));
    assert!(
        line.starts_with("pools[0].clutser: unknown field"),
        "{line}"
    );
}

#[test]
fn an_odd_field_name_stays_on_the_line_and_is_cut() {
    let name = format!("a\n{}", "b".repeat(100));
    let line = refusal(&with(minimal(), "limits", json!({name: 1})));
    let shown = format!("limits[\"a\\n{}\"…]: unknown field", "b".repeat(38));
    assert!(line.starts_with(&shown), "{line}");
}

#[test]
fn a_wrong_type_says_what_was_expected_and_found() {
    for (value, found) in [
        (json!("ten"), "\"ten\""),
        (json!(0), "0"),
        (json!(-1), "-1"),
        (json!(1.5), "1.5"),
        (json!(4_294_967_296_u64), "4294967296"),
        (json!(true), "true"),
        (json!([1]), "a list"),
        (json!({}), "an object"),
        (json!("x".repeat(41)), &format!("\"{}\"…", "x".repeat(40))),
        (json!("a\nb"), "\"a\\nb\""),
    ] {
        let line = format!(
            "pools[0].scoring.maxQueue: expected a whole number of at least 1, found {found}"
        );
        check("pools[0].scoring.maxQueue", value, &line);
    }
}

#[test]
fn every_type_has_its_own_words() {
    for (path, line) in [
        ("pools", "a list of 1 to 256 pools"),
        ("pools[0].match", "an object"),
        ("pools[0].match.hosts", "a list of up to 256 patterns"),
        ("pools[0].scoring.minHealth", "a number from 0 to 1"),
        (
            "pools[0].prefix.capacityBlocks",
            "auto or a whole number of at least 1",
        ),
        (
            "pools[0].prefix.pendingCredit",
            "one of unlessConfirmed, full, none",
        ),
        ("pools[0].prefix.autoTune", "true or false"),
        (
            "pools[0].metrics.interval",
            "a duration from 50ms to 10m, as \"500ms\", \"1s\", \"2m\" or a number of seconds",
        ),
        (
            "limits.indexBytes",
            "a size from 1Mi to 512Mi, in bytes or as \"64Mi\"",
        ),
        ("overrideHost.mode", "one of header, statefulSession"),
        ("failureMode", "one of FailOpen, FailClose"),
    ] {
        let line = format!("{path}: expected {line}, found \"no\"");
        check(path, json!("no"), &line);
    }
}

#[test]
fn a_repeated_field_is_refused_at_any_depth() {
    check_bytes(r#"{"pools": [], "pools": []}"#, "pools: given twice");
    let pool = |inside: &str| format!(r#"{{"pools": [{{{inside}}}]}}"#);
    check_bytes(
        &pool(r#""name": "a", "name": "a""#),
        "pools[0].name: given twice",
    );
    check_bytes(
        &pool(
            r#""name": "a", "cluster": "c",
               "endpoints": [{"address": "10.0.0.1:1", "labels": {"a.b": "1", "a.b": "2"}}]"#,
        ),
        "pools[0].endpoints[0].labels[\"a.b\"]: given twice",
    );
}

#[test]
fn a_missing_required_field_is_named() {
    for (path, expected) in [
        ("pools", "a list of 1 to 256 pools"),
        (
            "pools[0].name",
            "text of 1 to 128 bytes without | or control characters",
        ),
        (
            "pools[0].cluster",
            "text of 1 to 512 bytes without control characters",
        ),
        (
            "pools[0].endpoints",
            "at least one endpoint, or discovery beside it",
        ),
    ] {
        let line = format!("{path}: expected {expected}, found nothing");
        check(path, json!(null), &line);
    }
    check_bytes(
        "{}",
        "pools: expected a list of 1 to 256 pools, found nothing",
    );
    check(
        "pools[0].endpoints",
        json!([]),
        "pools[0].endpoints: expected at least one endpoint, or discovery beside it, found nothing",
    );
    let line = refusal(&with(
        minimal(),
        "pools[0].endpoints[0]",
        json!({"maxRunning": 1}),
    ));
    assert!(
        line.starts_with("pools[0].endpoints[0].address: expected \"ip:port\""),
        "{line}"
    );
}

#[test]
fn two_pools_cannot_share_a_name() {
    let pool = minimal()["pools"][0].clone();
    assert_eq!(
        refusal(&json!({"pools": [pool, pool]})),
        "pools[1].name: expected a name that no other pool has, found \"llama\" again",
    );
}

#[test]
fn two_endpoints_of_a_pool_cannot_share_an_address() {
    check(
        "pools[0].endpoints",
        json!(["10.0.0.1:80", "10.0.0.1:81", {"address": "10.0.0.1:80"}]),
        "pools[0].endpoints[2]: expected an address that the pool does not have yet, \
         found 10.0.0.1:80 again",
    );
    let line = refusal(&with(
        minimal(),
        "pools[0].endpoints",
        json!(["[fd00::1]:80", "[fd00:0::1]:80"]),
    ));
    assert!(line.ends_with("found [fd00::1]:80 again"), "{line}");
}

#[test]
fn an_endpoint_is_a_literal_address_one_server_can_have() {
    let reason = "expected \"ip:port\", such as 10.0.0.1:8000 or [fd00::1]:8000 \
                  (not a host name: Envoy's override_host takes addresses only)";
    for text in [
        "vllm-0.vllm:8000",
        "localhost:8000",
        "10.0.0.1",
        "10.0.0.1:0",
        "10.0.0.1:65536",
        "fd00::1:8000",
        "[fe80::1%2]:8000",
        "0.0.0.0:80",
        "[::]:80",
        "224.0.0.1:80",
        " 10.0.0.1:80",
        "http://10.0.0.1:80",
        "",
    ] {
        let entry = format!("pools[0].endpoints[0]: {reason}, found \"{text}\"");
        check("pools[0].endpoints[0]", json!(text), &entry);
        let object = format!("pools[0].endpoints[0].address: {reason}, found \"{text}\"");
        check("pools[0].endpoints[0]", json!({"address": text}), &object);
    }
    check(
        "pools[0].endpoints[0]",
        json!(8000),
        "pools[0].endpoints[0]: expected \"ip:port\" or an object with address, found 8000",
    );
}

#[test]
fn labels_are_short_text() {
    let labels = |labels: Value| json!({"address": "10.0.0.1:80", "labels": labels});
    let expected = "expected text of up to 256 bytes without control characters";
    check(
        "pools[0].endpoints[0]",
        labels(json!({"llm-d.ai/role": 1})),
        &format!("pools[0].endpoints[0].labels[\"llm-d.ai/role\"]: {expected}, found 1"),
    );
    check(
        "pools[0].endpoints[0]",
        labels(json!({"a\tb": "x"})),
        &format!("pools[0].endpoints[0].labels[\"a\\tb\"]: {expected}, found the name \"a\\tb\""),
    );
    check(
        "pools[0].endpoints[0]",
        labels(json!(["role"])),
        "pools[0].endpoints[0].labels: expected an object of text values, found a list",
    );
}

#[test]
fn keys_of_later_versions_are_refused_by_name() {
    let version = env!("CARGO_PKG_VERSION");
    for (path, instead) in [
        ("pools[0].prefix.forgetOnMiss", "leave it out"),
        ("console", "read the metrics on Envoy's admin port"),
    ] {
        let line = format!("{path}: not available in version {version}; {instead}");
        check(path, json!({}), &line);
        check(path, json!(false), &line);
        assert!(
            parse(&with(full(), path, json!(null))).is_ok(),
            "{path}: null is absent"
        );
    }
}

#[test]
fn discovery_names_the_cluster_of_the_admin_interface() {
    check(
        "pools[0].discovery",
        json!({}),
        "pools[0].discovery.adminCluster: \
         expected text of 1 to 512 bytes without control characters, found nothing",
    );
    check(
        "pools[0].discovery",
        json!({"adminCluster": "admin", "sources": ["c"]}),
        "pools[0].discovery.sources[0]: expected an object with cluster, found \"c\"",
    );
}

#[test]
fn a_prompt_limit_below_one_block_is_refused() {
    check(
        "pools[0].prefix",
        json!({"blockTokens": 64, "maxTokens": 63}),
        "pools[0].prefix.maxTokens: expected a whole number of at least blockTokens, 64, found 63",
    );
}

#[test]
fn a_metrics_port_without_a_cluster_that_has_it_is_refused() {
    check(
        "pools[0].metrics",
        json!({"port": 9090}),
        "pools[0].metrics.port: expected a port only beside metrics.cluster, \
         a cluster with hosts at that port, found 9090",
    );
}

#[test]
fn weights_that_are_all_zero_are_refused() {
    let zero = json!({"cache": 0, "load": 0, "queue": 0, "health": 0, "adapter": 0});
    check(
        "pools[0].scoring.weights",
        zero,
        "pools[0].scoring.weights: expected at least one weight above 0, found only 0",
    );
}

#[test]
fn an_error_tells_its_path() {
    let error = parse(&with(minimal(), "logLevel", json!("warn"))).unwrap_err();
    assert_eq!(error.path(), "logLevel");
    assert_eq!(Config::parse(b"").unwrap_err().path(), "");
}
