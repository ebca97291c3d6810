//! Picks that Envoy's `stateful_session` filter obeys, before a cluster with a plain round-robin
//! policy.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use wasm_test::sim::{Overrides, Preset, SimConfig, SimServer, Span};
use wasm_test::testbed::{
    Answer, COMPLETIONS, Host, HostFile, POOL, Setup, Testbed, completion, eventually, prompt,
};

const FILE: &str = "envoy/stateful-session.yaml";
const HEADER: &str = "x-gateway-destination-endpoint";
/// The filter's place behind the module.
const SESSION_FILTER: usize = 1;

fn with_servers(count: usize) -> Setup {
    Testbed::with_servers(count).file(FILE)
}

/// `address` as a client that knows the scheme writes it.
fn session_of(address: SocketAddr) -> &'static str {
    // 127.0.0.1:1 and no other: nobody listens there, and no cluster has it.
    assert_eq!(address, SocketAddr::from((Ipv4Addr::LOCALHOST, 1)));
    "MTI3LjAuMC4xOjE="
}

#[track_caller]
fn keeps_its_session_inside(answer: &Answer) {
    assert_eq!(answer.header(HEADER), None, "{answer:?}");
    assert!(!answer.headers_seen().contains(&HEADER), "{answer:?}");
}

#[tokio::test]
async fn picks_are_obeyed_by_a_cluster_without_the_override_host_policy() {
    let testbed = with_servers(4).workers(2).start().await;
    let prompts: Vec<String> = (0..12)
        .map(|number| prompt(&format!("session {number}"), 2_560))
        .collect();
    let mut first = Vec::new();
    for words in &prompts {
        let answer = testbed.complete_anew(words).await;
        assert_eq!(answer.server(), answer.picked());
        keeps_its_session_inside(&answer);
        first.push(answer.server());
    }
    let shares: Vec<_> = testbed
        .servers()
        .iter()
        .map(|server| first.iter().filter(|one| **one == server.address()).count())
        .collect();
    assert!(shares.iter().filter(|count| **count > 0).count() >= 2);
    // Another order than round robin's.
    for (words, server) in prompts.iter().zip(&first).rev() {
        let answer = testbed.complete_anew(words).await;
        assert_eq!((answer.server(), answer.picked()), (*server, *server));
        assert_eq!(answer.cache_match(), (10, 10));
        keeps_its_session_inside(&answer);
    }
    assert_eq!(testbed.decisions().await, 24);
    testbed.nothing_in_flight().await;
    testbed.assert_no_vm_lost().await;
}

#[tokio::test]
async fn each_scrape_reaches_its_server_through_a_cluster_of_its_own() {
    let testbed = with_servers(4).start().await;
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
    // So do questions after readiness.
    let sick = testbed.servers()[2].address();
    testbed.servers()[2].set_overrides(Overrides {
        loading: Span::UntilCleared,
        ..Overrides::default()
    });
    eventually("three candidates", async || {
        let candidates = testbed.metric("epp_candidate_pods", &[]).await;
        (candidates == Some(3)).then_some(())
    })
    .await;
    let log = testbed.envoy().log();
    assert!(log.contains(&format!("pod={sick} is not used")), "{log}");
}

#[tokio::test]
async fn without_a_cluster_that_leads_to_one_endpoint_nothing_is_read_and_a_line_says_so() {
    let testbed = with_servers(2)
        .pool(|pool| pool["metrics"]["cluster"] = Value::Null)
        .start_unscraped()
        .await;
    let log = testbed.envoy().log();
    let line = "pools[0].metrics.cluster: pool llama: absent, so no metrics are read";
    assert!(log.contains(line), "{log}");
    // Affinity needs none.
    let words = prompt("blind", 2_560);
    let first = testbed.complete(&words).await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    let again = testbed.complete(&words).await;
    assert_eq!(again.server(), first.server());
    assert_eq!(again.cache_match(), (10, 10));
    let scrapes = testbed.metric("epp_scrapes_total", &[("pool", POOL)]).await;
    assert_eq!(scrapes, Some(0));
    for server in testbed.servers() {
        assert_eq!(server.state().scrapes, 0);
    }
}

#[tokio::test]
async fn a_session_that_a_client_sends_steers_nothing() {
    let strict = |manager: &mut Value| {
        manager["http_filters"][SESSION_FILTER]["typed_config"]["strict"] = json!(true);
    };
    let testbed = with_servers(2)
        .pool(|pool| pool["match"]["models"] = json!(["sim-model"]))
        .connection_manager(strict)
        .start()
        .await;
    let forged = session_of(SocketAddr::from((Ipv4Addr::LOCALHOST, 1)));
    // A session that the filter reads and the cluster does not have is an error.
    let steered = testbed
        .request(Method::GET, "/elsewhere")
        .header(HEADER, forged);
    let steered = Answer::to(steered).await;
    assert_eq!(steered.status, StatusCode::SERVICE_UNAVAILABLE);
    let ours = completion("mine").to_string();
    let not_ours = ours.replace("sim-model", "another");
    for (body, is_ours) in [(ours, true), (not_ours, false)] {
        let request = testbed.post(COMPLETIONS, body).header(HEADER, forged);
        let answer = Answer::to(request).await;
        // The server does not have the other model, but a server it is.
        assert_eq!(answer.status == 200, is_ours, "{answer:?}");
        assert!(testbed.index_of(answer.server()) < 2);
        keeps_its_session_inside(&answer);
    }
    // No body is read, so the pick is by load.
    let request = testbed.request(Method::GET, "/v1/models");
    let answer = Answer::to(request.header(HEADER, forged)).await;
    assert_eq!((answer.status.as_u16(), answer.reason()), (200, "no_body"));
    assert_eq!(answer.server(), answer.picked());
    keeps_its_session_inside(&answer);
}

/// Two servers, one of which Envoy comes to think is down while the module does not know.
struct HalfDown {
    testbed: Testbed,
    /// What was asked of it before.
    words: String,
    down: SocketAddr,
}

async fn half_down(is_strict: bool) -> HalfDown {
    let hosts = HostFile::new(&[]);
    let testbed = with_servers(2)
        .bootstrap(|tree| tree["node"] = json!({ "id": "test", "cluster": "test" }))
        .cluster(hosts.cluster_patch())
        .connection_manager(move |manager| {
            let filter = &mut manager["http_filters"][SESSION_FILTER];
            filter["typed_config"]["strict"] = json!(is_strict);
        })
        .start()
        .await;
    let all: Vec<Host> = testbed
        .servers()
        .iter()
        .map(|one| Host::new(one.address()))
        .collect();
    hosts.write(&all);
    let words = prompt("loyal", 2_560);
    let first = eventually("hosts in the cluster", async || {
        let answer = testbed.complete(&words).await;
        (answer.status == 200).then_some(answer)
    })
    .await;
    // Failures before the cluster had hosts are forgotten.
    let warm = eventually("both in use", async || {
        let answer = testbed.complete(&words).await;
        let candidates = testbed.metric("epp_candidate_pods", &[]).await;
        (answer.cache_match() == (10, 10) && candidates == Some(2)).then_some(answer)
    })
    .await;
    drop(first);
    let down = warm.server();
    let unhealthy = all.into_iter().map(|host| Host {
        health: if host.address == down {
            "UNHEALTHY"
        } else {
            "HEALTHY"
        },
        ..host
    });
    hosts.write(&unhealthy.collect::<Vec<_>>());
    eventually("the change to be seen", async || {
        let clusters = testbed.envoy().admin_get("/clusters").await.unwrap();
        clusters
            .contains(&format!("{down}::health_flags::/failed_eds_health"))
            .then_some(())
    })
    .await;
    // The file is of no use any more, and Envoy only watches it.
    drop(hosts);
    HalfDown {
        testbed,
        words,
        down,
    }
}

#[tokio::test]
async fn a_pick_that_envoy_thinks_is_down_goes_elsewhere() {
    let HalfDown {
        testbed,
        words,
        down,
    } = half_down(false).await;
    let answer = testbed.complete(&words).await;
    assert_eq!(answer.status, 200);
    assert_eq!(answer.picked(), down);
    assert_ne!(answer.server(), down);
    keeps_its_session_inside(&answer);
    let log = testbed.envoy().log();
    let line = format!("pod={down}: Envoy sent its request elsewhere");
    assert_eq!(log.matches(&line).count(), 1, "{log}");
    assert!(
        log.contains("is a stateful_session filter behind this one?"),
        "{log}"
    );
    // What it holds now, it holds where it was served.
    let answer = testbed.complete(&words).await;
    assert_eq!((answer.status.as_u16(), answer.cache_match().0), (200, 10));
    testbed.nothing_in_flight().await;
    testbed.assert_no_vm_lost().await;
}

#[tokio::test]
async fn a_strict_session_costs_503_until_the_endpoint_is_left_out() {
    let HalfDown {
        testbed,
        words,
        down,
    } = half_down(true).await;
    let mut refused = 0;
    let served = loop {
        let answer = testbed.complete(&words).await;
        assert_eq!(answer.header(HEADER), None);
        if answer.status == 200 {
            break answer;
        }
        assert_eq!(answer.status, StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(answer.picked(), down);
        refused += 1;
        assert!(refused < 20, "never left out");
    };
    assert!(refused > 0);
    assert_ne!(served.server(), down);
    assert_eq!(served.picked(), served.server());
    testbed.nothing_in_flight().await;
    testbed.assert_no_vm_lost().await;
}

#[tokio::test]
async fn a_retry_goes_where_the_cluster_says_and_counts_there() {
    let testbed = with_servers(3).start().await;
    let words = prompt("retried", 2_560);
    testbed.complete(&words).await;
    let failing = testbed.complete(&words).await.server();
    let fails: Overrides = serde_json::from_value(json!({ "fail": { "status": 503 } })).unwrap();
    testbed.servers()[testbed.index_of(failing)].set_overrides(fails);
    let answer = testbed.complete(&words).await;
    assert_eq!((answer.status.as_u16(), answer.picked()), (200, failing));
    let served = answer.server();
    assert_ne!(served, failing);
    keeps_its_session_inside(&answer);
    // Its blocks moved with it: two hold the prompt, and one of them failed.
    let again = testbed.complete(&words).await;
    assert_eq!((again.server(), again.cache_match()), (served, (10, 10)));
    let retries = "cluster.model-servers.upstream_rq_retry";
    assert_eq!(testbed.envoy().counter(retries).await.unwrap(), 1);
    let log = testbed.envoy().log();
    assert!(!log.contains("Envoy sent its request elsewhere"), "{log}");
    testbed.nothing_in_flight().await;
}

#[tokio::test]
async fn an_ipv6_endpoint_is_found_by_its_session() {
    let any = SocketAddr::from((Ipv6Addr::LOCALHOST, 0));
    let config = SimConfig {
        preset: Preset::Instant,
        ..SimConfig::default()
    };
    let server = SimServer::start(config, any).await.unwrap();
    let setup = with_servers(2).further_endpoint(server.address());
    let testbed = setup.start_unscraped().await;
    let mut found = 0;
    for number in 0..30 {
        let answer = testbed
            .complete(&prompt(&format!("v6 {number}"), 300))
            .await;
        assert_eq!(answer.server(), answer.picked());
        found += u32::from(answer.server() == server.address());
        if found == 2 {
            break;
        }
    }
    assert_eq!(found, 2, "never picked");
    let log = testbed.envoy().log();
    assert!(!log.contains("Envoy sent its request elsewhere"), "{log}");
}

#[tokio::test]
async fn with_no_endpoint_to_name_the_cluster_chooses_and_the_client_learns_nothing() {
    let testbed = with_servers(2)
        .pool(|pool| {
            pool["endpoints"] = json!([]);
            pool["discovery"] = json!({ "adminCluster": "model-server-metrics" });
        })
        .start_unscraped()
        .await;
    let mut served = std::collections::BTreeSet::new();
    for number in 0..4 {
        let answer = testbed.complete(&format!("nobody {number}")).await;
        assert_eq!(
            (answer.status.as_u16(), answer.reason()),
            (200, "no_endpoints")
        );
        keeps_its_session_inside(&answer);
        served.insert(answer.server());
    }
    assert_eq!(served.len(), 2, "round robin");
}

/// Without our stripping, the filter would tell.
#[tokio::test]
async fn the_filter_itself_would_tell_the_client_who_served() {
    let testbed = with_servers(1)
        .pool(|pool| pool["match"]["pathPrefix"] = json!("/v1"))
        .start()
        .await;
    let answer = Answer::to(testbed.request(Method::GET, "/version")).await;
    assert!(answer.header(HEADER).is_some(), "{answer:?}");
}
