//! Profiles in a real Envoy: presets, llm-d's most quoted configurations, and signals of one's own.

use serde_json::{Value, json};
use wasm_test::sim::{Failure, Overrides, Preset, Status};
use wasm_test::testbed::{Answer, COMPLETIONS, Setup, Testbed, completion, eventually, prompt};

/// A change of the pool that gives it an `EndpointPickerConfig` of `fields`.
fn picker(fields: Value) -> impl Fn(&mut Value) + Send + Sync + 'static {
    move |pool| {
        let mut document =
            json!({"apiVersion": "llm-d.ai/v1alpha1", "kind": "EndpointPickerConfig"});
        let fields = fields.as_object().expect("an object").clone();
        document.as_object_mut().expect("an object").extend(fields);
        pool["endpointPickerConfig"] = document;
    }
}

/// A change of the pool that gives its endpoints a label, one value each.
fn label(
    name: &'static str,
    values: &'static [&'static str],
) -> impl Fn(&mut Value) + Send + Sync + 'static {
    move |pool| {
        let endpoints = pool["endpoints"].as_array_mut().expect("a list");
        for (endpoint, value) in endpoints.iter_mut().zip(values) {
            *endpoint = json!({"address": *endpoint, "labels": {name: value}});
        }
    }
}

fn preset(setup: Setup, name: &'static str) -> Setup {
    setup.pool(move |pool| pool["scoring"] = json!({ "preset": name }))
}

/// Two servers, one of which holds `text`, with its index.
async fn warm_one(setup: Setup, text: &str) -> (Testbed, usize) {
    let testbed = setup.start().await;
    let warm = testbed.index_of(testbed.complete(text).await.server());
    (testbed, warm)
}

/// Asks for prompts of `bytes` bytes that nobody holds until one is picked with `score`.
async fn cold_with_score(testbed: &Testbed, bytes: usize, score: &str) -> Answer {
    let mut number = 0;
    eventually(&format!("a score of {score}"), async || {
        number += 1;
        let text = prompt(&format!("cold {score} {number}"), bytes);
        let answer = testbed.complete(&text).await;
        (answer.score() == score).then_some(answer)
    })
    .await
}

#[tokio::test]
async fn a_full_match_with_the_longest_queue_wins_at_40_percent_of_the_kv_cache_and_loses_at_60() {
    let text = prompt("warm", 4_000);
    let setup = Testbed::with_servers(2).pool(picker(json!({
        "plugins": [
            {"type": "queue-scorer"}, {"type": "kv-cache-utilization-scorer"},
            {"type": "prefix-cache-scorer"}, {"type": "max-score-picker"},
        ],
        "schedulingProfiles": [{"name": "default", "plugins": [
            {"pluginRef": "queue-scorer", "weight": 2},
            {"pluginRef": "kv-cache-utilization-scorer", "weight": 2},
            {"pluginRef": "prefix-cache-scorer", "weight": 3},
            {"pluginRef": "max-score-picker"},
        ]}],
    })));
    let (testbed, warm) = warm_one(setup, &text).await;
    let usage = |kv_cache_usage| Overrides {
        num_requests_waiting: Some(30.0),
        kv_cache_usage: Some(kv_cache_usage),
        ..Overrides::default()
    };
    // 2 · 0 + 2 · 0.6 + 3 · 1 of 7, against 2 · 1 + 2 · 1 + 0.
    testbed.servers()[warm].set_overrides(usage(0.4));
    let answer = eventually("the queue and the KV cache in a score", async || {
        let answer = testbed.complete(&text).await;
        (answer.score() == "0.6000").then_some(answer)
    })
    .await;
    assert_eq!(testbed.index_of(answer.server()), warm);
    // 2 · 0 + 2 · 0.4 + 3 · 1 of 7, against the same.
    testbed.servers()[warm].set_overrides(usage(0.6));
    let answer = eventually("the other server", async || {
        let answer = testbed.complete(&text).await;
        (testbed.index_of(answer.server()) != warm).then_some(answer)
    })
    .await;
    assert_eq!(answer.score(), "0.5714");
    assert_eq!(answer.cache_match().0, 0);
    testbed.assert_no_vm_lost().await;
}

#[tokio::test]
async fn nothing_declared_weighs_the_same() {
    let text = prompt("warm", 4_000);
    let setup = Testbed::with_servers(2).pool(picker(json!({})));
    let (testbed, warm) = warm_one(setup, &text).await;
    testbed.servers()[warm].set_overrides(Overrides {
        num_requests_waiting: Some(1.0),
        ..Overrides::default()
    });
    let answer = eventually("the queue in a score", async || {
        let answer = testbed.complete(&text).await;
        (answer.score() == "0.7143").then_some(answer)
    })
    .await;
    assert_eq!(testbed.index_of(answer.server()), warm);
}

/// Prefill {prefix 3, queue 1}, decode {prefix 3, queue 2, KV cache 2}.
fn prefill_and_decode(decider: &Value) -> Value {
    json!({
        "featureGates": ["flowControl=false"],
        "plugins": [
            {"type": "disagg-headers-handler"},
            {"type": "prefill-filter"}, {"type": "decode-filter"},
            {"type": "prefix-cache-scorer"}, {"type": "queue-scorer"},
            {"type": "kv-cache-utilization-scorer"}, {"type": "max-score-picker"},
            decider,
            {"type": "disagg-profile-handler", "parameters": {"deciders": {"prefill": "decider"}}},
        ],
        "schedulingProfiles": [
            {"name": "prefill", "plugins": [
                {"pluginRef": "prefill-filter"}, {"pluginRef": "max-score-picker"},
                {"pluginRef": "prefix-cache-scorer", "weight": 3}, {"pluginRef": "queue-scorer", "weight": 1},
            ]},
            {"name": "decode", "plugins": [
                {"pluginRef": "decode-filter"}, {"pluginRef": "max-score-picker"},
                {"pluginRef": "prefix-cache-scorer", "weight": 3}, {"pluginRef": "queue-scorer", "weight": 2},
                {"pluginRef": "kv-cache-utilization-scorer", "weight": 2},
            ]},
        ],
    })
}

/// Two prefill servers, then two decode servers, behind an Envoy that shows the header for the
/// sidecar to the client.
fn split(decider: &Value) -> Setup {
    Testbed::with_servers(4)
        .pool(label(
            "llm-d.ai/role",
            &["prefill", "prefill", "decode", "decode"],
        ))
        .pool(picker(prefill_and_decode(decider)))
        .connection_manager(|manager| {
            manager["route_config"]["virtual_hosts"][0]["response_headers_to_add"] = json!([
                {"header": {"key": "x-test-prefill", "value": "%REQ(x-prefiller-host-port)%"}},
            ]);
        })
}

/// The prefill server the sidecar was told of.
fn prefill_of(testbed: &Testbed, answer: &Answer) -> Option<usize> {
    let header = answer
        .header("x-test-prefill")
        .filter(|value| *value != "-")?;
    Some(testbed.index_of(header.parse().expect("an address")))
}

#[tokio::test]
async fn prefill_goes_to_a_prefill_server_and_the_request_to_a_decode_server() {
    let decider = json!({"type": "always-disagg-pd-decider", "name": "decider"});
    let testbed = split(&decider).start().await;
    let mut shares = [0; 4];
    for number in 0..12 {
        let text = prompt(&format!("conversation {number}"), 2_000);
        // A client's own header is not heeded.
        let request = testbed
            .post(COMPLETIONS, completion(&text).to_string())
            .header("x-prefiller-host-port", "10.9.9.9:1");
        let answer = Answer::to(request).await;
        let prefill = prefill_of(&testbed, &answer).expect("a prefill server");
        let decode = testbed.index_of(answer.server());
        assert!(prefill < 2 && decode >= 2, "{prefill} {decode}");
        assert!(answer.headers_seen().contains(&"x-prefiller-host-port"));
        shares[prefill] += 1;
        shares[decode] += 1;
        // The conversation stays at both.
        let longer = testbed.complete(&format!("{text} and more")).await;
        assert_eq!(testbed.index_of(longer.server()), decode);
        assert_eq!(prefill_of(&testbed, &longer), Some(prefill));
        assert!(longer.cache_match().0 > 0);
    }
    assert!(shares.iter().all(|share| *share > 0), "{shares:?}");
    testbed.nothing_in_flight().await;

    // Queues count in the prefill profile.
    let before = prefill_of(&testbed, &testbed.complete(&prompt("new", 600)).await).expect("one");
    testbed.servers()[before].set_overrides(Overrides {
        num_requests_waiting: Some(3.0),
        ..Overrides::default()
    });
    let mut number = 0;
    eventually("the other prefill server", async || {
        number += 1;
        let text = prompt(&format!("busy {number}"), 600);
        let prefill = prefill_of(&testbed, &testbed.complete(&text).await);
        (prefill == Some(1 - before)).then_some(())
    })
    .await;
    testbed.assert_no_vm_lost().await;
}

#[tokio::test]
async fn the_prefix_based_decider_sends_long_new_prompts_to_prefill_and_no_others() {
    let decider = json!({
        "type": "prefix-based-pd-decider", "name": "decider",
        "parameters": {"nonCachedTokens": 512},
    });
    let testbed = split(&decider).start().await;
    let ask = async |text: &str| {
        let answer = testbed.complete(text).await;
        assert!(testbed.index_of(answer.server()) >= 2);
        prefill_of(&testbed, &answer)
    };
    let short = prompt("short", 1_000);
    let long = prompt("long", 4_000);
    assert_eq!(ask(&short).await, None);
    assert!(ask(&long).await.is_some());
    assert_eq!(ask(&long).await, None, "it is there");
    assert_eq!(ask(&format!("{long} and more")).await, None);
    assert!(ask(&prompt("other", 4_000)).await.is_some());
}

/// Loads two servers so that one is busier and the other queues.
fn load(testbed: &Testbed, server: usize, gpu: f64, waiting: f64) {
    testbed.servers()[server].set_overrides(Overrides {
        gpu_util: Some(gpu),
        num_requests_waiting: Some(waiting),
        ..Overrides::default()
    });
}

#[tokio::test]
async fn ten_waiting_at_40_percent_load_beat_none_at_80_but_not_under_low_latency() {
    for (name, expected, score) in [
        // 0.20 · 0.6 + 0.10 · 0.5 = 0.17, against 0.20 · 0.2 + 0.10 = 0.14; and 0.10 for the rest.
        ("default", 0, "0.2700"),
        // 0.10 · 0.2 + 0.30 and 0.15 for the rest; the other is at its limit.
        ("low-latency", 1, "0.4700"),
    ] {
        let testbed = preset(Testbed::with_servers(2), name).start().await;
        load(&testbed, 0, 40.0, 10.0);
        load(&testbed, 1, 80.0, 0.0);
        let answer = cold_with_score(&testbed, 600, score).await;
        assert_eq!(testbed.index_of(answer.server()), expected, "{name}");
    }
}

#[tokio::test]
async fn batch_waits_where_the_prompt_is_and_default_does_not() {
    for (name, stays) in [("default", false), ("batch", true)] {
        let text = prompt("warm", 4_000);
        let (testbed, warm) = warm_one(preset(Testbed::with_servers(2), name), &text).await;
        load(&testbed, warm, 0.0, 25.0);
        if stays {
            // 0.70 + 0.20 + 0.05 · (1 − 25/40) + 0.05
            let answer = eventually("the queue in a score", async || {
                let answer = testbed.complete(&text).await;
                (answer.score() == "0.9688").then_some(answer)
            })
            .await;
            assert_eq!(testbed.index_of(answer.server()), warm);
        } else {
            eventually("the other server", async || {
                let answer = testbed.complete(&text).await;
                (testbed.index_of(answer.server()) != warm).then_some(())
            })
            .await;
        }
    }
}

/// 15 waiting cost 0.075 of `default`, where a missing adapter costs 0.05; of `many-adapter` it
/// costs 0.20.
#[tokio::test]
async fn many_adapter_queues_for_a_loaded_adapter() {
    let setup = Testbed::with_servers(2)
        .every_server(|config| config.lora_modules = vec!["support".into()])
        .server(0, |config| config.preset = Preset::A100Llama8b);
    let testbed = preset(setup, "many-adapter").start().await;
    let loaded = &testbed.servers()[0];
    let mut body = completion(&prompt("long", 1_000));
    body["model"] = json!("support");
    body["max_tokens"] = json!(2_500);
    let long = reqwest::Client::new()
        .post(loaded.url(COMPLETIONS))
        .json(&body);
    let long = tokio::spawn(long.send());
    eventually("the request to run", async || {
        (loaded.state().gauges.num_requests_running > 0).then_some(())
    })
    .await;
    loaded.set_overrides(Overrides {
        num_requests_waiting: Some(15.0),
        ..Overrides::default()
    });
    let seen = loaded.state().scrapes;
    eventually("scrapes that show it", async || {
        (loaded.state().scrapes > seen + 3).then_some(())
    })
    .await;
    for number in 0..5 {
        let mut body = completion(&prompt(&format!("new {number}"), 1_000));
        body["model"] = json!("support");
        let answer = testbed.ask(COMPLETIONS, &body).await;
        assert_eq!(answer.picked(), loaded.address(), "{answer:?}");
    }
    long.abort();
}

#[tokio::test]
async fn any_series_of_the_metrics_page_can_be_a_signal_for_every_worker() {
    let testbed = Testbed::with_servers(2)
        .workers(2)
        .pool(picker(json!({"plugins": [{
            "type": "metric-scorer",
            "parameters": {"metric": "vllm:num_requests_waiting{model_name=sim-model}", "better": "higher"},
        }]})))
        .start()
        .await;
    for favourite in [1, 0] {
        for (index, server) in testbed.servers().iter().enumerate() {
            server.set_overrides(Overrides {
                num_requests_waiting: Some(if index == favourite { 7.0 } else { 3.0 }),
                ..Overrides::default()
            });
        }
        let mut round = 0;
        eventually("everybody to see it", async || {
            round += 1;
            let texts = (0..8).map(|number| prompt(&format!("{favourite} {round} {number}"), 600));
            let answers = testbed.complete_all(texts).await;
            (testbed.shares(&answers)[favourite] == 8).then_some(())
        })
        .await;
    }
}

#[tokio::test]
async fn the_cheap_server_is_preferred_while_the_gap_of_matches_is_under_20_points() {
    let setup = Testbed::with_servers(2)
        .pool(label("cost-per-hour", &["4.10", "1.20"]))
        .pool(picker(json!({
            "plugins": [
                {"type": "prefix-cache-scorer"},
                {"type": "label-scorer", "name": "cost", "parameters": {"label": "cost-per-hour"}},
            ],
            "schedulingProfiles": [{"name": "default", "plugins": [
                {"pluginRef": "prefix-cache-scorer", "weight": 5}, {"pluginRef": "cost", "weight": 1},
            ]}],
        })));
    let testbed = setup.start().await;
    let (dear, cheap) = (0, 1);
    for number in 0..10 {
        let answer = testbed
            .complete(&prompt(&format!("cold {number}"), 600))
            .await;
        assert_eq!(testbed.index_of(answer.server()), cheap);
    }
    // The cheap one fails once, so that the dear one holds two blocks of a prompt.
    let start = prompt("held by the dear one", 512);
    testbed.servers()[cheap].set_overrides(Overrides {
        fail: Some(Failure {
            status: Status::new(503).expect("an error's"),
            times: Some(1),
        }),
        ..Overrides::default()
    });
    let answer = testbed.complete(&start).await;
    assert_eq!(testbed.index_of(answer.picked()), cheap);
    assert_eq!(testbed.index_of(answer.server()), dear);
    // Two blocks of 8 are 25 points, of 12 they are 17.
    for (blocks, expected) in [(8, dear), (12, cheap)] {
        let tail = prompt(&format!("tail of {blocks}"), 256 * (blocks - 2));
        let answer = testbed.complete(&format!("{start}{tail}")).await;
        assert_eq!(testbed.index_of(answer.picked()), expected, "{blocks}");
    }
}

/// The README's scorer, in a real Envoy.
#[tokio::test]
async fn free_slots_send_more_to_the_larger_server() {
    let testbed = Testbed::with_servers(2)
        .pool(|pool| {
            let small = pool["endpoints"][0].clone();
            pool["endpoints"][0] = json!({"address": small, "maxRunning": 8});
        })
        .pool(picker(json!({"plugins": [{"type": "free-slots-scorer"}]})))
        .start()
        .await;
    for server in testbed.servers() {
        server.set_overrides(Overrides {
            num_requests_running: Some(4.0),
            ..Overrides::default()
        });
    }
    // 4 of 8 are taken, and 4 of 256.
    let answer = cold_with_score(&testbed, 600, "0.9844").await;
    assert_eq!(testbed.index_of(answer.server()), 1);
}

#[tokio::test]
async fn a_random_picker_spreads_one_prompt() {
    let testbed = Testbed::with_servers(2)
        .pool(picker(
            json!({"plugins": [{"type": "prefix-cache-scorer"}, {"type": "random-picker"}]}),
        ))
        .start()
        .await;
    let text = prompt("the same", 600);
    let mut shares = [0; 2];
    for _ in 0..40 {
        shares[testbed.index_of(testbed.complete(&text).await.server())] += 1;
    }
    assert!(shares.iter().all(|share| *share >= 5), "{shares:?}");
}

#[tokio::test]
async fn the_log_tells_what_each_scorer_said_and_the_metrics_what_the_filters_let_through() {
    let testbed = Testbed::with_servers(3)
        .plugin(|plugin| plugin["logLevel"] = json!("trace"))
        .pool(picker(json!({
            "plugins": [
                {"type": "queue-limit-filter", "parameters": {"maxQueue": 5}},
                {"type": "queue-scorer"}, {"type": "prefix-cache-scorer"},
            ],
            "schedulingProfiles": [{"name": "default", "plugins": [
                {"pluginRef": "queue-limit-filter"},
                {"pluginRef": "queue-scorer", "weight": 1}, {"pluginRef": "prefix-cache-scorer", "weight": 3},
            ]}],
        })))
        .wasm_log("trace")
        .start()
        .await;
    testbed.servers()[0].set_overrides(Overrides {
        num_requests_waiting: Some(7.0),
        ..Overrides::default()
    });
    eventually("two candidates and their limit", async || {
        let candidates = testbed.metric("epp_candidate_pods", &[]).await;
        let limit = testbed.metric("epp_max_queue", &[]).await;
        (candidates == Some(2) && limit == Some(5)).then_some(())
    })
    .await;
    let text = prompt("told", 1_000);
    testbed.complete(&text).await;
    let again = testbed.complete(&text).await.server();
    let expected = format!(
        "pod={again} score=1.0000: queue-scorer 0.250×1.000, prefix-cache-scorer 0.750×1.000"
    );
    eventually(&expected, async || {
        testbed.envoy().log().contains(&expected).then_some(())
    })
    .await;
}
