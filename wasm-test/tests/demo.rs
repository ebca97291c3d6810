//! A short demo in the shipped configurations: it fails when the module stops routing.

use std::fs;
use std::process::Command;

use serde_json::Value;
use tempfile::tempdir;
use wasm_test::demo::serve::Serving;
use wasm_test::demo::workload::Kind;
use wasm_test::demo::{Comparison, Options, compare};
use wasm_test::sim::Preset;

/// Ten conversations of four turns: an ideal hit ratio of 0.6, and of 0.2 for a random choice.
fn short() -> Options {
    Options {
        conversations: 10,
        turns: 4,
        in_flight: 4,
        time_scale: 10.0,
        ..Options::default()
    }
}

fn shares_everywhere(comparison: &Comparison) -> bool {
    comparison
        .inline_epp
        .turns_per_server
        .iter()
        .all(|turns| *turns > 0)
}

#[tokio::test(flavor = "multi_thread")]
async fn conversations_stay_on_their_servers_and_round_robin_scatters_them() {
    let comparisons = compare(&short()).await.expect("both Envoys serve");
    for comparison in &comparisons {
        let Comparison {
            workload,
            ideal_hit_ratio: ideal,
            round_robin,
            inline_epp,
        } = comparison;
        let line = format!("{workload}: ideal {ideal:.3}, {round_robin:?}, {inline_epp:?}");
        for figures in [round_robin, inline_epp] {
            assert_eq!((figures.errors, figures.answered()), (0, 40), "{line}");
            assert!(figures.hit_ratio <= ideal + 1e-9, "{line}");
            assert!(figures.ttft_mean_ms > 0.0 && figures.ttft_p99_ms >= figures.ttft_mean_ms);
        }
        // Each worker takes turns of its own.
        let turns = &round_robin.turns_per_server;
        assert!(turns.iter().all(|turns| (7..=13).contains(turns)), "{line}");
        assert_eq!(
            (inline_epp.not_picked, inline_epp.not_as_picked),
            (0, 0),
            "{line}"
        );
        assert!(shares_everywhere(comparison), "{line}");
        let predicted = inline_epp.predicted_hit_ratio.expect("the module counts");
        assert!((predicted - inline_epp.hit_ratio).abs() < 0.1, "{line}");
        let gained = inline_epp.hit_ratio - round_robin.hit_ratio;
        match workload {
            Kind::Distinct => {
                assert!((0.55..0.68).contains(ideal), "{line}");
                assert!(inline_epp.hit_ratio > 0.9 * ideal && gained > 0.2, "{line}");
            }
            Kind::SharedSystemPrompt => assert!(gained > 0.1, "{line}"),
        }
    }
}

#[test]
fn the_command_writes_its_figures_and_succeeds_when_all_checks_hold() {
    let folder = tempdir().expect("a folder");
    let file = folder.path().join("figures.json");
    let output = Command::new(env!("CARGO_BIN_EXE_demo"))
        .args([
            "--conversations=4",
            "--turns=3",
            "--in-flight=2",
            "--time-scale=20",
        ])
        .arg("--json")
        .arg(&file)
        .output()
        .expect("the demo runs");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}");
    for part in [
        "where each turn went",
        "hit ratio, servers' counters",
        "time to first token, p99",
        "all times: preset a100-8b, 20 times as fast",
        "Envoy runs with 2 workers",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    // No terminal: no escape sequences, and progress in lines.
    assert!(!text.contains('\x1b'), "{text}");
    let lines = String::from_utf8_lossy(&output.stderr);
    assert_eq!(lines.matches(" turns; ").count(), 10, "{lines}");
    let figures = fs::read(file).expect("the file was written");
    let figures: Value = serde_json::from_slice(&figures).expect("valid JSON");
    let ours = &figures["comparisons"][0]["inline_epp"];
    assert!(
        ours["hit_ratio"].as_f64() > figures["comparisons"][0]["round_robin"]["hit_ratio"].as_f64()
    );
    assert_eq!(ours["grid"].as_array().map(Vec::len), Some(4));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_commands_of_serve_show_affinity() {
    let options = Options {
        preset: Preset::Instant,
        ..Options::default()
    };
    let serving = Serving::start(&options, None)
        .await
        .expect("a port is free");
    let instructions = serving.instructions();
    let commands = serving.curl_commands();
    assert!(instructions.contains(&commands), "{instructions}");
    let output =
        tokio::task::spawn_blocking(move || Command::new("bash").args(["-c", &commands]).output());
    let output = output.await.expect("no panic").expect("bash runs");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let values = |name: &str| -> Vec<String> {
        let lines = text
            .lines()
            .filter_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
        lines.map(|value| value.trim().to_owned()).collect()
    };
    let endpoints = values("x-epp-endpoint");
    assert_eq!(endpoints.len(), 2, "{text}");
    assert_eq!(endpoints[0], endpoints[1], "{text}");
    assert_eq!(values("x-epp-reason"), ["picked", "picked"], "{text}");
    let matches = values("x-epp-cache-match");
    assert!(
        matches[0].starts_with("0/") && !matches[1].starts_with("0/"),
        "{text}"
    );
}
