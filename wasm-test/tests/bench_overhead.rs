//! The overhead benchmark, one cell of it: the three Envoys do what they are named after, and
//! figures come out.

use std::fs;
use std::process::Command;

use serde_json::Value;
use tempfile::tempdir;

#[test]
fn one_cell_compares_plain_envoy_a_service_that_is_asked_and_the_module_that_routes() {
    let folder = tempdir().expect("a folder");
    let output = Command::new(env!("CARGO_BIN_EXE_bench"))
        .args(["overhead", "--bodies", "16", "--connections", "1"])
        .args(["--workers", "1", "--no-streams", "--rounds", "1", "--out"])
        .arg(folder.path())
        .output()
        .expect("the benchmark runs");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    assert!(errors.contains("100 %  6 of 6 turns"), "{errors}");

    let read = |name: &str| fs::read_to_string(folder.path().join(name)).expect(name);
    let results: Value = serde_json::from_str(&read("overhead.json")).expect("JSON");
    let cell = &results["figures"]["cells"][0];
    let median = |figure: &Value| figure["median"].as_f64().expect("a figure");
    assert!(median(&cell["plain_p50"]) > 0.0, "{cell:#}");
    // Asking another process over HTTP/2 cannot be free.
    assert!(median(&cell["ext_proc"]["p50"]) > 0.0, "{cell:#}");
    assert!(read("report.md").contains("| 16 KB | 1 | 1 | 1 |"));
    assert!(read("overhead-p50.svg").contains("</svg>"));
}
