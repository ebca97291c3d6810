//! What the module counts, as Prometheus sees it.

use inline_epp::telemetry::Reason;
use inline_epp::telemetry::metric::{ALL, Kind, Metric};
use reqwest::Method;
use serde_json::json;
use wasm_test::envoy::Series;
use wasm_test::testbed::{Answer, COMPLETIONS, POOL, Testbed, completion, eventually, prompt};

const DECISIONS: &str = "epp_routing_decisions_total";

async fn series(testbed: &Testbed, name: &str) -> Vec<Series> {
    let series = testbed.envoy().prometheus_series(name).await;
    series.expect("admin answers")
}

fn names(series: &Series) -> Vec<&str> {
    let mut names: Vec<&str> = series
        .labels
        .iter()
        .map(|(name, _)| name.as_str())
        .collect();
    names.sort_unstable();
    names
}

/// Completions of `model`, whether a server has it or not.
async fn ask_for(testbed: &Testbed, model: &str) -> Answer {
    let mut body = completion(&prompt("any", 1_000));
    body["model"] = json!(model);
    testbed.ask(COMPLETIONS, &body).await
}

/// Whether any request brings it forth. Adapters' names come with requests for adapters:
/// `e2e_adapters` shows that metric. Those of splits are there in pools that may split: `e2e_split`
/// and `metrics_page` show them.
fn of_any_traffic(metric: &Metric) -> bool {
    !metric.labels.contains(&"adapter") && !metric.name.starts_with("epp_disagg_")
}

/// Model labels and counts of all decisions, sorted.
async fn models(testbed: &Testbed) -> Vec<(String, u64)> {
    let mut models: Vec<(String, u64)> = Vec::new();
    for one in series(testbed, DECISIONS).await {
        let model = one.label("model").expect("every decision has one");
        match models.iter_mut().find(|(known, _)| known == model) {
            Some((_, count)) => *count += one.value as u64,
            None => models.push((model.to_owned(), one.value as u64)),
        }
    }
    models.sort_by(|one, other| one.0.cmp(&other.0));
    models
}

#[tokio::test]
async fn every_metric_is_exported_with_its_labels_and_no_others() {
    let testbed = Testbed::with_servers(2).start().await;
    testbed.complete(&prompt("any", 1_000)).await;
    for metric in ALL.iter().filter(|metric| of_any_traffic(metric)) {
        let name = match metric.kind {
            Kind::Counter | Kind::Gauge => metric.name.to_owned(),
            Kind::Histogram => format!("{}_count", metric.name),
        };
        let mut labels = metric.labels.to_vec();
        labels.sort_unstable();
        let series = eventually(&name, async || {
            let series = series(&testbed, &name).await;
            (!series.is_empty()).then_some(series)
        })
        .await;
        for one in &series {
            assert_eq!(names(one), labels, "{name}");
            if labels.contains(&"pool") {
                assert_eq!(one.label("pool"), Some(POOL), "{name}");
            }
        }
        if labels.contains(&"pod") && name != DECISIONS {
            let pods: Vec<_> = series.iter().filter_map(|one| one.label("pod")).collect();
            assert_eq!(pods.len(), 2, "{name}");
            for server in testbed.servers() {
                let address = server.address().to_string();
                assert!(pods.contains(&address.as_str()), "{name}: {pods:?}");
            }
        }
    }
}

#[tokio::test]
async fn every_exported_metric_of_the_module_is_a_documented_one() {
    let testbed = Testbed::with_servers(1).start().await;
    testbed.complete(&prompt("any", 1_000)).await;
    let page = testbed.envoy().prometheus().await.expect("admin answers");
    let types = page
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE epp_"));
    let exported: Vec<String> = types.map(|line| format!("epp_{line}")).collect();
    let shown = ALL.iter().filter(|metric| of_any_traffic(metric));
    assert_eq!(exported.len(), shown.clone().count(), "{exported:?}");
    for metric in shown {
        let kind = match metric.kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
        };
        let line = format!("{} {kind}", metric.name);
        assert!(exported.contains(&line), "no {line:?} in {exported:?}");
    }
}

#[tokio::test]
async fn every_fallback_reason_is_exported_as_zero_from_the_start() {
    let testbed = Testbed::with_servers(1).start().await;
    let series = series(&testbed, "epp_fallback_total").await;
    let exported: Vec<_> = series
        .iter()
        .filter_map(|one| one.label("reason"))
        .collect();
    let reasons = Reason::ALL.iter().filter(|reason| reason.is_fallback());
    let reasons: Vec<_> = reasons.map(|reason| reason.as_str()).collect();
    assert_eq!(exported.len(), reasons.len());
    for reason in reasons {
        assert!(exported.contains(&reason), "{reason}");
    }
    assert!(series.iter().all(|one| one.value as u64 == 0));
}

#[tokio::test]
async fn every_request_of_a_pool_is_counted_exactly_once() {
    let testbed = Testbed::with_servers(3).workers(2).start().await;
    let post = |path: &'static str, body: String| testbed.post(path, body);
    let good = |number| completion(&prompt(&format!("client {number}"), 600)).to_string();
    let mut requests = Vec::new();
    for number in 0..10 {
        requests.extend([
            post(COMPLETIONS, good(number)),
            post(COMPLETIONS, "{".to_owned()),
            post(COMPLETIONS, "{}".to_owned()),
            post("/v1/audio/speech", good(number)),
            post(COMPLETIONS, good(number)).header("content-encoding", "gzip"),
            testbed.request(Method::GET, "/v1/models"),
        ]);
    }
    // These two are nobody's.
    requests.push(post("/elsewhere", good(0)));
    requests.push(testbed.request(Method::GET, "/elsewhere"));
    futures_util::future::join_all(requests.into_iter().map(Answer::to)).await;

    assert_eq!(testbed.decisions().await, 10);
    for reason in [
        "malformed_body",
        "unknown_shape",
        "unknown_path",
        "encoded_body",
        "no_body",
    ] {
        assert_eq!(testbed.fallbacks(reason).await, 10, "{reason}");
    }
    assert_eq!(testbed.all_fallbacks().await, 50);
    testbed.nothing_in_flight().await;
}

#[tokio::test]
async fn decisions_are_counted_at_the_pod_that_was_picked() {
    let testbed = Testbed::with_servers(3).start().await;
    let prompts = (0..30).map(|number| prompt(&format!("client {number}"), 600));
    let shares = testbed.shares(&testbed.complete_all(prompts).await);
    for (server, share) in testbed.servers().iter().zip(shares) {
        let pod = server.address().to_string();
        let labels = [("pool", POOL), ("model", "sim-model"), ("pod", &pod)];
        let count = testbed.metric(DECISIONS, &labels).await;
        assert_eq!(count.unwrap_or(0), share as u64);
    }
}

#[tokio::test]
async fn matched_blocks_are_those_of_the_answers_headers() {
    let testbed = Testbed::with_servers(2).start().await;
    let mut sums = (0, 0);
    for length in [1_000, 2_000, 2_000, 500, 4_000] {
        let answer = testbed.complete(&prompt("growing", length)).await;
        let (matched, total) = answer.cache_match();
        sums = (sums.0 + matched, sums.1 + total);
    }
    assert_eq!(sums, (3 + 8 + 1 + 7, 4 + 8 + 8 + 2 + 16));
    let pool = [("pool", POOL)];
    let matched = testbed.metric("epp_cache_match_blocks_total", &pool).await;
    let total = testbed.metric("epp_prompt_blocks_total", &pool).await;
    assert_eq!(
        (matched, total),
        (Some(u64::from(sums.0)), Some(u64::from(sums.1)))
    );
    eventually("histograms, which Envoy merges now and then", async || {
        let count = async |name: &str| testbed.metric(name, &[]).await;
        let counts = [
            count("epp_cache_match_ratio_count").await,
            count("epp_composite_score_count").await,
            count("epp_scoring_latency_us_count").await,
        ];
        (counts == [Some(5); 3]).then_some(())
    })
    .await;
}

#[tokio::test]
async fn histograms_have_the_shipped_buckets() {
    let testbed = Testbed::with_servers(1).start().await;
    testbed.complete(&prompt("any", 1_000)).await;
    let bounds = async |name: &str| -> Vec<String> {
        let all = series(&testbed, name).await;
        let bounds = all.iter().filter_map(|one| one.label("le"));
        bounds.map(str::to_owned).collect()
    };
    let percent = [
        "1", "10", "20", "30", "40", "50", "60", "70", "80", "90", "100", "+Inf",
    ];
    assert_eq!(bounds("epp_cache_match_ratio_bucket").await, percent);
    assert_eq!(bounds("epp_composite_score_bucket").await, percent);
    let latency = [
        "5", "10", "25", "50", "100", "250", "500", "1000", "5000", "25000", "+Inf",
    ];
    assert_eq!(bounds("epp_scoring_latency_us_bucket").await, latency);
}

#[tokio::test]
async fn a_model_name_cannot_forge_a_label() {
    let testbed = Testbed::with_servers(1).start().await;
    let hostile = "a\"b\\c|pod=6.6.6.6:1|reason=picked\n}x{.pool=other.d,é=\"1\"";
    ask_for(&testbed, hostile).await;
    ask_for(&testbed, ".many..dots..").await;
    ask_for(&testbed, "|").await;
    ask_for(&testbed, "").await;

    let pod = testbed.servers()[0].address().to_string();
    let all = series(&testbed, DECISIONS).await;
    for one in &all {
        assert_eq!(names(one), ["model", "pod", "pool"]);
        assert_eq!(one.label("pool"), Some(POOL));
        assert_eq!(one.label("pod"), Some(pod.as_str()));
        assert_eq!(one.value as u64, 1);
    }
    let written = hostile.replace(['|', '\n'], "_");
    let expected = [".many..dots", "_", &written, "none"];
    let mut labels: Vec<_> = all.iter().filter_map(|one| one.label("model")).collect();
    labels.sort_unstable();
    assert_eq!(labels, expected);
}

#[tokio::test]
async fn model_names_beyond_the_limit_share_one_label() {
    let testbed = Testbed::with_servers(2)
        .plugin(|plugin| plugin["limits"] = json!({ "labelValues": 3 }))
        .start()
        .await;
    for _ in 0..2 {
        for number in 0..6 {
            ask_for(&testbed, &format!("model-{number}")).await;
        }
    }
    let expected = [("model-0", 2), ("model-1", 2), ("model-2", 2), ("other", 6)];
    let expected = expected.map(|(model, count)| (model.to_owned(), count));
    assert_eq!(models(&testbed).await, expected);
}
