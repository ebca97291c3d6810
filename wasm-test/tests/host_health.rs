//! How soon endpoints are found out, how often they are asked, and who remembers, on a clock in the
//! test's hands. The module is the built one, the host is the fake.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use serde_json::json;
use wasm_test::host::{Answer, Host, Thread};
use wasm_test::scenario::{FakeGateway, Gateway, Plan, Serves, metrics_page};
use wasm_test::testbed::POOL;

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
