//! Properties of the pure core: the index against a naive model, the scheduler's guarantees, and
//! readers that take any bytes.

use std::collections::VecDeque;

use inline_epp::config::{Config, PendingCredit, ScoringConfig};
use inline_epp::datalayer::EndpointId;
use inline_epp::prefix::{BlockHash, ChainBuilder, PrefixIndex, Seed, Tail};
use inline_epp::scheduling::picker::TieKey;
use inline_epp::scheduling::{Candidate, Request, five_factor};
use proptest::prelude::*;

const ENDPOINTS: u16 = 3;

/// The prefix index as a list a reader can check by eye: oldest first, no hash table, no slab.
#[derive(Default)]
struct Naive {
    entries: VecDeque<Held>,
}

struct Held {
    endpoint: u16,
    block: u64,
    pending: u32,
    confirmed: bool,
}

impl Naive {
    fn record(&mut self, endpoint: u16, chain: &[u64], capacity: usize) {
        for &block in chain.iter().take(capacity).rev() {
            let mut held = match self.position(endpoint, block) {
                Some(at) => self.entries.remove(at).unwrap(),
                None => Held {
                    endpoint,
                    block,
                    pending: 0,
                    confirmed: false,
                },
            };
            held.pending += 1;
            if self.count(endpoint) >= capacity {
                let oldest = self
                    .entries
                    .iter()
                    .position(|held| held.endpoint == endpoint);
                self.entries.remove(oldest.unwrap());
            }
            self.entries.push_back(held);
        }
    }

    /// Makes the blocks of `known`, which the endpoint holds, the youngest.
    fn touch(&mut self, endpoint: u16, known: &[u64]) {
        for &block in known.iter().rev() {
            let at = self.position(endpoint, block).expect("held");
            let held = self.entries.remove(at).unwrap();
            self.entries.push_back(held);
        }
    }

    fn confirm(&mut self, endpoint: u16, chain: &[u64]) {
        for &block in chain {
            if let Some(at) = self.position(endpoint, block) {
                self.entries[at].confirmed = true;
                self.entries[at].pending = self.entries[at].pending.saturating_sub(1);
            }
        }
    }

    fn take_back(&mut self, endpoint: u16, chain: &[u64]) {
        for &block in chain {
            if let Some(at) = self.position(endpoint, block) {
                let held = &mut self.entries[at];
                held.pending = held.pending.saturating_sub(1);
                if held.pending == 0 && !held.confirmed {
                    self.entries.remove(at);
                }
            }
        }
    }

    fn matches(&self, chain: &[u64], credit: PendingCredit) -> Vec<u32> {
        let confirmed = |block| self.entries.iter().any(|h| h.block == block && h.confirmed);
        let counts = |endpoint, block| {
            self.position(endpoint, block).is_some_and(|at| {
                self.entries[at].confirmed
                    || match credit {
                        PendingCredit::Full => true,
                        PendingCredit::UnlessConfirmed => !confirmed(block),
                        PendingCredit::None => false,
                    }
            })
        };
        (0..ENDPOINTS)
            .map(|id| chain.iter().take_while(|&&block| counts(id, block)).count() as u32)
            .collect()
    }

    fn position(&self, endpoint: u16, block: u64) -> Option<usize> {
        self.entries
            .iter()
            .position(|held| held.endpoint == endpoint && held.block == block)
    }

    fn count(&self, endpoint: u16) -> usize {
        self.entries
            .iter()
            .filter(|held| held.endpoint == endpoint)
            .count()
    }
}

#[derive(Clone, Debug)]
enum Operation {
    Record(u16, Vec<u64>),
    /// A chain, of which so many blocks may have been proved.
    RecordAfter(u16, Vec<u64>, usize),
    Confirm(u16, Vec<u64>),
    TakeBack(u16, Vec<u64>),
}

/// Conversations that share beginnings: a block's number says which prefix it ends.
fn chains() -> impl Strategy<Value = Vec<u64>> {
    (0_u64..3, 0_u64..4, 0_usize..6, 0_usize..6).prop_map(|(system, talk, head, tail)| {
        let head_blocks = (0..head as u64).map(|at| 1_000 * system + at);
        let tail_blocks = (0..tail as u64).map(|at| 1_000 * system + 100 * (talk + 1) + at);
        head_blocks.chain(tail_blocks).collect()
    })
}

fn operations() -> impl Strategy<Value = Vec<Operation>> {
    let operation =
        (0_u8..8, 0..ENDPOINTS, chains(), 1_usize..8).prop_map(|(kind, endpoint, chain, known)| {
            match kind {
                0..=2 => Operation::Record(endpoint, chain),
                3..=4 => Operation::Confirm(endpoint, chain),
                5..=6 => Operation::RecordAfter(endpoint, chain, known),
                _ => Operation::TakeBack(endpoint, chain),
            }
        });
    prop::collection::vec(operation, 0..60)
}

fn hashes(chain: &[u64]) -> Vec<BlockHash> {
    chain.iter().copied().map(BlockHash).collect()
}

fn scoring() -> ScoringConfig {
    let json = br#"{"pools":[{"name":"p","cluster":"c","endpoints":["10.0.0.1:80"]}]}"#;
    Config::parse(json).unwrap().pools.remove(0).scoring
}

/// Any endpoint that is a candidate: healthy and below the queue limit.
fn candidates() -> impl Strategy<Value = Candidate> {
    let utilisation = || prop::option::of(0.0..=1.0_f64);
    let counts = (0_u32..20, 0_u32..600, 0_u32..300, 1_u32..513);
    let rest = (
        utilisation(),
        utilisation(),
        0.3..=1.0_f64,
        any::<bool>(),
        0_u32..=64,
    );
    let below_limit = "below the queue limit";
    (any::<u64>(), counts, rest).prop_filter_map(below_limit, |(address_hash, counts, rest)| {
        let (waiting, running, own, max_running) = counts;
        let (kv_utilisation, gpu_utilisation, health, adapter_ready, matched_blocks) = rest;
        let candidate = Candidate {
            address_hash,
            matched_blocks,
            total_blocks: 64,
            waiting,
            running,
            own,
            max_running,
            kv_utilisation,
            gpu_utilisation,
            health,
            adapter_ready,
            ..Candidate::new(EndpointId::new(0))
        };
        (candidate.truly_waiting() < 20).then_some(candidate)
    })
}

fn request(tie: u64) -> Request {
    Request {
        tie: TieKey(tie),
        random: tie,
        attempts: 1,
        total_blocks: 64,
        block_tokens: 64,
        prompt_tokens: 4_096.0,
        tokens_per_block: 64.0,
    }
}

fn numbered(mut all: Vec<Candidate>) -> Vec<Candidate> {
    for (candidate, id) in all.iter_mut().zip(0_u16..) {
        candidate.endpoint = EndpointId::new(id);
    }
    all
}

proptest! {
    #[test]
    fn the_index_agrees_with_a_naive_model(
        operations in operations(),
        capacity in 1_u32..16,
        lookups in prop::collection::vec(chains(), 1..8),
    ) {
        let mut index = PrefixIndex::new(usize::from(ENDPOINTS), capacity, 1_000_000);
        let mut naive = Naive::default();
        let room = capacity as usize;
        for operation in &operations {
            match operation {
                Operation::Record(endpoint, chain) => {
                    index.record(EndpointId::new(*endpoint), &hashes(chain));
                    naive.record(*endpoint, chain, room);
                }
                Operation::RecordAfter(endpoint, chain, known) => {
                    let (known, new) = chain.split_at(*known.min(&chain.len()));
                    let block = BlockHash(known.last().copied().unwrap_or(0));
                    let tail = Tail { len: known.len() as u32, block };
                    let id = EndpointId::new(*endpoint);
                    if index.record_after_confirmed(id, tail, &hashes(new)) {
                        naive.touch(*endpoint, known);
                        naive.record(*endpoint, new, room);
                        naive.touch(*endpoint, known);
                    }
                }
                Operation::Confirm(endpoint, chain) => {
                    index.confirm(EndpointId::new(*endpoint), &hashes(chain));
                    naive.confirm(*endpoint, chain);
                }
                Operation::TakeBack(endpoint, chain) => {
                    index.take_back(EndpointId::new(*endpoint), &hashes(chain));
                    naive.take_back(*endpoint, chain);
                }
            }
        }
        prop_assert_eq!(index.len(), naive.entries.len());
        let mut matched = Vec::new();
        for chain in &lookups {
            for credit in
                [PendingCredit::Full, PendingCredit::UnlessConfirmed, PendingCredit::None]
            {
                index.matches(&hashes(chain), credit, &mut matched);
                prop_assert_eq!(&matched, &naive.matches(chain, credit), "{:?}", chain);
            }
        }
    }

    #[test]
    fn the_index_never_exceeds_its_caps(
        operations in operations(), capacity in 0_u32..16, cap in 0_usize..24,
    ) {
        let mut index = PrefixIndex::new(usize::from(ENDPOINTS), capacity, cap);
        for operation in &operations {
            if let Operation::Record(endpoint, chain) = operation {
                index.record(EndpointId::new(*endpoint), &hashes(chain));
                prop_assert!(index.len() <= cap);
                for id in 0..ENDPOINTS {
                    prop_assert!(index.blocks_at(EndpointId::new(id)) <= capacity);
                }
            }
        }
    }

    #[test]
    fn composite_scores_lie_between_0_and_1(candidate in candidates()) {
        let score = five_factor(&scoring()).composites(&request(0), &[&candidate])[0];
        prop_assert!((0.0..=1.0).contains(&score), "{}", score);
    }

    #[test]
    fn a_match_advantage_of_two_thirds_always_wins(
        better in candidates(), worse in candidates(), tie in any::<u64>(), gap in 43_u32..=64,
    ) {
        let matched_blocks = worse.matched_blocks.min(64 - gap) + gap;
        let better = Candidate { matched_blocks, ..better };
        let worse = Candidate { matched_blocks: worse.matched_blocks.min(64 - gap), ..worse };
        let both = numbered(vec![worse, better]);
        let decision = five_factor(&scoring()).run(&request(tie), &both);
        prop_assert_eq!(decision.ranking[0].endpoint, EndpointId::new(1));
    }

    #[test]
    fn the_order_of_endpoints_does_not_change_the_pick(
        all in prop::collection::vec(candidates(), 1..12), tie in any::<u64>(), by in 0_usize..12,
    ) {
        let pick = |of: &[Candidate]| {
            let endpoint = five_factor(&scoring()).run(&request(tie), of).ranking[0].endpoint;
            of.iter().find(|one| one.endpoint == endpoint).unwrap().address_hash
        };
        let straight = numbered(all.clone());
        let mut turned = all;
        let middle = by % turned.len();
        turned.rotate_left(middle);
        prop_assert_eq!(pick(&straight), pick(&numbered(turned)));
    }

    #[test]
    fn prompts_share_blocks_up_to_where_they_part(
        common in prop::collection::vec(any::<u8>(), 0..900),
        tails in prop::array::uniform2(prop::collection::vec(any::<u8>(), 0..300)),
    ) {
        let chain = |tail: &[u8]| {
            let mut builder = ChainBuilder::new(16, 1_000);
            builder.push(&common);
            builder.push(tail);
            builder.finish().chain(Seed::new("m", None)).blocks
        };
        let [left, right] = [chain(&tails[0]), chain(&tails[1])];
        let shared = left.iter().zip(&right).take_while(|(a, b)| a == b).count();
        let joined = |tail: &[u8]| [common.as_slice(), tail].concat();
        let (a, b) = (joined(&tails[0]), joined(&tails[1]));
        let equal_bytes = a.iter().zip(&b).take_while(|(a, b)| a == b).count();
        prop_assert_eq!(shared, equal_bytes / 64);
    }
}
