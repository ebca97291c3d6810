//! Envoy's Prometheus page with the module's metrics on it, judged by Prometheus's own tool.

use std::io::Write;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use inline_epp::telemetry::metric::ALL;
use serde_json::json;
use wasm_test::envoy::{CANONICAL, Envoy};
use wasm_test::sim::{Preset, Sim, SimConfig};
use wasm_test::testbed::split_pool;

/// What Prometheus advises against and this page has: Envoy writes no help texts, and a histogram
/// of Envoy holds whole numbers, so the unit has to be small.
const ACCEPTED: [&str; 3] = [
    " no help text",
    "epp_scoring_latency_us metric names should not contain abbreviated units",
    "epp_disagg_prefill_latency_ms metric names should not contain abbreviated units",
];

/// Two servers behind the module, one of which computes prompts for the other.
async fn start() -> (Envoy, Sim) {
    let config = SimConfig {
        preset: Preset::Instant,
        kv_transfer: true,
        ..SimConfig::default()
    };
    let sim = Sim::start(&config, 2).await.expect("ports are free");
    let envoy = Envoy::builder(CANONICAL)
        .endpoints(&sim.addresses())
        .plugin(|plugin| split_pool(1, "inline-nixl", 0)(&mut plugin["pools"][0]))
        .start()
        .await
        .expect("Envoy starts");
    (envoy, sim)
}

async fn ask(envoy: &Envoy, path: &str, body: String) {
    let answer = reqwest::Client::new()
        .post(format!("{}{path}", envoy.url()))
        .header("content-type", "application/json")
        .body(body)
        .send()
        .await
        .expect("Envoy answers");
    // Read to its end, so that the stream is over.
    answer.bytes().await.expect("a whole answer");
}

/// The page once all of the module's metrics are on it; some come with the first scrapes.
async fn page(envoy: &Envoy) -> String {
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        let page = envoy.prometheus().await.expect("admin answers");
        // Those of adapters come with requests for adapters only.
        let missing: Vec<&str> = ALL
            .iter()
            .filter(|metric| !metric.labels.contains(&"adapter"))
            .map(|metric| metric.name)
            .filter(|name| !page.contains(&format!("# TYPE {name} ")))
            .collect();
        if missing.is_empty() {
            return page;
        }
        assert!(Instant::now() < deadline, "missing: {missing:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// `promtool check metrics` on `page`: an error of the format ends it with 1, lints with 3.
fn promtool(page: &str) -> Output {
    let mut child = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("promtool is needed. Install it: apt-get install prometheus");
    let mut input = child.stdin.take().expect("piped");
    input.write_all(page.as_bytes()).expect("promtool reads");
    drop(input);
    child.wait_with_output().expect("promtool ends")
}

#[tokio::test(flavor = "multi_thread")]
async fn prometheus_accepts_every_metric() {
    let (envoy, _sim) = start().await;
    let prompt = "Envoy keeps the cache warm. ".repeat(40);
    for model in ["sim-model", "no/such.model[1]|pod=x\"\\"] {
        let body = json!({ "model": model, "max_tokens": 1, "prompt": prompt });
        ask(&envoy, "/v1/completions", body.to_string()).await;
    }
    ask(&envoy, "/v1/completions", "{".to_owned()).await;
    let page = page(&envoy).await;
    let output = promtool(&page);
    let words = String::from_utf8_lossy(&output.stderr).into_owned();
    let understood = matches!(output.status.code(), Some(0 | 3));
    assert!(understood, "{:?}: {words}", output.status);
    let lints: Vec<&str> = words
        .lines()
        .filter(|lint| lint.starts_with("epp_") && !ACCEPTED.iter().any(|one| lint.ends_with(one)))
        .collect();
    assert!(lints.is_empty(), "{lints:?}");
}
