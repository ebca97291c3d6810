//! How the servers' metrics are read: once for all workers, each server by itself, and what old
//! numbers do.

use std::cell::Cell;
use std::time::{Duration, Instant};

use axum::Router;
use axum::routing::get;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use wasm_test::sim::{Hold, MetricsAnswer, Overrides, SimServer};
use wasm_test::testbed::{POOL, Testbed, eventually, prompt};

/// The interval of the testbed.
const INTERVAL: Duration = Duration::from_millis(200);

fn frozen_metrics() -> Overrides {
    Overrides {
        metrics_delay_ms: 600_000,
        ..Overrides::default()
    }
}

fn scrapes(server: &SimServer) -> u64 {
    server.state().scrapes
}

async fn scraped(testbed: &Testbed, result: &str) -> u64 {
    let labels = [("pool", POOL), ("result", result)];
    let count = testbed.metric("epp_scrapes_total", &labels).await;
    count.expect("every result is exported from the start")
}

#[tokio::test]
async fn one_of_all_workers_scrapes_each_server_once_an_interval() {
    let testbed = Testbed::with_servers(3).workers(4).start().await;
    let before: Vec<u64> = testbed.servers().iter().map(scrapes).collect();
    let since = Instant::now();
    eventually("twelve scrapes of each", async || {
        let counts = testbed.servers().iter().map(scrapes);
        let reached = counts.zip(&before).all(|(now, before)| now >= before + 12);
        reached.then_some(())
    })
    .await;
    let intervals = since.elapsed().as_secs_f64() / INTERVAL.as_secs_f64();
    for (server, before) in testbed.servers().iter().zip(before) {
        let count = (scrapes(server) - before) as f64;
        // Five would scrape five times as often; a slow machine only less.
        assert!(
            count <= intervals * 1.5 + 2.0,
            "{count} in {intervals} intervals"
        );
    }
}

#[tokio::test]
async fn a_scrape_reaches_exactly_its_server() {
    let testbed = Testbed::with_servers(4).workers(2).start().await;
    for (server, waiting) in testbed.servers().iter().zip([3.0, 5.0, 7.0, 11.0]) {
        server.set_overrides(Overrides {
            num_requests_waiting: Some(waiting),
            ..Overrides::default()
        });
    }
    testbed.metrics_taken_over().await;
    for (server, waiting) in testbed.servers().iter().zip([3, 5, 7, 11]) {
        let depth = testbed.of_pod("epp_queue_depth", server.address()).await;
        assert_eq!(depth, waiting);
    }
    assert_eq!(scraped(&testbed, "error").await, 0);
}

/// Starts what serves `page` under `path`, and returns its port.
async fn exporter(path: &str, page: &'static str) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let port = listener.local_addr().expect("an address").port();
    let routes = Router::new().route(path, get(async move || page));
    tokio::spawn(async move { axum::serve(listener, routes).await });
    port
}

/// A copy of the pool's cluster, with the only server's address at `port`.
fn sibling(tree: &mut Value, name: &str, port: u16) {
    let clusters = &mut tree["static_resources"]["clusters"];
    let mut cluster = clusters[0].clone();
    cluster["name"] = json!(name);
    cluster["load_assignment"]["cluster_name"] = json!(name);
    let host = &mut cluster["load_assignment"]["endpoints"][0]["lb_endpoints"][0];
    host["endpoint"]["address"]["socket_address"]["port_value"] = json!(port);
    clusters.as_array_mut().expect("a list").push(cluster);
}

#[tokio::test]
async fn metrics_and_gpu_load_come_from_other_ports_and_paths() {
    let metrics = exporter("/m", "sglang:num_queue_reqs 4\nsglang:token_usage 0.5\n").await;
    let gpu = exporter("/metrics", "DCGM_FI_DEV_GPU_UTIL{gpu=\"0\"} 75\n").await;
    let testbed = Testbed::with_servers(1)
        .bootstrap(move |tree| {
            sibling(tree, "scrape", metrics);
            sibling(tree, "gpus", gpu);
        })
        .pool(move |pool| {
            pool["metrics"]["path"] = json!("/m");
            pool["metrics"]["cluster"] = json!("scrape");
            pool["metrics"]["port"] = json!(metrics);
            pool["metrics"]["gpuCluster"] = json!("gpus");
            pool["metrics"]["gpuPort"] = json!(gpu);
        })
        .start_unscraped()
        .await;
    let server = testbed.servers()[0].address();
    eventually("the other port's queue", async || {
        let depth = testbed.of_pod("epp_queue_depth", server).await;
        (depth == 4).then_some(())
    })
    .await;
    // Nothing cached: 0.20·(1 − 0.75) + 0.10·(1 − 4/20) + 0.05 + 0.05
    let number = Cell::new(0);
    eventually("the exporter's load", async || {
        let text = prompt(&format!("client {}", number.replace(number.get() + 1)), 600);
        let answer = testbed.complete(&text).await;
        (answer.score() == "0.2300").then_some(())
    })
    .await;
    assert_eq!(scrapes(&testbed.servers()[0]), 0);
}

#[tokio::test]
async fn a_server_that_does_not_answer_delays_no_other() {
    let testbed = Testbed::with_servers(3)
        .pool(|pool| pool["metrics"]["timeout"] = json!("20s"))
        .start()
        .await;
    let [frozen, others @ ..] = testbed.servers() else {
        panic!("three servers");
    };
    frozen.set_overrides(Overrides {
        hold: Hold::All,
        ..Overrides::default()
    });
    // The one that hangs, and perhaps one that had its answer just before.
    let before = scrapes(frozen);
    let reached: Vec<u64> = others.iter().map(|server| scrapes(server) + 10).collect();
    eventually("ten scrapes of the others", async || {
        let counts = others.iter().map(scrapes);
        counts
            .zip(&reached)
            .all(|(now, wanted)| now >= *wanted)
            .then_some(())
    })
    .await;
    assert!(scrapes(frozen) <= before + 2);
    for server in others {
        let health = testbed
            .of_pod("epp_pod_health_score", server.address())
            .await;
        assert_eq!(health, 100);
    }
}

#[tokio::test]
async fn a_scrape_that_hangs_is_given_up_and_tried_again() {
    let testbed = Testbed::with_servers(1)
        .pool(|pool| pool["metrics"]["timeout"] = json!("100ms"))
        .start()
        .await;
    testbed.servers()[0].set_overrides(frozen_metrics());
    eventually("three timeouts", async || {
        (scraped(&testbed, "timeout").await >= 3).then_some(())
    })
    .await;
    let good = scraped(&testbed, "ok").await;
    testbed.servers()[0].set_overrides(Overrides::default());
    eventually("a good scrape", async || {
        (scraped(&testbed, "ok").await > good).then_some(())
    })
    .await;
}

#[tokio::test]
async fn stale_metrics_lower_the_score_and_exclude_nobody() {
    let testbed = Testbed::with_servers(2)
        .pool(|pool| {
            pool["metrics"]["timeout"] = json!("100ms");
            pool["health"] = json!({ "staleAfter": 1, "staleFloor": 0.4 });
        })
        .start()
        .await;
    let text = prompt("stays", 2_000);
    let server = testbed.complete(&text).await.server();
    for server in testbed.servers() {
        server.set_overrides(frozen_metrics());
    }
    for server in testbed.servers() {
        eventually("the numbers to be stale", async || {
            let health = testbed
                .of_pod("epp_pod_health_score", server.address())
                .await;
            (health == 40).then_some(())
        })
        .await;
    }
    // 0.60 + 0.20 + 0.10 + 0.05·0.4 + 0.05
    let answer = eventually("the worker's numbers to be stale", async || {
        let answer = testbed.complete(&text).await;
        (answer.score() == "0.9700").then_some(answer)
    })
    .await;
    assert_eq!(answer.reason(), "picked");
    assert_eq!(answer.server(), server);
}

#[tokio::test]
async fn pages_that_hang_dawdle_or_are_garbage_cost_their_own_servers_only() {
    let testbed = Testbed::with_servers(4)
        .pool(|pool| {
            // Below minHealth: if age alone took anybody out, it would these.
            pool["health"] = json!({ "staleAfter": 9, "staleFloor": 0.1 });
        })
        .start()
        .await;
    // Each server holds a conversation.
    let mut held = vec![None; 4];
    let mut number = 0;
    while held.iter().any(Option::is_none) {
        number += 1;
        let text = prompt(&format!("conversation {number}"), 2_000);
        let server = testbed.index_of(testbed.complete(&text).await.server());
        held[server] = Some(text);
    }

    let [hangs, dawdles, garbles, well] = testbed.servers() else {
        panic!("four servers");
    };
    hangs.set_overrides(frozen_metrics());
    dawdles.set_overrides(Overrides {
        metrics_delay_ms: 5_000,
        ..Overrides::default()
    });
    garbles.set_overrides(Overrides {
        metrics: MetricsAnswer::RandomBytes,
        ..Overrides::default()
    });
    for server in [hangs, dawdles, garbles] {
        let pod = server.address();
        eventually("old numbers to count for little", async || {
            (testbed.of_pod("epp_pod_health_score", pod).await == 10).then_some(())
        })
        .await;
    }

    // The fourth is scored by what it says now.
    let pod = well.address();
    eventually("its numbers to be new", async || {
        (testbed.of_pod("epp_pod_health_score", pod).await == 100).then_some(())
    })
    .await;
    for (waiting, depth) in [(7.0, 7), (3.0, 3)] {
        well.set_overrides(Overrides {
            num_requests_waiting: Some(waiting),
            ..Overrides::default()
        });
        eventually("its queue", async || {
            (testbed.of_pod("epp_queue_depth", pod).await == depth).then_some(())
        })
        .await;
    }
    // And nobody is out: all are candidates, and each keeps what it holds.
    let candidates = testbed
        .metric("epp_candidate_pods", &[("pool", POOL)])
        .await;
    assert_eq!(candidates, Some(4));
    for (server, text) in testbed.servers().iter().zip(held) {
        let answer = testbed.complete(&text.expect("a conversation")).await;
        assert_eq!((answer.reason(), answer.cache_match()), ("picked", (8, 8)));
        assert_eq!(answer.server(), server.address());
    }
    testbed.assert_no_vm_lost().await;
}

#[tokio::test]
async fn a_pool_without_metrics_is_routed_by_prompt() {
    let testbed = Testbed::with_servers(4)
        .pool(|pool| pool["metrics"]["path"] = json!("/nowhere"))
        .start_unscraped()
        .await;
    for number in 0..10 {
        let text = prompt(&format!("client {number}"), 2_000);
        let first = testbed.complete(&text).await;
        assert_eq!(first.reason(), "picked");
        let next = testbed.complete(&format!("{text} and more")).await;
        assert_eq!(next.reason(), "picked");
        assert_eq!(next.server(), first.server());
        assert_eq!(next.cache_match(), (7, 8));
    }
    eventually("errors", async || {
        (scraped(&testbed, "error").await > 0).then_some(())
    })
    .await;
    assert_eq!(scraped(&testbed, "ok").await, 0);
}

#[tokio::test]
async fn a_page_that_is_no_metrics_page_is_counted_as_unreadable() {
    let testbed = Testbed::with_servers(1)
        .pool(|pool| pool["metrics"]["path"] = json!("/version"))
        .start_unscraped()
        .await;
    eventually("an unreadable page", async || {
        (scraped(&testbed, "unreadable").await > 0).then_some(())
    })
    .await;
    let answer = testbed.complete(&prompt("any", 600)).await;
    assert_eq!(answer.reason(), "picked");
}
