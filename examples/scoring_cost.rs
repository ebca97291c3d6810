//! What a decision costs beside hashing a prompt, in one run on one machine.
//!
//! Prints the time to filter, score and rank 64 endpoints with eight scorers, in microseconds and as a
//! multiple of the time to hash 17 KB. `wasm-test` builds it for wasm and runs it where the module runs.

#![expect(clippy::print_stdout, reason = "it is a program")]
#![expect(
    clippy::disallowed_methods,
    reason = "the core takes time as an argument; this measures it"
)]

use core::hint::black_box;
use std::time::{Duration, Instant};

use inline_epp::config::Config;
use inline_epp::datalayer::EndpointId;
use inline_epp::scheduling::picker::TieKey;
use inline_epp::scheduling::{Candidate, Request, Scheduler};
use xxhash_rust::xxh64::xxh64;

const CONFIGURATION: &[u8] = br#"{"pools": [{
    "name": "p", "cluster": "c", "endpoints": ["10.0.0.1:80"],
    "endpointPickerConfig": {
        "apiVersion": "llm-d.ai/v1alpha1", "kind": "EndpointPickerConfig",
        "plugins": [
            {"type": "queue-scorer"}, {"type": "kv-cache-utilization-scorer"},
            {"type": "prefix-cache-scorer"}, {"type": "running-requests-size-scorer"},
            {"type": "load-aware-scorer"}, {"type": "load-scorer"}, {"type": "health-scorer"},
            {"type": "metric-scorer", "parameters": {"metric": "m"}}
        ]
    }
}]}"#;

const ENDPOINTS: u16 = 64;
const PROMPT_BYTES: usize = 17_000;
/// Each is timed as a whole; the fastest counts, the others met other work.
const BATCHES: usize = 200;
const ROUNDS: u32 = 50;

fn main() {
    let Some(scheduler) = scheduler() else {
        println!("the configuration is refused");
        return;
    };
    let candidates: Vec<Candidate> = (0..ENDPOINTS).map(candidate).collect();
    let prompt = vec![b'a'; PROMPT_BYTES];
    let mut schedule = || {
        let _ = black_box(scheduler.schedule(black_box(&REQUEST), black_box(&candidates)));
    };
    let mut hash = || {
        let _ = black_box(xxh64(black_box(&prompt), 0));
    };
    let (mut decided, mut hashed) = (Duration::MAX, Duration::MAX);
    for _ in 0..BATCHES {
        decided = decided.min(time(&mut schedule));
        hashed = hashed.min(time(&mut hash));
    }
    let ratio = decided.as_secs_f64() / hashed.as_secs_f64();
    let micros = decided.as_secs_f64() * 1e6 / f64::from(ROUNDS);
    println!("ratio {ratio:.2} micros {micros:.2}");
}

const REQUEST: Request = Request {
    tie: TieKey(7),
    random: 7,
    attempts: 3,
    total_blocks: 64,
    block_tokens: 64,
    prompt_tokens: 4_096.0,
    tokens_per_block: 64.0,
};

fn time(work: &mut impl FnMut()) -> Duration {
    let start = Instant::now();
    for _ in 0..ROUNDS {
        work();
    }
    start.elapsed()
}

fn scheduler() -> Option<Scheduler> {
    let config = Config::parse(CONFIGURATION).ok()?;
    Scheduler::new(&mut config.pools.first()?.clone()).ok()
}

/// No two are alike.
fn candidate(id: u16) -> Candidate {
    let number = u32::from(id);
    let mut candidate = Candidate {
        address_hash: u64::from(id),
        matched_blocks: number % 17,
        total_blocks: 64,
        waiting: number % 7,
        running: number % 11,
        own: number % 3,
        max_running: 256,
        kv_utilisation: Some(f64::from(number % 13) / 13.0),
        ..Candidate::new(EndpointId::new(id))
    };
    candidate.signals.set(0, f64::from(number));
    candidate
}
