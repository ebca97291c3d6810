//! Each fault a simulated server can be made to have, and what a client sees of it.

use std::time::Duration;

use reqwest::{Client, Response, StatusCode};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio::time::timeout;
use wasm_test::sim::{
    Adapter, Failure, MetricsAnswer, Overrides, Preset, Reset, ResetPoint, Sim, SimConfig, Span,
    Status,
};

#[path = "sim_faults/page.rs"]
mod page;
use page::{Page, page};

/// Upper bound of every wait; a test that gets here has failed.
const DEADLINE: Duration = Duration::from_secs(30);

/// Long enough that a test which waits for its end fails.
const HOUR_MS: u64 = 3_600_000;

fn instant() -> SimConfig {
    SimConfig {
        preset: Preset::Instant,
        ..SimConfig::default()
    }
}

async fn start(config: &SimConfig) -> Sim {
    Sim::start(config, 1).await.expect("a free port")
}

/// Sends a completion request; fields of `body` go before the defaults.
async fn try_complete(sim: &Sim, body: &Value) -> reqwest::Result<Response> {
    let mut whole = json!({"prompt": "hello", "max_tokens": 4});
    let fields = body.as_object().expect("an object").clone();
    whole.as_object_mut().expect("an object").extend(fields);
    Client::new()
        .post(sim[0].url("/v1/completions"))
        .json(&whole)
        .send()
        .await
}

async fn complete(sim: &Sim, body: Value) -> Response {
    try_complete(sim, &body).await.expect("an answer")
}

async fn get(sim: &Sim, path: &str) -> Response {
    let answer = Client::new().get(sim[0].url(path)).send().await;
    answer.expect("an answer")
}

/// Polls until `holds`; fails after the deadline.
async fn until(what: &str, holds: impl AsyncFn() -> bool) {
    let poll = async {
        while !holds().await {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    timeout(DEADLINE, poll)
        .await
        .unwrap_or_else(|_| panic!("never: {what}"));
}

fn status(code: u16) -> Status {
    Status::new(code).expect("an error's status")
}

/// Whether the connection ended without an answer, or within one, by a reset.
fn is_reset(error: &reqwest::Error) -> bool {
    let mut source: Option<&dyn std::error::Error> = Some(error);
    while let Some(error) = source {
        if let Some(error) = error.downcast_ref::<std::io::Error>() {
            return error.kind() == std::io::ErrorKind::ConnectionReset;
        }
        source = error.source();
    }
    false
}

#[tokio::test]
async fn new_connections_are_refused_and_those_that_exist_go_on() {
    let sim = start(&instant()).await;
    let kept = Client::new();
    let health = async || kept.get(sim[0].url("/health")).send().await;
    assert!(health().await.is_ok());
    sim[0].set_overrides(Overrides {
        refuse_connections: Span::UntilCleared,
        ..Overrides::default()
    });
    let refuses = async || {
        let refused = TcpStream::connect(sim[0].address()).await.err();
        refused.is_some_and(|error| error.kind() == std::io::ErrorKind::ConnectionRefused)
    };
    until("connections are refused", refuses).await;
    assert!(health().await.is_ok());
    let cleared = kept.delete(sim[0].url("/sim/override")).send().await;
    assert!(cleared.is_ok());
    let accepts = async || TcpStream::connect(sim[0].address()).await.is_ok();
    until("connections are accepted", accepts).await;
    assert_eq!(complete(&sim, json!({})).await.status(), StatusCode::OK);
}

#[tokio::test]
async fn refusing_for_a_time_ends_by_itself_and_does_not_outlive_a_kill() {
    let sim = start(&instant()).await;
    for span in [Span::ForMs(50), Span::ForMs(HOUR_MS)] {
        sim[0].set_overrides(Overrides {
            refuse_connections: span,
            ..Overrides::default()
        });
        let refuses = async || TcpStream::connect(sim[0].address()).await.is_err();
        until("connections are refused", refuses).await;
        if span == Span::ForMs(HOUR_MS) {
            timeout(DEADLINE, sim[0].restart())
                .await
                .expect("in time")
                .expect("its port");
        }
        let accepts = async || TcpStream::connect(sim[0].address()).await.is_ok();
        until("connections are accepted", accepts).await;
    }
}

#[tokio::test]
async fn the_next_generations_fail_in_vllms_shape() {
    let sim = start(&instant()).await;
    for (code, kind) in [
        (500, "InternalServerError"),
        (503, "Service Unavailable"),
        (429, "RateLimitError"),
        (404, "NotFoundError"),
    ] {
        sim[0].set_overrides(Overrides {
            fail: Some(Failure {
                status: status(code),
                times: Some(2),
            }),
            ..Overrides::default()
        });
        for _ in 0..2 {
            assert_eq!(get(&sim, "/health").await.status(), StatusCode::OK);
            let answer = complete(&sim, json!({})).await;
            assert_eq!(answer.status(), code);
            let error: Value = answer.json().await.expect("JSON");
            let error = error["error"].as_object().expect("an error").clone();
            assert_eq!(error["type"], kind);
            assert_eq!(error["code"], code);
            assert!(error["message"].is_string() && error.contains_key("param"));
        }
        assert_eq!(complete(&sim, json!({})).await.status(), StatusCode::OK);
    }
    // Nothing of what failed reached the engine.
    assert_eq!(sim[0].state().counters.finished_length, 4);
}

#[tokio::test]
async fn all_generations_fail_until_cleared_and_only_with_an_errors_status() {
    let sim = start(&instant()).await;
    let url = sim[0].url("/sim/override");
    let post = async |body: Value| {
        let answer = Client::new().post(&url).json(&body).send().await;
        answer.expect("an answer").status()
    };
    assert_eq!(post(json!({"fail": {"status": 200}})).await, 400);
    assert_eq!(post(json!({"fail": {"status": 500}})).await, 200);
    for _ in 0..20 {
        assert_eq!(complete(&sim, json!({})).await.status(), 500);
    }
    let statuses: Vec<_> = sim[0].log().iter().map(|entry| entry.status).collect();
    assert_eq!(statuses, [Some(500); 20]);
    assert_eq!(post(json!({})).await, 200);
    assert_eq!(complete(&sim, json!({})).await.status(), 200);
}

#[tokio::test]
async fn a_frozen_page_stops_changing() {
    let sim = start(&instant()).await;
    complete(&sim, json!({})).await;
    sim[0].set_overrides(Overrides {
        metrics: MetricsAnswer::Frozen,
        ..Overrides::default()
    });
    complete(&sim, json!({})).await;
    for _ in 0..2 {
        let tokens = page(&sim).await.sum("vllm:generation_tokens_total");
        assert!((tokens - 4.0).abs() < 1e-9, "{tokens}");
    }
    sim[0].set_overrides(Overrides::default());
    let tokens = page(&sim).await.sum("vllm:generation_tokens_total");
    assert!((tokens - 8.0).abs() < 1e-9, "{tokens}");
}

#[tokio::test]
async fn what_is_no_page_comes_in_its_place() {
    let sim = start(&instant()).await;
    let set = |metrics| {
        sim[0].set_overrides(Overrides {
            metrics,
            ..Overrides::default()
        });
    };
    set(MetricsAnswer::RandomBytes);
    let mut seen = Vec::new();
    for _ in 0..2 {
        let answer = get(&sim, "/metrics").await;
        assert_eq!(answer.status(), StatusCode::OK);
        seen.push(answer.bytes().await.expect("a body"));
    }
    assert!(seen[0] != seen[1] && seen[0].len() > 1000);
    assert!(std::str::from_utf8(&seen[0]).is_err());

    set(MetricsAnswer::Html);
    let answer = get(&sim, "/metrics").await;
    assert_eq!(answer.status(), StatusCode::OK);
    let content_type = answer.headers()["content-type"].clone();
    assert_eq!(content_type, "text/html; charset=utf-8");
    assert!(
        answer
            .text()
            .await
            .expect("text")
            .starts_with("<!DOCTYPE html>")
    );

    for code in [500, 503, 404] {
        set(MetricsAnswer::Status(status(code)));
        assert_eq!(get(&sim, "/metrics").await.status(), code);
    }
    assert_eq!(complete(&sim, json!({})).await.status(), StatusCode::OK);
    assert_eq!(sim[0].state().scrapes, 6);
}

#[tokio::test]
async fn families_can_be_missing() {
    let sim = start(&instant()).await;
    let names = ["vllm:num_requests_waiting", "vllm:cache_config_info"];
    let before = page(&sim).await;
    sim[0].set_overrides(Overrides {
        metrics_without: names.map(str::to_owned).to_vec(),
        ..Overrides::default()
    });
    let after = page(&sim).await;
    for name in names {
        assert!(before.has(name) && !after.has(name), "{name}");
    }
    assert!(!after.has("vllm:num_requests_waiting_by_reason"));
    assert!(after.has("vllm:num_requests_running"));
}

#[tokio::test]
async fn a_reset_before_the_response_answers_nothing() {
    let sim = start(&instant()).await;
    sim[0].set_overrides(Overrides {
        reset: Some(Reset {
            at: ResetPoint::BeforeResponse,
            times: Some(1),
        }),
        ..Overrides::default()
    });
    let error = try_complete(&sim, &json!({})).await.expect_err("a reset");
    assert!(is_reset(&error), "{error:?}");
    let log = sim[0].log();
    assert_eq!((log.len(), log[0].status), (1, None));
    assert!(log[0].body_bytes > 0);
    assert_eq!(complete(&sim, json!({})).await.status(), StatusCode::OK);
}

#[tokio::test]
async fn a_reset_within_a_stream_comes_after_its_chunks() {
    let sim = start(&instant()).await;
    for chunks in [0_u32, 1, 3] {
        sim[0].set_overrides(Overrides {
            reset: Some(Reset {
                at: ResetPoint::AfterChunks(chunks),
                times: None,
            }),
            ..Overrides::default()
        });
        let body = json!({"stream": true, "max_tokens": 20});
        let mut answer = complete(&sim, body).await;
        assert_eq!(answer.status(), StatusCode::OK);
        let mut text = Vec::new();
        let error = loop {
            match answer.chunk().await {
                Ok(Some(chunk)) => text.extend_from_slice(&chunk),
                Ok(None) => panic!("a whole answer"),
                Err(error) => break error,
            }
        };
        assert!(is_reset(&error), "{error:?}");
        let events = String::from_utf8(text).expect("UTF-8");
        assert_eq!(events.matches("data: {").count(), chunks as usize);
    }
    assert_eq!(sim[0].state().gauges.num_requests_running, 0);
}

#[tokio::test]
async fn an_answer_with_fewer_chunks_than_the_reset_waits_for_is_whole() {
    let sim = start(&instant()).await;
    let reset_after = |chunks| Overrides {
        reset: Some(Reset {
            at: ResetPoint::AfterChunks(chunks),
            times: None,
        }),
        ..Overrides::default()
    };
    sim[0].set_overrides(reset_after(2));
    let answer = complete(&sim, json!({})).await.json::<Value>().await;
    assert_eq!(answer.expect("whole")["usage"]["completion_tokens"], 4);
    sim[0].set_overrides(reset_after(1));
    let answer = complete(&sim, json!({})).await.bytes().await;
    assert!(is_reset(&answer.expect_err("the end is missing")));
}

#[tokio::test]
async fn a_restart_empties_the_cache_and_changes_the_start_time() {
    let sim = start(&instant()).await;
    let prompt = ["word"; 40].join(" ");
    let cached = async || {
        complete(&sim, json!({"prompt": prompt})).await;
        let log = sim[0].log();
        log.last().expect("an entry").cached_tokens
    };
    assert_eq!((cached().await, cached().await), (Some(0), Some(32)));
    let before = page(&sim).await;
    sim[0].restart().await.expect("its port");
    let after = page(&sim).await;
    let started = "process_start_time_seconds";
    assert!(after.sum(started) > before.sum(started));
    assert!(after.sum("vllm:prompt_tokens_total").abs() < 1e-9);
    assert_eq!(cached().await, Some(0));
}

#[tokio::test]
async fn a_loading_server_is_up_without_its_model() {
    let sim = start(&instant()).await;
    sim[0].set_overrides(Overrides {
        loading: Span::UntilCleared,
        ..Overrides::default()
    });
    for path in ["/health", "/ping"] {
        assert_eq!(get(&sim, path).await.status(), 503, "{path}");
    }
    let answer = complete(&sim, json!({})).await;
    assert_eq!(answer.status(), 503);
    let error: Value = answer.json().await.expect("JSON");
    assert_eq!(error["error"]["code"], 503);
    let page = page(&sim).await;
    assert!(page.has("process_start_time_seconds") && !page.text.contains("vllm:"));
    let models: Value = get(&sim, "/v1/models").await.json().await.expect("JSON");
    assert_eq!(models["data"], json!([]));
    assert_eq!(get(&sim, "/version").await.status(), 200);

    sim[0].set_overrides(Overrides::default());
    assert_eq!(get(&sim, "/health").await.status(), 200);
    assert_eq!(complete(&sim, json!({})).await.status(), 200);
}

#[tokio::test]
async fn loading_for_a_time_ends_by_itself_after_every_start() {
    let config = SimConfig {
        loading_ms: 2 * HOUR_MS,
        time_scale: 20_000.0,
        ..instant()
    };
    let sim = start(&config).await;
    for _ in 0..2 {
        assert_eq!(sim[0].state().overrides.loading, Span::ForMs(360));
        let healthy = async || get(&sim, "/health").await.status() == 200;
        assert!(!healthy().await);
        until("the model is loaded", healthy).await;
        sim[0].restart().await.expect("its port");
    }
}

#[tokio::test]
async fn a_stuck_engine_shows_requests_and_makes_no_tokens() {
    let sim = start(&instant()).await;
    complete(&sim, json!({})).await;
    sim[0].set_overrides(Overrides {
        stuck: true,
        ..Overrides::default()
    });
    let answers: Vec<_> = (0..2)
        .map(|_| {
            let url = sim[0].url("/v1/completions");
            let body = json!({"prompt": "hello", "max_tokens": 4});
            tokio::spawn(Client::new().post(url).json(&body).send())
        })
        .collect();
    let load = |page: &Page| {
        [
            "vllm:num_requests_running",
            "vllm:num_requests_waiting",
            "vllm:generation_tokens_total",
        ]
        .map(|name| page.sum(name) as u64)
    };
    let both = async || load(&page(&sim).await) == [1, 1, 4];
    until("one runs and one waits", both).await;
    assert_eq!(get(&sim, "/health").await.status(), 200);
    assert!(answers.iter().all(|answer| !answer.is_finished()));
    assert!(both().await);

    sim[0].set_overrides(Overrides::default());
    for answer in answers {
        let answer = timeout(DEADLINE, answer).await.expect("in time");
        let answer = answer.expect("no panic").expect("an answer");
        assert_eq!(answer.status(), 200);
    }
    assert_eq!(load(&page(&sim).await), [0, 0, 12]);
}

fn with_adapters(adapters: &[&str], max_loras: u32) -> SimConfig {
    let adapter = |text: &&str| text.parse::<Adapter>().expect("an adapter");
    SimConfig {
        lora_modules: adapters.iter().map(adapter).collect(),
        max_loras: Some(max_loras),
        ..instant()
    }
}

#[tokio::test]
async fn adapters_share_the_slots_and_the_page_tells_who_ran() {
    let sim = start(&with_adapters(&["a", "b=64", "c"], 2)).await;
    let loads = async |model: &str| {
        let answer = complete(&sim, json!({"model": model})).await;
        assert_eq!(answer.status(), StatusCode::OK);
        sim[0].state().counters.adapter_loads
    };
    let mut counts = Vec::new();
    for model in ["a", "b", "a", "c", "a", "b", "sim-model"] {
        counts.push(loads(model).await);
    }
    // `c` takes the slot of `b`, and `b` that of `c`.
    assert_eq!(counts, [1, 2, 2, 3, 3, 4, 4]);
    let page = page(&sim).await;
    for set in ["", "a", "b", "c"] {
        let labels = [
            ("max_lora", "2"),
            ("running_lora_adapters", set),
            ("waiting_lora_adapters", set),
        ];
        assert!(page.value("vllm:lora_requests_info", &labels).is_some());
    }
    let answer = complete(&sim, json!({"model": "d"})).await;
    assert_eq!(answer.status(), StatusCode::NOT_FOUND);
    let error: Value = answer.json().await.expect("JSON");
    assert_eq!(error["error"]["type"], "NotFoundError");
}

#[tokio::test]
async fn a_request_without_a_slot_is_deferred() {
    let sim = start(&with_adapters(&["a", "b"], 1)).await;
    sim[0].set_overrides(Overrides {
        stuck: true,
        ..Overrides::default()
    });
    for model in ["a", "b"] {
        let url = sim[0].url("/v1/completions");
        let body = json!({"model": model, "prompt": "hello", "max_tokens": 1});
        tokio::spawn(Client::new().post(url).json(&body).send());
        let count = 1 + u64::from(model == "b");
        let arrived = async || {
            let gauges = sim[0].state().gauges;
            gauges.num_requests_running + gauges.num_requests_waiting == count
        };
        until("the request arrived", arrived).await;
    }
    let page = page(&sim).await;
    let waiting = |reason| {
        let labels = [("reason", reason)];
        page.value("vllm:num_requests_waiting_by_reason", &labels)
    };
    assert_eq!(waiting("deferred"), Some(1.0));
    assert_eq!(waiting("capacity"), Some(0.0));
}

#[tokio::test]
async fn engines_share_a_port_and_describe_themselves_as_vllms_do() {
    let config = SimConfig {
        data_parallel_size: 2,
        num_gpu_blocks: 64,
        block_size: 32,
        served_model_name: vec!["tiny-llama".into()],
        ..instant()
    };
    let sim = start(&config).await;
    let ours = page(&sim).await;
    let theirs = Page::recorded("14-dp2-busy");
    for engine in ["0", "1"] {
        let labels = [
            ("engine", engine),
            ("num_gpu_blocks", "128"),
            ("kv_cache_size_tokens", "2048"),
            ("block_size", "32"),
        ];
        for page in [&ours, &theirs] {
            let one = page.value("vllm:cache_config_info", &labels);
            assert_eq!(one, Some(1.0), "{engine}");
        }
    }
    let names = ours.series();
    assert!(names.len() > 100);
    let theirs = theirs.series();
    // The cache's labels differ where its settings do.
    let missing = names
        .iter()
        .filter(|series| !series.starts_with("vllm:cache_config_info") && !theirs.contains(*series))
        .collect::<Vec<_>>();
    assert!(missing.is_empty(), "{missing:?}");
}

#[tokio::test]
async fn each_engine_has_its_own_cache_and_a_header_pins_one() {
    let config = SimConfig {
        data_parallel_size: 2,
        ..instant()
    };
    let sim = start(&config).await;
    let prompt = ["word"; 40].join(" ");
    let ask = async |rank: &str| {
        let body = json!({"prompt": prompt, "max_tokens": 1});
        let request = Client::new().post(sim[0].url("/v1/completions"));
        let answer = request.header("X-data-parallel-rank", rank).json(&body);
        answer.send().await.expect("an answer")
    };
    let mut hits = Vec::new();
    for rank in ["0", "0", "1", "1"] {
        assert_eq!(ask(rank).await.status(), 200);
        let engines = sim[0].state().engines;
        hits.push([0, 1].map(|rank: usize| engines[rank].counters.prefix_cache_hits));
    }
    assert_eq!(hits, [[0, 0], [32, 0], [32, 0], [32, 32]]);
    assert_eq!(sim[0].state().counters.prefix_cache_hits, 64);
    for rank in ["2", "-1"] {
        let answer = ask(rank).await;
        assert_eq!(answer.status(), 400);
        let error: Value = answer.json().await.expect("JSON");
        let message = format!("data_parallel_rank {rank} is out of range [0, 2).");
        assert_eq!(error["error"]["message"], message);
    }
}

#[tokio::test]
async fn requests_go_to_the_least_loaded_engine() {
    let config = SimConfig {
        data_parallel_size: 3,
        max_num_queued_reqs: Some(6),
        ..instant()
    };
    let sim = start(&config).await;
    sim[0].set_overrides(Overrides {
        stuck: true,
        ..Overrides::default()
    });
    for _ in 0..6 {
        let url = sim[0].url("/v1/completions");
        let body = json!({"prompt": "hello", "max_tokens": 1});
        tokio::spawn(Client::new().post(url).json(&body).send());
    }
    let all = async || {
        let gauges = sim[0].state().gauges;
        gauges.num_requests_running + gauges.num_requests_waiting == 6
    };
    until("all arrived", all).await;
    let page = page(&sim).await;
    for engine in ["0", "1", "2"] {
        for name in ["vllm:num_requests_running", "vllm:num_requests_waiting"] {
            let value = page.value(name, &[("engine", engine)]);
            assert_eq!(value, Some(1.0), "{engine} {name}");
        }
    }
    // The limit is the server's, whichever engine would take the request.
    assert_eq!(complete(&sim, json!({})).await.status(), 503);
}
