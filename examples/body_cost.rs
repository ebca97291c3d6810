//! What reading and hashing a chat costs, as a multiple of `serde_json` passing over the same bytes.
//!
//! Natively: `cargo run --release --example body_cost`. In V8, from the repository's root:
//! `CARGO_ENCODED_RUSTFLAGS="$(scripts/module-flags.sh)" cargo build --release --target wasm32-wasip1 --example body_cost && node --no-warnings scripts/in-v8.mjs body_cost`.
//! An argument is the number of rounds, for a clock that counts instructions and needs but one.

#![expect(
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "a program that measures time and prints it"
)]

use core::hint::black_box;
use std::time::{Duration, Instant};

use inline_epp::prefix::{ChainBuilder, Seed};
use inline_epp::requesthandling::{Api, ParseError, Request};
use serde::de::IgnoredAny;

/// A sentence and its line break, as JSON.
const LINE: &str = r"this is a line of what somebody has to say about something,\n";

/// Shapes: their name, lines in a message, what stands before and behind a message's text.
const SHAPES: [(&str, usize, &str, &str); 3] = [
    (
        "messages of 2 KB",
        32,
        r#"{"role":"user","content":""#,
        r#""}"#,
    ),
    (
        "messages of 120 bytes",
        2,
        r#"{"role":"user","content":""#,
        r#""}"#,
    ),
    (
        "parts of 2 KB",
        32,
        r#"{"role":"user","content":[{"type":"text","text":""#,
        r#""}]}"#,
    ),
];

const SIZES: [usize; 7] = [4, 16, 64, 256, 1_024, 4_096, 16_384];

fn main() {
    let rounds = std::env::args().nth(1);
    let rounds = rounds.and_then(|rounds| rounds.parse().ok());
    println!("| body | size | times `IgnoredAny` | time for a byte, of that at 1 MB |");
    println!("|---|---|---|---|");
    for (name, lines, before, after) in SHAPES {
        let message = format!("{before}{}{after}", LINE.repeat(lines));
        let costs = SIZES.map(|kib| (kib, cost(&body(&message, kib << 10), rounds)));
        let unit = costs.iter().find(|(kib, _)| *kib == 1_024);
        let unit = unit.map_or(1.0, |(_, cost)| cost.per_byte);
        for (kib, cost) in costs {
            let linear = cost.per_byte / unit;
            println!("| {name} | {kib} KiB | {:.2} | {linear:.2} |", cost.ratio);
        }
    }
}

fn body(message: &str, len: usize) -> Vec<u8> {
    let count = (len / message.len()).max(1);
    let messages = vec![message; count].join(",");
    format!(r#"{{"model":"m","messages":[{messages}]}}"#).into_bytes()
}

struct Cost {
    ratio: f64,
    /// Seconds.
    per_byte: f64,
}

/// The best of many rounds, the two taking turns so that both meet the same machine.
fn cost(body: &[u8], rounds: Option<usize>) -> Cost {
    let rounds = rounds.unwrap_or_else(|| ((64 << 20) / body.len()).clamp(100, 2_000));
    let (mut skipping, mut reading) = (Duration::MAX, Duration::MAX);
    for _ in 0..rounds {
        skipping = skipping.min(time(|| skip(body)));
        reading = reading.min(time(|| read(body)));
    }
    let bytes = u32::try_from(body.len()).map_or(1.0, f64::from);
    Cost {
        ratio: reading.as_secs_f64() / skipping.as_secs_f64(),
        per_byte: reading.as_secs_f64() / bytes,
    }
}

fn time(run: impl FnOnce() -> bool) -> Duration {
    let start = Instant::now();
    let is_ok = black_box(run());
    let taken = start.elapsed();
    if is_ok { taken } else { Duration::MAX }
}

fn skip(body: &[u8]) -> bool {
    serde_json::from_slice::<IgnoredAny>(black_box(body)).is_ok()
}

fn read(body: &[u8]) -> bool {
    read_chain(black_box(body)).is_ok_and(|blocks| blocks > 0)
}

fn read_chain(mut body: &[u8]) -> Result<usize, ParseError> {
    let mut request = Request::read(Api::ChatCompletions, &mut body, false)?;
    let mut blocks = ChainBuilder::new(64, u32::MAX);
    request.read_prompts(&mut blocks)?;
    let chain = blocks.finish().chain(Seed::new("m", None));
    Ok(chain.blocks.len())
}
