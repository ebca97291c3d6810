//! Where the time of a decision goes: read, hash, follow the other VMs, match and score, tell them.
//!
//! Chats of which half have a new tail, one VM after another. Arguments: blocks in the index (1,000,000), decisions (4,000),
//! endpoints (64), bytes of a chat (16,384), VMs (1). Natively:
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
use inline_epp::requestcontrol::{Ledger, LedgerHandle, Pick, Pool, Ticket};
use inline_epp::requesthandling::{Api, PromptSink, Request};
use inline_epp::scheduling::picker::TieKey;
use inline_epp::time::Timestamp;

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
    let (endpoints, bytes, vms) = (number(64), number(16 << 10), number(1));
    let Some(mut bench) = Bench::new(blocks, endpoints, bytes, vms) else {
        println!("the configuration is refused");
        return;
    };
    bench.fill(blocks);
    let mut steps: [Vec<Duration>; 6] = Default::default();
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
        "follow the others",
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
    pools: Vec<Pool>,
    bodies: Vec<String>,
    now: Timestamp,
}

impl Bench {
    fn new(blocks: usize, endpoints: usize, bytes: usize, vms: usize) -> Option<Self> {
        let each = blocks.div_ceil(endpoints);
        let endpoints: Vec<String> = (0..endpoints)
            .map(|id| format!(r#""10.0.{}.{}:8000""#, id / 256, id % 256))
            .collect();
        let configuration = format!(
            r#"{{"pools": [{{"name": "p", "cluster": "c", "endpoints": [{}],
                "prefix": {{"capacityBlocks": {each}, "autoTune": false}}}}]}}"#,
            endpoints.join(",")
        );
        let config = Config::parse(configuration.as_bytes()).ok()?;
        let mut store = Memory::default();
        Ring::create(SLOTS, &mut store)?;
        let ring = Ring::join(SLOTS, &store);
        let pool = config.pools.first()?;
        let vm = |vm| {
            let ledger = Ledger::shared(VmId(vm), ring, Box::new(store.clone()));
            Pool::new(pool.clone(), blocks, LedgerHandle::new(ledger)).ok()
        };
        Some(Self {
            pools: (1..).take(vms.max(1)).map(vm).collect::<Option<_>>()?,
            bodies: (0..BASES)
                .map(|base| text(&format!("prompt {base} "), bytes))
                .collect(),
            now: Timestamp::from_nanos(1_000_000_000),
        })
    }

    /// Prompts nobody asks for again, until the index is full.
    fn fill(&mut self, blocks: usize) {
        let mut next = 0;
        let is_full = |pool: &Pool| pool.indexed_blocks() >= blocks * 9 / 10;
        while !self.pools.first().is_none_or(is_full) && next < 4 * blocks as u64 {
            let chain = Chain {
                blocks: (next..next + LONG)
                    .map(|number| BlockHash(number.wrapping_mul(0x9E37_79B9_7F4A_7C15)))
                    .collect(),
                anchor: Some(BlockHash(next)),
                bytes: 256 * LONG,
                further: Vec::new(),
            };
            next += LONG;
            let Some(pool) = self.pools.first_mut() else {
                return;
            };
            let pick = pool.pick(&chain, "m", TieKey(next), 3, self.now);
            if let Some(mut ticket) = open(pool, &pick, &chain, self.now) {
                ticket.answered(pool, true);
                ticket.close(pool);
            }
            for pool in &self.pools {
                pool.catch_up();
            }
        }
    }

    /// The steps' times.
    fn decide(&mut self, count: usize) -> Option<[Duration; 6]> {
        let base = self.bodies.get(count % BASES)?;
        let tail = base.len() / TAIL;
        let kept = base.len().checked_sub(tail)?;
        let prompt = if (count / BASES) % 2 == 1 {
            let tail = text(&format!("tail {count} "), tail);
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
        let vms = self.pools.len();
        let pool = self.pools.get_mut(count.checked_rem(vms)?)?;
        let start = Instant::now();
        pool.catch_up();
        let followed = start.elapsed();
        let start = Instant::now();
        let pick = pool.pick(&chain, "m", TieKey(count as u64), 3, self.now);
        let picked = start.elapsed();
        let start = Instant::now();
        let mut ticket = open(pool, &pick, &chain, self.now)?;
        let opened = start.elapsed();
        let start = Instant::now();
        ticket.answered(pool, true);
        ticket.close(pool);
        let closed = start.elapsed();
        let hashed = hashed.saturating_sub(read);
        Some([read, hashed, followed, picked, opened, closed])
    }
}

fn open(pool: &mut Pool, pick: &Pick, chain: &Chain, now: Timestamp) -> Option<Ticket> {
    let offered = pick.decision.ranking.iter().map(|ranked| ranked.endpoint);
    Ticket::open(pool, offered.collect(), &chain.blocks, now)
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
