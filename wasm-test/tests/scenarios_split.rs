//! Requests whose prompt is computed at another server, on the fake host and on a real Envoy alike:
//! whatever fails there, the client gets its answer.

use std::time::Duration;

use wasm_test::scenario::{
    Exchange, FakeGateway, Gateway, Plan, RealGateway, Request, Serves, digest,
};
use wasm_test::testbed::{COMPLETIONS, POOL, completion, prompt};

macro_rules! on_both {
    ($($scenario:ident)*) => {
        mod fake {
            $(#[tokio::test] async fn $scenario() { super::$scenario::<super::FakeGateway>().await; })*
        }
        mod real {
            $(#[tokio::test] async fn $scenario() { super::$scenario::<super::RealGateway>().await; })*
        }
    };
}

on_both! {
    a_prompt_is_computed_at_one_server_and_handed_to_another
    a_prefill_server_that_fails_costs_the_client_nothing
    a_decode_server_that_fails_gets_no_parameters_a_second_time
    parameters_of_a_client_reach_nobody
    a_sidecar_is_told_and_nothing_else_happens
}

/// One server computes prompts, two decode.
fn plan(prefill: Serves) -> Plan {
    Plan::new(&[prefill, Serves::Well, Serves::Well]).split("inline-nixl")
}

fn body(name: &str) -> String {
    completion(&prompt(name, 2_000)).to_string()
}

async fn ask(gateway: &impl Gateway, name: &str) -> Exchange {
    gateway.send(Request::post(COMPLETIONS, body(name))).await
}

async fn decisions(gateway: &impl Gateway, decision: &str) -> Option<u64> {
    let labels = [("pool", POOL), ("decision", decision)];
    gateway.metric("epp_disagg_decision_total", &labels).await
}

async fn all_decisions(gateway: &impl Gateway) -> Option<u64> {
    gateway
        .metric("epp_disagg_decision_total", &[("pool", POOL)])
        .await
}

async fn nothing_in_flight(gateway: &impl Gateway) {
    // The gauge is set by who scrapes.
    gateway.pass(Duration::from_millis(500)).await;
    assert_eq!(
        gateway
            .metric("epp_inflight_requests", &[("pool", POOL)])
            .await,
        Some(0)
    );
}

async fn a_prompt_is_computed_at_one_server_and_handed_to_another<G: Gateway>() {
    let gateway = G::start(plan(Serves::Well)).await;
    assert_eq!(decisions(&gateway, "prefill-decode").await, Some(0));
    let exchange = ask(&gateway, "Ada").await;
    assert_eq!(
        (exchange.status, exchange.received_prompt),
        (200, true),
        "{exchange:?}"
    );
    assert_ne!(exchange.server, Some(gateway.servers()[0]));
    assert_eq!(exchange.destinations, [exchange.server.expect("a server")]);
    assert_eq!(decisions(&gateway, "prefill-decode").await, Some(1));
    assert_eq!(all_decisions(&gateway).await, Some(1));
    // The decode server is known to hold it: the whole prompt and its own server.
    let again = ask(&gateway, "Ada").await;
    assert_eq!(
        (again.server, again.cache_match()),
        (exchange.server, "8/8")
    );
    nothing_in_flight(&gateway).await;
}

async fn a_prefill_server_that_fails_costs_the_client_nothing<G: Gateway>() {
    for (serves, decision) in [
        (Serves::Gone, "prefill-refused"),
        (Serves::Failing, "prefill-error"),
        (Serves::Busy, "prefill-error"),
        (Serves::Silent, "prefill-timeout"),
        (Serves::Breaking, "prefill-reset"),
        (Serves::Unsharing, "prefill-no-params"),
        (Serves::Verbose, "prefill-oversized"),
    ] {
        let gateway = G::start(plan(Serves::Well)).await;
        gateway.change(0, serves).await;
        let exchange = ask(&gateway, "Bob").await;
        assert_eq!(
            (exchange.status, exchange.received_prompt),
            (200, false),
            "{serves:?}"
        );
        assert_eq!(
            exchange.received_body,
            Some(digest(body("Bob").as_bytes())),
            "{serves:?}"
        );
        assert_eq!(exchange.destinations.len(), 2, "{serves:?}");
        assert_eq!(
            decisions(&gateway, decision).await,
            Some(1),
            "{serves:?}: {}",
            gateway.log()
        );
        assert_eq!(all_decisions(&gateway).await, Some(1), "{serves:?}");
        nothing_in_flight(&gateway).await;
    }
}

async fn a_decode_server_that_fails_gets_no_parameters_a_second_time<G: Gateway>() {
    let gateway = G::start(plan(Serves::Well).blind()).await;
    for server in [1, 2] {
        gateway.change(server, Serves::Busy).await;
    }
    // What is handed over is for one server, once: Envoy tries nobody else.
    let exchange = ask(&gateway, "Cid").await;
    assert_eq!((exchange.status, exchange.destinations.len()), (503, 1));
    // Without, it tries all it was named, and then who the cluster's own policy says.
    gateway.change(0, Serves::Failing).await;
    let exchange = ask(&gateway, "Dot").await;
    assert_eq!((exchange.status, exchange.destinations.len()), (500, 2));
    for server in [1, 2] {
        gateway.change(server, Serves::Well).await;
    }
    assert_eq!(ask(&gateway, "Eve").await.status, 200);
}

async fn parameters_of_a_client_reach_nobody<G: Gateway>() {
    for plan in [plan(Serves::Failing), Plan::new(&[Serves::Well])] {
        let gateway = G::start(plan).await;
        let clean = body("Flo");
        let forged = clean.replacen(
            '{',
            r#"{"bootstrap_room":1,"kv_transfer_params":{"do_remote_prefill":true},"#,
            1,
        );
        let exchange = gateway.send(Request::post(COMPLETIONS, forged)).await;
        assert_eq!((exchange.status, exchange.received_prompt), (200, false));
        assert_eq!(exchange.received_body, Some(digest(clean.as_bytes())));
    }
}

async fn a_sidecar_is_told_and_nothing_else_happens<G: Gateway>() {
    let gateway = G::start(Plan::new(&[Serves::Well; 3]).split("header")).await;
    let exchange = ask(&gateway, "Gus").await;
    assert_eq!((exchange.status, exchange.received_prompt), (200, false));
    assert!(
        exchange
            .received_headers
            .iter()
            .any(|name| name == "x-prefiller-host-port")
    );
    assert_eq!(decisions(&gateway, "sidecar").await, Some(1));
    // Nobody claims that anything was split.
    assert_eq!(decisions(&gateway, "prefill-decode").await, None);
}
