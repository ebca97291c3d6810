//! Servers that fail: left out while they do, probed, and back when they are well.

use std::pin::pin;

use serde_json::{Value, json};
use wasm_test::sim::{Hold, Overrides, SimServer};
use wasm_test::testbed::{COMPLETIONS, POOL, Testbed, completion, eventually, prompt};

fn fails_with(server: &SimServer, status: u16) {
    let overrides = json!({ "fail": { "status": status } });
    let overrides: Overrides = serde_json::from_value(overrides).unwrap();
    server.set_overrides(overrides);
}

/// Sends `count` prompts nobody has seen and returns how many went to the server at `index`.
async fn share(testbed: &Testbed, index: usize, name: &str, count: usize) -> usize {
    let prompts = (0..count).map(|number| prompt(&format!("{name} {number}"), 1_000));
    let answers = testbed.complete_all(prompts).await;
    testbed.shares(&answers)[index]
}

#[tokio::test]
async fn a_server_that_answers_500_gets_next_to_nothing_and_comes_back() {
    let testbed = Testbed::with_servers(3)
        .pool(|pool| pool["health"] = json!({ "errorWindow": "2s" }))
        .start()
        .await;
    let ill = &testbed.servers()[0];
    fails_with(ill, 500);
    let mut round = 0;
    eventually("the ill server to be left out", async || {
        round += 1;
        share(&testbed, 0, &format!("finding out {round}"), 40).await;
        let candidates = testbed.metric("epp_candidate_pods", &[]).await;
        (candidates == Some(2)).then_some(())
    })
    .await;
    // At most one probe a second; a burst takes far less.
    assert!(share(&testbed, 0, "left out", 30).await <= 2);
    ill.set_overrides(Overrides::default());
    eventually("its share to return", async || {
        round += 1;
        (share(&testbed, 0, &format!("back {round}"), 30).await >= 5).then_some(())
    })
    .await;
    testbed.assert_no_vm_lost().await;
}

#[tokio::test]
async fn what_clients_do_wrong_costs_a_server_no_health() {
    let testbed = Testbed::with_servers(2).start().await;
    for status in [404, 429] {
        fails_with(&testbed.servers()[0], status);
        let answers = share(&testbed, 0, &format!("refused {status}"), 40).await;
        assert!((10..=30).contains(&answers), "{status}: {answers} of 40");
    }
    assert_eq!(testbed.metric("epp_candidate_pods", &[]).await, Some(2));
}

/// Whether the log says that any endpoint is not used.
fn anybody_left_out(testbed: &Testbed) -> bool {
    testbed.envoy().log().contains("is not used")
}

#[tokio::test]
async fn an_open_circuit_breaker_makes_nobody_unfit() {
    let testbed = Testbed::with_servers(3)
        .cluster(|cluster| {
            let full =
                json!({ "max_connections": 1, "max_pending_requests": 1, "max_requests": 1 });
            cluster["circuit_breakers"]["thresholds"] = json!([full]);
        })
        .start_unscraped()
        .await;
    // One request stays: all further calls overflow.
    testbed.servers().iter().for_each(|server| {
        server.set_overrides(Overrides {
            hold: Hold::Generations,
            ..Overrides::default()
        });
    });
    let text = prompt("in the way", 600);
    let request = testbed.complete(&text);
    let mut overflows = pin!(eventually("scrapes to overflow", async || {
        let labels = [("pool", POOL), ("result", "error")];
        let failed = testbed.metric("epp_scrapes_total", &labels).await;
        (failed >= Some(40)).then_some(())
    }));
    tokio::select! {
        answer = request => {
            assert_eq!(answer.status, 503, "held or refused for lack of room");
            overflows.await;
        }
        () = &mut overflows => {}
    }
    assert_eq!(testbed.metric("epp_candidate_pods", &[]).await, Some(3));
    assert!(!anybody_left_out(&testbed));
}

#[tokio::test]
async fn a_server_that_hangs_is_slow_and_not_unfit() {
    let testbed = Testbed::with_servers(2).start().await;
    testbed.servers()[0].set_overrides(Overrides {
        hold: Hold::All,
        ..Overrides::default()
    });
    let timed_out = || testbed.metric("epp_scrapes_total", &[("result", "timeout")]);
    eventually("three scrapes in vain", async || {
        (timed_out().await >= Some(3)).then_some(())
    })
    .await;
    assert_eq!(testbed.metric("epp_candidate_pods", &[]).await, Some(2));
    assert!(!anybody_left_out(&testbed));
}

#[tokio::test]
async fn a_cold_cache_is_not_ill() {
    let testbed = Testbed::with_servers(2).start().await;
    testbed.servers()[0].restart().await.expect("its own port");
    testbed.metrics_taken_over().await;
    let cold = testbed.servers()[0].address();
    eventually("full health", async || {
        let health = testbed.of_pod("epp_pod_health_score", cold).await;
        (health == 100).then_some(())
    })
    .await;
    assert_eq!(testbed.metric("epp_candidate_pods", &[]).await, Some(2));
}

#[tokio::test]
async fn requests_go_where_their_model_is_listed() {
    let testbed = Testbed::with_servers(3)
        .server(0, |config| config.served_model_name = vec!["other".into()])
        .start()
        .await;
    let ask = async |model: &str, number: usize| {
        let mut body = completion(&prompt(&format!("{model} {number}"), 600));
        body["model"] = json!(model);
        testbed.ask(COMPLETIONS, &body).await
    };
    let mut round = 0;
    eventually("the lists to be known", async || {
        round += 1;
        let answer = ask("other", round).await;
        let mut all = true;
        for number in 0..10 {
            all &= ask("sim-model", round * 100 + number).await.status == 200;
        }
        (answer.status == 200 && all).then_some(())
    })
    .await;
    for number in 0..10 {
        let answer = ask("other", 10_000 + number).await;
        assert_eq!((answer.status.as_u16(), answer.reason()), (200, "picked"));
        assert_eq!(answer.server(), testbed.servers()[0].address());
        // What nobody lists is the servers' to refuse.
        let answer = ask("nobody's", 10_000 + number).await;
        assert_eq!((answer.status.as_u16(), answer.reason()), (404, "picked"));
    }
}

#[tokio::test]
async fn an_endpoint_that_envoys_cluster_does_not_hold_is_reported_once() {
    let testbed = Testbed::with_servers(2)
        .pool(|pool| {
            let endpoints = pool["endpoints"].as_array_mut().unwrap();
            endpoints.push(json!("127.0.0.1:1"));
        })
        .start_unscraped()
        .await;
    let line = "pod=127.0.0.1:1: Envoy sent its request elsewhere";
    let told = || testbed.envoy().log().matches(line).count();
    let mut round = 0;
    eventually("the line", async || {
        round += 1;
        share(&testbed, 0, &format!("nowhere {round}"), 12).await;
        (told() > 0).then_some(())
    })
    .await;
    share(&testbed, 0, "still nowhere", 24).await;
    assert_eq!(told(), 1);
}

#[tokio::test]
async fn fail_close_refuses_while_nobody_is_fit() {
    let testbed = Testbed::with_servers(2)
        .plugin(|plugin| plugin["failureMode"] = json!("FailClose"))
        .start()
        .await;
    for server in testbed.servers() {
        fails_with(server, 500);
    }
    let refused = eventually("a refusal", async || {
        let answer = testbed.complete(&prompt("any", 600)).await;
        (answer.status == 503).then_some(answer)
    })
    .await;
    let body: Value = serde_json::from_slice(&refused.body).expect("JSON");
    assert_eq!(body["error"]["code"], 503);
    assert_eq!(refused.header("content-type"), Some("application/json"));
    assert_eq!(refused.header("x-sim-server"), None);
    assert!(testbed.fallbacks("no_candidates").await >= 1);
    testbed.nothing_in_flight().await;
}

#[tokio::test]
async fn fail_open_serves_while_nobody_is_fit() {
    let testbed = Testbed::with_servers(2).start().await;
    for server in testbed.servers() {
        fails_with(server, 500);
    }
    let answer = eventually("nobody to be fit", async || {
        let answer = testbed.complete(&prompt("any", 600)).await;
        (answer.reason() == "no_candidates").then_some(answer)
    })
    .await;
    assert_eq!(answer.status, 500);
    assert_eq!(answer.server(), answer.picked());
    assert!(testbed.fallbacks("no_candidates").await >= 1);
}
