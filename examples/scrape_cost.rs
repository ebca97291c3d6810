//! Where the time of reading the endpoints' metrics goes: a page, what all VMs do when the leader has
//! read some, and what the leader does each tick.
//!
//! A page of vLLM (50 KB); as many endpoints as the argument says (64). Natively:
//! `cargo run --release --example scrape_cost`; in V8:
//! `cargo build --release --target wasm32-wasip1 --example scrape_cost && node --no-warnings --no-liftoff
//! scripts/in-v8.mjs scrape_cost`. What Envoy does to fetch a page and to share a snapshot is not in it.

#![expect(
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "a program that measures time and prints it"
)]

use core::hint::black_box;
use std::time::{Duration, Instant};

use inline_epp::config::{Config, Engine, MetricSpec};
use inline_epp::datalayer::{EndpointId, EndpointMetrics, ScrapePlan, engine, signals};
use inline_epp::replication::snapshot::{decode, encode};
use inline_epp::requestcontrol::{Ledger, LedgerHandle, Pool};
use inline_epp::time::Timestamp;

const PAGE: &[u8] = include_bytes!("../wasm-test/vectors/vllm/metrics/01-fresh.prom");
const INTERVAL: Duration = Duration::from_secs(1);
/// Each is timed as a whole; the fastest counts, the others met other work.
const BATCHES: usize = 100;
const ROUNDS: u32 = 20;

fn main() {
    let arguments = std::env::args().nth(1);
    let endpoints = arguments.and_then(|one| one.parse().ok()).unwrap_or(64);
    let pools = (pool(endpoints), pool(endpoints));
    let (Some(leader), Some(follower)) = pools else {
        println!("the configuration is refused");
        return;
    };
    let Some(metrics) = engine::read(Engine::Auto, PAGE) else {
        println!("the page is refused");
        return;
    };
    println!("| step | µs |\n|---|---|");
    read();
    share(leader, follower, endpoints, &metrics);
}

fn read() {
    print("read a page", || {
        let _ = black_box(engine::read(Engine::Auto, black_box(PAGE)));
    });
    let asked = MetricSpec::parse("vllm:num_requests_swapped");
    let asked: Vec<MetricSpec> = asked.into_iter().collect();
    print("read it for a plugin, too", || {
        let _ = black_box(signals::read(&asked, black_box(PAGE)));
    });
}

fn share(mut leader: Pool, mut follower: Pool, endpoints: u16, metrics: &EndpointMetrics) {
    let mut clock = 0;
    print("take what all pages said", || {
        clock += 1;
        for id in 0..endpoints {
            leader.take_scrape(EndpointId::new(id), Timestamp::from_nanos(clock), metrics);
        }
    });
    print("take a snapshot", || {
        let _ = black_box(leader.snapshot());
    });
    let mut snapshot = leader.snapshot();
    print("encode it", || {
        let _ = black_box(encode(black_box(&snapshot)));
    });
    let bytes = encode(&snapshot);
    print("decode it in each VM", || {
        let _ = black_box(decode(black_box(&bytes)));
    });
    print("apply it, all being new", || {
        clock += 1;
        for one in &mut snapshot.endpoints {
            one.scraped_at = Some(Timestamp::from_nanos(clock));
        }
        follower.apply(&snapshot, Timestamp::from_nanos(clock));
    });
    print("look for who left, each tick", || leader.forget_strangers());
    let now = Timestamp::from_nanos(clock);
    let mut plan = ScrapePlan::new(INTERVAL, INTERVAL);
    print("look for what is due, each tick", || {
        let endpoints = leader.endpoints().map(|(_, one)| (one.address, INTERVAL));
        let _ = black_box(plan.start_due(endpoints, now));
    });
    print("count the candidates, each tick", || {
        let _ = black_box(leader.candidate_count(now));
    });
}

/// Prints how long `work` takes.
fn print(step: &str, mut work: impl FnMut()) {
    let mut fastest = Duration::MAX;
    for _ in 0..BATCHES {
        let start = Instant::now();
        for _ in 0..ROUNDS {
            work();
        }
        fastest = fastest.min(start.elapsed());
    }
    let micros = fastest.as_secs_f64() * 1e6 / f64::from(ROUNDS);
    println!("| {step} | {micros:.1} |");
}

fn pool(endpoints: u16) -> Option<Pool> {
    let addresses: Vec<String> = (0..endpoints)
        .map(|id| format!(r#""10.0.{}.{}:8000""#, id >> 8, id & 255))
        .collect();
    let configuration = format!(
        r#"{{"pools": [{{"name": "p", "cluster": "c", "endpoints": [{}]}}]}}"#,
        addresses.join(",")
    );
    let config = Config::parse(configuration.as_bytes()).ok()?;
    let ledger = LedgerHandle::new(Ledger::alone());
    Pool::new(config.pools.first()?.clone(), 1_000, ledger).ok()
}
