use super::*;

fn tokens(ids: std::ops::Range<u64>) -> Vec<Token> {
    ids.filter_map(Token::from_id).collect()
}

fn hashes(scope: &CacheScope, tokens: &[Token]) -> Vec<BlockHash> {
    Chain::new(scope, 4).extend(tokens).to_vec()
}

/// Runs a request to its end: look up, take, compute, publish, release. Returns its hit blocks.
fn serve(pool: &mut BlockPool, chain: &[BlockHash]) -> usize {
    let hits = pool.longest_prefix(chain);
    let held = pool.acquire(&hits, chain.len() - hits.len()).expect("fits");
    for (id, hash) in held.iter().zip(chain) {
        pool.publish(*id, *hash);
    }
    pool.release(&held);
    hits.len()
}

#[test]
fn only_full_blocks_are_hashed() {
    let scope = CacheScope::default();
    assert_eq!(hashes(&scope, &tokens(0..7)).len(), 1);
    assert_eq!(hashes(&scope, &tokens(0..8)).len(), 2);
}

#[test]
fn a_block_hash_depends_on_everything_before_it() {
    let scope = CacheScope::default();
    let left = hashes(&scope, &[tokens(0..4), tokens(8..12)].concat());
    let right = hashes(&scope, &[tokens(4..8), tokens(8..12)].concat());
    assert_ne!(left[1], right[1]);
}

#[test]
fn scopes_share_nothing() {
    let some = |text: &str| Some(text.to_owned());
    let scopes = [
        CacheScope::default(),
        CacheScope {
            lora: some("a"),
            salt: None,
        },
        CacheScope {
            lora: None,
            salt: some("a"),
        },
        CacheScope {
            lora: some("a"),
            salt: some("a"),
        },
        CacheScope {
            lora: None,
            salt: some("b"),
        },
    ];
    let first: Vec<_> = scopes
        .iter()
        .map(|scope| hashes(scope, &tokens(0..4))[0])
        .collect();
    let distinct: std::collections::HashSet<_> = first.iter().collect();
    assert_eq!(distinct.len(), scopes.len());
}

#[test]
fn growing_a_chain_equals_hashing_it_whole() {
    let mut chain = Chain::new(&CacheScope::default(), 4);
    chain.extend(&tokens(0..6));
    let grown = chain.extend(&tokens(0..13)).to_vec();
    assert_eq!(grown, hashes(&CacheScope::default(), &tokens(0..13)));
}

#[test]
fn one_block_is_never_given_out() {
    let mut pool = BlockPool::new(4);
    assert_eq!(pool.capacity(), 3);
    assert!(pool.acquire(&[], 4).is_none());
    assert_eq!(pool.acquire(&[], 3).map(|held| held.len()), Some(3));
}

#[test]
fn longest_prefix_stops_at_the_first_gap() {
    let mut pool = BlockPool::new(10);
    let chain = hashes(&CacheScope::default(), &tokens(0..12));
    let held = pool.acquire(&[], 3).expect("fits");
    pool.publish(held[0], chain[0]);
    pool.publish(held[2], chain[2]);
    assert_eq!(pool.longest_prefix(&chain), [held[0]]);
}

#[test]
fn a_requests_tail_is_evicted_before_its_head() {
    let mut pool = BlockPool::new(5);
    let scope = CacheScope::default();
    let long = hashes(&scope, &tokens(0..16));
    serve(&mut pool, &long);
    serve(&mut pool, &hashes(&scope, &tokens(100..104)));
    assert_eq!(pool.longest_prefix(&long).len(), 3);
}

#[test]
fn the_least_recently_used_prompt_is_evicted_first() {
    let mut pool = BlockPool::new(7);
    let scope = CacheScope::default();
    let [a, b, c] = [0, 100, 200].map(|start| hashes(&scope, &tokens(start..start + 8)));
    for prompt in [&a, &b, &c] {
        assert_eq!(serve(&mut pool, prompt), 0);
    }
    assert_eq!(serve(&mut pool, &a), 2);
    serve(&mut pool, &hashes(&scope, &tokens(300..308)));
    assert_eq!(pool.longest_prefix(&b).len(), 0);
    assert_eq!(pool.longest_prefix(&a).len(), 2);
    assert_eq!(pool.longest_prefix(&c).len(), 2);
}

#[test]
fn a_block_in_use_is_never_evicted() {
    let mut pool = BlockPool::new(5);
    let scope = CacheScope::default();
    let shared = hashes(&scope, &tokens(0..8));
    serve(&mut pool, &shared);
    let hits = pool.longest_prefix(&shared);
    let first = pool.acquire(&hits, 0).expect("hits are there");
    let second = pool.acquire(&hits, 0).expect("hits can be shared");
    assert_eq!(pool.in_use(), 2);
    assert!(pool.acquire(&[], 3).is_none());
    let rest = pool.acquire(&[], 2).expect("the other two are free");
    pool.release(&rest);
    pool.release(&first);
    assert_eq!(pool.in_use(), 2);
    pool.release(&second);
    assert_eq!(pool.in_use(), 0);
    assert_eq!(pool.longest_prefix(&shared).len(), 2);
}

#[test]
fn hits_in_the_free_queue_do_not_count_as_room() {
    let mut pool = BlockPool::new(5);
    let chain = hashes(&CacheScope::default(), &tokens(0..8));
    serve(&mut pool, &chain);
    let hits = pool.longest_prefix(&chain);
    assert!(pool.acquire(&hits, 3).is_none());
    assert_eq!(pool.in_use(), 0);
    assert_eq!(pool.acquire(&hits, 2).map(|held| held.len()), Some(4));
}

#[test]
fn evicting_one_copy_of_a_hash_leaves_the_other() {
    let mut pool = BlockPool::new(4);
    let chain = hashes(&CacheScope::default(), &tokens(0..4));
    let held = pool.acquire(&[], 2).expect("fits");
    pool.publish(held[0], chain[0]);
    pool.publish(held[1], chain[0]);
    pool.release(&held);
    // The free queue holds the untouched block, then the second copy, then the first.
    let taken = pool.acquire(&[], 2).expect("fits");
    assert_eq!(pool.longest_prefix(&chain), [held[0]]);
    pool.release(&taken);
}

#[test]
fn reset_is_refused_while_a_block_is_in_use() {
    let mut pool = BlockPool::new(5);
    let chain = hashes(&CacheScope::default(), &tokens(0..8));
    serve(&mut pool, &chain);
    let held = pool.acquire(&pool.longest_prefix(&chain), 0).expect("fits");
    assert!(!pool.reset());
    pool.release(&held);
    assert!(pool.reset());
    assert_eq!(pool.cached(), 0);
    assert!(pool.longest_prefix(&chain).is_empty());
}

#[test]
fn a_block_that_was_never_full_is_taken_before_every_cached_one() {
    let scope = CacheScope::default();
    let mut pool = BlockPool::new(1 + 4);
    let first = hashes(&scope, &tokens(0..8));
    // Two full blocks and the beginning of a third.
    let held = pool.acquire(&[], 3).expect("fits");
    pool.publish(held[0], first[0]);
    pool.publish(held[1], first[1]);
    pool.release(&held);
    // The third, the one nobody had yet: both full ones stay.
    let held = pool.acquire(&[], 2).expect("fits");
    assert_eq!(pool.longest_prefix(&first).len(), 2);
    pool.release(&held);
    assert_eq!(pool.longest_prefix(&first).len(), 2);
}
