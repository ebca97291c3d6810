//! Which VM scrapes for all while all of them run, on a clock in the test's hands. The module is the
//! built one, the host is the fake.

use std::time::Duration;

use inline_epp::replication::lease::{self, Suitability};
use serde_json::json;
use wasm_test::host::{Host, Response, Stream, Thread};
use wasm_test::scenario::{FakeGateway, Gateway, Plan, Request, Serves};
use wasm_test::testbed::{COMPLETIONS, POOL, completion, prompt};

/// The scrape interval of the gateway.
const INTERVAL: Duration = Duration::from_millis(200);
const SLOTS: usize = 256;

fn start() -> FakeGateway {
    let plan = Plan::new(&[Serves::Well]);
    let plan = plan.plugin(|plugin| plugin["limits"] = json!({ "logSlots": SLOTS }));
    let gateway = FakeGateway::start_unscraped(&plan, Host::setup().workers(2));
    gateway.scrape();
    gateway
}

fn ask(gateway: &FakeGateway, worker: usize, text: &str) {
    let body = completion(text).to_string();
    let exchange = gateway.send_by(worker, &Request::post(COMPLETIONS, body));
    assert_eq!(exchange.status, 200, "{exchange:?}");
}

/// A request through `worker` whose answer has begun and does not end.
fn begin(gateway: &FakeGateway, worker: usize) -> Stream {
    let mut stream = gateway.host().stream(worker);
    let headers: [(&str, &[u8]); 3] = [
        (":method", b"POST"),
        (":path", COMPLETIONS.as_bytes()),
        (":authority", b"test"),
    ];
    stream.headers(&headers, false);
    let body = completion("a long story").to_string();
    stream.body(body.as_bytes(), true);
    let response = Response::by(gateway.servers()[0], 200);
    stream.respond(&response, false).expect("headers");
    stream.response_body(b"{", false);
    stream
}

/// How well the VM suits that has the lease.
fn suits(gateway: &FakeGateway) -> Suitability {
    let keys = gateway.host().shared_keys();
    let key = keys.iter().find(|key| key.contains("/lease/"));
    let value = key.and_then(|key| gateway.host().shared_value(key));
    lease::decode(&value.expect("a lease"))
        .expect("a lease")
        .suits
}

/// Who scrapes, once an interval is over.
fn leader(gateway: &FakeGateway) -> Option<Thread> {
    gateway.host().advance(INTERVAL);
    gateway.scraped_by(0)
}

fn gauge(gateway: &FakeGateway, name: &str) -> u64 {
    let pod = gateway.servers()[0].to_string();
    let all = [("pool", POOL), ("pod", pod.as_str())];
    let labels = if name == "epp_prefix_tree_nodes" {
        &all[..1]
    } else {
        &all[..]
    };
    let value = gateway.host().metric(name, labels);
    value.expect("it is exported from the start")
}

#[test]
fn no_request_waits_for_a_scrape() {
    let gateway = start();
    for number in 0..20 {
        ask(&gateway, number % 2, &format!("hello {number}"));
        assert_eq!(leader(&gateway), Some(Thread::Main));
    }
}

#[test]
fn a_leader_that_was_overtaken_by_the_log_leaves_the_lead_until_it_knows_all_again() {
    let gateway = start();
    let open = begin(&gateway, 0);
    assert_eq!(leader(&gateway), Some(Thread::Main));
    // No thread ticks meanwhile: one worker's requests are all that happens.
    for number in 0..SLOTS {
        ask(&gateway, 0, &prompt(&format!("burst {number}"), 600));
    }
    let mut leads = vec![suits(&gateway)];
    for _ in 0..INTERVAL.as_millis() {
        gateway.host().advance(Duration::from_millis(1));
        let now = suits(&gateway);
        if leads.last() != Some(&now) {
            leads.push(now);
        }
    }
    // The worker that knows all in between; whether the offer is seen depends on who ticks first.
    leads.retain(|suits| *suits != Suitability::Behind);
    assert_eq!(
        leads,
        [Suitability::Idles, Suitability::Serves, Suitability::Idles]
    );
    let gaps = gateway.host().metric("epp_replica_gap_total", &[]);
    assert!(gaps > Some(0), "{gaps:?}");
    assert_eq!(leader(&gateway), Some(Thread::Main));
    let known = gauge(&gateway, "epp_prefix_tree_nodes");
    assert!(known > 2 * SLOTS as u64, "{known}");
    assert_eq!(gauge(&gateway, "epp_inflight_requests"), 1);
    drop(open);
}
