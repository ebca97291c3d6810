mod adapters;
mod health;
mod members;
mod prefill;
mod readiness;

use core::time::Duration;

use super::*;
use crate::config::Config;
use crate::datalayer::{EndpointSnapshot, HostStatus};
use crate::prefix::BlockHash;
use crate::requestcontrol::{Moved, Served, Ticket};
use crate::telemetry::Reason;

/// A pool of `endpoints` endpoints with `extra` keys.
fn pool(endpoints: u16, extra: &str) -> Pool {
    let addresses: Vec<String> = (0..endpoints)
        .map(|id| format!(r#""10.0.0.1:{}""#, 8_000 + id))
        .collect();
    let json = format!(
        r#"{{"pools":[{{"name":"p","cluster":"c","endpoints":[{}]{extra}}}]}}"#,
        addresses.join(",")
    );
    let config = Config::parse(json.as_bytes()).unwrap();
    let mut pool = Pool::new(config.pools[0].clone(), 1_000_000, alone()).unwrap();
    for id in 0..endpoints {
        pool.update(EndpointId::new(id), at(0), &EndpointMetrics::default());
    }
    pool
}

/// A ledger of this pool alone.
fn alone() -> LedgerHandle {
    LedgerHandle::new(Ledger::alone())
}

fn blocks_at(pool: &Pool, endpoint: u16) -> u32 {
    let blocks = pool.replica(|replica| replica.index().blocks_at(EndpointId::new(endpoint)));
    blocks.unwrap()
}

fn at(millis: u64) -> Timestamp {
    Timestamp::from_nanos(millis * 1_000_000)
}

/// A prompt nobody else has.
fn cold(number: u64) -> Chain {
    chain(number * 1_000, 10)
}

fn chain(first: u64, len: u64) -> Chain {
    let blocks: Vec<BlockHash> = (first..first + len).map(BlockHash).collect();
    Chain {
        anchor: blocks.last().copied(),
        bytes: len * 256,
        blocks,
        further: Vec::new(),
    }
}

/// Routes a prompt and returns where it went.
fn send(pool: &mut Pool, prompt: &Chain) -> (usize, Ticket) {
    let tie = TieKey(prompt.anchor.map_or(0, |anchor| anchor.0));
    let pick = pool.pick(prompt, "m", tie, 1, at(1));
    let endpoint = pick.decision.ranking[0].endpoint;
    (
        endpoint.index(),
        Ticket::open(pool, vec![endpoint], &prompt.blocks, at(1)).unwrap(),
    )
}

fn answered(endpoint: u16, status: u16) -> Served {
    Served {
        by_upstream: true,
        endpoint: Some(EndpointId::new(endpoint)),
        status,
        failed_attempts: 0,
    }
}

/// How many of `prompts`, sent at once, each endpoint gets.
fn shares(pool: &mut Pool, prompts: impl Iterator<Item = Chain>) -> Vec<usize> {
    let mut counts = vec![0; pool.endpoints().count()];
    let mut open = Vec::new();
    for prompt in prompts {
        let (endpoint, ticket) = send(pool, &prompt);
        counts[endpoint] += 1;
        open.push(ticket);
    }
    counts
}

fn matched(pool: &mut Pool, prompt: &Chain) -> Vec<u32> {
    pool.candidates(prompt, "m", at(1))
        .iter()
        .map(|candidate| candidate.matched_blocks)
        .collect()
}

#[test]
fn the_next_turn_goes_back_to_the_server_that_holds_the_conversation() {
    let mut pool = pool(4, "");
    for conversation in 0..20 {
        let (first, mut ticket) = send(&mut pool, &cold(conversation));
        let id = u16::try_from(first).unwrap();
        ticket.served(&mut pool, answered(id, 200), at(2));
        ticket.answered(&mut pool, false);
        ticket.close(&mut pool);
        let (second, ticket) = send(&mut pool, &chain(conversation * 1_000, 14));
        assert_eq!(second, first);
        ticket.close(&mut pool);
    }
}

#[test]
fn a_burst_on_one_warm_endpoint_spills_over_at_the_guard() {
    let mut pool = pool(4, "");
    let warm = cold(1);
    let (holder, mut ticket) = send(&mut pool, &warm);
    let id = u16::try_from(holder).unwrap();
    ticket.served(&mut pool, answered(id, 200), at(2));
    ticket.answered(&mut pool, false);
    ticket.close(&mut pool);
    let counts = shares(&mut pool, (0..50).map(|_| warm.clone()));
    assert_eq!(counts[holder], 20);
    let others = (0..4).filter(|&id| id != holder).map(|id| counts[id]);
    assert!(others.into_iter().all(|count| count == 10), "{counts:?}");
}

#[test]
fn a_burst_of_cold_prompts_spreads_evenly() {
    let counts = shares(&mut pool(8, ""), (0..48).map(cold));
    assert_eq!(counts, [6; 8]);
}

#[test]
fn an_unseen_common_system_prompt_spreads_with_the_balanced_preset() {
    let conversation = |number: u64| {
        let mut prompt = chain(500, 24);
        prompt.blocks.extend(cold(number).blocks);
        prompt.anchor = prompt.blocks.last().copied();
        prompt
    };
    let mut balanced = pool(4, r#","scoring":{"preset":"balanced"}"#);
    assert_eq!(shares(&mut balanced, (1..13).map(conversation)), [3; 4]);
    let mut default = pool(4, "");
    let mut counts = shares(&mut default, (1..13).map(conversation));
    counts.sort_unstable();
    assert_eq!(counts, [0, 0, 0, 12]);
}

#[test]
fn only_a_2xx_of_the_server_confirms_blocks() {
    for (served, left) in [
        (answered(0, 200), 10),
        (answered(0, 299), 10),
        (answered(0, 404), 0),
        (answered(0, 500), 0),
        (
            Served {
                by_upstream: false,
                ..answered(0, 200)
            },
            0,
        ),
        (
            Served {
                by_upstream: false,
                endpoint: None,
                status: 503,
                failed_attempts: 0,
            },
            0,
        ),
        (
            Served {
                endpoint: None,
                ..answered(0, 200)
            },
            0,
        ),
    ] {
        let mut pool = pool(2, "");
        let mut ticket =
            Ticket::open(&mut pool, vec![EndpointId::new(0)], &cold(1).blocks, at(1)).unwrap();
        assert_eq!(matched(&mut pool, &cold(1)), [10, 0]);
        assert_eq!(ticket.served(&mut pool, served, at(2)), None);
        ticket.answered(&mut pool, false);
        assert_eq!(matched(&mut pool, &cold(1)), [left, 0], "{served:?}");
        ticket.close(&mut pool);
        assert_eq!(
            matched(&mut pool, &cold(1)),
            [left, 0],
            "{served:?}, closed"
        );
    }
}

#[test]
fn headers_of_a_stream_confirm_nothing_before_its_first_byte() {
    let mut pool = pool(2, r#","scoring":{"preset":"balanced"}"#);
    let mut ticket =
        Ticket::open(&mut pool, vec![EndpointId::new(0)], &cold(1).blocks, at(1)).unwrap();
    ticket.served(&mut pool, answered(0, 200), at(2));
    assert_eq!(matched(&mut pool, &cold(1)), [0, 0]);
    ticket.answered(&mut pool, false);
    assert_eq!(matched(&mut pool, &cold(1)), [10, 0]);
    ticket.close(&mut pool);
    assert_eq!(matched(&mut pool, &cold(1)), [10, 0]);
}

#[test]
fn a_request_given_up_before_its_first_byte_leaves_nothing_behind() {
    let mut pool = pool(2, "");
    let mut ticket =
        Ticket::open(&mut pool, vec![EndpointId::new(0)], &cold(1).blocks, at(1)).unwrap();
    ticket.served(&mut pool, answered(1, 200), at(2));
    ticket.close(&mut pool);
    assert_eq!(pool.indexed_blocks(), 0);
    assert_eq!(pool.open_at(EndpointId::new(1)), 0);
}

#[test]
fn blocks_and_lease_move_to_the_endpoint_that_served() {
    let mut pool = pool(3, "");
    let mut ticket =
        Ticket::open(&mut pool, vec![EndpointId::new(0)], &cold(1).blocks, at(1)).unwrap();
    let moved = ticket.served(&mut pool, answered(2, 200), at(2));
    assert_eq!(
        moved,
        Some(Moved {
            from: Some(EndpointId::new(0)),
            to: EndpointId::new(2),
            passed_over: true,
        })
    );
    assert_eq!(matched(&mut pool, &cold(1)), [0, 0, 10]);
    ticket.answered(&mut pool, false);
    assert_eq!(matched(&mut pool, &cold(1)), [0, 0, 10]);
    let open: Vec<u32> = (0..3).map(|id| pool.open_at(EndpointId::new(id))).collect();
    assert_eq!(open, [0, 0, 1]);
    ticket.close(&mut pool);
    assert_eq!(pool.open_at(EndpointId::new(2)), 0);
}

#[test]
fn an_aborted_request_leaves_nothing_behind() {
    let mut pool = pool(2, "");
    let (_, ticket) = send(&mut pool, &cold(1));
    ticket.close(&mut pool);
    assert_eq!(pool.indexed_blocks(), 0);
    assert_eq!(matched(&mut pool, &cold(1)), [0, 0]);
}

#[test]
fn reported_cache_size_becomes_index_capacity() {
    let reported = EndpointMetrics {
        cache_tokens: Some(640),
        ..EndpointMetrics::default()
    };
    let capacity = |extra: &str| {
        let mut pool = pool(1, extra);
        pool.take_scrape(EndpointId::new(0), at(1), &reported);
        let ticket = Ticket::open(
            &mut pool,
            vec![EndpointId::new(0)],
            &chain(1, 40).blocks,
            at(1),
        )
        .unwrap();
        let held = blocks_at(&pool, 0);
        ticket.close(&mut pool);
        held
    };
    assert_eq!(capacity(""), 10);
    assert_eq!(capacity(r#","prefix":{"blockTokens":32}"#), 20);
    assert_eq!(capacity(r#","prefix":{"capacityBlocks":25}"#), 25);
    assert_eq!(capacity(r#","prefix":{"autoTune":false}"#), 40);
}

#[test]
fn a_snapshot_carries_metrics_to_another_vm() {
    let mut leader = pool(2, "");
    let busy = EndpointMetrics {
        waiting: 7,
        running: 3,
        ..EndpointMetrics::default()
    };
    let mut busy = busy;
    busy.signals.set(0, -2.5);
    leader.update(EndpointId::new(1), at(50), &busy);
    let mut follower = pool(2, "");
    follower.apply(&leader.snapshot(), at(60));
    assert_eq!(follower.queue_depth(EndpointId::new(1)), 7);
    let candidates = follower.candidates(&cold(1), "m", at(60));
    assert_eq!(candidates[1].signals, busy.signals);
    assert_eq!(follower.snapshot(), leader.snapshot());
}

#[test]
fn older_foreign_and_future_entries_of_a_snapshot_are_passed_over() {
    let mut pool = pool(1, "");
    let busy = |waiting| EndpointMetrics {
        waiting,
        ..EndpointMetrics::default()
    };
    pool.update(EndpointId::new(0), at(50), &busy(5));
    let known = pool.endpoint(EndpointId::new(0)).unwrap().address;
    let foreign = "10.9.9.9:1".parse().unwrap();
    for (address, scraped_at) in [
        (known, Some(at(49))),
        (known, Some(at(61))),
        (known, None),
        (foreign, Some(at(55))),
    ] {
        let entry = EndpointSnapshot {
            address,
            scraped_at,
            metrics: busy(9),
            models: None,
            status: HostStatus::default(),
        };
        pool.apply(
            &PoolSnapshot {
                is_host_list: false,
                endpoints: vec![entry],
            },
            at(60),
        );
        assert_eq!(pool.queue_depth(EndpointId::new(0)), 5);
    }
}

#[test]
fn slots_count_once_per_engine() {
    let two_engines = EndpointMetrics {
        engines: 2,
        running: 128,
        ..EndpointMetrics::default()
    };
    let mut pool = pool(1, "");
    pool.update(EndpointId::new(0), at(1), &two_engines);
    let candidates = pool.candidates(&cold(1), "m", at(1));
    assert_eq!(candidates[0].max_running, 512);
    assert!((candidates[0].load() - 0.25).abs() < 1e-9);
}

#[test]
fn stale_metrics_cost_health_but_never_the_candidacy() {
    let pool = pool(1, "");
    let id = EndpointId::new(0);
    let later = |secs: u64| at(0).after(Duration::from_secs(secs));
    assert!((pool.health(id, later(3)) - 1.0).abs() < 1e-9);
    assert!((pool.health(id, later(3_600)) - 0.5).abs() < 1e-9);
    assert_eq!(pool.candidate_count(later(3_600)), 1);
}

#[test]
fn a_long_prompt_in_flight_fills_a_cache_of_known_size() {
    let mut pool = pool(2, "");
    let sized = EndpointMetrics {
        cache_tokens: Some(128_000),
        kv_utilisation: Some(0.1),
        ..EndpointMetrics::default()
    };
    for id in 0..2 {
        pool.take_scrape(EndpointId::new(id), at(1), &sized);
    }
    // One prompt of 64,000 tokens at one, ten of 64 at the other.
    let open = |pool: &mut Pool, id, blocks: &Chain| {
        Ticket::open(pool, vec![EndpointId::new(id)], &blocks.blocks, at(2)).unwrap()
    };
    let mut tickets = vec![open(&mut pool, 0, &chain(1, 1_000))];
    tickets.extend((0..10).map(|number| open(&mut pool, 1, &chain(10_000 + number, 1))));
    let candidates = pool.candidates(&cold(1), "m", at(2));
    let used: Vec<f64> = candidates
        .iter()
        .map(|candidate| candidate.kv_utilisation.unwrap())
        .collect();
    assert!((used[0] - 0.6).abs() < 1e-9, "{used:?}");
    assert!((used[1] - 0.105).abs() < 1e-9, "{used:?}");
    for ticket in tickets {
        ticket.close(&mut pool);
    }
    let candidates = pool.candidates(&cold(1), "m", at(3));
    let used = candidates[0].kv_utilisation.unwrap();
    assert!((used - 0.1).abs() < 1e-9, "{used}");
}

#[test]
fn what_scorers_said_leaves_out_whom_filters_dropped() {
    let mut pool = pool(
        3,
        r#","endpointPickerConfig":{"apiVersion":"llm-d.ai/v1alpha1","kind":"EndpointPickerConfig",
            "plugins":[{"type":"queue-limit-filter","parameters":{"maxQueue":50}},{"type":"queue-scorer"}],
            "schedulingProfiles":[{"name":"default","plugins":[
                {"pluginRef":"queue-limit-filter"},{"pluginRef":"queue-scorer"}]}]}"#,
    );
    for (id, waiting) in [(0, 4), (1, 8), (2, 100)] {
        let metrics = EndpointMetrics {
            waiting,
            ..EndpointMetrics::default()
        };
        pool.update(EndpointId::new(id), at(1), &metrics);
    }
    pool.explain_picks();
    let pick = pool.pick(&cold(1), "m", TieKey(1), 2, at(1));
    // The longest queue that counts is 8: with the dropped one it would be 100.
    let expected = [
        "pod=10.0.0.1:8000 score=1.0000: queue-scorer 1.000×1.000",
        "pod=10.0.0.1:8001 score=0.0000: queue-scorer 1.000×0.000",
    ];
    assert_eq!(pick.explained, expected);
}

#[test]
fn who_is_a_candidate_is_for_the_filters_of_the_pasted_configuration_to_say() {
    let picker = |filters: &str, named: &str| {
        format!(
            r#","endpointPickerConfig":{{"apiVersion":"llm-d.ai/v1alpha1","kind":"EndpointPickerConfig",
                "plugins":[{filters}{{"type":"queue-scorer"}}],
                "schedulingProfiles":[{{"name":"default","plugins":[{named}{{"pluginRef":"queue-scorer"}}]}}]}}"#
        )
    };
    let queue = EndpointMetrics {
        waiting: 7,
        ..EndpointMetrics::default()
    };
    let of = |filters: &str, named: &str| {
        let mut pool = pool(3, &picker(filters, named));
        pool.update(EndpointId::new(1), at(1), &queue);
        (pool.candidate_count(at(1)), pool.queue_limit())
    };
    assert_eq!(of("", ""), (3, None), "llm-d has no limit");
    let limit = r#"{"type":"queue-limit-filter","parameters":{"maxQueue":5}},"#;
    let named = r#"{"pluginRef":"queue-limit-filter"},"#;
    assert_eq!(of(limit, named), (2, Some(5)));
    assert_eq!(pool(3, "").queue_limit(), Some(20), "the five factors");
}
