//! How soon endpoints are found out, how often they are asked, and who remembers, on a clock in the
//! test's hands. The module is the built one, the host is the fake.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use serde_json::json;
use wasm_test::host::{Answer, Host, Response, Thread};
use wasm_test::scenario::{FakeGateway, Gateway, Plan, Request, Serves, metrics_page};
use wasm_test::testbed::{COMPLETIONS, POOL, completion, prompt};

/// The scrape interval of the gateway.
const INTERVAL: Duration = Duration::from_millis(200);
/// Calls start at ticks, ten of which are an interval, and take 2 ms.
const TICK: Duration = Duration::from_millis(20);

fn start(servers: &[Serves]) -> FakeGateway {
    let gateway = FakeGateway::start_unscraped(&Plan::new(servers), Host::setup());
    gateway.scrape();
    gateway
}

fn candidates(gateway: &FakeGateway) -> u64 {
    let labels = [("pool", POOL)];
    let count = gateway.host().metric("epp_candidate_pods", &labels);
    count.expect("it is exported from the start")
}

/// How long it takes until so many endpoints are candidates.
fn time_until(gateway: &FakeGateway, wanted: u64) -> Duration {
    let since = gateway.host().now();
    while candidates(gateway) != wanted {
        gateway.host().advance(Duration::from_millis(1));
        assert!(
            gateway.host().now().saturating_sub(since) < INTERVAL * 100,
            "never"
        );
    }
    gateway.host().now().saturating_sub(since)
}

/// Has the one server answer each path as `answers` says when it is asked; `None` never answers.
/// Returns how often each path was asked for.
fn answer(
    gateway: &FakeGateway,
    answers: impl Fn(&str) -> Option<Answer> + 'static,
) -> Rc<RefCell<BTreeMap<String, usize>>> {
    let asked = Rc::new(RefCell::new(BTreeMap::new()));
    let counts = Rc::clone(&asked);
    gateway.host().answer_calls(move |call| {
        let path = call.request.header(":path")?;
        *counts.borrow_mut().entry(path.to_owned()).or_default() += 1;
        Some((Duration::from_millis(2), answers(path)?))
    });
    asked
}

fn well(path: &str) -> Answer {
    match path {
        "/health" => Answer::ok(""),
        "/v1/models" => Answer::ok(r#"{"data":[{"id":"sim-model"}]}"#),
        _ => Answer::ok(metrics_page(0)),
    }
}

#[test]
fn a_port_that_refuses_is_out_within_an_interval_and_back_within_two() {
    for offset in 0..10 {
        let gateway = start(&[Serves::Well; 2]);
        gateway.host().advance(TICK * offset);
        gateway.set_serves(0, Serves::Gone);
        // The scrape tells that something is wrong, the check a tick later what it is, and the
        // gauge is written another tick later.
        assert!(time_until(&gateway, 1) <= INTERVAL + TICK * 3);
        gateway.set_serves(0, Serves::Well);
        assert!(time_until(&gateway, 2) <= INTERVAL + TICK * 2);
    }
}

#[test]
fn a_server_is_used_within_two_intervals_after_its_model_is_loaded() {
    for offset in 0..10 {
        let gateway = start(&[Serves::Loading, Serves::Well]);
        gateway.host().advance(INTERVAL * 3 + TICK * offset);
        assert_eq!(candidates(&gateway), 1);
        gateway.set_serves(0, Serves::Well);
        assert!(time_until(&gateway, 2) <= INTERVAL * 2);
    }
}

#[test]
fn a_dead_engine_behind_a_living_page_is_out_within_five_intervals() {
    let gateway = start(&[Serves::Well]);
    answer(&gateway, |path| {
        Some(match path {
            "/health" => Answer::status(503),
            path => well(path),
        })
    });
    assert!(time_until(&gateway, 0) <= INTERVAL * 5 + TICK * 2);
    answer(&gateway, |path| Some(well(path)));
    assert!(time_until(&gateway, 1) <= INTERVAL + TICK * 2);
}

#[test]
fn an_empty_list_of_models_takes_a_server_out_until_there_is_one() {
    let gateway = start(&[Serves::Well]);
    // Its page is gone for a while, so it is asked for its models again.
    answer(&gateway, |_| Some(Answer::ok("")));
    gateway.host().advance(INTERVAL * 2);
    answer(&gateway, |path| {
        Some(match path {
            "/v1/models" => Answer::ok(r#"{"data":[]}"#),
            path => well(path),
        })
    });
    assert!(time_until(&gateway, 0) <= INTERVAL * 2);
    answer(&gateway, |path| Some(well(path)));
    assert!(time_until(&gateway, 1) <= INTERVAL * 2);
}

#[test]
fn a_well_server_is_asked_seldom_and_by_the_pools_own_cluster() {
    let plan = Plan::new(&[Serves::Well]).plugin(|plugin| {
        plugin["pools"][0]["metrics"]["cluster"] = json!("scrapes");
    });
    let gateway = FakeGateway::start_unscraped(&plan, Host::setup().cluster("scrapes"));
    gateway.host().answer_calls(|call| {
        let path = call.request.header(":path")?;
        let cluster = if path == "/metrics" {
            "scrapes"
        } else {
            "model-servers"
        };
        assert_eq!(call.request.cluster, cluster);
        Some((Duration::from_millis(2), well(path)))
    });
    gateway.scrape();
    let asked = answer(&gateway, |path| Some(well(path)));
    gateway.host().advance(INTERVAL * 60);
    let asked = asked.borrow();
    let of = |path: &str| asked.get(path).copied().unwrap_or(0);
    assert_eq!(
        (of("/metrics"), of("/health"), of("/v1/models")),
        (60, 12, 2)
    );
}

#[test]
fn answers_that_tell_nothing_take_nobody_out() {
    let overloaded = || Answer::Local {
        status: 503,
        body: "upstream connect error or disconnect/reset before headers. reset reason: overflow",
    };
    let cases: [fn() -> Option<Answer>; 4] = [
        || None,
        || Some(Answer::Reset),
        || Some(Answer::broken()),
        || Some(Answer::status(404)),
    ];
    for case in cases {
        let gateway = start(&[Serves::Well]);
        answer(&gateway, move |_| case());
        gateway.host().advance(INTERVAL * 40);
        assert_eq!(candidates(&gateway), 1, "{:?}", case());
    }
    let gateway = start(&[Serves::Well]);
    answer(&gateway, move |_| Some(overloaded()));
    gateway.host().advance(INTERVAL * 40);
    gateway.host().set_exhausted("model-servers", true);
    gateway.host().advance(INTERVAL * 40);
    assert_eq!(candidates(&gateway), 1);
}

#[test]
fn the_next_leader_knows_who_is_not_ready_and_does_not_tell_it_again() {
    let plan = Plan::new(&[Serves::Gone, Serves::Well]);
    let gateway = FakeGateway::start_unscraped(&plan, Host::setup().workers(2));
    gateway.host().advance(INTERVAL * 3);
    assert_eq!(candidates(&gateway), 1);
    let told = |what: &str| gateway.log().matches(what).count();
    assert_eq!(
        (told("is not used: it is not ready"), told("is used again")),
        (1, 0)
    );
    gateway.host().kill(Thread::Main);
    for _ in 0..100 {
        gateway.host().advance(TICK);
        assert_eq!(candidates(&gateway), 1);
    }
    assert_eq!(gateway.scraped_by(1), Some(Thread::Worker(0)));
    assert_eq!((told("is not used"), told("is used again")), (1, 0));
    gateway.set_serves(0, Serves::Well);
    time_until(&gateway, 2);
    assert_eq!((told("is not used"), told("is used again")), (1, 1));
}

/// Has worker 0 send so many requests at the same time, of which server 0 fails its share.
fn fail_at_once(gateway: &FakeGateway, requests: usize) {
    let headers: [(&str, &[u8]); 3] = [
        (":method", b"POST"),
        (":path", COMPLETIONS.as_bytes()),
        (":authority", b"test"),
    ];
    let mut streams = Vec::new();
    for number in 0..requests {
        let mut stream = gateway.host().stream(0);
        stream.headers(&headers, false);
        let body = completion(&prompt(&format!("at once {number}"), 600)).to_string();
        stream.body(body.as_bytes(), true);
        streams.push(stream);
    }
    let failing = gateway.servers()[0];
    let mut failures = 0;
    for mut stream in streams {
        let sent = stream.sent().expect("a request");
        let list = sent
            .header("x-gateway-destination-endpoint")
            .expect("a destination");
        let first = list.split(',').next().expect("a first");
        let fails = first == failing.to_string();
        failures += usize::from(fails);
        let response = Response::by(
            first.parse().expect("an address"),
            if fails { 500 } else { 200 },
        );
        stream.respond(&response, false);
        stream.response_body(b"{}", true);
        stream.finish();
    }
    assert!(failures >= 5, "{failures}");
}

#[test]
fn an_endpoint_that_fails_at_one_worker_is_left_out_by_all() {
    let plan = Plan::new(&[Serves::Failing, Serves::Well]);
    let gateway = FakeGateway::start_unscraped(&plan, Host::setup().workers(2));
    gateway.scrape();
    let [failing, _] = gateway.servers() else {
        panic!("two servers");
    };
    let ask = |worker, number: usize| {
        let body = completion(&prompt(&format!("{worker} {number}"), 600)).to_string();
        gateway.send_by(worker, &Request::post(COMPLETIONS, body))
    };
    fail_at_once(&gateway, 16);
    gateway.host().advance(TICK * 2);
    assert_eq!(
        candidates(&gateway),
        1,
        "the leader serves nobody, and knows"
    );
    for number in 0..20 {
        assert_ne!(ask(1, number).server, Some(*failing), "request {number}");
    }
    // A probe a second, whichever worker's.
    let since = gateway.host().now();
    let mut probes = 0;
    for number in 20..120 {
        gateway.host().advance(TICK);
        for worker in 0..2 {
            probes += usize::from(ask(worker, number).server == Some(*failing));
        }
    }
    let seconds = gateway.host().now().saturating_sub(since).as_secs_f64();
    assert!((1..=2).contains(&probes), "{probes} in {seconds} s");
}

#[test]
fn a_new_vm_takes_no_failure_of_long_ago_for_a_new_one() {
    let plan = Plan::new(&[Serves::Failing, Serves::Well]);
    let gateway = FakeGateway::start_unscraped(&plan, Host::setup().workers(2));
    gateway.scrape();
    fail_at_once(&gateway, 16);
    gateway.set_serves(0, Serves::Well);
    // Longer than errorWindow; the log still tells of it.
    gateway.host().advance(Duration::from_secs(11));
    gateway.host().kill(Thread::Worker(1));
    let back = (0..20).filter(|number| {
        let body = completion(&prompt(&format!("later {number}"), 600)).to_string();
        let exchange = gateway.send_by(1, &Request::post(COMPLETIONS, body));
        exchange.server == Some(gateway.servers()[0])
    });
    let back = back.count();
    assert!(back >= 5, "{back} of 20");
}
