//! VMs that are lost, and configurations that change, while others know what was known.

use std::time::{Duration, Instant};

use reqwest::Client;
use serde_json::{Value, json};
use tempfile::TempDir;
use wasm_test::envoy::VmReloads;
use wasm_test::sim::SimServer;
use wasm_test::testbed::{
    Answer, COMPLETIONS, Setup, SlowServer, Testbed, completion, eventually, prompt,
};

/// The scrape interval of the testbed.
const INTERVAL: Duration = Duration::from_millis(200);

/// Ends the VM of the worker that gets it.
async fn trap(testbed: &Testbed) {
    let client = Client::builder().pool_max_idle_per_host(0).build().unwrap();
    let request = client
        .post(format!("{}{COMPLETIONS}", testbed.envoy().url()))
        .header("x-epp-trap", "now")
        .body(completion("a last request").to_string());
    // Its own stream goes with the VM.
    let _ = request.send().await;
}

/// Predicted hit ratio over `prompts`.
async fn predicted(testbed: &Testbed, prompts: &[String]) -> f64 {
    let mut sums = (0, 0);
    for words in prompts {
        let answer = testbed.complete_anew(words).await;
        assert_eq!(answer.status, 200);
        let (matched, blocks) = answer.cache_match();
        sums = (sums.0 + matched, sums.1 + blocks);
    }
    f64::from(sums.0) / f64::from(sums.1)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_vm_that_was_lost_knows_again_ten_times_what_the_ring_holds() {
    let testbed = Testbed::with_servers(2)
        .workers(1)
        .switchable()
        .plugin(|plugin| plugin["limits"] = json!({ "logSlots": 256 }))
        .start()
        .await;
    let prompts: Vec<String> = (0..300)
        .map(|number| prompt(&format!("known {number}"), 2_560))
        .collect();
    predicted(&testbed, &prompts).await;
    let before = predicted(&testbed, &prompts).await;
    assert!(before > 0.99, "{before}");
    let indexed = testbed.metric("epp_prefix_tree_nodes", &[]).await;
    assert!(indexed.unwrap() >= 2_560, "{indexed:?}");
    trap(&testbed).await;
    // The next request loads another VM; it learns with its ticks.
    testbed.complete_anew("who are you?").await;
    let since = Instant::now();
    let mut after = 0.0;
    while since.elapsed() < Duration::from_secs(20) && after < before - 0.01 {
        tokio::time::sleep(INTERVAL).await;
        after = predicted(&testbed, &prompts[..50]).await;
    }
    println!(
        "predicted {before:.3} before, {after:.3} after {:?}",
        since.elapsed()
    );
    let after = predicted(&testbed, &prompts[50..]).await;
    assert!(after >= before - 0.01, "{before} before, {after} after");
    assert!(testbed.envoy().vm_reloads().await.unwrap().success >= 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_in_flight_at_a_lost_vm_ends() {
    let testbed = Testbed::with_servers(0)
        .further_endpoint(SlowServer::start().await.address())
        .workers(1)
        .switchable()
        .start()
        .await;
    let open: Vec<_> = (0..5)
        .map(|number| {
            let url = format!("{}/v1/chat/completions", testbed.envoy().url());
            let body = json!({ "model": "m", "messages": [
                { "role": "user", "content": format!("never answered {number}") }] });
            tokio::spawn(Client::new().post(url).body(body.to_string()).send())
        })
        .collect();
    let in_flight = async || testbed.metric("epp_inflight_requests", &[]).await;
    eventually("five in flight", async || {
        (in_flight().await == Some(5)).then_some(())
    })
    .await;
    trap(&testbed).await;
    testbed.complete_anew("who are you?").await;
    // Nobody but time tells: the VM is not heard of for twenty seconds.
    eventually("none in flight", async || {
        (in_flight().await == Some(0)).then_some(())
    })
    .await;
    for request in open {
        let _ = request.await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_vm_scrapes_when_the_leader_is_lost_the_main_threads_included() {
    for after_requests in [false, true] {
        let server = SlowServer::start().await;
        let testbed = Testbed::with_servers(0)
            .further_endpoint(server.address())
            .workers(2)
            .switchable()
            .start()
            .await;
        if after_requests {
            for number in 0..8 {
                testbed.complete_anew(&format!("{number}")).await;
            }
            tokio::time::sleep(INTERVAL * 3).await;
        }
        for _ in 0..2 {
            server.trap_next_scraper();
            eventually("the page to be read", async || {
                server.has_trapped().then_some(())
            })
            .await;
            let since = Instant::now();
            let scrapes = server.scrapes();
            eventually("another scrape", async || {
                (server.scrapes() > scrapes).then_some(())
            })
            .await;
            // Three intervals, and what a busy machine adds.
            let took = since.elapsed();
            println!("after requests {after_requests}: another VM scraped after {took:?}");
            assert!(took < INTERVAL * 4, "{took:?}");
        }
    }
}

/// Moves the module's filter to a file that Envoy watches.
struct Dynamic {
    folder: TempDir,
}

const FILTER: &str = "inline-epp";

impl Dynamic {
    fn new() -> Self {
        Self {
            folder: tempfile::tempdir().unwrap(),
        }
    }

    fn patch(&self) -> impl Fn(&mut Value) + Send + Sync + 'static {
        let folder = self.folder.path().to_owned();
        move |manager| {
            let filter = &mut manager["http_filters"][0];
            let config = filter["typed_config"].take();
            write(&folder, &config);
            *filter = json!({
                "name": FILTER,
                "config_discovery": {
                    "type_urls": ["type.googleapis.com/envoy.extensions.filters.http.wasm.v3.Wasm"],
                    "config_source": {
                        "resource_api_version": "V3",
                        "path_config_source": {
                            "path": folder.join("filter.json"),
                            "watched_directory": { "path": folder },
                        },
                    },
                },
            });
        }
    }

    /// Changes the plugin configuration.
    fn update(&self, change: impl Fn(&mut Value)) {
        let text = std::fs::read_to_string(self.folder.path().join("filter.json")).unwrap();
        let mut response: Value = serde_json::from_str(&text).unwrap();
        let mut config = response["resources"][0]["typed_config"].take();
        change(&mut config["config"]["configuration"]["value"]);
        write(self.folder.path(), &config);
    }
}

fn write(folder: &std::path::Path, config: &Value) {
    let response = json!({ "resources": [{
        "@type": "type.googleapis.com/envoy.config.core.v3.TypedExtensionConfig",
        "name": FILTER,
        "typed_config": config,
    }] });
    std::fs::write(folder.join("next.json"), response.to_string()).unwrap();
    std::fs::rename(folder.join("next.json"), folder.join("filter.json")).unwrap();
}

fn dynamic(setup: Setup, filter: &Dynamic) -> Setup {
    setup
        .bootstrap(|tree| tree["node"] = json!({ "id": "test", "cluster": "test" }))
        .connection_manager(filter.patch())
}

/// Waits for `count` configurations of each VM.
async fn configured(testbed: &Testbed, count: usize) {
    eventually(&format!("configuration {count}"), async || {
        let log = testbed.envoy().log();
        (log.matches("inline-epp 0.1.0 pools").count() >= count).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_changed_configuration_keeps_what_is_known_of_its_pools() {
    let filter = Dynamic::new();
    let testbed = dynamic(Testbed::with_servers(3).workers(2), &filter)
        .start()
        .await;
    let words = prompt("before the change", 2_560);
    testbed.complete_anew(&words).await;
    let before: Answer = testbed.complete_anew(&words).await;
    assert_eq!(before.cache_match(), (10, 10));
    let configurations = testbed
        .envoy()
        .log()
        .matches("inline-epp 0.1.0 pools")
        .count();
    filter.update(|plugin| plugin["pools"][0]["scoring"] = json!({ "weights": { "cache": 0.7 } }));
    configured(&testbed, configurations + 2).await;
    let after = testbed.complete_anew(&words).await;
    assert_eq!(after.cache_match(), (10, 10));
    assert_eq!(after.server(), before.server());
    // One endpoint less: what is known of the others stays.
    let mut addresses = testbed.servers().iter().map(SimServer::address);
    let gone = addresses.find(|&address| address != after.server());
    let gone = gone.unwrap();
    let configurations = testbed
        .envoy()
        .log()
        .matches("inline-epp 0.1.0 pools")
        .count();
    filter.update(move |plugin| {
        let endpoints = plugin["pools"][0]["endpoints"].as_array_mut().unwrap();
        endpoints.retain(|endpoint| *endpoint != json!(gone.to_string()));
    });
    configured(&testbed, configurations + 2).await;
    assert_eq!(testbed.complete_anew(&words).await.cache_match(), (10, 10));
    // Another pool beside it, with which it shares the index's memory.
    let configurations = testbed
        .envoy()
        .log()
        .matches("inline-epp 0.1.0 pools")
        .count();
    filter.update(|plugin| {
        let mut second = plugin["pools"][0].clone();
        second["name"] = json!("second");
        second["match"] = json!({ "hosts": ["nobody.example"] });
        plugin["pools"].as_array_mut().unwrap().push(second);
    });
    configured(&testbed, configurations + 2).await;
    assert_eq!(testbed.complete_anew(&words).await.cache_match(), (10, 10));
    assert_eq!(
        testbed.envoy().vm_reloads().await.unwrap(),
        VmReloads::default()
    );
}

/// Resident memory of Envoy in KiB.
fn resident(testbed: &Testbed) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", testbed.envoy().pid()));
    let status = status.expect("Envoy runs");
    let line = status.lines().find(|line| line.starts_with("VmRSS:"));
    let kib = line.and_then(|line| line.split_whitespace().nth(1));
    kib.and_then(|kib| kib.parse().ok()).expect("a number")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fifty_configuration_updates_take_no_memory() {
    let filter = Dynamic::new();
    let testbed = dynamic(Testbed::with_servers(2).workers(2), &filter)
        .start()
        .await;
    let mut sizes = Vec::new();
    for update in 1..=50_u32 {
        let configurations = testbed
            .envoy()
            .log()
            .matches("inline-epp 0.1.0 pools")
            .count();
        filter.update(move |plugin| {
            plugin["pools"][0]["scoring"] = json!({ "maxQueue": 20 + update });
        });
        configured(&testbed, configurations + 2).await;
        testbed
            .complete_anew(&prompt(&format!("update {update}"), 1_000))
            .await;
        sizes.push(resident(&testbed));
    }
    let (early, late) = (sizes[24], sizes[49]);
    println!("resident after 25 updates {early} KiB, after 50 {late} KiB");
    // A configuration is some kilobytes, an index that stayed behind would be megabytes.
    assert!(late < early + 8 * 1024, "{sizes:?}");
    assert_eq!(
        testbed.envoy().vm_reloads().await.unwrap(),
        VmReloads::default()
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn listeners_with_pools_of_their_own_are_all_scraped() {
    let testbed = Testbed::with_servers(2)
        .bootstrap(|tree| {
            let listeners = tree["static_resources"]["listeners"]
                .as_array_mut()
                .unwrap();
            let mut second = listeners[0].clone();
            second["name"] = json!("second");
            let manager = &mut second["filter_chains"][0]["filters"][0]["typed_config"];
            let filter = &mut manager["http_filters"][0]["typed_config"]["config"];
            filter["configuration"]["value"]["pools"][0]["name"] = json!("second");
            listeners.push(second);
        })
        .start()
        .await;
    // One configuration came after the other; neither takes the other's place.
    for pool in ["llama", "second"] {
        let labels = [("pool", pool), ("result", "ok")];
        let count = async || {
            testbed
                .metric("epp_scrapes_total", &labels)
                .await
                .unwrap_or(0)
        };
        let before = count().await;
        eventually(&format!("scrapes of {pool}"), async || {
            (count().await >= before + 10).then_some(())
        })
        .await;
    }
}
