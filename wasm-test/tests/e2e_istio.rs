//! The Istio manifests, applied as istiod applies them, in a real Envoy shaped as Istio's gateways.

use std::collections::BTreeSet;

use mesh::{Mesh, PICK, envoy, gateway, tune};
use serde_json::{Value, json};
use wasm_test::istio::{Delivery, EnvoyFilter};
use wasm_test::sim::SimServer;
use wasm_test::testbed::{Answer, COMPLETIONS, completion, prompt};

#[path = "istio/manifests.rs"]
mod manifests;
#[path = "istio/mesh.rs"]
mod mesh;

const BODY_AWARE: [&str; 2] = ["cluster-policy.yaml", "filter.yaml"];
const HEADERS_ONLY: [&str; 2] = ["cluster-policy.yaml", "wasmplugin.yaml"];
const SESSION: [&str; 1] = ["persistent-session.yaml"];

/// What istiod adds for the Service's label: an empty session filter last, and each route's header.
fn persistent_session(tree: &mut Value) {
    const FILTER: &str = "envoy.filters.http.stateful_session";
    const TYPES: &str = "type.googleapis.com/envoy.extensions";
    let labels = &manifests::documents(SESSION[0])[0]["metadata"]["labels"];
    let header = labels["istio.io/persistent-session-header"].clone();
    let chain = &mut tree["static_resources"]["listeners"][0]["filter_chains"][0];
    let manager = &mut chain["filters"][0]["typed_config"];
    let filters = manager["http_filters"].as_array_mut().unwrap();
    let session = json!({ "name": FILTER, "typed_config": {
        "@type": format!("{TYPES}.filters.http.stateful_session.v3.StatefulSession") } });
    filters.insert(filters.len() - 1, session);
    let route = &mut manager["route_config"]["virtual_hosts"][0]["routes"][0];
    route["request_headers_to_remove"] = json!([PICK]);
    route["typed_per_filter_config"][FILTER] = json!({
        "@type": format!("{TYPES}.filters.http.stateful_session.v3.StatefulSessionPerRoute"),
        "stateful_session": { "session_state": {
            "name": "envoy.http.stateful_session.header",
            "typed_config": {
                "@type": format!("{TYPES}.http.stateful_session.header.v3.HeaderBasedSessionState"),
                "name": header,
            },
        } },
    });
}

#[tokio::test]
async fn envoy_accepts_what_each_set_of_manifests_makes_of_a_gateway() {
    for files in [&BODY_AWARE[..], &HEADERS_ONLY] {
        let envoy = envoy(gateway(files, |_| {}), &Delivery::Inline, |_| {});
        envoy
            .validate()
            .await
            .unwrap_or_else(|error| panic!("{files:?}: {error}"));
    }
    let envoy = envoy(
        gateway(&SESSION, |_| {}),
        &Delivery::Inline,
        persistent_session,
    );
    envoy
        .validate()
        .await
        .expect("valid with persistent sessions");
}

/// Istio 1.27's Envoy has no limit of a virtual host; the README gives a patch of the listener instead.
#[tokio::test]
async fn the_patch_for_an_older_istio_raises_the_limit_as_well() {
    let readme = std::fs::read_to_string(manifests::root().join("README.md")).unwrap();
    let from = readme.find("- applyTo: LISTENER").expect("the patch");
    let text = readme[from..].split("```").next().unwrap();
    let patch: Vec<Value> = serde_saphyr::from_str(text).unwrap();
    for (patch, refused) in [(Some(&patch[0]), false), (None, true)] {
        let mut filter = manifests::documents("filter.yaml").remove(0);
        let patches = filter["spec"]["configPatches"].as_array_mut().unwrap();
        patches.retain(|one| one["applyTo"] != "VIRTUAL_HOST");
        patches.extend(patch.cloned());
        let mut gateway = gateway(&BODY_AWARE[..1], |_| {});
        EnvoyFilter::apply(&filter, &mut gateway).unwrap();
        gateway
            .plugins_mut()
            .for_each(|plugin| tune(&mut plugin["configuration"]["value"]));
        let mesh = Mesh::of(1, gateway, |_| {}).await;
        mesh.discovered(1).await;

        // Announced by no length, as the module lets pass what it knows to be too long.
        let body = completion(&prompt("long", 3_000_000)).to_string();
        let pieces = futures_util::stream::iter([Ok::<_, std::io::Error>(body)]);
        let url = format!("{}{COMPLETIONS}", mesh.envoy.url());
        let request = reqwest::Client::new()
            .post(url)
            .header("content-type", "application/json");
        let answer = Answer::to(request.body(reqwest::Body::wrap_stream(pieces))).await;

        assert_eq!(answer.status.as_u16() == 413, refused, "{}", answer.status);
        assert_eq!(answer.header("x-sim-server").is_none(), refused);
    }
}

#[tokio::test]
async fn what_envoy_would_refuse_is_refused_in_this_shape_too() {
    let typo = |configuration: &mut Value| configuration["pols"] = json!([]);
    let refused = envoy(gateway(&BODY_AWARE, typo), &Delivery::Inline, |_| {});
    let error = refused.validate().await.expect_err("an unknown key");
    assert!(error.log().contains("pols"), "{error}");
    let broken = |tree: &mut Value| {
        tree["static_resources"]["clusters"][1]["load_balancing_policy"]["policies"][0]["nonsense"] =
            json!(1);
    };
    let refused = envoy(gateway(&BODY_AWARE, |_| {}), &Delivery::Inline, broken);
    let error = refused.validate().await.expect_err("an unknown field");
    assert!(error.log().contains("nonsense"), "{error}");
}

#[tokio::test]
async fn the_envoy_filters_route_by_prompt() {
    let mesh = Mesh::start(3, &BODY_AWARE, |_| {}).await;
    let opening = prompt("a conversation in the mesh", 20_000);

    let first = mesh.complete(&opening).await;
    let mut served = BTreeSet::new();
    for turn in 0..12 {
        let next = mesh.complete(&format!("{opening} and turn {turn}")).await;
        assert_eq!((next.status.as_u16(), next.reason()), (200, "picked"));
        let (matched, total) = next.cache_match();
        assert!(matched + 2 >= total, "{matched} of {total}");
        assert_eq!(next.picked(), next.server());
        assert_eq!(next.header(PICK), None);
        assert!(next.header("x-request-id").is_some());
        served.insert(next.server());
    }

    assert_eq!(served, BTreeSet::from([first.server()]));
    let seen: Vec<_> = mesh.servers.iter().flat_map(SimServer::log).collect();
    assert!(seen.iter().any(|entry| entry.path == COMPLETIONS));
    assert!(
        seen.iter()
            .all(|entry| !entry.headers.iter().any(|name| name == PICK))
    );
    // Longer than Envoy holds without the virtual host's limit; that it is too long for the model is the server's to say.
    let long = mesh.complete(&prompt("long", 3_000_000)).await;
    assert_eq!((long.picked(), long.reason()), (long.server(), "picked"));
    assert_ne!(long.status.as_u16(), 413);
    // No worker lost sight of another.
    assert_eq!(
        mesh.metric("epp_replica_gap_total", &[]).await.unwrap_or(0),
        0
    );
    // The labels come from the bootstrap override.
    let pod = first.server().to_string();
    let labels = [("pool", "vllm"), ("model", "sim-model"), ("pod", &*pod)];
    let count = mesh.metric("epp_routing_decisions_total", &labels).await;
    assert!(count >= Some(13), "{count:?}");
}

#[tokio::test]
async fn a_server_that_refuses_costs_a_retry_at_the_next_best() {
    let mut mesh = Mesh::start(3, &BODY_AWARE, |_| {}).await;
    let opening = prompt("a conversation whose server goes away", 4_000);
    let first = mesh.complete(&opening).await.server();
    mesh.servers.retain(|server| server.address() != first);
    for turn in 0..6 {
        let next = mesh.complete(&format!("{opening} and turn {turn}")).await;
        assert_eq!(next.status.as_u16(), 200);
        assert_ne!(next.server(), first);
    }
}

#[tokio::test]
async fn the_wasm_plugin_routes_by_load_and_the_pick_is_followed() {
    let mesh = Mesh::start(3, &HEADERS_ONLY, |_| {}).await;
    let mut served = BTreeSet::new();
    for number in 0..24 {
        let answer = mesh
            .complete(&prompt(&format!("number {number}"), 2_000))
            .await;
        assert_eq!(
            (answer.status.as_u16(), answer.reason()),
            (200, "headers_only")
        );
        assert_eq!(answer.picked(), answer.server());
        served.insert(answer.server());
    }
    assert_eq!(served.len(), 3);
    let labels = [("pool", "vllm"), ("reason", "headers_only")];
    assert_eq!(mesh.metric("epp_fallback_total", &labels).await, Some(24));
    assert_eq!(
        mesh.metric("epp_routing_decisions_total", &[])
            .await
            .unwrap_or(0),
        0
    );
}

#[tokio::test]
async fn the_persistent_session_carries_the_pick_without_an_envoy_filter() {
    let mesh = Mesh::start(3, &SESSION, persistent_session).await;
    let mut served = BTreeSet::new();
    for number in 0..24 {
        let answer = mesh
            .complete(&prompt(&format!("number {number}"), 2_000))
            .await;
        assert_eq!(
            (answer.status.as_u16(), answer.reason()),
            (200, "headers_only")
        );
        assert_eq!(answer.picked(), answer.server());
        assert_eq!(answer.header(PICK), None);
        served.insert(answer.server());
    }
    assert_eq!(served.len(), 3);
}

#[test]
fn a_patch_that_is_not_understood_or_fits_nothing_is_an_error() {
    let filter = manifests::documents("filter.yaml").remove(0);
    let refused = |change: &dyn Fn(&mut Value)| {
        let mut filter = filter.clone();
        change(&mut filter["spec"]["configPatches"]);
        let mut gateway = gateway(&["cluster-policy.yaml"], |_| {});
        EnvoyFilter::apply(&filter, &mut gateway)
            .expect_err("refused")
            .to_string()
    };
    let error = refused(&|patches| patches[1]["patch"]["operation"] = json!("INSERT_AFTER"));
    assert!(error.contains("INSERT_AFTER"), "{error}");
    let error = refused(&|patches| patches[1]["patch"]["filterClass"] = json!("AUTHN"));
    assert!(error.contains("filterClass"), "{error}");
    let error = refused(&|patches| patches[3]["match"]["context"] = json!("SIDECAR_INBOUND"));
    assert!(error.contains("SIDECAR_INBOUND"), "{error}");
    let error = refused(&|patches| patches[2]["patch"]["operation"] = json!("ADD"));
    assert!(error.contains("patch 2 (NetworkFilter)"), "{error}");
    let mut policy = manifests::documents("cluster-policy.yaml").remove(0);
    policy["spec"]["configPatches"][0]["match"]["cluster"]["portNumber"] = json!(8001);
    let error = EnvoyFilter::apply(&policy, &mut gateway(&[], |_| {})).expect_err("refused");
    assert!(error.to_string().contains("fits nothing"), "{error}");
}
