//! How load spreads over time, on a clock the test moves: idle servers, slow streams, imbalance and
//! steady load. The module is the built one, the host is the fake.

use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use serde_json::json;
use wasm_test::host::{Host, Progress, Response, Stream};
use wasm_test::scenario::{FakeGateway, Gateway, Plan, Serves};
use wasm_test::testbed::{COMPLETIONS, completion, prompt};

/// Open requests from which on a cache match may count as 0.
const GUARD: usize = 65;

fn start(servers: usize) -> FakeGateway {
    let plan = Plan::new(&vec![Serves::Well; servers]).plugin(|plugin| {
        plugin["pools"][0]["metrics"] = json!({ "interval": "1s" });
        plugin["pools"][0]["scoring"] = json!({ "guardFloor": GUARD });
    });
    let gateway = FakeGateway::start_unscraped(&plan, Host::setup());
    gateway.host().advance(Duration::from_secs(2));
    gateway
}

/// A request under way.
struct Open {
    server: usize,
    /// Blocks its server was thought to hold, and all of them.
    matched: (u32, u32),
    stream: Stream,
}

/// Sends a request, whose answer begins and does not end.
fn send(gateway: &FakeGateway, text: &str) -> Open {
    let body = completion(text).to_string();
    let headers: [(&str, &[u8]); 3] = [
        (":method", b"POST"),
        (":path", COMPLETIONS.as_bytes()),
        (":authority", b"test"),
    ];
    let mut stream = gateway.host().stream(0);
    stream.headers(&headers, false);
    assert_eq!(stream.body(body.as_bytes(), true), Progress::Sent);
    let sent = stream.sent().expect("it is on its way");
    let named = sent.header("x-gateway-destination-endpoint");
    let pick = named.and_then(|list| list.split(',').next()?.parse().ok());
    let pick = pick.expect("a pick");
    let headers = stream.respond(&Response::by(pick, 200), false);
    stream.response_body(b"{", false);
    let headers = headers.expect("a VM");
    let shown = headers
        .iter()
        .find(|(name, _)| name == b"x-epp-cache-match");
    let shown = shown.and_then(|(_, value)| str::from_utf8(value).ok()?.split_once('/'));
    let (matched, total) = shown.expect("blocks");
    let server = gateway.servers().iter().position(|one| *one == pick);
    Open {
        server: server.expect("a server of the pool"),
        matched: (matched.parse().unwrap(), total.parse().unwrap()),
        stream,
    }
}

/// Sends a request and has it answered at once; who served it, and its matched and all blocks.
fn ask(gateway: &FakeGateway, text: &str) -> (usize, (u32, u32)) {
    let open = send(gateway, text);
    open.stream.finish();
    (open.server, open.matched)
}

fn finish(all: impl IntoIterator<Item = Open>) {
    for one in all {
        one.stream.finish();
    }
}

fn cold(number: usize) -> String {
    prompt(&format!("client {number}"), 600)
}

/// How many of `picks` each of `servers` servers got.
fn shares(servers: usize, picks: impl IntoIterator<Item = usize>) -> Vec<usize> {
    let mut shares = vec![0; servers];
    for server in picks {
        shares[server] += 1;
    }
    shares
}

/// Whether a fair die of as many sides as there are shares gives these: five standard deviations.
fn fair(shares: &[usize]) -> bool {
    let sides = shares.len() as f64;
    let total = shares.iter().sum::<usize>() as f64;
    let deviation = (total / sides * (1.0 - 1.0 / sides)).sqrt();
    let mut all = shares.iter();
    all.all(|share| (*share as f64 - total / sides).abs() <= 5.0 * deviation)
}

/// Jain's index of fairness: 1 when all are equal, 1/n when one has everything.
fn jain(shares: &[usize]) -> f64 {
    let sum: f64 = shares.iter().map(|share| *share as f64).sum();
    let squares: f64 = shares.iter().map(|share| (*share as f64).powi(2)).sum();
    sum * sum / (shares.len() as f64 * squares)
}

/// Asks until a prompt named after `name` is at `server`; returns the prompt.
fn warm(gateway: &FakeGateway, name: &str, server: usize) -> String {
    let tries = (0..100).map(|number| prompt(&format!("{name} {number}"), 2_000));
    let mut tries = tries.filter(|text| ask(gateway, text).0 == server);
    tries.next().expect("it is picked some time")
}

#[test]
fn idle_servers_share_requests_that_are_answered_at_once() {
    let gateway = start(2);
    let picks = (0..448).map(|number| ask(&gateway, &cold(number)).0);
    let shares = shares(2, picks);
    assert!(fair(&shares), "{shares:?}");
}

#[test]
fn long_and_short_prompts_are_shared_alike() {
    let gateway = start(4);
    let lengths = [300, 30_000];
    let pick = |length, number| ask(&gateway, &prompt(&format!("{length} {number}"), length)).0;
    // One after another, so that the index alone could make a difference.
    let picks: Vec<_> = (0..200)
        .map(|at| lengths.map(|one| pick(one, at)))
        .collect();
    for of_length in 0..lengths.len() {
        let shares = shares(4, picks.iter().map(|both| both[of_length]));
        assert!(fair(&shares), "{} bytes: {shares:?}", lengths[of_length]);
    }
}

#[test]
fn slow_streams_count_for_as_long_as_they_last() {
    let gateway = start(2);
    let mut open = Vec::new();
    for number in 0..40 {
        open.push(send(&gateway, &cold(number)));
        // Scrapes go on meanwhile; these servers never show a request.
        gateway.host().advance(Duration::from_millis(300));
    }
    assert_eq!(shares(2, open.iter().map(|one| one.server)), [20, 20]);
    let (over, on): (Vec<_>, Vec<_>) = open.into_iter().partition(|one| one.server == 0);
    finish(over);
    let next: Vec<_> = (40..60)
        .map(|number| send(&gateway, &cold(number)))
        .collect();
    assert_eq!(shares(2, next.iter().map(|one| one.server)), [20, 0]);
    finish(on.into_iter().chain(next));
}

#[test]
fn an_imbalance_suspends_affinity_to_the_loaded_server_and_no_other() {
    let gateway = start(2);
    let [moving, returning] = ["moves", "returns"].map(|name| warm(&gateway, name, 0));
    let staying = warm(&gateway, "stays", 1);
    let mut burst = Vec::new();
    for number in 0..80 {
        let one = send(&gateway, &format!("{moving} and {number}"));
        if one.server == 0 {
            burst.push(one);
        } else {
            one.stream.finish();
        }
    }
    assert_eq!(burst.len(), GUARD);
    assert_eq!(ask(&gateway, &moving).0, 1);
    // What the other server holds is still worth going there for.
    let (server, (matched, total)) = ask(&gateway, &staying);
    assert_eq!((server, matched), (1, total));
    // The conversation that nobody continued during the imbalance returns after it, whole.
    finish(burst);
    let (server, (matched, total)) = ask(&gateway, &returning);
    assert_eq!((server, matched), (0, total));
}

#[test]
fn a_server_with_requests_waiting_gets_no_cold_prompt_while_others_idle() {
    let gateway = start(3);
    gateway.set_waiting(1, 12);
    gateway.host().advance(Duration::from_secs(2));
    let picks = (0..60).map(|number| ask(&gateway, &cold(number)).0);
    let shares = shares(3, picks);
    assert_eq!(shares[1], 0);
    assert!(fair(&[shares[0], shares[2]]), "{shares:?}");
}

/// Requests at random moments for as long as `lasts`, `per_second` of them on average, each of a
/// second's service on average. Returns the pick of each, and how many requests each found at its
/// server, on average: of the module's picks, and of servers taken in turn.
fn steady(servers: usize, lasts: Duration, per_second: f64) -> (Vec<usize>, f64, f64) {
    let gateway = start(servers);
    let mut random = StdRng::seed_from_u64(7);
    let mut exponential = |mean: f64| -mean * (1.0 - random.random::<f64>()).ln();
    let (mut now, mut picks, mut open) = (0.0, Vec::new(), Vec::<(f64, Open)>::new());
    let (mut found, mut found_in_turn, mut in_turn) = (0, 0, Vec::<(f64, usize)>::new());
    loop {
        let pause = exponential(1.0 / per_second);
        now += pause;
        if now > lasts.as_secs_f64() {
            break;
        }
        gateway.host().advance(Duration::from_secs_f64(pause));
        let (over, on): (Vec<_>, Vec<_>) = open.into_iter().partition(|(end, _)| *end <= now);
        open = on;
        finish(over.into_iter().map(|(_, one)| one));
        in_turn.retain(|(end, _)| *end > now);

        let one = send(&gateway, &cold(picks.len()));
        let turn = picks.len() % servers;
        let end = now + exponential(1.0);
        let here = |(_, other): &&(f64, Open)| other.server == one.server;
        found += open.iter().filter(here).count();
        found_in_turn += in_turn.iter().filter(|(_, other)| *other == turn).count();
        picks.push(one.server);
        open.push((end, one));
        in_turn.push((end, turn));
    }
    let sent = picks.len() as f64;
    (
        picks,
        found as f64 / sent,
        f64::from(found_in_turn as u32) / sent,
    )
}

#[test]
fn prompts_that_share_nothing_wait_no_longer_than_in_turns() {
    let (picks, found, found_in_turn) = steady(4, Duration::from_mins(2), 12.0);
    assert!(picks.len() > 1_000, "{}", picks.len());
    assert!(found <= found_in_turn, "{found} {found_in_turn}");
    let shares = shares(4, picks);
    assert!(jain(&shares) > 0.99, "{shares:?}");
}

#[test]
fn no_server_idles_under_ten_minutes_of_steady_load() {
    let (picks, ..) = steady(5, Duration::from_mins(10), 5.0);
    // In every minute, not only in all of them together.
    for minute in picks.chunks(300) {
        let shares = shares(5, minute.iter().copied());
        assert!(minute.len() < 300 || jain(&shares) > 0.95, "{shares:?}");
    }
    assert!(picks.len() > 2_000, "{}", picks.len());
}
