//! The simulator's metrics page against the recorded ones.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use reqwest::Client;
use serde_json::json;
use wasm_test::sim::{Overrides, Preset, Sim, SimConfig};

/// Families readers of vLLM's pages rely on.
const REQUIRED: &[&str] = &[
    "process_start_time_seconds",
    "vllm:num_requests_running",
    "vllm:num_requests_waiting",
    "vllm:num_requests_waiting_by_reason",
    "vllm:kv_cache_usage_perc",
    "vllm:prefix_cache_queries_total",
    "vllm:prefix_cache_hits_total",
    "vllm:prompt_tokens_total",
    "vllm:generation_tokens_total",
    "vllm:request_success_total",
    "vllm:time_to_first_token_seconds",
    "vllm:cache_config_info",
    "vllm:lora_requests_info",
];

fn config() -> SimConfig {
    SimConfig {
        preset: Preset::Instant,
        served_model_name: vec!["tiny-llama".into()],
        lora_modules: vec!["lora-a".into(), "lora-b".into()],
        ..SimConfig::default()
    }
}

async fn complete(sim: &Sim, model: &str, prompt: &str, max_tokens: u32) {
    let body = json!({"model": model, "prompt": prompt, "max_tokens": max_tokens});
    let answer = Client::new()
        .post(sim[0].url("/v1/completions"))
        .json(&body)
        .send()
        .await;
    assert!(answer.expect("an answer").status().is_success());
}

async fn page(sim: &Sim) -> String {
    let answer = Client::new()
        .get(sim[0].url("/metrics"))
        .send()
        .await
        .expect("a page");
    let content_type = answer.headers()["content-type"]
        .to_str()
        .expect("ASCII")
        .to_owned();
    assert_eq!(content_type, "text/plain; version=1.0.0; charset=utf-8");
    answer.text().await.expect("text")
}

fn recorded(name: &str) -> String {
    let path = format!(
        "{}/vectors/vllm/metrics/{name}.prom",
        env!("CARGO_MANIFEST_DIR")
    );
    fs::read_to_string(path).expect("a recorded page")
}

/// Help, type and label names of one family.
#[derive(Debug, Default, PartialEq)]
struct Family {
    help: String,
    kind: String,
    /// By sample name: `_bucket`, `_sum` and `_count` of a histogram belong to it.
    labels: BTreeMap<String, BTreeSet<Vec<String>>>,
    /// Values of the label `le`, in order.
    bounds: Vec<String>,
}

struct Sample {
    name: String,
    labels: Vec<(String, String)>,
    value: f64,
}

/// Reads a page strictly: HELP, then TYPE, then the family's samples; anything else is a failure.
fn families(page: &str) -> BTreeMap<String, Family> {
    let mut families: BTreeMap<String, Family> = BTreeMap::new();
    let mut current = String::new();
    for line in page.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let (name, help) = rest.split_once(' ').expect("a help text");
            name.clone_into(&mut current);
            let family = Family {
                help: help.trim().to_owned(),
                ..Family::default()
            };
            assert!(
                families.insert(current.clone(), family).is_none(),
                "{name} comes twice"
            );
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').expect("a type");
            assert_eq!(name, current);
            kind.clone_into(&mut families.get_mut(&current).expect("HELP comes first").kind);
        } else {
            let family = families
                .get_mut(&current)
                .expect("HELP comes before samples");
            let Sample { name, labels, .. } = sample(line);
            assert!(name.starts_with(&current), "{name} within {current}");
            let bounds = labels.iter().filter(|(label, _)| label == "le");
            family.bounds.extend(bounds.map(|(_, bound)| bound.clone()));
            let names = labels.into_iter().map(|(label, _)| label).collect();
            family.labels.entry(name).or_default().insert(names);
        }
    }
    families
}

/// `name{label="value",…} number`; the values here hold no quotation marks.
fn sample(line: &str) -> Sample {
    let (series, value) = line.rsplit_once(' ').expect("a value");
    let (name, labels) = series.split_once('{').unwrap_or((series, "}"));
    let labels = labels.strip_suffix('}').expect("closed labels");
    let pair = |pair: &str| {
        let (label, value) = pair.split_once("=\"").expect("a label");
        (label.to_owned(), value.to_owned())
    };
    let pairs = labels.strip_suffix('"').map(|labels| labels.split("\","));
    Sample {
        name: name.to_owned(),
        labels: pairs.into_iter().flatten().map(pair).collect(),
        value: value.parse().expect("a number"),
    }
}

fn samples(page: &str) -> Vec<Sample> {
    page.lines()
        .filter(|line| !line.starts_with('#'))
        .map(sample)
        .collect()
}

/// The value of the one sample of that name that has that label.
fn value(samples: &[Sample], name: &str, label: Option<(&str, &str)>) -> f64 {
    let has = |sample: &Sample, (key, value): (&str, &str)| {
        sample
            .labels
            .iter()
            .any(|(label, text)| label == key && text == value)
    };
    let mut found = samples
        .iter()
        .filter(|sample| sample.name == name && label.is_none_or(|label| has(sample, label)));
    let first = found
        .next()
        .unwrap_or_else(|| panic!("no {name} {label:?}"));
    assert!(found.next().is_none(), "more than one {name} {label:?}");
    first.value
}

#[tokio::test]
async fn families_types_help_and_labels_are_vllms() {
    let sim = Sim::start(&config(), 1).await.expect("a free port");
    complete(&sim, "lora-a", "hello", 2).await;
    let ours = families(&page(&sim).await);
    let theirs = families(&recorded("05-lora-busy-1"));
    for (name, family) in &ours {
        assert_eq!(theirs.get(name), Some(family), "{name}");
    }
    for name in REQUIRED {
        assert!(ours.contains_key(*name), "{name}");
    }
}

#[tokio::test]
async fn the_page_counts_what_happened() {
    let sim = Sim::start(&config(), 1).await.expect("a free port");
    // 40 tokens: a space belongs to the word after it.
    let prompt = vec!["word"; 40].join(" ");
    complete(&sim, "tiny-llama", &prompt, 3).await;
    complete(&sim, "tiny-llama", &prompt, 3).await;
    let samples = samples(&page(&sim).await);
    for (name, expected) in [
        ("vllm:prefix_cache_queries_total", 80.0),
        ("vllm:prefix_cache_hits_total", 32.0),
        ("vllm:prompt_tokens_total", 80.0),
        ("vllm:generation_tokens_total", 6.0),
        ("vllm:num_requests_running", 0.0),
        ("vllm:num_requests_waiting", 0.0),
        ("vllm:kv_cache_usage_perc", 0.0),
    ] {
        assert!(
            (value(&samples, name, None) - expected).abs() < 1e-9,
            "{name}"
        );
    }
    let ended = value(
        &samples,
        "vllm:request_success_total",
        Some(("finished_reason", "length")),
    );
    assert!((ended - 2.0).abs() < 1e-9);
    for (name, label) in [
        (
            "vllm:time_to_first_token_seconds_bucket",
            Some(("le", "+Inf")),
        ),
        (
            "vllm:time_to_first_token_seconds_bucket",
            Some(("le", "2560.0")),
        ),
        ("vllm:time_to_first_token_seconds_count", None),
        ("vllm:e2e_request_latency_seconds_count", None),
    ] {
        assert!((value(&samples, name, label) - 2.0).abs() < 1e-9, "{name}");
    }
    assert_eq!(sim[0].state().counters.prefix_cache_hits, 32);
}

#[tokio::test]
async fn the_cache_is_described_as_configured() {
    let config = SimConfig {
        block_size: 32,
        num_gpu_blocks: 64,
        ..config()
    };
    let sim = Sim::start(&config, 1).await.expect("a free port");
    let samples = samples(&page(&sim).await);
    for (label, expected) in [
        ("block_size", "32"),
        ("num_gpu_blocks", "64"),
        ("kv_cache_size_tokens", "2048"),
        ("enable_prefix_caching", "True"),
        ("engine", "0"),
    ] {
        let one = value(&samples, "vllm:cache_config_info", Some((label, expected)));
        assert!((one - 1.0).abs() < 1e-9, "{label}");
    }
}

#[tokio::test]
async fn adapters_show_only_after_a_request_and_old_sets_stay() {
    let sim = Sim::start(&config(), 1).await.expect("a free port");
    assert!(!page(&sim).await.contains("lora_requests_info"));
    complete(&sim, "lora-a", "hello", 2).await;
    complete(&sim, "lora-b", "hello", 2).await;
    let samples = samples(&page(&sim).await);
    let sets: BTreeMap<String, f64> = ["", "lora-a", "lora-b"]
        .map(|set| {
            let label = Some(("running_lora_adapters", set));
            (
                set.to_owned(),
                value(&samples, "vllm:lora_requests_info", label),
            )
        })
        .into();
    assert!(
        sets[""] >= sets["lora-b"] && sets["lora-b"] >= sets["lora-a"],
        "{sets:?}"
    );
}

#[tokio::test]
async fn overrides_show_on_the_page_until_cleared() {
    let sim = Sim::start(&config(), 1).await.expect("a free port");
    let before = page(&sim).await;
    sim[0].set_overrides(Overrides {
        num_requests_running: Some(7.0),
        num_requests_waiting: Some(25.0),
        kv_cache_usage: Some(0.75),
        gpu_util: Some(80.0),
        ..Overrides::default()
    });
    let samples = samples(&page(&sim).await);
    for (name, label, expected) in [
        ("vllm:num_requests_running", None, 7.0),
        ("vllm:num_requests_waiting", None, 25.0),
        (
            "vllm:num_requests_waiting_by_reason",
            Some(("reason", "capacity")),
            25.0,
        ),
        ("vllm:kv_cache_usage_perc", None, 0.75),
        ("DCGM_FI_DEV_GPU_UTIL", Some(("gpu", "0")), 80.0),
    ] {
        assert!(
            (value(&samples, name, label) - expected).abs() < 1e-9,
            "{name}"
        );
    }
    sim[0].set_overrides(Overrides::default());
    assert_eq!(page(&sim).await, before);
}

#[tokio::test]
async fn overrides_are_set_and_cleared_over_http() {
    let sim = Sim::start(&config(), 1).await.expect("a free port");
    let client = Client::new();
    let url = sim[0].url("/sim/override");
    let set = client
        .post(&url)
        .json(&json!({"gpu_util": 80, "hold": "none"}))
        .send()
        .await;
    assert!(set.expect("an answer").status().is_success());
    assert!(
        page(&sim)
            .await
            .contains("DCGM_FI_DEV_GPU_UTIL{gpu=\"0\"} 80.0\n")
    );
    let unknown = client
        .post(&url)
        .json(&json!({"gpu": 80}))
        .send()
        .await
        .expect("an answer");
    assert_eq!(unknown.status(), 400);
    assert_eq!(sim[0].state().overrides.gpu_util, Some(80.0));
    let cleared = client.delete(&url).send().await;
    assert!(cleared.expect("an answer").status().is_success());
    assert!(!page(&sim).await.contains("DCGM"));
}
