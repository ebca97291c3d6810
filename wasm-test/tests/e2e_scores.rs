//! What decides between servers, seen from outside: cached blocks, load, queues.

use serde_json::json;
use wasm_test::sim::{Overrides, SimServer};
use wasm_test::testbed::{Answer, Testbed, eventually, prompt};

fn gpu_util(percent: f64) -> Overrides {
    Overrides {
        gpu_util: Some(percent),
        ..Overrides::default()
    }
}

fn waiting(requests: f64) -> Overrides {
    Overrides {
        num_requests_waiting: Some(requests),
        ..Overrides::default()
    }
}

/// Warms one of two servers with a prompt; returns its index.
async fn warm(testbed: &Testbed, text: &str) -> usize {
    testbed.index_of(testbed.complete(text).await.server())
}

#[tokio::test]
async fn a_busy_server_with_all_of_the_prompt_beats_an_idle_one_with_none() {
    let testbed = Testbed::with_servers(2).start().await;
    let text = prompt("warm", 4_000);
    let busy = warm(&testbed, &text).await;
    let idle = 1 - busy;
    testbed.servers()[busy].set_overrides(gpu_util(80.0));
    testbed.servers()[idle].set_overrides(gpu_util(0.0));

    // 0.60·1 + 0.20·(1 − 0.8) + 0.10 + 0.05 + 0.05
    let answer = eventually("the busy server's load in a score", async || {
        let answer = testbed.complete(&text).await;
        (answer.score() == "0.8400").then_some(answer)
    })
    .await;
    assert_eq!(testbed.index_of(answer.picked()), busy);
    assert_eq!(testbed.index_of(answer.server()), busy);
    assert_eq!(answer.cache_match(), (16, 16));

    // 0.60·0 + 0.20·1 + 0.10 + 0.05 + 0.05
    let mut number = 0;
    let answer = eventually("the idle server's load in a score", async || {
        number += 1;
        let answer = testbed
            .complete(&prompt(&format!("cold {number}"), 4_000))
            .await;
        (answer.score() == "0.4000").then_some(answer)
    })
    .await;
    assert_eq!(testbed.index_of(answer.picked()), idle);
    assert_eq!(testbed.index_of(answer.server()), idle);
    assert_eq!(answer.cache_match(), (0, 16));
}

#[tokio::test]
async fn a_server_over_the_queue_limit_gets_nothing_while_another_is_available() {
    let testbed = Testbed::with_servers(2).start().await;
    let text = prompt("warm", 4_000);
    let full = warm(&testbed, &text).await;
    testbed.servers()[full].set_overrides(waiting(20.0));
    eventually("the full server to be avoided", async || {
        let answer = testbed.complete(&text).await;
        (testbed.index_of(answer.server()) != full).then_some(())
    })
    .await;

    let before = testbed.servers()[full].log().len();
    for number in 0..40 {
        let cold = testbed
            .complete(&prompt(&format!("cold {number}"), 600))
            .await;
        assert_eq!(cold.reason(), "picked");
        assert_eq!(testbed.complete(&text).await.reason(), "picked");
    }
    assert_eq!(testbed.servers()[full].log().len(), before);

    let pods = testbed
        .metric("epp_candidate_pods", &[("pool", "llama")])
        .await;
    assert_eq!(pods, Some(1));
}

#[tokio::test]
async fn a_server_one_below_the_queue_limit_still_serves_what_it_holds() {
    let testbed = Testbed::with_servers(2).start().await;
    let text = prompt("warm", 4_000);
    let queueing = warm(&testbed, &text).await;
    testbed.servers()[queueing].set_overrides(waiting(19.0));
    // 0.60 + 0.20 + 0.10·(1 − 19/20) + 0.05 + 0.05
    let answer = eventually("the queue in a score", async || {
        let answer = testbed.complete(&text).await;
        (answer.score() == "0.9050").then_some(answer)
    })
    .await;
    assert_eq!(testbed.index_of(answer.server()), queueing);
}

#[tokio::test]
async fn all_servers_over_the_queue_limit_still_serve_and_say_so() {
    let testbed = Testbed::with_servers(2).start().await;
    for server in testbed.servers() {
        server.set_overrides(waiting(25.0));
    }
    let text = prompt("any", 1_000);
    eventually("both to be full", async || {
        (testbed.complete(&text).await.reason() == "all_over_limit").then_some(())
    })
    .await;

    let decisions = testbed.decisions().await;
    let fallbacks = testbed.fallbacks("all_over_limit").await;
    for _ in 0..10 {
        let answer: Answer = testbed.complete(&text).await;
        assert_eq!(answer.status, 200);
        assert_eq!(answer.reason(), "all_over_limit");
        assert_eq!(answer.picked(), answer.server());
    }
    assert_eq!(testbed.fallbacks("all_over_limit").await, fallbacks + 10);
    assert_eq!(testbed.decisions().await, decisions);

    // One recovers, and takes everything.
    testbed.servers()[0].set_overrides(waiting(0.0));
    eventually("one to recover", async || {
        (testbed.complete(&text).await.reason() == "picked").then_some(())
    })
    .await;
    assert_eq!(testbed.index_of(testbed.complete(&text).await.server()), 0);
}

#[tokio::test]
async fn a_server_with_more_free_cache_takes_the_cold_prompts() {
    let testbed = Testbed::with_servers(3).start().await;
    let usage = [0.9, 0.2, 0.9];
    for (server, usage) in testbed.servers().iter().zip(usage) {
        server.set_overrides(Overrides {
            kv_cache_usage: Some(usage),
            ..Overrides::default()
        });
    }
    let mut number = 0;
    // 0.20·(1 − 0.2) + 0.10 + 0.05 + 0.05
    eventually("the cache's fill in a score", async || {
        number += 1;
        let answer = testbed
            .complete(&prompt(&format!("early {number}"), 600))
            .await;
        (answer.score() == "0.3600").then_some(())
    })
    .await;
    let cold = |number| prompt(&format!("cold {number}"), 600);
    for number in 0..20 {
        let answer = testbed.complete(&cold(number)).await;
        assert_eq!(testbed.index_of(answer.server()), 1);
    }
}

#[tokio::test]
async fn more_than_half_of_the_prompt_outweighs_a_fully_loaded_server() {
    let testbed = Testbed::with_servers(2).start().await;
    let text = prompt("warm", 2_560);
    let busy = warm(&testbed, &text).await;
    let busy: &SimServer = &testbed.servers()[busy];
    busy.set_overrides(gpu_util(100.0));
    // 10 of 15 blocks: 0.60·⅔ + 0 + 0.10 + 0.05 + 0.05, against 0.40 on the idle one.
    let longer = prompt("warm", 3_840);
    let mut number = 0;
    let answer = eventually("the load in a score", async || {
        number += 1;
        // The tail differs, so that the attempts before leave nothing behind that matches.
        let attempt = format!("{}{number:06}{}", &longer[..2_560], &longer[2_566..]);
        let answer = testbed.complete(&attempt).await;
        (answer.score() == "0.6000").then_some(answer)
    })
    .await;
    assert_eq!(answer.cache_match(), (10, 15));
    assert_eq!(answer.server(), busy.address());
}

#[tokio::test]
async fn weights_and_limits_are_those_of_the_configuration() {
    let testbed = Testbed::with_servers(2)
        .pool(|pool| {
            pool["scoring"] = json!({
                "weights": { "cache": 1, "load": 3, "queue": 0, "health": 0, "adapter": 0 },
                "maxQueue": 5,
            });
        })
        .start()
        .await;
    let text = prompt("warm", 1_000);
    let busy = warm(&testbed, &text).await;
    testbed.servers()[busy].set_overrides(gpu_util(80.0));
    testbed.servers()[1 - busy].set_overrides(gpu_util(0.0));
    // (1·1 + 3·0.2) / 4 on the warm one, (0 + 3·1) / 4 on the idle one.
    let answer = eventually("the load in a score", async || {
        let answer = testbed.complete(&text).await;
        (answer.score() == "0.7500").then_some(answer)
    })
    .await;
    assert_eq!(testbed.index_of(answer.server()), 1 - busy);
    let limit = testbed.metric("epp_max_queue", &[("pool", "llama")]).await;
    assert_eq!(limit, Some(5));
}
