//! Where the time of a decision goes: read, hash, match and score, tell the other VMs.
//!
//! A chat of 16 KB over 64 endpoints, half of the chats with a new tail, an index as full as the first
//! argument says (1,000,000 blocks). The second is the number of decisions (4,000). Natively:
//! `cargo run --release --example decision_cost`; in V8:
//! `cargo build --release --target wasm32-wasip1 --example decision_cost && node --no-warnings --no-liftoff
//! scripts/in-v8.mjs decision_cost`. The log's slots are memory here; in Envoy each is a host call.

#![expect(
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "a program that measures time and prints it"
)]

use core::cell::RefCell;
use core::num::NonZeroU32;
use std::rc::Rc;
use std::time::{Duration, Instant};

use inline_epp::config::Config;
use inline_epp::prefix::{BlockHash, Chain, ChainBuilder, Seed};
use inline_epp::replication::VmId;
use inline_epp::replication::ring::{Cas, Ring, SetResult, SharedStore};
use inline_epp::requestcontrol::{Ledger, LedgerHandle, Pool, Ticket};
use inline_epp::requesthandling::{Api, PromptSink, Request};
use inline_epp::scheduling::picker::TieKey;
use inline_epp::time::Timestamp;

const ENDPOINTS: usize = 64;
const BODY: usize = 16 << 10;
const BASES: usize = 16;
/// The new tail is this part of a chat.
const TAIL: usize = 10;
/// Blocks of a prompt that fills the index.
const LONG: u64 = 2_000;
const SLOTS: NonZeroU32 = NonZeroU32::new(4_096).unwrap();

fn main() {
    let mut arguments = std::env::args().skip(1);
    let mut number = |usual| {
        arguments
            .next()
            .and_then(|one| one.parse().ok())
            .unwrap_or(usual)
    };
    let (blocks, decisions) = (number(1_000_000), number(4_000));
    let Some(mut bench) = Bench::new(blocks) else {
        println!("the configuration is refused");
        return;
    };
    bench.fill(blocks);
    let mut steps: [Vec<Duration>; 5] = Default::default();
    for count in 0..decisions {
        let Some(took) = bench.decide(count) else {
            println!("a decision failed");
            return;
        };
        for (all, one) in steps.iter_mut().zip(took) {
            all.push(one);
        }
    }
    let names = [
        "read",
        "hash",
        "match and score",
        "tell that it is routed",
        "tell that it is over",
    ];
    println!("| step | µs |\n|---|---|");
    let mut sum = 0.0;
    for (name, times) in names.iter().zip(&mut steps) {
        times.sort_unstable();
        let median = times.get(times.len() / 2).copied().unwrap_or_default();
        let micros = median.as_secs_f64() * 1e6;
        sum += micros;
        println!("| {name} | {micros:.1} |");
    }
    println!("| together | {sum:.1} |");
}

struct Bench {
    pool: Pool,
    bodies: Vec<String>,
    now: Timestamp,
}

impl Bench {
    fn new(blocks: usize) -> Option<Self> {
        let endpoints: Vec<String> = (0..ENDPOINTS)
            .map(|id| format!(r#""10.0.0.{id}:8000""#))
            .collect();
        let each = blocks.div_ceil(ENDPOINTS);
        let configuration = format!(
            r#"{{"pools": [{{"name": "p", "cluster": "c", "endpoints": [{}],
                "prefix": {{"capacityBlocks": {each}, "autoTune": false}}}}]}}"#,
            endpoints.join(",")
        );
        let config = Config::parse(configuration.as_bytes()).ok()?;
        let mut store = Memory::default();
        Ring::create(SLOTS, &mut store)?;
        let ring = Ring::join(SLOTS, &store);
        let ledger = LedgerHandle::new(Ledger::shared(VmId(1), ring, Box::new(store)));
        Some(Self {
            pool: Pool::new(config.pools.first()?.clone(), blocks, ledger).ok()?,
            bodies: (0..BASES)
                .map(|base| text(&format!("prompt {base} "), BODY))
                .collect(),
            now: Timestamp::from_nanos(1_000_000_000),
        })
    }

    /// Prompts nobody asks for again, until the index is full.
    fn fill(&mut self, blocks: usize) {
        let mut next = 0;
        while self.pool.indexed_blocks() < blocks * 9 / 10 && next < 4 * blocks as u64 {
            let chain = Chain {
                blocks: (next..next + LONG)
                    .map(|number| BlockHash(number.wrapping_mul(0x9E37_79B9_7F4A_7C15)))
                    .collect(),
                anchor: Some(BlockHash(next)),
                bytes: 256 * LONG,
                further: Vec::new(),
            };
            next += LONG;
            if let Some(mut ticket) = self.route(&chain, next) {
                ticket.answered(&mut self.pool);
                ticket.close(&mut self.pool);
            }
        }
    }

    fn route(&mut self, chain: &Chain, tie: u64) -> Option<Ticket> {
        let pick = self.pool.pick(chain, "m", TieKey(tie), 3, self.now);
        let offered = pick.decision.ranking.iter().map(|ranked| ranked.endpoint);
        Ticket::open(&mut self.pool, offered.collect(), &chain.blocks, self.now)
    }

    /// The steps' times.
    fn decide(&mut self, count: usize) -> Option<[Duration; 5]> {
        let base = self.bodies.get(count % BASES)?;
        let kept = BODY - BODY / TAIL;
        let prompt = if (count / BASES) % 2 == 1 {
            let tail = text(&format!("tail {count} "), BODY / TAIL);
            format!("{}{tail}", base.get(..kept)?)
        } else {
            base.clone()
        };
        let body =
            format!(r#"{{"model":"m","messages":[{{"role":"user","content":"{prompt}"}}]}}"#);
        let start = Instant::now();
        let mut bytes = body.as_bytes();
        Request::read(Api::ChatCompletions, &mut bytes, false)
            .ok()?
            .read_prompts(&mut Nowhere)
            .ok()?;
        let read = start.elapsed();
        let start = Instant::now();
        let mut bytes = body.as_bytes();
        let mut builder = ChainBuilder::new(64, u32::MAX);
        let mut request = Request::read(Api::ChatCompletions, &mut bytes, false).ok()?;
        request.read_prompts(&mut builder).ok()?;
        let chain = builder.finish().chain(Seed::new("m", None));
        let hashed = start.elapsed();
        let start = Instant::now();
        let pick = self
            .pool
            .pick(&chain, "m", TieKey(count as u64), 3, self.now);
        let picked = start.elapsed();
        let offered = pick
            .decision
            .ranking
            .iter()
            .map(|ranked| ranked.endpoint)
            .collect();
        let start = Instant::now();
        let mut ticket = Ticket::open(&mut self.pool, offered, &chain.blocks, self.now)?;
        let opened = start.elapsed();
        let start = Instant::now();
        ticket.answered(&mut self.pool);
        ticket.close(&mut self.pool);
        let closed = start.elapsed();
        Some([read, hashed.saturating_sub(read), picked, opened, closed])
    }
}

fn text(word: &str, length: usize) -> String {
    word.chars().cycle().take(length).collect()
}

/// Takes prompts and does nothing with them.
struct Nowhere;

impl PromptSink for Nowhere {
    fn push(&mut self, _: &[u8]) {}
    fn end_first_user_message(&mut self) {}
    fn end_prompt(&mut self) {}
    fn mark(&mut self) {}
    fn end_mark(&mut self, _: bool) {}
    fn is_full(&self) -> bool {
        false
    }
}

/// The slots of the log.
#[derive(Clone, Default)]
struct Memory(Rc<RefCell<Vec<Option<Slot>>>>);

/// Value and token.
type Slot = (Vec<u8>, u32);

impl SharedStore for Memory {
    fn get(&self, slot: u32) -> Option<(Vec<u8>, Cas)> {
        let slots = self.0.try_borrow().ok()?;
        let (value, cas) = slots.get(usize::try_from(slot).ok()?)?.clone()?;
        Some((value, Cas(cas)))
    }

    fn set(&mut self, slot: u32, value: &[u8], _: Cas) -> SetResult {
        let (Ok(mut slots), Ok(at)) = (self.0.try_borrow_mut(), usize::try_from(slot)) else {
            return SetResult::Failed;
        };
        if slots.len() <= at {
            slots.resize(at + 1, None);
        }
        let Some(place) = slots.get_mut(at) else {
            return SetResult::Failed;
        };
        let cas = place.as_ref().map_or(1, |(_, cas)| cas.wrapping_add(1));
        *place = Some((value.to_vec(), cas));
        SetResult::Stored
    }
}
