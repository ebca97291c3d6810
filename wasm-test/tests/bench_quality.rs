//! The quality benchmark in small: the order that any run must show, and what it leaves behind.

use std::fs;
use std::process::Command;

use serde_json::Value;
use tempfile::tempdir;

/// Hit ratio of each router, in the order played.
fn hit_ratios(results: &Value) -> Vec<(String, f64)> {
    let routers = results["figures"]["loads"][0]["routers"].as_array();
    let routers = routers.expect("routers").iter();
    let ratio = |one: &Value| {
        let round = &one["rounds"][0];
        assert_eq!(round["errors"], 0, "{one:#}");
        let name = one["router"].as_str().expect("a name").to_owned();
        (name, round["hit_ratio"].as_f64().expect("a ratio"))
    };
    routers.map(ratio).collect()
}

#[test]
fn the_quick_run_puts_round_robin_below_inline_epp_and_writes_everything() {
    let folder = tempdir().expect("a folder");
    let output = Command::new(env!("CARGO_BIN_EXE_bench"))
        .args(["quality", "--quick", "--out"])
        .arg(folder.path())
        .output()
        .expect("the benchmark runs");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    assert!(errors.contains("100 %  600 of 600 requests"), "{errors}");

    let read = |name: &str| fs::read_to_string(folder.path().join(name)).expect(name);
    let results: Value = serde_json::from_str(&read("quality.json")).expect("JSON");
    let ratios = hit_ratios(&results);
    let [(_, turns), (_, ours), (_, oracle)] = ratios.as_slice() else {
        panic!("{ratios:?}");
    };
    let shape = &results["figures"]["loads"][0]["shape"];
    let ideal = shape["ideal_hit_ratio"].as_f64().expect("a ratio");
    assert!(turns + 0.05 < *ours, "{ratios:?}");
    // The oracle gives up hits where waiting for them takes longer than computing.
    assert!(*ours <= oracle + 0.1, "{ratios:?}");
    assert!(*ours <= ideal && *oracle <= ideal, "{ratios:?}, {ideal}");

    let report = read("report.md");
    let command = results["provenance"]["command"]
        .as_str()
        .expect("a command");
    for part in [command, "inline-epp, default", "oracle", "quality-hits.svg"] {
        assert!(report.contains(part), "{part}: {report}");
    }
    assert!(read("quality-ttft.svg").contains("</svg>"));
}

#[test]
fn without_traces_the_command_says_what_to_do() {
    let folder = tempdir().expect("a folder");
    let output = Command::new(env!("CARGO_BIN_EXE_bench"))
        .args([
            "quality",
            "--loads",
            "conversation",
            "--traces",
            "/nowhere",
            "--out",
        ])
        .arg(folder.path())
        .output()
        .expect("the benchmark runs");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success());
    assert!(
        errors.contains("/nowhere/") && errors.contains("BENCH_TRACES"),
        "{errors}"
    );
}
