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
