//! What clients, servers and operators see, on the fake host and on a real Envoy alike.

use std::time::Duration;

use serde_json::json;
use wasm_test::scenario::{
    Exchange, FakeGateway, Framing, Gateway, Plan, RealGateway, Request, Serves, digest,
};
use wasm_test::testbed::{COMPLETIONS, PATIENCE, POOL, completion, prompt};

/// Runs every scenario on both.
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
    a_follow_up_turn_returns_to_the_server_of_the_first
    a_request_names_its_pick_and_two_fallbacks
    a_request_without_a_readable_prompt_is_routed_by_load_with_its_reason
    no_control_header_of_a_client_reaches_a_server
    a_body_over_the_limit_is_routed_by_the_part_read
    a_busy_server_hands_its_request_and_its_blocks_to_the_next_of_the_list
    a_server_that_is_gone_hands_its_request_and_its_blocks_to_the_next_of_the_list
    servers_that_are_all_busy_leave_no_blocks_behind
    a_request_id_is_the_same_at_server_and_client
    debug_headers_are_shown_only_when_asked_for
    a_chunked_body_and_one_with_trailers_are_routed_by_their_prompt
    a_request_counts_once_whatever_becomes_of_it
    a_path_outside_every_pool_is_untouched
    a_server_that_loads_its_model_gets_nothing_and_is_used_once_it_is_loaded
    a_server_that_refuses_is_left_out_without_an_error_and_comes_back
    a_stuck_engine_is_left_out_and_comes_back
    servers_without_readable_metrics_are_all_used
    the_log_tells_the_version_and_of_no_panic
}

fn ask(text: &str) -> Request {
    Request::post(COMPLETIONS, completion(text).to_string())
}

async fn decisions(gateway: &impl Gateway) -> u64 {
    let labels = [("pool", POOL)];
    gateway
        .metric("epp_routing_decisions_total", &labels)
        .await
        .unwrap_or(0)
}

async fn fallbacks(gateway: &impl Gateway, reason: Option<&str>) -> u64 {
    let mut labels = vec![("pool", POOL)];
    labels.extend(reason.map(|reason| ("reason", reason)));
    let count = gateway.metric("epp_fallback_total", &labels).await;
    count.expect("every reason is exported from the start")
}

/// Asks with prompts of 1,000 bytes until `server` is picked; the prompt and what became of it.
async fn picked(gateway: &impl Gateway, server: usize) -> (String, Exchange) {
    let wanted = gateway.servers()[server];
    for number in 0..100 {
        let text = prompt(&format!("try {number}"), 1_000);
        let exchange = gateway.send(ask(&text)).await;
        if exchange.destinations.first() == Some(&wanted) {
            return (text, exchange);
        }
    }
    panic!("{wanted} is never picked");
}

async fn a_follow_up_turn_returns_to_the_server_of_the_first<G: Gateway>() {
    let gateway = G::start(Plan::new(&[Serves::Well; 4])).await;
    for name in ["Ada", "Bob", "Cid", "Dot", "Eve"] {
        let first = gateway.send(ask(&prompt(name, 2_000))).await;
        assert_eq!((first.status, first.cache_match()), (200, "0/8"));
        let next = gateway.send(ask(&prompt(name, 3_000))).await;
        // The eighth block was partly filled, so it is another one in the longer prompt.
        assert_eq!((next.status, next.cache_match()), (200, "7/12"));
        assert_eq!(next.server, first.server);
    }
}

async fn a_request_names_its_pick_and_two_fallbacks<G: Gateway>() {
    let gateway = G::start(Plan::new(&[Serves::Well; 4])).await;
    let exchange = gateway.send(ask("hello")).await;
    let mut named = exchange.destinations.clone();
    assert_eq!(exchange.server, named.first().copied());
    named.sort_unstable();
    named.dedup();
    assert_eq!(named.len(), 3);
    assert!(named.iter().all(|one| gateway.servers().contains(one)));
}

async fn a_request_without_a_readable_prompt_is_routed_by_load_with_its_reason<G: Gateway>() {
    let gateway = G::start(Plan::new(&[Serves::Well; 2])).await;
    let json = completion("hello").to_string();
    let cases = [
        (Request::get("/v1/models"), "no_body"),
        (Request::post(COMPLETIONS, ""), "no_body"),
        (
            Request::post(COMPLETIONS, "").framed(Framing::Chunked),
            "no_body",
        ),
        (
            Request::post(COMPLETIONS, "{\"prompt\": "),
            "malformed_body",
        ),
        (
            Request::post(COMPLETIONS, "{\"question\": 1}"),
            "unknown_shape",
        ),
        (Request::post("/v1/files", json.clone()), "unknown_path"),
        (
            Request::post(COMPLETIONS, json).header("content-encoding", "gzip"),
            "encoded_body",
        ),
    ];
    for (request, reason) in cases {
        let before = fallbacks(&gateway, Some(reason)).await;
        let body = request.body.clone();
        let exchange = gateway.send(request).await;
        assert_eq!(exchange.reason(), reason);
        assert_eq!(exchange.received_body, Some(digest(&body)), "{reason}");
        assert_eq!(
            exchange.server,
            exchange.destinations.first().copied(),
            "{reason}"
        );
        assert_eq!(fallbacks(&gateway, Some(reason)).await, before + 1);
    }
    assert_eq!(decisions(&gateway).await, 0);
}

async fn no_control_header_of_a_client_reaches_a_server<G: Gateway>() {
    let gateway = G::start(Plan::new(&[Serves::Well; 2])).await;
    let names = inline_epp::flow::CONTROL_HEADERS;
    let mut request = ask("hello").header("x-own", "stays");
    for name in names {
        request = request
            .header(name, "10.9.9.9:9")
            .header(name, "10.9.9.8:9");
    }
    let exchange = gateway.send(request).await;
    let seen = |name: &str| exchange.received_headers.iter().any(|one| one == name);
    assert!(seen("x-own"));
    // The destination itself is there, but it is the module's: both gateways show it to servers.
    let (destination, others) = names.split_first().expect("names");
    assert_eq!(*destination, "x-gateway-destination-endpoint");
    for name in others {
        assert!(!seen(name), "{name}");
    }
    assert!(
        exchange
            .destinations
            .iter()
            .all(|one| gateway.servers().contains(one))
    );
    assert_eq!(exchange.destinations.len(), 2);
}

async fn a_body_over_the_limit_is_routed_by_the_part_read<G: Gateway>() {
    let plan = Plan::new(&[Serves::Well; 2]);
    let plan = plan.plugin(|plugin| plugin["maxBufferedBytes"] = json!(20_000));
    let gateway = G::start(plan).await;
    for framing in [Framing::Length, Framing::Chunked] {
        let request = ask(&prompt("long", 100_000)).framed(framing);
        let body = digest(&request.body);
        let exchange = gateway.send(request).await;
        assert_eq!(
            (exchange.status, exchange.reason()),
            (200, "truncated_body")
        );
        assert_eq!(exchange.received_body, Some(body));
        let blocks = exchange
            .cache_match()
            .split_once('/')
            .map(|(_, total)| total.parse());
        // 20,000 bytes are 78 blocks, less the keys before the prompt.
        assert!(
            matches!(blocks, Some(Ok(1..=78))),
            "{}",
            exchange.cache_match()
        );
    }
    assert_eq!(
        (decisions(&gateway).await, fallbacks(&gateway, None).await),
        (2, 0)
    );
}

async fn hands_over<G: Gateway>(serves: Serves) {
    let gateway = G::start(Plan::new(&[serves, Serves::Well, Serves::Well]).blind()).await;
    let (text, exchange) = picked(&gateway, 0).await;
    assert_eq!((exchange.status, exchange.cache_match()), (200, "0/4"));
    assert_eq!(exchange.server, exchange.destinations.get(1).copied());
    let again = gateway.send(ask(&text)).await;
    assert_eq!(again.cache_match(), "4/4");
    assert_eq!(again.destinations.first().copied(), exchange.server);
}

async fn a_busy_server_hands_its_request_and_its_blocks_to_the_next_of_the_list<G: Gateway>() {
    hands_over::<G>(Serves::Busy).await;
}

async fn a_server_that_is_gone_hands_its_request_and_its_blocks_to_the_next_of_the_list<
    G: Gateway,
>() {
    hands_over::<G>(Serves::Gone).await;
}

async fn servers_that_are_all_busy_leave_no_blocks_behind<G: Gateway>() {
    let gateway = G::start(Plan::new(&[Serves::Busy; 3])).await;
    for _ in 0..3 {
        let exchange = gateway.send(ask(&prompt("nobody", 1_000))).await;
        assert_eq!((exchange.status, exchange.cache_match()), (503, "0/4"));
    }
}

async fn a_request_id_is_the_same_at_server_and_client<G: Gateway>() {
    let gateway = G::start(Plan::new(&[Serves::Well; 2])).await;
    let given = gateway
        .send(ask("hello").header("x-request-id", "of the client"))
        .await;
    assert_eq!(given.header("x-request-id"), Some("of the client"));
    assert_eq!(given.received_request_id.as_deref(), Some("of the client"));

    let mut made = Vec::new();
    for request in [ask("hello"), ask("hello"), Request::get("/v1/models")] {
        let exchange = gateway.send(request).await;
        let id = exchange.header("x-request-id").expect("an id").to_owned();
        assert_eq!(id.len(), 36, "{id}");
        assert_eq!(exchange.received_request_id.as_ref(), Some(&id));
        assert!(!made.contains(&id));
        made.push(id);
    }
}

async fn debug_headers_are_shown_only_when_asked_for<G: Gateway>() {
    let gateway = G::start(Plan::new(&[Serves::Well; 2])).await;
    let shown = gateway.send(ask("hello")).await;
    assert_eq!((shown.reason(), shown.cache_match()), ("picked", "0/1"));
    let pick = shown.destinations[0].to_string();
    assert_eq!(shown.header("x-epp-endpoint"), Some(pick.as_str()));
    // Everything but cached blocks: 0.20 + 0.10 + 0.05 + 0.05.
    assert_eq!(shown.header("x-epp-score"), Some("0.4000"));

    let plan = Plan::new(&[Serves::Well; 2]);
    let gateway = G::start(plan.plugin(|plugin| plugin["debugHeaders"] = json!(false))).await;
    let hidden = gateway.send(ask("hello")).await;
    assert_eq!(hidden.status, 200);
    assert!(
        hidden
            .headers
            .iter()
            .all(|(name, _)| !name.starts_with("x-epp-"))
    );
}

async fn a_chunked_body_and_one_with_trailers_are_routed_by_their_prompt<G: Gateway>() {
    let gateway = G::start(Plan::new(&[Serves::Well; 4])).await;
    let text = prompt("framed", 30_000);
    let first = gateway.send(ask(&text)).await;
    for framing in [Framing::Chunked, Framing::Trailers] {
        let request = ask(&text).framed(framing);
        let body = digest(&request.body);
        let exchange = gateway.send(request).await;
        assert_eq!(
            (exchange.status, exchange.cache_match()),
            (200, "118/118"),
            "{framing:?}"
        );
        assert_eq!(exchange.server, first.server);
        assert_eq!(exchange.received_body, Some(body));
    }
}

async fn a_request_counts_once_whatever_becomes_of_it<G: Gateway>() {
    let plan = Plan::new(&[Serves::Busy, Serves::Well]);
    let gateway = G::start(plan).await;
    for number in 1..=10 {
        gateway
            .send(ask(&prompt(&format!("client {number}"), 600)))
            .await;
        gateway.send(Request::get("/v1/models")).await;
        let counted = (decisions(&gateway).await, fallbacks(&gateway, None).await);
        assert_eq!(counted, (number, number));
    }
    let labels = [("pool", POOL)];
    let blocks = gateway.metric("epp_prompt_blocks_total", &labels).await;
    assert_eq!(blocks, Some(10 * 3));
    let labels = [("pool", POOL), ("model", "sim-model")];
    assert_eq!(
        gateway.metric("epp_routing_decisions_total", &labels).await,
        Some(10)
    );
}

async fn a_path_outside_every_pool_is_untouched<G: Gateway>() {
    let gateway = G::start(Plan::new(&[Serves::Well; 2])).await;
    let request = Request::post("/health", "{}").header("x-prefiller-host-port", "10.0.0.9:80");
    let body = digest(&request.body);
    let exchange = gateway.send(request).await;
    assert_eq!((exchange.reason(), exchange.destinations.len()), ("", 0));
    assert!(
        exchange
            .received_headers
            .iter()
            .any(|name| name == "x-prefiller-host-port")
    );
    assert_eq!(exchange.received_body, Some(body));
    assert_eq!(
        (decisions(&gateway).await, fallbacks(&gateway, None).await),
        (0, 0)
    );
}

/// Waits until so many endpoints are candidates.
async fn candidates(gateway: &impl Gateway, wanted: u64) {
    let patience = PATIENCE.as_millis() / STEP.as_millis();
    for _ in 0..patience {
        let labels = [("pool", POOL)];
        if gateway.metric("epp_candidate_pods", &labels).await == Some(wanted) {
            return;
        }
        gateway.pass(STEP).await;
    }
    panic!("never {wanted} candidates: {}", gateway.log());
}

const STEP: Duration = Duration::from_millis(20);
const ERROR_WINDOW: Duration = Duration::from_secs(1);

/// Asks 24 times with new prompts; how many each server answered. None may fail.
async fn shares(gateway: &impl Gateway, name: &str) -> Vec<usize> {
    let mut shares = vec![0; gateway.servers().len()];
    for number in 0..24 {
        let request = ask(&prompt(&format!("{name} {number}"), 600));
        let exchange = gateway.send(request).await;
        assert_eq!(exchange.status, 200, "{name} {number}");
        let server = exchange.server.expect("a server answered");
        let place = gateway.servers().iter().position(|one| *one == server);
        shares[place.expect("one of the pool's")] += 1;
    }
    shares
}

/// How often the log tells that server 0 is not used, and that it is again.
fn told(gateway: &impl Gateway, why: &str) -> [usize; 2] {
    let pod = format!("pod={} is ", gateway.servers()[0]);
    let log = gateway.log();
    [
        format!("{pod}not used: it {why}"),
        format!("{pod}used again"),
    ]
    .map(|line| log.matches(&line).count())
}

async fn is_left_out_and_comes_back<G: Gateway>(gateway: &G, why: &str) {
    candidates(gateway, 2).await;
    let left_out = shares(gateway, "left out").await;
    assert_eq!((left_out[0], told(gateway, why)), (0, [1, 0]));
    gateway.change(0, Serves::Well).await;
    candidates(gateway, 3).await;
    // Requests it failed before it was left out count for a while.
    gateway.pass(ERROR_WINDOW * 2).await;
    let back = shares(gateway, "back").await;
    assert!(back.iter().all(|share| *share > 0), "{back:?}");
    assert_eq!(told(gateway, why), [1, 1]);
}

/// What servers fail counts for [`ERROR_WINDOW`] only. A worker hears of what the leader found out, and
/// the gauge tells, a tick later: until then a request may fail at a server and go on to the next.
fn plan(servers: [Serves; 3]) -> Plan {
    Plan::new(&servers).plugin(|plugin| {
        plugin["pools"][0]["health"]["errorWindow"] = json!(ERROR_WINDOW.as_secs());
    })
}

async fn a_server_that_loads_its_model_gets_nothing_and_is_used_once_it_is_loaded<G: Gateway>() {
    let gateway = G::start(plan([Serves::Loading, Serves::Well, Serves::Well])).await;
    is_left_out_and_comes_back(&gateway, "is not ready").await;
}

async fn a_server_that_refuses_is_left_out_without_an_error_and_comes_back<G: Gateway>() {
    let gateway = G::start(plan([Serves::Well; 3])).await;
    gateway.change(0, Serves::Gone).await;
    // Until that is found out, a request for it goes on to the next of its list.
    shares(&gateway, "dying").await;
    is_left_out_and_comes_back(&gateway, "is not ready").await;
}

async fn a_stuck_engine_is_left_out_and_comes_back<G: Gateway>() {
    let gateway = G::start(plan([Serves::Well; 3])).await;
    gateway.change(0, Serves::Stuck).await;
    is_left_out_and_comes_back(&gateway, "makes no tokens although requests run").await;
}

async fn servers_without_readable_metrics_are_all_used<G: Gateway>() {
    let gateway = G::start(Plan::new(&[Serves::Garbled; 3])).await;
    gateway.pass(Duration::from_secs(4)).await;
    let used = shares(&gateway, "unread").await;
    assert!(used.iter().all(|share| *share > 0), "{used:?}");
    assert!(!gateway.log().contains("is not used"));
}

async fn the_log_tells_the_version_and_of_no_panic<G: Gateway>() {
    let gateway = G::start(Plan::new(&[Serves::Well; 2])).await;
    for odd in [
        &b"\xff\xfe"[..],
        b"",
        b"a\tb",
        b"00000000000000000000000000000000000000",
    ] {
        let mut request = ask("hello").header("x-odd", odd);
        for name in [
            "x-request-id",
            "content-encoding",
            "x-gateway-destination-endpoint",
        ] {
            request = request.header(name, odd);
        }
        assert_eq!(gateway.send(request).await.status, 200);
    }
    let log = gateway.log();
    assert!(log.contains(concat!("inline-epp ", env!("CARGO_PKG_VERSION"))));
    assert!(!log.contains("panicked"), "{log}");
}
