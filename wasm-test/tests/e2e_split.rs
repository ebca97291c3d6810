//! Prefill and decode on different servers, in a real Envoy and by the servers' own counters.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use wasm_test::envoy::TIMER_SLACK;
use wasm_test::sim::{Counters, Hold, LoadFailure, Overrides, Preset, SimServer};
use wasm_test::testbed::{
    Answer, CHAT, COMPLETIONS, POOL, Testbed, completion, eventually, prompt, say,
};

async fn decisions(testbed: &Testbed, decision: &str) -> Option<u64> {
    let labels = [("pool", POOL), ("decision", decision)];
    testbed.metric("epp_disagg_decision_total", &labels).await
}

fn counters(server: &SimServer) -> Counters {
    server.state().counters
}

fn held() -> Overrides {
    Overrides {
        hold: Hold::Generations,
        ..Overrides::default()
    }
}

/// The worked case of the decider: 436 bytes are 109 tokens of four; two blocks of 64 are 128.
#[tokio::test]
async fn of_four_identical_requests_of_436_bytes_the_first_is_split() {
    let testbed = Testbed::with_servers(2)
        .split(1, "inline-nixl", 1)
        .start()
        .await;
    let text = prompt("four", 436);
    for _ in 0..4 {
        let answer = testbed.complete(&text).await;
        assert_eq!(
            (answer.status.as_u16(), testbed.index_of(answer.server())),
            (200, 1)
        );
    }
    let [prefill, decode] = [0, 1].map(|server| counters(&testbed.servers()[server]));
    assert_eq!(
        (prefill.prompt_tokens, prefill.kv_kept, prefill.kv_fetched),
        (109, 1, 1)
    );
    // The decode server was handed 109 tokens, and found 96, all but the last block, three times.
    assert_eq!(
        (decode.external_tokens, decode.prefix_cache_hits),
        (109, 3 * 96)
    );
    assert_eq!(decode.kv_failed, 0);
    assert_eq!(decisions(&testbed, "prefill-decode").await, Some(1));
    assert_eq!(decisions(&testbed, "decode-only").await, Some(3));
    let transferred = eventually("a scrape that shows it", async || {
        let pod = testbed.servers()[1].address().to_string();
        let labels = [("pool", POOL), ("pod", pod.as_str())];
        let tokens = testbed
            .metric("epp_disagg_transferred_tokens", &labels)
            .await;
        tokens.filter(|tokens| *tokens > 0)
    })
    .await;
    assert_eq!(transferred, 109);
    eventually("the call's latency", async || {
        let calls = testbed.metric("epp_disagg_prefill_latency_ms_count", &[]);
        (calls.await == Some(1)).then_some(())
    })
    .await;
    testbed.nothing_in_flight().await;
    testbed.assert_no_vm_lost().await;
}

/// The README's check: what a header alone achieves.
#[tokio::test]
async fn without_the_inline_mode_and_without_a_sidecar_nothing_is_split_and_it_shows() {
    let testbed = Testbed::with_servers(2).split(1, "header", 1).start().await;
    let text = prompt("four", 436);
    for _ in 0..4 {
        assert_eq!(testbed.complete(&text).await.status, 200);
    }
    let [prefill, decode] = [0, 1].map(|server| counters(&testbed.servers()[server]));
    assert_eq!(prefill, Counters::default());
    assert_eq!((decode.external_tokens, decode.prompt_tokens), (0, 436));
    assert_eq!(decisions(&testbed, "sidecar").await, Some(1));
    assert_eq!(decisions(&testbed, "prefill-decode").await, None);
    assert_eq!(
        testbed
            .metric("epp_disagg_prefill_latency_ms_count", &[])
            .await,
        None
    );
    let transferred = testbed
        .metric("epp_disagg_transferred_tokens", &[("pool", POOL)])
        .await;
    assert_eq!(transferred.unwrap_or(0), 0);
}

#[tokio::test]
async fn a_client_gets_the_same_answer_in_the_form_it_asked_for() {
    let testbed = Testbed::with_servers(2)
        .split(1, "inline-nixl", 0)
        .start()
        .await;
    let messages = [say("user", &prompt("form", 3_000))];
    for stream in [false, true] {
        let mut body = json!({"model": "sim-model", "messages": messages, "max_tokens": 20});
        if stream {
            body["stream"] = json!(true);
            body["stream_options"] = json!({"include_usage": true});
        }
        let direct = reqwest::Client::new()
            .post(testbed.servers()[1].url(CHAT))
            .json(&body);
        let direct = Answer::to(direct).await;
        let split = testbed.ask(CHAT, &body).await;
        assert_eq!((split.status, split.text()), (direct.status, direct.text()));
        let body = String::from_utf8_lossy(&split.body).into_owned();
        assert_eq!(body.starts_with("data: "), stream);
        assert!(body.contains("\"completion_tokens\":20"), "{body}");
    }
    assert_eq!(counters(&testbed.servers()[0]).kv_kept, 2);
    // Both legs carry one id.
    let id = |server: usize| {
        testbed.servers()[server]
            .log()
            .last()
            .and_then(|one| one.request_id.clone())
    };
    assert!(id(0).is_some() && id(0) == id(1));
}

/// Longer than what the module has in memory at once.
#[tokio::test]
async fn a_body_of_three_megabytes_arrives_whole_at_both() {
    let testbed = Testbed::with_servers(2)
        .split(1, "inline-nixl", 0)
        .every_server(|config| config.bytes_per_token = Some(100))
        .start()
        .await;
    let body = completion(&prompt("long", 3_000_000));
    let direct = reqwest::Client::new()
        .post(testbed.servers()[1].url(COMPLETIONS))
        .json(&body);
    let direct = Answer::to(direct).await;
    let split = testbed.ask(COMPLETIONS, &body).await;
    assert_eq!((split.status, split.text()), (direct.status, direct.text()));
    assert_eq!(counters(&testbed.servers()[0]).prompt_tokens, 30_000);
    assert_eq!(
        counters(&testbed.servers()[1]).external_tokens,
        30_000 - 29_984
    );
    assert_eq!(decisions(&testbed, "prefill-decode").await, Some(1));
    testbed.assert_no_vm_lost().await;
}

/// Sends a request for `text` and does not wait for its answer.
async fn begin(testbed: &Testbed, text: &str) -> TcpStream {
    let body = completion(text).to_string();
    let request = format!(
        "POST {COMPLETIONS} HTTP/1.1\r\nhost: test\r\ncontent-type: application/json\r\n\
         content-length: {}\r\n\r\n{body}",
        body.len()
    );
    let address = testbed.envoy().address();
    let mut stream = TcpStream::connect(address).await.expect("a connection");
    stream.write_all(request.as_bytes()).await.expect("written");
    stream
}

async fn asked(server: &SimServer, times: u64) {
    eventually("the server to be asked", async || {
        (counters(server).kv_kept >= times).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_client_that_leaves_during_a_prefill_leaves_load_there_until_the_time_out() {
    let testbed = Testbed::with_servers(2)
        .split(1, "inline-nixl", 0)
        .pool(|pool| pool["disaggregation"]["prefillTimeout"] = json!("3s"))
        .every_server(|config| config.kv_lease_ms = 500)
        .start()
        .await;
    testbed.servers()[0].set_overrides(held());
    let begun = Instant::now();
    let client = begin(&testbed, &prompt("left", 2_000)).await;
    asked(&testbed.servers()[0], 1).await;
    eventually("both leases", async || {
        (testbed.in_flight().await == [1, 1]).then_some(())
    })
    .await;
    drop(client);
    eventually("the decode server's to end", async || {
        (testbed.in_flight().await == [1, 0]).then_some(())
    })
    .await;
    assert_eq!(decisions(&testbed, "client-gone").await, Some(1));
    assert!(begun.elapsed() < Duration::from_secs(3));
    testbed.nothing_in_flight().await;
    assert!(begun.elapsed() + TIMER_SLACK > Duration::from_secs(3));
    // The server computed it for nobody, and nothing went to the decode server.
    eventually("the end of the server's own lease", async || {
        (counters(&testbed.servers()[0]).kv_expired == 1).then_some(())
    })
    .await;
    assert!(testbed.servers()[1].log().is_empty());
    testbed.servers()[0].set_overrides(Overrides::default());
    testbed.assert_no_vm_lost().await;
}

/// Nobody is left who could go on with it: the stream's own timer ends it.
#[tokio::test]
async fn a_vm_that_is_lost_during_a_prefill_leaves_the_stream_to_its_idle_timeout() {
    let testbed = Testbed::with_servers(2)
        .switchable()
        .split(1, "inline-nixl", 0)
        .pool(|pool| pool["disaggregation"]["prefillTimeout"] = json!("500ms"))
        .connection_manager(|manager| manager["stream_idle_timeout"] = json!("2s"))
        .start()
        .await;
    testbed.servers()[0].set_overrides(held());
    let body = completion(&prompt("lost", 2_000)).to_string();
    let begun = Instant::now();
    let lost = tokio::spawn(Answer::to(testbed.post(COMPLETIONS, body)));
    asked(&testbed.servers()[0], 1).await;
    let trap = testbed.post(COMPLETIONS, "{}").header("x-epp-trap", "1");
    assert_eq!(Answer::to(trap).await.status, 503);
    testbed.servers()[0].set_overrides(Overrides::default());
    // The next one is served by a new VM.
    let next = eventually("a new VM", async || {
        let answer = testbed.complete(&prompt("next", 2_000)).await;
        (answer.status == 200).then_some(answer)
    })
    .await;
    assert_eq!(testbed.index_of(next.server()), 1);
    let answer = lost.await.expect("an answer");
    let took = begun.elapsed();
    // 408 before any answer has begun.
    assert!(
        [408, 503, 504].contains(&answer.status.as_u16()),
        "{answer:?}"
    );
    assert!(took + TIMER_SLACK > Duration::from_secs(2), "{took:?}");
    assert!(took < Duration::from_secs(10), "{took:?}");
}

#[tokio::test]
async fn prefill_calls_have_circuit_breakers_of_their_own() {
    let testbed = Testbed::with_servers(2)
        .split(1, "inline-nixl", 0)
        .pool(|pool| pool["disaggregation"]["cluster"] = json!("prefill-calls"))
        .bootstrap(|tree| {
            let clusters = tree["static_resources"]["clusters"]
                .as_array_mut()
                .expect("a list");
            let mut own = clusters[0].clone();
            own["name"] = json!("prefill-calls");
            own["load_assignment"]["cluster_name"] = json!("prefill-calls");
            own["circuit_breakers"] = json!({"thresholds": [{"max_requests": 1}]});
            clusters.push(own);
        })
        .start()
        .await;
    testbed.servers()[0].set_overrides(held());
    let waits = begin(&testbed, &prompt("first", 2_000)).await;
    asked(&testbed.servers()[0], 1).await;
    // There is no room for a second one, and the pool's own cluster has.
    let answer = testbed.complete(&prompt("second", 2_000)).await;
    assert_eq!(
        (answer.status.as_u16(), testbed.index_of(answer.server())),
        (200, 1)
    );
    assert_eq!(decisions(&testbed, "prefill-refused").await, Some(1));
    testbed.servers()[0].set_overrides(Overrides::default());
    drop(waits);
    eventually("room again", async || {
        let name = format!("third {:?}", Instant::now());
        testbed.complete(&prompt(&name, 2_000)).await;
        (decisions(&testbed, "prefill-decode").await > Some(0)).then_some(())
    })
    .await;
    testbed.assert_no_vm_lost().await;
}

fn mixed(number: usize) -> (&'static str, Value) {
    let text = prompt(
        &format!("conversation {}", number / 2),
        600 + 300 * (number % 7),
    );
    let mut body = if number.is_multiple_of(3) {
        json!({"model": "sim-model", "messages": [say("user", &text)], "max_tokens": 4})
    } else {
        completion(&text)
    };
    if number.is_multiple_of(5) {
        body["stream"] = json!(true);
    }
    if number.is_multiple_of(11) {
        body["n"] = json!(2);
    }
    (
        if number.is_multiple_of(3) {
            CHAT
        } else {
            COMPLETIONS
        },
        body,
    )
}

/// Ends one of the first two servers after the other, and starts it again.
async fn die_and_return(testbed: &Testbed) {
    for round in 0..6 {
        let server = &testbed.servers()[round % 2];
        tokio::time::sleep(Duration::from_millis(300)).await;
        server.kill().await;
        tokio::time::sleep(Duration::from_millis(300)).await;
        server.restart().await.expect("its port");
    }
}

/// Servers that decode compute what is not handed over: that is how they are to be run.
#[tokio::test]
async fn of_500_requests_none_fails_while_prefill_servers_die_and_return() {
    const REQUESTS: usize = 500;
    let testbed = Testbed::with_servers(4)
        .workers(2)
        .split(2, "inline-nixl", 100)
        .every_server(|config| {
            config.preset = Preset::A100Llama8b;
            config.time_scale = 50.0;
            config.kv_load_failure_policy = LoadFailure::Recompute;
        })
        .start()
        .await;
    let next = std::sync::atomic::AtomicUsize::new(0);
    let client = async |_| {
        let mut failed = Vec::new();
        loop {
            let number = next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            if number >= REQUESTS {
                return failed;
            }
            let (path, body) = mixed(number);
            let answer = testbed.ask(path, &body).await;
            if answer.status != 200 || answer.broken_off || answer.text().is_empty() {
                failed.push((number, answer));
            }
            tokio::time::sleep(Duration::from_millis(25)).await;
        }
    };
    let clients = futures_util::future::join_all((0..4).map(client));
    let ((), failed) = tokio::join!(die_and_return(&testbed), clients);
    let failed: Vec<_> = failed.into_iter().flatten().collect();
    assert!(
        failed.is_empty(),
        "{} failed: {:?}",
        failed.len(),
        failed.first()
    );
    let split = decisions(&testbed, "prefill-decode")
        .await
        .expect("exported");
    let all = testbed
        .metric("epp_disagg_decision_total", &[("pool", POOL)])
        .await;
    assert_eq!(all, Some(REQUESTS as u64));
    let local = decisions(&testbed, "prefill-refused")
        .await
        .expect("exported")
        + decisions(&testbed, "prefill-reset")
            .await
            .expect("exported")
        + decisions(&testbed, "no-prefill-endpoint")
            .await
            .expect("exported");
    println!("{split} of {REQUESTS} split, {local} local for want of a prefill server");
    assert!(split > 20 && local > 0, "{split} {local}");
    testbed.nothing_in_flight().await;
}

#[tokio::test]
async fn both_servers_of_sglang_get_the_same_request_at_once() {
    let testbed = Testbed::with_servers(2)
        .split(1, "inline-sglang", 0)
        .start()
        .await;
    testbed.servers()[0].set_overrides(held());
    // The decode server need not wait for the other one's answer.
    let answer = testbed.complete(&prompt("both", 2_000)).await;
    assert_eq!(
        (answer.status.as_u16(), testbed.index_of(answer.server())),
        (200, 1)
    );
    testbed.servers()[0].set_overrides(Overrides::default());
    let entry = |server: usize| testbed.servers()[server].log().last().cloned();
    let (prefill, decode) = eventually("both logs", async || entry(0).zip(entry(1))).await;
    assert_eq!(prefill.body_sha256, decode.body_sha256);
    assert_eq!(prefill.request_id, decode.request_id);
    assert!(prefill.body_bytes > completion(&prompt("both", 2_000)).to_string().len() + 60);
    eventually("one decision", async || {
        (decisions(&testbed, "prefill-decode").await == Some(1)).then_some(())
    })
    .await;
    testbed.nothing_in_flight().await;
    testbed.assert_no_vm_lost().await;
}

/// What the split itself costs where computing costs nothing: one more exchange with a server.
#[tokio::test]
async fn splitting_costs_an_exchange_with_a_server_and_little_more() {
    const ROUNDS: usize = 150;
    let plain = Testbed::with_servers(2).split(1, "off", 0).start().await;
    let split = Testbed::with_servers(2)
        .split(1, "inline-nixl", 0)
        .start()
        .await;
    let server = plain.servers()[0].url(COMPLETIONS);
    let client = reqwest::Client::new();
    let mut took = [Vec::new(), Vec::new(), Vec::new()];
    for round in 0..ROUNDS {
        let body = completion(&prompt(&format!("round {round}"), 16_000));
        let text = body.to_string();
        let begun = Instant::now();
        let direct = client
            .post(&server)
            .header("content-type", "application/json");
        assert_eq!(Answer::to(direct.body(text.clone())).await.status, 200);
        took[0].push(begun.elapsed());
        for (testbed, took) in [&plain, &split].into_iter().zip(&mut took[1..]) {
            let begun = Instant::now();
            assert_eq!(testbed.ask(COMPLETIONS, &body).await.status, 200);
            took.push(begun.elapsed());
        }
    }
    let [direct, plain_took, split_took] = took.map(|mut all| {
        all.sort_unstable();
        all[ROUNDS / 2].as_secs_f64() * 1e3
    });
    assert_eq!(
        decisions(&split, "prefill-decode").await,
        Some(ROUNDS as u64)
    );
    let ratio = split_took / plain_took;
    println!(
        "medians: server alone {direct:.2} ms, routed {plain_took:.2} ms, split {split_took:.2} ms: {ratio:.2}"
    );
    // Two more exchanges: with the prefill server, and of the decode server with it.
    assert!(split_took < plain_took + 3.0 * direct + 5.0, "{ratio:.2}");
}

/// 320 bytes are 80 tokens of four, and 160 as these servers count.
#[tokio::test]
async fn what_answers_say_of_a_models_tokens_decides_about_the_next_prompts() {
    for stream in [false, true] {
        let testbed = Testbed::with_servers(2)
            .split(1, "inline-nixl", 100)
            .every_server(|config| config.bytes_per_token = Some(2))
            .start()
            .await;
        let mut body = completion(&prompt("first", 320));
        body["max_tokens"] = json!(40);
        if stream {
            body["stream"] = json!(true);
            body["stream_options"] = json!({"include_usage": true});
        }
        assert_eq!(testbed.ask(COMPLETIONS, &body).await.status, 200);
        assert_eq!(decisions(&testbed, "decode-only").await, Some(1));
        // It is learned as the stream ends, which may be after its last byte.
        testbed.nothing_in_flight().await;
        testbed.complete(&prompt("second", 320)).await;
        assert_eq!(
            decisions(&testbed, "prefill-decode").await,
            Some(1),
            "{stream}"
        );
    }
}
