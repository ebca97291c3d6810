//! Endpoints that come and go, and what Envoy says of them.

use super::*;
use crate::datalayer::{Condition, Unusable};

fn member(last: u8, status: HostStatus) -> Member {
    Member {
        address: format!("10.0.0.{last}:8000").parse().unwrap(),
        status,
    }
}

fn well(last: u8) -> Member {
    member(last, HostStatus::default())
}

fn ill(last: u8, cause: Unusable) -> Member {
    member(
        last,
        HostStatus {
            condition: Condition::USABLE.with(cause, true),
            ..HostStatus::default()
        },
    )
}

fn in_tier(last: u8, tier: u8) -> Member {
    member(
        last,
        HostStatus {
            tier,
            ..HostStatus::default()
        },
    )
}

/// A pool that follows Envoy's host list, which is `hosts`.
fn following(hosts: &[Member]) -> Pool {
    let json = r#"{"pools":[{"name":"p","cluster":"c","discovery":{"adminCluster":"a"},
        "endpoints":[{"address":"10.0.0.1:8000","maxRunning":7}]}]}"#;
    let config = Config::parse(json.as_bytes()).unwrap();
    let mut pool = Pool::new(config.pools[0].clone(), 1_000_000, alone()).unwrap();
    assert_eq!(pool.follow_host_list(hosts).left_out, 0);
    pool
}

fn id(pool: &Pool, last: u8) -> Option<EndpointId> {
    pool.find(well(last).address)
}

/// Sends `prompt` to the endpoint `last` and has it answered.
fn answered_by(pool: &mut Pool, last: u8, prompt: &Chain) -> Ticket {
    let endpoint = id(pool, last).unwrap();
    let mut ticket = Ticket::open(pool, vec![endpoint], &prompt.blocks, at(1)).unwrap();
    ticket.answered(pool, false);
    ticket
}

/// The last numbers of the addresses a request is offered to, in ascending order.
fn offered(pool: &mut Pool) -> Vec<String> {
    let pick = pool.pick(&cold(1), "m", TieKey(1), 10, at(1));
    let ranking = pick.decision.ranking.iter();
    let mut names: Vec<String> = ranking
        .map(|one| pool.endpoint(one.endpoint).unwrap().name.clone())
        .collect();
    names.sort();
    names
}

#[test]
fn who_is_listed_joins_and_who_is_not_leaves_with_its_blocks() {
    let mut pool = following(&[well(1), well(2)]);
    answered_by(&mut pool, 2, &cold(1)).close(&mut pool);
    assert_eq!(pool.indexed_blocks(), 10);
    pool.follow_host_list(&[well(1), well(3)]);
    assert_eq!(pool.indexed_blocks(), 0);
    assert_eq!(offered(&mut pool), ["10.0.0.1:8000", "10.0.0.3:8000"]);
    assert_eq!(id(&pool, 2), None);
    // It comes back with an empty cache, to the place it left.
    pool.follow_host_list(&[well(1), well(3), well(2)]);
    let back = id(&pool, 2).unwrap();
    assert_eq!(back.index(), 2);
    assert_eq!(matched(&mut pool, &cold(1)), [0, 0, 0]);
}

#[test]
fn what_the_operator_says_of_a_listed_host_holds() {
    let pool = following(&[well(1), well(2)]);
    let slots = |last| pool.endpoint(id(&pool, last).unwrap()).unwrap().max_running;
    assert_eq!((slots(1), slots(2)), (Some(7), None));
}

#[test]
fn the_operators_list_serves_until_envoys_is_known() {
    let json = r#"{"pools":[{"name":"p","cluster":"c","discovery":{"adminCluster":"a"},
        "endpoints":["10.0.0.1:8000"]}]}"#;
    let config = Config::parse(json.as_bytes()).unwrap();
    let mut pool = Pool::new(config.pools[0].clone(), 1_000, alone()).unwrap();
    assert_eq!(offered(&mut pool), ["10.0.0.1:8000"]);
    assert!(!pool.snapshot().is_host_list);
    pool.follow_host_list(&[well(2)]);
    assert_eq!(offered(&mut pool), ["10.0.0.2:8000"]);
    assert!(pool.snapshot().is_host_list);
}

#[test]
fn a_late_finish_or_record_for_an_endpoint_that_left_changes_nothing() {
    let mut pool = following(&[well(1), well(2)]);
    let left = id(&pool, 2).unwrap();
    let mut late = Ticket::open(&mut pool, vec![left], &cold(1).blocks, at(1)).unwrap();
    let mut confirmed = Ticket::open(&mut pool, vec![left], &cold(2).blocks, at(1)).unwrap();
    pool.follow_host_list(&[well(1)]);
    assert_eq!((pool.indexed_blocks(), pool.open_at(left)), (0, 0));
    // Another has its place at once, and nothing of what went on there.
    pool.follow_host_list(&[well(1), well(3)]);
    assert_eq!(id(&pool, 3), Some(left));
    confirmed.served(&mut pool, answered(1, 200), at(2));
    confirmed.answered(&mut pool, false);
    late.broken_off(&pool);
    late.close(&mut pool);
    confirmed.close(&mut pool);
    assert_eq!((pool.indexed_blocks(), pool.open_at(left)), (0, 0));
    pool.take_outcomes(at(3));
    assert!((pool.health(left, at(3)) - 1.0).abs() < 1e-9);
}

#[test]
fn who_takes_an_endpoints_place_is_not_blamed_for_it() {
    let mut pool = following(&[well(1), well(2), well(3)]);
    let ids: Vec<EndpointId> = [2, 3].map(|last| id(&pool, last).unwrap()).into();
    let serving = ids[1];
    let mut ticket =
        Ticket::open(&mut pool, vec![ids[0], serving], &cold(1).blocks, at(1)).unwrap();
    let moved = Served {
        failed_attempts: 1,
        ..answered(2, 200)
    };
    ticket.served(&mut pool, moved, at(2));
    pool.follow_host_list(&[well(1), well(3), well(4)]);
    assert_eq!(id(&pool, 4), Some(ids[0]));
    ticket.served(&mut pool, moved, at(3));
    assert!((pool.health(ids[0], at(3)) - pool.health(id(&pool, 1).unwrap(), at(3))).abs() < 1e-9);
    ticket.close(&mut pool);
}

#[test]
fn what_envoy_holds_to_be_unfit_gets_nothing_not_even_a_probe() {
    for cause in Unusable::ALL {
        let mut pool = following(&[well(1), well(2)]);
        let mut word = pool.snapshot();
        word.endpoints[1].status.condition = Condition::USABLE.with(cause, true);
        pool.apply(&word, at(1));
        assert_eq!(offered(&mut pool), ["10.0.0.1:8000"], "{cause:?}");
        assert_eq!(pool.candidate_count(at(1)), 1, "{cause:?}");
        assert!(
            pool.health(id(&pool, 2).unwrap(), at(1)) < 1e-9,
            "{cause:?}"
        );
    }
}

#[test]
fn with_everybody_unfit_all_get_requests() {
    let mut pool = following(&[ill(1, Unusable::Ejected), ill(2, Unusable::Draining)]);
    let pick = pool.pick(&cold(1), "m", TieKey(1), 2, at(1));
    assert_eq!(pick.decision.exception, Some(Reason::NoCandidates));
    assert_eq!(pick.decision.ranking.len(), 2);
}

#[test]
fn a_higher_tier_waits_until_no_lower_one_is_fit() {
    let mut pool = following(&[in_tier(1, 0), in_tier(2, 1), in_tier(3, 2)]);
    assert_eq!(offered(&mut pool), ["10.0.0.1:8000"]);
    assert_eq!(pool.candidate_count(at(1)), 1);
    let failing = ill(1, Unusable::FailedHealthCheck);
    pool.follow_host_list(&[failing, in_tier(2, 1), in_tier(3, 2)]);
    assert_eq!(offered(&mut pool), ["10.0.0.2:8000"]);
}

#[test]
fn the_host_list_and_the_scraper_do_not_undo_each_others_word() {
    let mut pool = following(&[well(1), well(2)]);
    let mut word = pool.snapshot();
    word.endpoints[0].status.condition = Condition::USABLE.with(Unusable::NotReady, true);
    pool.apply(&word, at(1));
    pool.follow_host_list(&[well(1), ill(2, Unusable::Ejected)]);
    assert_eq!(pool.candidate_count(at(1)), 0);
    pool.follow_host_list(&[well(1), well(2)]);
    assert_eq!(offered(&mut pool), ["10.0.0.2:8000"]);
}

#[test]
fn other_vms_follow_the_snapshot() {
    let leader = following(&[well(1), ill(2, Unusable::Draining), in_tier(3, 1)]);
    let mut follower = following(&[well(2), well(9)]);
    follower.apply(&leader.snapshot(), at(1));
    assert_eq!(follower.snapshot().endpoints.len(), 3);
    assert_eq!(offered(&mut follower), ["10.0.0.1:8000"]);
    // A pool that lists its endpoints keeps them.
    let mut listed = pool(2, "");
    listed.apply(&leader.snapshot(), at(1));
    assert_eq!(listed.endpoints().count(), 2);
}

#[test]
fn hosts_beyond_the_cap_are_left_out() {
    let host = |number: u32| Member {
        address: (core::net::Ipv4Addr::from(0x0a00_0000 | number), 8000).into(),
        status: HostStatus::default(),
    };
    let hosts: Vec<Member> = (1..=5_000).map(host).collect();
    let mut pool = following(&[]);
    let followed = pool.follow_host_list(&hosts);
    assert_eq!(followed.left_out, 5_000 - MAX_ENDPOINTS);
    assert_eq!(followed.joined, MAX_ENDPOINTS as u64);
    assert_eq!(pool.endpoints().count(), MAX_ENDPOINTS);
}

#[test]
fn the_labels_of_all_sources_that_list_a_host_are_its_labels() {
    let json = r#"{"pools":[{"name":"p","cluster":"c","endpoints":[
        {"address":"10.0.0.1:8000","labels":{"zone":"own"}}],
        "discovery":{"adminCluster":"a","sources":[
            {"cluster":"c","labels":{"zone":"z","gpu":"h100"}},
            {"cluster":"d","labels":{"role":"decode"}}]}}]}"#;
    let config = Config::parse(json.as_bytes()).unwrap();
    let mut pool = Pool::new(config.pools[0].clone(), 1_000, alone()).unwrap();
    let of = |last, sources| Member {
        status: HostStatus {
            sources,
            ..HostStatus::default()
        },
        ..well(last)
    };
    let labels = |pool: &Pool, last| {
        let endpoint = pool.endpoint(id(pool, last).unwrap()).unwrap();
        let labels = endpoint.labels.iter();
        labels
            .map(|(name, value)| format!("{name}={value}"))
            .collect::<Vec<_>>()
    };
    pool.follow_host_list(&[of(1, 0b11), of(2, 0b01)]);
    assert_eq!(labels(&pool, 1), ["gpu=h100", "role=decode", "zone=own"]);
    assert_eq!(labels(&pool, 2), ["gpu=h100", "zone=z"]);
    pool.follow_host_list(&[of(1, 0b11), of(2, 0b10)]);
    assert_eq!(labels(&pool, 2), ["role=decode"]);
}

#[test]
fn envoys_count_of_open_requests_stands_in_for_metrics_that_do_not_come() {
    let busy = HostStatus {
        active: 128,
        ..HostStatus::default()
    };
    let mut pool = following(&[member(2, busy)]);
    let load = |pool: &mut Pool| pool.candidates(&cold(1), "m", at(1))[0].load();
    assert!((load(&mut pool) - 0.5).abs() < 1e-9);
    let idle = id(&pool, 2).unwrap();
    pool.update(idle, at(1), &EndpointMetrics::default());
    assert!(load(&mut pool) < 1e-9);
}

#[test]
fn what_is_known_of_an_endpoint_goes_with_its_configuration() {
    let ledger = alone();
    let with = |endpoints: &str| {
        let json =
            format!(r#"{{"pools":[{{"name":"p","cluster":"c","endpoints":[{endpoints}]}}]}}"#);
        let config = Config::parse(json.as_bytes()).unwrap();
        Pool::new(config.pools[0].clone(), 1_000, ledger.clone()).unwrap()
    };
    let (one, both) = (r#""10.0.0.1:8000""#, r#""10.0.0.1:8000","10.0.0.2:8000""#);
    let mut first = with(both);
    for last in [1, 2] {
        answered_by(&mut first, last, &cold(u64::from(last))).close(&mut first);
    }
    let second = with(one);
    drop(first);
    second.forget_strangers();
    let mut third = with(both);
    drop(second);
    assert_eq!(matched(&mut third, &cold(1)).iter().sum::<u32>(), 10);
    assert_eq!(matched(&mut third, &cold(2)).iter().sum::<u32>(), 0);
    // Of its own endpoints nothing is forgotten.
    third.forget_strangers();
    assert_eq!(matched(&mut third, &cold(1)).iter().sum::<u32>(), 10);
}
