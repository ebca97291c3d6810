//! Endpoints from Envoy's own host list: they come and go with it, and what Envoy holds against one
//! takes it out of the running.

use std::net::{Ipv6Addr, SocketAddr};

use serde_json::{Value, json};
use wasm_test::sim::{Overrides, SimConfig, SimServer};
use wasm_test::testbed::{
    ADMIN_CLUSTER, AdminRelay, Answer, Host, HostFile, POOL, Setup, Testbed, eventually, prompt,
};

/// A testbed whose cluster has the hosts of a file, and whose pool follows Envoy's list of them.
struct Discovered {
    testbed: Testbed,
    hosts: HostFile,
    relay: AdminRelay,
}

/// Starts `setup` with no host in the list.
async fn discovered(setup: Setup, discovery: Value) -> Discovered {
    let hosts = HostFile::new(&[]);
    let relay = AdminRelay::start().await;
    let testbed = setup
        .cluster(hosts.cluster_patch())
        .bootstrap(relay.bootstrap_patch())
        .pool(move |pool| {
            pool["endpoints"] = json!([]);
            pool["discovery"] = discovery.clone();
        })
        .start_unscraped()
        .await;
    relay.lead_to(Some(testbed.envoy().admin_address()));
    Discovered {
        testbed,
        hosts,
        relay,
    }
}

fn admin() -> Value {
    json!({ "adminCluster": ADMIN_CLUSTER, "interval": "200ms" })
}

impl Discovered {
    /// The servers at `indices` as hosts.
    fn hosts_at(&self, indices: &[usize]) -> Vec<Host> {
        let address = |&index: &usize| self.testbed.servers()[index].address();
        indices.iter().map(address).map(Host::new).collect()
    }

    /// Makes `hosts` the list and waits until `candidates` of them may get requests.
    async fn list(&self, hosts: &[Host], candidates: u64) {
        self.hosts.write(hosts);
        self.candidates(candidates).await;
    }

    /// Waits until the module has logged `text`.
    async fn logged(&self, text: &str) {
        eventually(text, async || {
            self.testbed.envoy().log().contains(text).then_some(())
        })
        .await;
    }

    async fn candidates(&self, wanted: u64) {
        eventually(&format!("{wanted} candidates"), async || {
            let found = self.testbed.metric("epp_candidate_pods", &[]).await;
            (found == Some(wanted)).then_some(())
        })
        .await;
    }

    /// Where `count` prompts nobody has seen went, by server.
    async fn shares(&self, name: &str, count: usize) -> Vec<usize> {
        let prompts = (0..count).map(|number| prompt(&format!("{name} {number}"), 1_000));
        let answers: Vec<Answer> = self.testbed.complete_all(prompts).await;
        assert!(answers.iter().all(|answer| answer.status == 200));
        self.testbed.shares(&answers)
    }
}

#[tokio::test]
async fn endpoints_come_and_go_with_envoys_host_list() {
    let bed = discovered(Testbed::with_servers(3), admin()).await;
    bed.list(&bed.hosts_at(&[0, 1]), 2).await;
    let shares = bed.shares("two", 20).await;
    assert!(
        shares[0] > 0 && shares[1] > 0 && shares[2] == 0,
        "{shares:?}"
    );
    // A new one is not starved, one that is gone gets nothing, though both are well.
    bed.list(&bed.hosts_at(&[1, 2]), 2).await;
    let mut round = 0;
    eventually("the change to be seen", async || {
        round += 1;
        let shares = bed.shares(&format!("changed {round}"), 20).await;
        (shares[0] == 0 && shares[2] >= 4).then_some(())
    })
    .await;
    let log = bed.testbed.envoy().log();
    assert!(log.contains("1 joined, 1 left"), "{log}");
    let pod = bed.testbed.servers()[0].address();
    assert_eq!(bed.testbed.of_pod("epp_pod_health_score", pod).await, 0);
    bed.testbed.nothing_in_flight().await;
    bed.testbed.assert_no_vm_lost().await;
}

#[tokio::test]
async fn a_host_that_left_comes_back_with_an_empty_cache() {
    let bed = discovered(Testbed::with_servers(2), admin()).await;
    bed.list(&bed.hosts_at(&[0]), 1).await;
    let words = prompt("remembered", 2_000);
    bed.testbed.complete(&words).await;
    let again = bed.testbed.complete(&words).await;
    assert!(again.cache_match().0 > 0);
    bed.hosts.write(&bed.hosts_at(&[1]));
    bed.logged("1 joined, 1 left").await;
    bed.list(&bed.hosts_at(&[0, 1]), 2).await;
    let cold = bed.testbed.complete(&words).await;
    assert_eq!(cold.cache_match().0, 0);
}

#[tokio::test]
async fn a_failed_health_check_takes_a_host_out_although_the_policy_would_send_to_it() {
    let setup = Testbed::with_servers(2).cluster(|cluster| {
        cluster["health_checks"] = json!([{
            "timeout": "1s", "interval": "0.1s",
            "unhealthy_threshold": 1, "healthy_threshold": 1,
            "http_health_check": { "path": "/envoys-own-check" },
        }]);
    });
    let bed = discovered(setup, admin()).await;
    // The simulator has no such page, so nobody passes until it is one that exists.
    bed.list(&bed.hosts_at(&[0, 1]), 0).await;
    eventually("the worker to know that nobody is fit", async || {
        let answer = bed.testbed.complete(&prompt("nobody is fit", 500)).await;
        assert_eq!(answer.status, 200);
        (answer.reason() == "no_candidates").then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_host_whose_health_check_fails_gets_nothing_and_comes_back() {
    let setup = Testbed::with_servers(2).cluster(|cluster| {
        cluster["health_checks"] = json!([{
            "timeout": "1s", "interval": "0.1s", "no_traffic_interval": "0.1s",
            "unhealthy_threshold": 1, "healthy_threshold": 1,
            "http_health_check": { "path": "/health" },
        }]);
    });
    let bed = discovered(setup, admin()).await;
    bed.list(&bed.hosts_at(&[0, 1]), 2).await;
    let ill = &bed.testbed.servers()[0];
    let loading: Overrides = serde_json::from_value(json!({ "loading": "until_cleared" })).unwrap();
    ill.set_overrides(loading);
    bed.candidates(1).await;
    assert_eq!(bed.shares("one is ill", 20).await, [0, 20]);
    ill.set_overrides(Overrides::default());
    bed.candidates(2).await;
    let shares = bed.shares("both are well", 20).await;
    assert!(shares[0] >= 4, "{shares:?}");
}

#[tokio::test]
async fn an_ejected_host_gets_nothing_until_it_is_let_in_again() {
    let setup = Testbed::with_servers(2)
        .pool(|pool| pool["scoring"] = json!({ "minHealth": 0 }))
        .cluster(|cluster| {
            cluster["outlier_detection"] = json!({
                "consecutive_5xx": 3, "interval": "0.1s", "base_ejection_time": "2s",
                "max_ejection_percent": 50, "enforcing_consecutive_5xx": 100,
            });
        });
    let bed = discovered(setup, admin()).await;
    bed.list(&bed.hosts_at(&[0, 1]), 2).await;
    let ill = &bed.testbed.servers()[0];
    let failing: Overrides = serde_json::from_value(json!({ "fail": { "status": 500 } })).unwrap();
    ill.set_overrides(failing);
    let prompts = (0..20).map(|number| prompt(&format!("finding out {number}"), 1_000));
    bed.testbed.complete_all(prompts).await;
    bed.candidates(1).await;
    assert_eq!(bed.shares("ejected", 20).await[0], 0);
    ill.set_overrides(Overrides::default());
    bed.candidates(2).await;
    let shares = bed.shares("let in again", 20).await;
    assert!(shares[0] > 0, "{shares:?}");
}

#[tokio::test]
async fn a_draining_host_gets_nothing_and_the_next_priority_waits() {
    let bed = discovered(Testbed::with_servers(3), admin()).await;
    let mut hosts = bed.hosts_at(&[0, 1, 2]);
    hosts[0].health = "DRAINING";
    hosts[2].priority = 1;
    bed.list(&hosts, 1).await;
    assert_eq!(bed.shares("one drains, one waits", 20).await, [0, 20, 0]);
    hosts[1].health = "UNHEALTHY";
    bed.list(&hosts, 1).await;
    let mut round = 0;
    eventually("the next priority", async || {
        round += 1;
        let shares = bed.shares(&format!("the next priority {round}"), 20).await;
        (shares == [0, 0, 20]).then_some(())
    })
    .await;
}

#[tokio::test]
async fn hosts_with_ipv6_addresses_and_several_ports_are_endpoints_of_their_own() {
    let bed = discovered(Testbed::with_servers(2), admin()).await;
    let v6 = SocketAddr::from((Ipv6Addr::LOCALHOST, 0));
    let server = SimServer::start(SimConfig::default(), v6).await.unwrap();
    let mut hosts = bed.hosts_at(&[0, 1]);
    hosts.push(Host::new(server.address()));
    bed.list(&hosts, 3).await;
    eventually("the IPv6 host to be scraped", async || {
        (server.state().scrapes > 0).then_some(())
    })
    .await;
    let labels = [("pool", POOL), ("pod", &*server.address().to_string())];
    eventually("the IPv6 host to be picked", async || {
        let name = prompt(&format!("try {}", server.state().scrapes), 1_000);
        bed.testbed.complete(&name).await;
        let picks = bed.testbed.metric("epp_routing_decisions_total", &labels);
        picks.await.filter(|&picks| picks > 0)
    })
    .await;
}

#[tokio::test]
async fn without_admin_access_the_listed_endpoints_serve_and_one_warning_is_logged() {
    for admin_cluster in ["nobody-knows-it", ADMIN_CLUSTER] {
        let relay = AdminRelay::start().await;
        let testbed = Testbed::with_servers(2)
            .bootstrap(relay.bootstrap_patch())
            .pool(move |pool| {
                pool["discovery"] = json!({ "adminCluster": admin_cluster, "interval": "200ms" });
            })
            .start()
            .await;
        let answers = testbed
            .complete_all((0..20).map(|number| prompt(&format!("listed {number}"), 1_000)))
            .await;
        assert!(testbed.shares(&answers).iter().all(|&share| share > 0));
        assert!(answers.iter().all(|answer| answer.reason() == "picked"));
        let result = [("result", "error")];
        eventually("five readings that failed", async || {
            let count = testbed.metric("epp_discovery_total", &result).await;
            count.filter(|&count| count >= 5)
        })
        .await;
        let log = testbed.envoy().log();
        let warnings = log.matches("Envoy's host list cannot be read").count();
        assert_eq!(warnings, 1, "{admin_cluster}: {log}");
        assert!(log.contains(admin_cluster), "{log}");
    }
}

#[tokio::test]
async fn an_admin_interface_that_goes_away_leaves_the_endpoints_as_they_are() {
    let bed = discovered(Testbed::with_servers(2), admin()).await;
    bed.list(&bed.hosts_at(&[0, 1]), 2).await;
    bed.relay.lead_to(None);
    let failed = [("result", "error")];
    eventually("a reading that failed", async || {
        let count = bed.testbed.metric("epp_discovery_total", &failed).await;
        count.filter(|&count| count > 0)
    })
    .await;
    let shares = bed.shares("admin is gone", 20).await;
    assert!(shares.iter().all(|&share| share > 0), "{shares:?}");
    bed.relay.lead_to(Some(bed.testbed.envoy().admin_address()));
    bed.logged("Envoy's host list is back").await;
}

#[tokio::test]
async fn every_worker_follows_the_list() {
    let bed = discovered(Testbed::with_servers(3).workers(2), admin()).await;
    bed.list(&bed.hosts_at(&[0, 1]), 2).await;
    let mut round = 0;
    eventually("both workers to know them", async || {
        round += 1;
        let shares = bed.shares(&format!("two {round}"), 16).await;
        (shares[0] >= 4 && shares[1] >= 4).then_some(())
    })
    .await;
    bed.list(&bed.hosts_at(&[2]), 1).await;
    eventually("both workers to know the other", async || {
        round += 1;
        let shares = bed.shares(&format!("one {round}"), 16).await;
        (shares == [0, 0, 16]).then_some(())
    })
    .await;
}

#[tokio::test]
async fn the_hosts_of_all_sources_make_up_the_pool() {
    let discovery = json!({
        "adminCluster": ADMIN_CLUSTER, "interval": "200ms",
        "sources": [
            { "cluster": "model-servers", "labels": { "llm-d.ai/role": "both" } },
            { "cluster": "prefill", "labels": { "llm-d.ai/role": "prefill" } },
        ],
    });
    let setup = Testbed::with_servers(2);
    let bed = discovered(setup, discovery.clone()).await;
    // Envoy knows no cluster of the second name: the list is not taken over by halves.
    bed.hosts.write(&bed.hosts_at(&[0]));
    bed.logged("Envoy knows no cluster prefill").await;
    assert_eq!(bed.testbed.metric("epp_candidate_pods", &[]).await, Some(0));
    drop(bed);

    let second = HostFile::new(&[]);
    let patch = second.cluster_patch();
    let setup = Testbed::with_servers(2).bootstrap(move |tree| {
        let clusters = tree["static_resources"]["clusters"].as_array_mut().unwrap();
        let mut prefill = clusters[0].clone();
        prefill["name"] = json!("prefill");
        patch(&mut prefill);
        clusters.push(prefill);
    });
    let bed = discovered(setup, discovery).await;
    second.write(&bed.hosts_at(&[1]));
    bed.list(&bed.hosts_at(&[0]), 2).await;
}
