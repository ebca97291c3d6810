//! What only a clock in the test's hands can show: who scrapes when a VM is lost, answers that come
//! late, and what age does to metrics. The module is the built one, the host is the fake.

use std::time::Duration;

use serde_json::json;
use wasm_test::host::{Answer, Host, Level, Progress, Response, Thread};
use wasm_test::scenario::{Exchange, FakeGateway, Gateway, Plan, Request, Serves};
use wasm_test::testbed::{COMPLETIONS, POOL, completion, prompt};

/// The scrape interval of the gateway.
const INTERVAL: Duration = Duration::from_millis(200);
/// The time-out of its scrapes.
const TIMEOUT: Duration = Duration::from_secs(1);
/// A lease lasts two intervals, and a VM looks at it ten times an interval.
const TAKEN_OVER: Duration = Duration::from_millis(421);

fn start(servers: usize, workers: usize) -> FakeGateway {
    let plan = Plan::new(&vec![Serves::Well; servers]);
    let gateway = FakeGateway::start_unscraped(&plan, Host::setup().workers(workers));
    gateway.scrape();
    gateway
}

fn ask(gateway: &FakeGateway, worker: usize, text: &str) -> Exchange {
    let body = completion(text).to_string();
    let exchange = gateway.send_by(worker, &Request::post(COMPLETIONS, body));
    assert_eq!(exchange.status, 200, "{exchange:?}");
    exchange
}

/// The composite score of a cold prompt: 0.40, less what waits.
fn cold_score(gateway: &FakeGateway, worker: usize) -> String {
    // What one worker was asked all others know.
    let name = format!("cold at {worker} and {:?}", gateway.host().now());
    let exchange = ask(gateway, worker, &prompt(&name, 300));
    exchange.header("x-epp-score").expect("a score").to_owned()
}

fn of_pod(gateway: &FakeGateway, name: &str) -> u64 {
    let pod = gateway.servers()[0].to_string();
    let value = gateway
        .host()
        .metric(name, &[("pool", POOL), ("pod", &pod)]);
    value.expect("it is exported from the start")
}

fn scrapes_that_ended(gateway: &FakeGateway, result: &str) -> u64 {
    let labels = [("pool", POOL), ("result", result)];
    let count = gateway.host().metric("epp_scrapes_total", &labels);
    count.expect("every result is exported from the start")
}

/// Goes to the moment at which server 0 was just scraped and its answer taken in.
fn until_scraped(gateway: &FakeGateway) {
    let before = gateway.scrapes(0);
    while gateway.scrapes(0) == before {
        gateway.host().advance(Duration::from_millis(1));
    }
    gateway.host().advance(Duration::from_millis(2));
}

fn assert_no_vm_lost(gateway: &FakeGateway) {
    let log = gateway.host().log();
    let bad = log.iter().find(|line| line.level == Level::Critical);
    assert_eq!(bad, None);
}

#[test]
fn one_vm_of_all_scrapes_each_server_once_an_interval() {
    let gateway = start(3, 4);
    until_scraped(&gateway);
    let before: Vec<u64> = (0..3).map(|index| gateway.scrapes(index)).collect();
    gateway.host().advance(INTERVAL * 50);
    for (index, before) in before.into_iter().enumerate() {
        assert_eq!(gateway.scrapes(index) - before, 50);
    }
    assert_no_vm_lost(&gateway);
}

#[test]
fn what_one_vm_scraped_reaches_every_worker() {
    let gateway = start(1, 3);
    assert_eq!(gateway.scraped_by(0), Some(Thread::Main));
    gateway.set_waiting(0, 10);
    gateway.host().advance(INTERVAL * 2);
    for worker in 0..3 {
        // Half of maxQueue waits: half of the queue's 0.10 is gone.
        assert_eq!(cold_score(&gateway, worker), "0.3500");
    }
}

#[test]
fn the_lease_of_a_lost_vm_passes_on_when_it_lapses() {
    let gateway = start(1, 2);
    assert_eq!(gateway.scraped_by(0), Some(Thread::Main));
    // The main thread takes no requests, so its VM stays lost.
    for (lost, heir) in [
        (Thread::Main, Thread::Worker(0)),
        (Thread::Worker(0), Thread::Worker(1)),
    ] {
        until_scraped(&gateway);
        gateway.host().kill(lost);
        gateway.set_waiting(0, 20);
        gateway.host().advance(INTERVAL);
        assert_eq!(
            gateway.scraped_by(0),
            Some(lost),
            "the lease has not lapsed"
        );
        gateway.host().advance(TAKEN_OVER.saturating_sub(INTERVAL));
        assert_eq!(gateway.scraped_by(0), Some(heir));
    }
    assert!(!gateway.host().has_vm(Thread::Main));
    // A request brings a worker's VM back, and with it its ticks: it may lead again.
    assert!(!gateway.host().has_vm(Thread::Worker(0)));
    gateway.set_waiting(0, 0);
    ask(&gateway, 0, "anybody there?");
    gateway.host().kill(Thread::Worker(1));
    gateway.host().advance(TAKEN_OVER);
    assert_eq!(gateway.scraped_by(0), Some(Thread::Worker(0)));
}

#[test]
fn a_new_vm_scores_by_the_snapshot_after_its_first_tick() {
    let gateway = start(1, 1);
    gateway.set_waiting(0, 10);
    gateway.host().advance(INTERVAL * 2);
    gateway.host().kill(Thread::Worker(0));
    // Nothing is known yet: as far as that goes, nothing waits.
    assert_eq!(cold_score(&gateway, 0), "0.4000");
    gateway.host().advance(INTERVAL / 10);
    assert_eq!(cold_score(&gateway, 0), "0.3500");
    assert_eq!(gateway.host().samples("epp_composite_score"), [40, 35]);
}

#[test]
fn a_stalled_leader_is_replaced_and_its_late_answers_overwrite_nothing() {
    let gateway = start(1, 2);
    gateway.host().kill(Thread::Main);
    gateway.host().advance(TAKEN_OVER);
    assert_eq!(gateway.scraped_by(0), Some(Thread::Worker(0)));

    // Its scrape of an empty queue is under way while the thread stalls.
    let before = gateway.scrapes(0);
    while gateway.scrapes(0) == before {
        gateway.host().advance(Duration::from_millis(1));
    }
    gateway.host().stall(Thread::Worker(0));
    gateway.set_waiting(0, 10);
    gateway.host().advance(TAKEN_OVER);
    assert_eq!(gateway.scraped_by(0), Some(Thread::Worker(1)));
    gateway.host().advance(INTERVAL);
    assert!(
        gateway
            .host()
            .calls()
            .iter()
            .any(|call| call.thread == Thread::Worker(0))
    );

    gateway.host().wake(Thread::Worker(0));
    for _ in 0..20 {
        gateway.host().advance(INTERVAL / 10);
        assert_eq!(gateway.scraped_by(0), Some(Thread::Worker(1)));
        assert_eq!(cold_score(&gateway, 0), "0.3500");
        assert_eq!(cold_score(&gateway, 1), "0.3500");
        assert_eq!(of_pod(&gateway, "epp_queue_depth"), 10);
    }
    assert!((0..2).all(|worker| gateway.host().has_vm(Thread::Worker(worker))));
}

#[test]
fn every_end_of_a_scrape_is_counted_by_its_result() {
    let gateway = start(1, 1);
    let garbage = || Answer::ok("<html>");
    let cases: [(&str, Option<Answer>); 5] = [
        ("timeout", None),
        ("error", Some(Answer::refused())),
        ("error", Some(Answer::Reset)),
        ("unreadable", Some(garbage())),
        ("ok", Some(Answer::ok(wasm_test::scenario::metrics_page(0)))),
    ];
    for (result, answer) in cases {
        let ended = scrapes_that_ended(&gateway, result);
        let open = answer.clone();
        gateway
            .host()
            .answer_calls(move |_| Some((Duration::ZERO, open.clone()?)));
        gateway.host().advance(INTERVAL + TIMEOUT + INTERVAL);
        assert!(
            scrapes_that_ended(&gateway, result) > ended,
            "{result} {answer:?}"
        );
    }
    let refused = scrapes_that_ended(&gateway, "error");
    gateway.host().set_exhausted("model-servers", true);
    gateway.host().advance(INTERVAL * 3);
    assert_eq!(scrapes_that_ended(&gateway, "error"), refused + 3);
    assert_no_vm_lost(&gateway);
}

#[test]
fn scrapes_go_to_the_metrics_cluster_and_fail_where_there_is_none() {
    let plan = Plan::new(&[Serves::Well]).plugin(|plugin| {
        plugin["pools"][0]["metrics"]["cluster"] = json!("scrapes");
    });
    let gateway = FakeGateway::start_unscraped(&plan, Host::setup().cluster("scrapes"));
    gateway.host().answer_calls(|_| None);
    gateway.scrape();
    let calls = gateway.host().calls();
    let to = |path: &str| {
        let mut calls = calls.iter();
        let call = calls.find(|call| call.request.header(":path") == Some(path));
        call.expect("a call under way")
    };
    assert_eq!(calls.len(), 2);
    assert_eq!(to("/metrics").request.cluster, "scrapes");
    assert_eq!(to("/health").request.cluster, "model-servers");
    let page = wasm_test::scenario::metrics_page(10);
    gateway
        .host()
        .answer(to("/metrics").token, Answer::ok(page));
    gateway.host().advance(Duration::ZERO);
    assert_eq!(scrapes_that_ended(&gateway, "ok"), 1);

    let gateway = FakeGateway::start_unscraped(&plan, Host::setup());
    gateway.host().advance(INTERVAL * 3);
    assert!(scrapes_that_ended(&gateway, "error") >= 2);
    assert_no_vm_lost(&gateway);
}

#[test]
fn metrics_lose_worth_with_age_and_take_nobody_out() {
    let gateway = start(1, 1);
    until_scraped(&gateway);
    gateway.set_serves(0, Serves::Garbled);
    let health = |after: Duration| {
        gateway.host().advance(after);
        of_pod(&gateway, "epp_pod_health_score")
    };
    // Up to three intervals, straight down to half at ten, and no further. The gauge is written
    // ten times an interval.
    assert_eq!(health(Duration::from_millis(598)), 100);
    assert!((74..=76).contains(&health(INTERVAL * 7 / 2)));
    assert_eq!(health(INTERVAL * 7 / 2), 50);
    assert_eq!(health(INTERVAL * 100), 50);
    let candidates = gateway
        .host()
        .metric("epp_candidate_pods", &[("pool", POOL)]);
    assert_eq!(candidates, Some(1));
    gateway.set_serves(0, Serves::Well);
    assert_eq!(health(INTERVAL + INTERVAL / 5), 100);
    assert_eq!(cold_score(&gateway, 0), "0.4000");
}

#[test]
fn hostile_bytes_in_shared_data_change_nothing_for_long() {
    let gateway = start(2, 2);
    gateway.set_waiting(0, 10);
    gateway.set_waiting(1, 10);
    gateway.host().advance(INTERVAL * 2);
    // One slot of the log stands for all.
    let is_further_slot = |key: &String| key.contains("/log/") && !key.ends_with("/0");
    let mut keys = gateway.host().shared_keys();
    keys.retain(|key| !is_further_slot(key));
    assert!(keys.len() >= 2, "a lease and a snapshot: {keys:?}");
    let own = |key: &str| gateway.host().shared_value(key).expect("a value");
    let values: Vec<Vec<u8>> = keys.iter().map(|key| own(key)).collect();
    for key in &keys {
        let mut hostile = vec![Vec::new(), vec![0], vec![0xff; 64], vec![0; 1_000_000]];
        hostile.push(values.concat());
        for value in &values {
            hostile.push(value[..value.len() / 2].to_vec());
            hostile.push(value.iter().map(|byte| byte ^ 1).collect());
            // Valid, but of another key or of another time.
            hostile.push(value.clone());
        }
        for bytes in hostile {
            gateway.host().set_shared(key, &bytes);
            gateway.host().advance(INTERVAL / 10);
            ask(&gateway, 0, "hello");
            ask(&gateway, 1, "hello");
            let before = gateway.scrapes(0);
            gateway.host().advance(TAKEN_OVER + INTERVAL);
            assert!(gateway.scrapes(0) > before, "{key}: nobody scrapes");
            for worker in 0..2 {
                assert_eq!(cold_score(&gateway, worker), "0.3500", "{key}");
            }
        }
    }
    assert_no_vm_lost(&gateway);
}

#[test]
fn a_new_configuration_is_for_new_streams_and_old_ones_end_as_they_began() {
    let gateway = start(1, 1);
    let host = gateway.host();
    let labels = [("pool", POOL)];
    let headers: [(&str, &[u8]); 4] = [
        (":method", b"POST"),
        (":path", b"/v1/completions"),
        (":authority", b"test"),
        ("content-type", b"application/json"),
    ];
    let mut old = host.stream(0);
    old.headers(&headers, false);
    let body = completion(&prompt("old", 600)).to_string();
    assert_eq!(old.body(body.as_bytes(), false), Progress::Held);

    let mut plugin = gateway.plugin().clone();
    plugin["debugHeaders"] = json!(false);
    host.reconfigure(&plugin).expect("a configuration");
    let shown = ask(&gateway, 0, "hello");
    assert_eq!(shown.reason(), "", "the new one shows nothing");

    assert_eq!(old.body(b"", true), Progress::Sent);
    let response = Response::by(gateway.servers()[0], 200);
    let shown = old.respond(&response, false).expect("headers");
    assert!(shown.iter().any(|(name, _)| name == b"x-epp-reason"));
    // The leader sets the gauge with its ticks.
    host.advance(INTERVAL / 5);
    assert_eq!(of_pod(&gateway, "epp_inflight_requests"), 1);
    old.response_body(b"{}", true);
    old.finish();
    host.advance(INTERVAL / 5);
    assert_eq!(of_pod(&gateway, "epp_inflight_requests"), 0);

    // Both add to what is known of the pool: three blocks and one.
    host.advance(INTERVAL);
    assert_eq!(host.metric("epp_prefix_tree_nodes", &labels), Some(4));
    // And what is known of the pool stays when the old one goes.
    host.end_drain();
    host.advance(INTERVAL);
    assert_eq!(host.metric("epp_prefix_tree_nodes", &labels), Some(4));
    host.advance(INTERVAL * 3);
    let before = gateway.scrapes(0);
    host.advance(INTERVAL * 10);
    assert_eq!(gateway.scrapes(0) - before, 10, "one of two scrapes");
    assert_no_vm_lost(&gateway);
}

#[test]
fn a_configuration_that_is_refused_leaves_the_one_before() {
    let gateway = start(1, 1);
    let mut plugin = gateway.plugin().clone();
    plugin["pools"][0]["metrics"]["interval"] = json!("soon");
    let refused = gateway.host().reconfigure(&plugin).expect_err("an error");
    let last = refused.log.last().expect("a line");
    assert_eq!((last.thread, last.level), (Thread::Canary, Level::Error));
    assert!(
        last.text.contains("pools[0].metrics.interval"),
        "{}",
        last.text
    );
    assert_eq!(ask(&gateway, 0, "hello").reason(), "picked");

    let start = Host::setup().start(&plugin).expect_err("an error");
    assert!(
        start
            .log
            .iter()
            .any(|line| line.text.contains("metrics.interval"))
    );
}

#[test]
fn a_configuration_is_taken_as_a_struct_and_as_json_text() {
    let gateway = start(1, 1);
    let text = gateway.plugin().to_string();
    let host = Host::setup().start_with(text.as_bytes()).expect("a start");
    let started = |host: &Host| -> Vec<String> {
        let log = host.log();
        let worker = log.iter().filter(|line| line.thread == Thread::Worker(0));
        worker.map(|line| line.text.clone()).take(1).collect()
    };
    assert_eq!(started(&host), started(gateway.host()));
    assert_eq!(started(&host).len(), 1);
}

/// Uploads a body `late` after its headers; the reason the request was routed by, and how long it
/// was held after its body had come.
fn upload(gateway: &FakeGateway, name: &str, late: Duration) -> (String, Duration) {
    let host = gateway.host();
    let body = completion(&prompt(name, 600)).to_string();
    let mut stream = host.stream(0);
    let headers: [(&str, &[u8]); 3] = [
        (":method", b"POST"),
        (":path", b"/v1/completions"),
        (":authority", b"test"),
    ];
    stream.headers(&headers, false);
    host.advance(late);
    stream.body(body.as_bytes(), true);
    let complete = host.now();
    while stream.progress() == Progress::Held {
        host.advance(Duration::from_millis(1));
        assert!(
            host.now().saturating_sub(complete) < INTERVAL,
            "held for ever"
        );
    }
    let held = host.now().saturating_sub(complete);
    assert_eq!(
        stream.sent().expect("it is on its way").body,
        body.as_bytes()
    );
    let response = Response::by(gateway.servers()[0], 200);
    let headers = stream.respond(&response, false).expect("headers");
    stream.response_body(b"{}", true);
    stream.finish();
    let reason = headers
        .into_iter()
        .find(|(name, _)| name == b"x-epp-reason");
    let (_, reason) = reason.expect("a reason");
    (String::from_utf8(reason).expect("text"), held)
}

fn warnings(gateway: &FakeGateway) -> usize {
    let log = gateway.host().log();
    let about = |text: &str| text.contains("set allow_on_headers_stop_iteration: true");
    log.iter().filter(|line| about(&line.text)).count()
}

#[test]
fn a_host_that_withholds_bodies_costs_two_ticks_at_most_and_one_warning() {
    let plan = Plan::new(&[Serves::Well]);
    let gateway = FakeGateway::start_unscraped(&plan, Host::setup().without_body_while_held());
    for number in 0..20 {
        let (reason, held) = upload(&gateway, &format!("client {number}"), Duration::ZERO);
        assert_eq!(reason, "headers_only");
        assert!(held <= INTERVAL / 5, "{held:?}");
    }
    let labels = [("pool", POOL), ("reason", "headers_only")];
    let fallbacks = gateway.host().metric("epp_fallback_total", &labels);
    assert_eq!(fallbacks, Some(20));
    assert_eq!(warnings(&gateway), 1);
    assert_eq!(of_pod(&gateway, "epp_inflight_requests"), 0);
    assert_no_vm_lost(&gateway);
}

#[test]
fn an_envoy_that_is_too_old_is_not_made_to_hold_even_once() {
    let plan = Plan::new(&[Serves::Well]);
    let setup = Host::setup().without_body_while_held();
    let gateway = FakeGateway::start_unscraped(&plan, setup.version(Some([1, 34, 2])));
    let (reason, held) = upload(&gateway, "first", Duration::ZERO);
    assert_eq!((reason.as_str(), held), ("headers_only", Duration::ZERO));
    assert_eq!(warnings(&gateway), 0);
    let log = gateway.host().log();
    let line = "inline-epp: proxy Envoy 1.34.2: cannot hold headers without the body";
    let said = log.iter().filter(|one| one.text.starts_with(line));
    assert!(said.clone().all(|one| one.level == Level::Warn));
    // Once each: the canary, the main thread, the worker.
    assert_eq!(said.count(), 3, "{log:#?}");
    // One that keeps its version to itself is found out by what it does.
    let setup = Host::setup().without_body_while_held();
    let gateway = FakeGateway::start_unscraped(&plan, setup.version(None));
    let (reason, held) = upload(&gateway, "first", Duration::ZERO);
    assert_eq!(reason, "headers_only");
    assert!(held > Duration::ZERO);
}

#[test]
fn an_upload_of_an_hour_is_waited_for_once_a_body_has_come() {
    let gateway = start(1, 1);
    ask(&gateway, 0, "hello");
    let (reason, _) = upload(&gateway, "slow", Duration::from_hours(1));
    assert_eq!(reason, "picked");
    assert_eq!(warnings(&gateway), 0);
    assert_no_vm_lost(&gateway);
}

#[test]
fn a_first_upload_that_is_slow_is_resumed_and_switches_nothing_off() {
    let gateway = start(1, 1);
    let (reason, _) = upload(&gateway, "slow and first", Duration::from_mins(1));
    assert_eq!(reason, "headers_only");
    let (reason, _) = upload(&gateway, "next", Duration::ZERO);
    assert_eq!(reason, "picked");
    assert_eq!(warnings(&gateway), 0);
    assert_no_vm_lost(&gateway);
}
