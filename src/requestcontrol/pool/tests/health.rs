//! Who is fit, who is left out, and how one comes back.

use super::*;

#[test]
fn staleness_alone_takes_nobody_out_whatever_the_floor() {
    let mut pool = pool(2, r#","health":{"staleFloor":0}"#);
    let late = at(0).after(Duration::from_mins(1));
    assert!(pool.health(EndpointId::new(0), late) < 1e-9);
    assert_eq!(pool.candidate_count(late), 2);
    let pick = pool.pick(&cold(1), "m", TieKey(1), 2, late);
    assert_eq!(pick.decision.exception, None);
}

/// `endpoint` fails 20 requests.
fn fails(pool: &mut Pool, endpoint: u16, millis: u64) {
    for _ in 0..20 {
        pool.failed(EndpointId::new(endpoint));
    }
    pool.take_outcomes(at(millis));
}

/// The endpoints a request at `millis` is offered to.
fn offered(pool: &mut Pool, millis: u64) -> Vec<usize> {
    let pick = pool.pick(&cold(millis), "m", TieKey(millis), 3, at(millis));
    pick.decision
        .ranking
        .iter()
        .map(|one| one.endpoint.index())
        .collect()
}

#[test]
fn an_endpoint_that_fails_is_left_out_but_probed_once_a_second() {
    let mut pool = pool(3, "");
    fails(&mut pool, 1, 1_000);
    assert_eq!(pool.candidate_count(at(1_000)), 2);
    let mut probes = Vec::new();
    for millis in (1_000..6_000).step_by(100) {
        let list = offered(&mut pool, millis);
        assert!(list.iter().filter(|&&id| id != 1).count() == 2, "{list:?}");
        if list.contains(&1) {
            assert_eq!(list[0], 1, "a probe comes first");
            probes.push(millis);
        }
    }
    assert_eq!(probes, [1_000, 2_000, 3_000, 4_000, 5_000]);
}

#[test]
fn a_clean_window_brings_an_endpoint_back() {
    let mut pool = pool(3, "");
    fails(&mut pool, 1, 1_000);
    assert_eq!(pool.candidate_count(at(10_500)), 2);
    assert_eq!(pool.candidate_count(at(11_000)), 3);
    assert!((pool.health(EndpointId::new(0), at(1_000)) - 1.0).abs() < 1e-9);
}

#[test]
fn all_unfit_still_serves() {
    let mut pool = pool(2, "");
    for endpoint in 0..2 {
        fails(&mut pool, endpoint, 1_000);
    }
    let pick = pool.pick(&cold(1), "m", TieKey(1), 2, at(1_000));
    assert_eq!(pick.decision.exception, Some(Reason::NoCandidates));
    assert_eq!(pick.decision.ranking.len(), 2);
}

#[test]
fn only_what_the_server_did_wrong_counts_against_it() {
    for (status, failures) in [(200, 0), (404, 0), (429, 0), (500, 1), (503, 1)] {
        let mut pool = pool(1, "");
        let ids = vec![EndpointId::new(0)];
        let mut ticket = Ticket::open(&mut pool, ids, &cold(1).blocks, at(1)).unwrap();
        ticket.served(&mut pool, answered(0, status), at(2));
        pool.take_outcomes(at(2));
        let expected = if failures == 0 { 1.0 } else { 2.0 / 3.0 };
        let health = pool.health(EndpointId::new(0), at(2));
        assert!((health - expected).abs() < 1e-9, "{status}: {health}");
        ticket.close(&mut pool);
    }
}

#[test]
fn endpoints_tried_in_vain_lose_health_and_so_does_one_that_breaks_off() {
    let mut pool = pool(3, "");
    let ids: Vec<EndpointId> = (0..3).map(EndpointId::new).collect();
    let mut ticket = Ticket::open(&mut pool, ids, &cold(1).blocks, at(1)).unwrap();
    let served = Served {
        failed_attempts: 2,
        ..answered(2, 200)
    };
    ticket.served(&mut pool, served, at(2));
    ticket.answered(&mut pool, false);
    ticket.broken_off(&pool);
    ticket.close(&mut pool);
    pool.take_outcomes(at(3));
    let health: Vec<f64> = (0..3)
        .map(|id| pool.health(EndpointId::new(id), at(3)))
        .collect();
    let close = |actual: f64, expected: f64| (actual - expected).abs() < 1e-9;
    assert!(
        close(health[0], 2.0 / 3.0) && close(health[1], 2.0 / 3.0),
        "{health:?}"
    );
    assert!(close(health[2], 3.0 / 4.0), "{health:?}");
}

#[test]
fn a_probe_is_due_a_second_after_any_workers_request() {
    let mut pool = pool(3, "");
    fails(&mut pool, 1, 1_000);
    // Another worker's probe, as the log tells of it.
    let ticket = Ticket::open(
        &mut pool,
        vec![EndpointId::new(1)],
        &cold(1).blocks,
        at(1_300),
    );
    ticket.unwrap().close(&mut pool);
    assert!(!offered(&mut pool, 2_200).contains(&1));
    assert!(offered(&mut pool, 2_300).contains(&1));
    // One that nobody can have sent yet.
    let ticket = Ticket::open(
        &mut pool,
        vec![EndpointId::new(1)],
        &cold(2).blocks,
        at(900_000),
    );
    ticket.unwrap().close(&mut pool);
    assert!(offered(&mut pool, 3_300).contains(&1));
    assert!(!offered(&mut pool, 3_400).contains(&1));
}

#[test]
fn a_stream_is_served_well_with_its_first_byte_and_an_answer_that_came_whole_with_its_end() {
    for blocks in [cold(1).blocks, Vec::new()] {
        for is_whole in [false, true] {
            let mut pool = pool(1, "");
            let ids = vec![EndpointId::new(0)];
            let mut ticket = Ticket::open(&mut pool, ids, &blocks, at(1)).unwrap();
            ticket.served(&mut pool, answered(0, 200), at(2));
            ticket.answered(&mut pool, is_whole);
            let served = |pool: &Pool| {
                let tally = |replica: &Replica<InFlight>| {
                    replica.observer().turned_out(EndpointId::new(0)).served
                };
                pool.replica(tally).unwrap()
            };
            assert_eq!(served(&pool), u32::from(!is_whole));
            ticket.close(&mut pool);
            assert_eq!(served(&pool), 1);
        }
    }
}
