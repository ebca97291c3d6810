use std::collections::VecDeque;

use super::buckets::PER_ENTRY;
use super::*;

const UNBOUNDED: usize = usize::MAX;

fn endpoint(index: u16) -> EndpointId {
    EndpointId::new(index)
}

fn chain(hashes: impl IntoIterator<Item = u64>) -> Vec<BlockHash> {
    hashes.into_iter().map(BlockHash).collect()
}

fn matched(index: &PrefixIndex, chain: &[BlockHash], credit: PendingCredit) -> Vec<u32> {
    let mut lengths = vec![99];
    index.matches(chain, credit, &mut lengths);
    lengths
}

fn full_matches(index: &PrefixIndex, chain: &[BlockHash]) -> Vec<u32> {
    matched(index, chain, PendingCredit::Full)
}

#[test]
fn each_endpoint_matches_what_it_was_sent() {
    let mut index = PrefixIndex::new(3, 100, UNBOUNDED);
    index.record(endpoint(0), &chain(1..=5));
    index.record(endpoint(2), &chain([1, 2, 30, 40]));
    assert_eq!(full_matches(&index, &chain(1..=8)), [5, 0, 2]);
    assert_eq!(full_matches(&index, &chain([7, 1, 2])), [0, 0, 0]);
    assert_eq!(full_matches(&index, &[]), [0, 0, 0]);
}

#[test]
fn longest_match_stops_at_the_first_gap_of_that_endpoint() {
    let mut index = PrefixIndex::new(2, 100, UNBOUNDED);
    index.record(endpoint(0), &chain(1..=6));
    index.record(endpoint(1), &chain([1, 2]));
    // Endpoint 1 holds block 4 without its predecessor.
    index.record(endpoint(1), &chain([4]));
    assert_eq!(full_matches(&index, &chain(1..=6)), [6, 2]);
}

#[test]
fn eviction_drops_prompt_tails_first() {
    let mut index = PrefixIndex::new(1, 10, UNBOUNDED);
    index.record(endpoint(0), &chain(1..=8));
    index.record(endpoint(0), &chain(101..=105));
    assert_eq!(full_matches(&index, &chain(1..=8)), [5]);
    assert_eq!(full_matches(&index, &chain(101..=105)), [5]);
    assert_eq!(index.len(), 10);
}

#[test]
fn a_touched_prompt_outlives_an_older_one() {
    let mut index = PrefixIndex::new(1, 10, UNBOUNDED);
    index.record(endpoint(0), &chain(1..=5));
    index.record(endpoint(0), &chain(11..=15));
    index.record(endpoint(0), &chain(1..=5));
    index.record(endpoint(0), &chain(21..=25));
    assert_eq!(full_matches(&index, &chain(1..=5)), [5]);
    assert_eq!(full_matches(&index, &chain(11..=15)), [0]);
}

#[test]
fn blocks_are_in_the_order_they_were_last_sent_in_whatever_is_sent() {
    const ROOM: usize = 8;
    let mut index = PrefixIndex::new(1, u32::try_from(ROOM).unwrap(), UNBOUNDED);
    let mut expected: VecDeque<BlockHash> = VecDeque::new();
    let mut seed: u64 = 1;
    let mut random = |below: u64| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (seed >> 33) % below
    };
    for round in 0..5_000 {
        // Mostly a prompt that goes on as one before did, at times one that repeats its own blocks.
        let (len, first) = (random(10), random(12));
        let hashes = (0..len).map(|at| {
            if round % 3 == 0 {
                random(12)
            } else {
                first + at
            }
        });
        let prompt = chain(hashes);
        index.record(endpoint(0), &prompt);
        for block in prompt.iter().take(ROOM).rev() {
            expected.retain(|held| held != block);
            expected.truncate(ROOM - 1);
            expected.push_front(*block);
        }
        let held: VecDeque<BlockHash> = index.held(endpoint(0)).map(|held| held.block).collect();
        assert_eq!(held, expected, "round {round}: {prompt:?}");
    }
}

#[test]
fn prompts_of_any_length_match_as_far_as_they_are_known() {
    for known in 0..40 {
        let mut index = PrefixIndex::new(1, 100, UNBOUNDED);
        index.record(endpoint(0), &chain(1..=known));
        for len in 0..40 {
            let matched = u32::try_from(known.min(len)).unwrap();
            assert_eq!(full_matches(&index, &chain(1..=len)), [matched]);
        }
    }
}

#[test]
fn a_prompt_longer_than_the_cache_keeps_its_head() {
    let mut index = PrefixIndex::new(1, 4, UNBOUNDED);
    index.record(endpoint(0), &chain(1..=9));
    assert_eq!(full_matches(&index, &chain(1..=9)), [4]);
    assert_eq!(index.len(), 4);
}

#[test]
fn a_smaller_capacity_evicts_at_once() {
    let mut index = PrefixIndex::new(2, 100, UNBOUNDED);
    index.record(endpoint(0), &chain(1..=50));
    index.record(endpoint(1), &chain(1..=50));
    index.set_capacity(endpoint(0), 7);
    assert_eq!(full_matches(&index, &chain(1..=50)), [7, 50]);
    index.set_capacity(endpoint(0), 0);
    index.record(endpoint(0), &chain(1..=50));
    assert_eq!(index.blocks_at(endpoint(0)), 0);
}

#[test]
fn the_hard_cap_holds_for_all_endpoints_together() {
    let mut index = PrefixIndex::new(4, 1_000_000, 100);
    for round in 0..1_000_u64 {
        let id = endpoint(u16::try_from(round % 4).unwrap());
        index.record(id, &chain(round * 10..round * 10 + 10));
        assert!(index.len() <= 100);
    }
    let per_endpoint: Vec<u32> = (0..4).map(|id| index.blocks_at(endpoint(id))).collect();
    assert_eq!(per_endpoint.iter().sum::<u32>(), 100);
    assert!(
        per_endpoint
            .iter()
            .all(|&blocks| (20..=30).contains(&blocks)),
        "{per_endpoint:?}"
    );
}

#[test]
fn pending_blocks_count_unless_another_endpoint_has_them_confirmed() {
    use PendingCredit::{Full, None, UnlessConfirmed};
    let mut index = PrefixIndex::new(2, 100, UNBOUNDED);
    let prompt = chain(1..=4);
    index.record(endpoint(0), &prompt);
    assert_eq!(matched(&index, &prompt, UnlessConfirmed), [4, 0]);
    assert_eq!(matched(&index, &prompt, None), [0, 0]);
    index.record(endpoint(1), &chain(1..=2));
    index.confirm(endpoint(1), &chain(1..=2));
    assert_eq!(matched(&index, &prompt, UnlessConfirmed), [0, 2]);
    assert_eq!(matched(&index, &prompt, Full), [4, 2]);
    assert_eq!(matched(&index, &prompt, None), [0, 2]);
    index.confirm(endpoint(0), &prompt);
    for credit in [UnlessConfirmed, Full, None] {
        assert_eq!(matched(&index, &prompt, credit), [4, 2]);
    }
}

#[test]
fn a_failed_request_takes_its_pending_blocks_along() {
    let mut index = PrefixIndex::new(2, 100, UNBOUNDED);
    index.record(endpoint(0), &chain(1..=4));
    index.take_back(endpoint(0), &chain(1..=4));
    assert!(index.is_empty());
    assert_eq!(full_matches(&index, &chain(1..=4)), [0, 0]);
}

#[test]
fn blocks_another_request_awaits_or_confirmed_stay() {
    let mut index = PrefixIndex::new(1, 100, UNBOUNDED);
    index.record(endpoint(0), &chain(1..=4));
    index.record(endpoint(0), &chain(1..=6));
    index.take_back(endpoint(0), &chain(1..=6));
    assert_eq!(full_matches(&index, &chain(1..=6)), [4]);
    index.confirm(endpoint(0), &chain(1..=4));
    index.record(endpoint(0), &chain(1..=6));
    index.take_back(endpoint(0), &chain(1..=6));
    assert_eq!(matched(&index, &chain(1..=6), PendingCredit::None), [4]);
}

#[test]
fn unknown_endpoints_change_nothing() {
    let mut index = PrefixIndex::new(1, 100, UNBOUNDED);
    index.record(endpoint(7), &chain(1..=4));
    index.confirm(endpoint(7), &chain(1..=4));
    index.take_back(endpoint(7), &chain(1..=4));
    index.set_capacity(endpoint(7), 1);
    assert!(index.is_empty());
}

#[test]
fn an_entry_with_its_bucket_fits_its_budget_whatever_comes_and_goes() {
    assert_eq!(size_of::<Entry>() + PER_ENTRY * size_of::<Slot>(), 40);
    // The unused ends of the last chunks, whatever the size.
    let chunks = 4_096 * 36;
    let cap = 50_000;
    let mut index = PrefixIndex::new(3, u32::MAX, cap);
    let mut most = 0;
    for round in 0..20_000_u64 {
        let id = endpoint(u16::try_from(round % 3).unwrap());
        let blocks = round * 10..round * 10 + 10;
        let hash = |number: u64| xxhash_rust::xxh64::xxh64(&number.to_le_bytes(), 0);
        index.record(id, &chain(blocks.clone().map(hash)));
        most = most.max(index.len());
        if round % 7 == 0 {
            index.take_back(id, &chain(blocks.map(hash)));
        }
        let bound = most * BYTES_PER_ENTRY + chunks;
        assert!(index.allocated_bytes() <= bound, "{round}");
    }
    assert_eq!(most, cap);
    assert!(index.allocated_bytes() <= cap * BYTES_PER_ENTRY);
}

#[test]
fn a_known_prompt_is_told_by_its_last_block() {
    let mut index = PrefixIndex::new(2, 100, UNBOUNDED);
    index.record(endpoint(0), &chain(1..=6));
    index.record(endpoint(1), &chain([1, 2, 30]));
    assert_eq!(index.known_len(&chain(1..=9)), 6);
    assert_eq!(index.known_len(&chain([1, 2, 30, 40])), 3);
    assert_eq!(index.known_len(&chain([2, 3])), 0, "not from the start");
    let tail = |len, block| Tail {
        len,
        block: BlockHash(block),
    };
    assert_eq!(index.chain_to(tail(6, 6)), Some(chain(1..=6)));
    assert_eq!(index.chain_to(tail(3, 30)), Some(chain([1, 2, 30])));
    assert_eq!(index.chain_to(Tail::START), Some(chain([])));
    for wrong in [tail(5, 6), tail(7, 6), tail(1, 7), tail(u32::MAX, 6)] {
        assert_eq!(index.chain_to(wrong), None, "{wrong:?}");
    }
    index.drop_endpoint(endpoint(0));
    assert_eq!(index.known_len(&chain(1..=6)), 2);
    assert_eq!(index.chain_to(tail(3, 3)), None);
}

#[test]
fn what_is_proved_may_be_less_than_what_is_known() {
    let mut index = PrefixIndex::new(2, 100, UNBOUNDED);
    index.record(endpoint(0), &chain(1..=6));
    assert_eq!(index.confirmed_len(&chain(1..=6)), 0);
    index.record(endpoint(1), &chain(1..=4));
    index.confirm(endpoint(1), &chain(1..=4));
    index.confirm(endpoint(0), &chain(6..=6));
    assert_eq!(index.confirmed_len(&chain(1..=6)), 4);
}

#[test]
fn blocks_that_continue_a_known_beginning_are_recorded_behind_it() {
    let mut index = PrefixIndex::new(1, 6, UNBOUNDED);
    index.record(endpoint(0), &chain(1..=3));
    let three = Tail {
        len: 3,
        block: BlockHash(3),
    };
    index.record_after(endpoint(0), three, &chain(4..=9));
    assert_eq!(full_matches(&index, &chain(1..=9)), [6]);
    assert_eq!(index.known_len(&chain(1..=9)), 6);
}

/// An index of one endpoint with room for 20 blocks that was proved to hold 1 to 5, then 11 to 18.
fn proved() -> PrefixIndex {
    let mut index = PrefixIndex::new(1, 20, UNBOUNDED);
    for blocks in [chain(1..=5), chain(11..=18)] {
        index.record(endpoint(0), &blocks);
        index.confirm(endpoint(0), &blocks);
    }
    index
}

fn tail(len: u32, block: u64) -> Tail {
    let block = BlockHash(block);
    Tail { len, block }
}

fn youngest_first(index: &PrefixIndex) -> Vec<u64> {
    index.held(endpoint(0)).map(|held| held.block.0).collect()
}

#[test]
fn a_proved_beginning_is_touched_and_only_what_follows_is_pending() {
    let mut index = proved();
    assert!(index.record_after_confirmed(endpoint(0), tail(5, 5), &chain(6..=7)));
    let expected: Vec<u64> = (1..=7).chain(11..=18).collect();
    assert_eq!(youngest_first(&index), expected);
    let pending = index.held(endpoint(0)).filter(|held| held.pending > 0);
    assert!(pending.map(|held| held.block.0).eq(6..=7));
    index.take_back(endpoint(0), &chain(6..=7));
    assert_eq!(full_matches(&index, &chain(1..=7)), [5]);
    // A part of it is a beginning, too, and it does not leave the list's end.
    assert!(index.record_after_confirmed(endpoint(0), tail(3, 3), &[]));
    let expected: Vec<u64> = (1..=5).chain(11..=18).collect();
    assert_eq!(youngest_first(&index), expected);
}

#[test]
fn what_is_not_proved_not_whole_or_without_room_is_no_proved_beginning() {
    let mut index = proved();
    index.record(endpoint(0), &chain(21..=22));
    let before = youngest_first(&index);
    let cases = [
        (tail(0, 0), chain(30..=31), "nothing"),
        (tail(2, 22), chain([23]), "pending"),
        (tail(4, 5), chain([6]), "longer than told"),
        (tail(6, 5), chain([6]), "shorter than told"),
        (tail(1, 77), chain([6]), "unknown"),
        (tail(5, 5), chain(31..=36), "new blocks could drive it out"),
        (tail(5, 5), chain([6, 12]), "a block that is held"),
        (tail(5, 5), chain([6, 3]), "a block of its own"),
    ];
    for (tail, blocks, why) in cases {
        let recorded = index.record_after_confirmed(endpoint(0), tail, &blocks);
        assert!(!recorded, "{why}");
        assert_eq!(youngest_first(&index), before, "{why}");
    }
    assert!(!index.record_after_confirmed(endpoint(9), tail(5, 5), &[]));
}

#[test]
fn who_claims_another_predecessor_is_not_believed() {
    let mut index = PrefixIndex::new(2, 100, UNBOUNDED);
    index.record(endpoint(0), &chain(1..=3));
    index.record(endpoint(1), &chain([9, 3]));
    assert!(index.import(endpoint(1), BlockHash(2), BlockHash(77)));
    assert_eq!(index.known_len(&chain(1..=3)), 3);
    assert_eq!(index.known_len(&chain([9, 3])), 1);
}

#[test]
fn endpoints_come_and_go_and_leave_their_places() {
    let mut index = PrefixIndex::new(0, 0, UNBOUNDED);
    let added: Vec<_> = (0..3).map(|key| index.add_endpoint(100, key)).collect();
    assert_eq!(added, [0, 1, 2].map(|place| Some(endpoint(place))));
    for id in added.into_iter().flatten() {
        index.record(id, &chain(1..=5));
    }
    index.drop_endpoint(endpoint(0));
    assert_eq!(full_matches(&index, &chain(1..=5)), [0, 5, 5]);
    index.record(endpoint(0), &chain(1..=2));
    assert_eq!(full_matches(&index, &chain(1..=5)), [2, 5, 5]);
    index.remove_endpoint(endpoint(1));
    index.record(endpoint(1), &chain(1..=5));
    assert_eq!(full_matches(&index, &chain(1..=5)), [2, 0, 5]);
    assert_eq!(index.len(), 7);
    assert_eq!(index.add_endpoint(100, 7), Some(endpoint(1)));
    assert_eq!(full_matches(&index, &chain(1..=5)), [2, 0, 5]);
    assert_eq!(index.add_endpoint(100, 8), Some(endpoint(3)));
}

#[test]
fn there_are_as_many_places_as_an_endpoint_id_can_name() {
    let mut index = PrefixIndex::new(1 << 16, 1, UNBOUNDED);
    assert_eq!(index.add_endpoint(1, 0), None);
    index.remove_endpoint(endpoint(u16::MAX));
    assert_eq!(index.add_endpoint(1, 0), Some(endpoint(u16::MAX)));
}

#[test]
fn of_equally_full_endpoints_the_key_chooses_who_gives_room_not_the_place() {
    for keys in [[1, 2, 3], [3, 2, 1], [2, 3, 1]] {
        let mut index = PrefixIndex::new(0, 0, 30);
        let ids = keys.map(|key| index.add_endpoint(100, key).unwrap());
        let with_key = |wanted| ids[keys.iter().position(|&key| key == wanted).unwrap()];
        for key in 1..=3 {
            index.record(with_key(key), &chain(key * 100..key * 100 + 10));
        }
        index.record(with_key(1), &chain(900..904));
        let blocks = [1, 2, 3].map(|key| index.blocks_at(with_key(key)));
        assert_eq!(blocks, [11, 10, 9], "{keys:?}");
    }
}

#[test]
fn what_is_held_is_told_from_young_to_old_and_taken_over_in_that_order() {
    let mut index = PrefixIndex::new(1, 100, UNBOUNDED);
    index.record(endpoint(0), &chain(1..=3));
    index.confirm(endpoint(0), &chain(1..=3));
    index.record(endpoint(0), &chain([1, 20]));
    let held: Vec<Held> = index.held(endpoint(0)).collect();
    let numbers: Vec<_> = held
        .iter()
        .map(|one| (one.block.0, one.parent.0, one.confirmed, one.pending))
        .collect();
    assert_eq!(
        numbers,
        [
            (1, 0, true, 1),
            (20, 1, false, 1),
            (2, 1, true, 0),
            (3, 2, true, 0)
        ]
    );
    let mut copy = PrefixIndex::new(1, 3, 100);
    copy.record(endpoint(0), &chain([2]));
    for one in &held {
        copy.import(endpoint(0), one.block, one.parent);
    }
    let order: Vec<_> = copy.held(endpoint(0)).map(|one| one.block.0).collect();
    assert_eq!(order, [2, 1, 20], "what it held is youngest; no room for 3");
    assert!(copy.held(endpoint(0)).all(|one| one.confirmed));
    assert!(!copy.import(endpoint(0), BlockHash(3), BlockHash(2)));
    assert!(!copy.import(endpoint(5), BlockHash(3), BlockHash(2)));
    let mut full = PrefixIndex::new(1, 10, 1);
    assert!(full.import(endpoint(0), BlockHash(1), BlockHash(0)));
    assert!(!full.import(endpoint(0), BlockHash(2), BlockHash(1)));
}

#[test]
fn a_smaller_budget_forgets_the_oldest_of_the_fullest_and_a_larger_one_nothing() {
    let mut index = PrefixIndex::new(2, 100, 1_000);
    index.record(EndpointId::new(0), &chain(1..=30));
    index.record(EndpointId::new(0), &chain(101..=130));
    index.record(EndpointId::new(1), &chain(201..=210));
    index.set_max_entries(40);
    assert_eq!(index.len(), 40);
    let held = |index: &PrefixIndex, blocks| {
        let mut matched = Vec::new();
        index.matches(&chain(blocks), PendingCredit::Full, &mut matched);
        matched
    };
    assert_eq!(
        held(&index, 101..=130),
        [30, 0],
        "the younger prompt is whole"
    );
    assert_eq!(held(&index, 1..=30), [0, 0], "the older one gave way");
    assert_eq!(
        held(&index, 201..=210),
        [0, 10],
        "and the emptier endpoint nothing"
    );
    index.set_max_entries(1_000);
    index.record(EndpointId::new(1), &chain(301..=390));
    assert_eq!(index.len(), 130);
    index.set_max_entries(0);
    assert!(index.is_empty());
}
