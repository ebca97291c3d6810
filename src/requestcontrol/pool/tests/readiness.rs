//! Who is ready, who has the model, whose engine is stuck, and what a broken GPU costs.

use super::*;
use crate::datalayer::{Condition, GpuReading, ModelList, Unusable};

fn id(number: u16) -> EndpointId {
    EndpointId::new(number)
}

fn models(names: &[(&str, bool)]) -> ModelList {
    let mut models = ModelList::default();
    for (name, is_adapter) in names {
        assert!(models.insert(name, *is_adapter));
    }
    models
}

/// The endpoints a request for `model` is offered to, in ascending order, and its exception.
fn offered(pool: &mut Pool, model: &str) -> (Vec<usize>, Option<Reason>) {
    let pick = pool.pick(&cold(1), model, TieKey(1), 10, at(1));
    let ranking = pick.decision.ranking.iter();
    let mut offered: Vec<usize> = ranking.map(|one| one.endpoint.index()).collect();
    offered.sort_unstable();
    (offered, pick.decision.exception)
}

fn causes(pool: &Pool, endpoint: u16) -> Vec<Unusable> {
    let snapshot = pool.snapshot();
    let condition = snapshot.endpoints[usize::from(endpoint)].status.condition;
    condition.causes().collect()
}

#[test]
fn an_endpoint_that_fails_its_check_gets_nothing_and_no_probe_until_it_passes() {
    let mut pool = pool(3, "");
    pool.take_check(id(1), false);
    for millis in (1..5_000).step_by(500) {
        let pick = pool.pick(&cold(1), "m", TieKey(1), 3, at(millis));
        let ranking = pick.decision.ranking.iter();
        assert!(ranking.clone().all(|one| one.endpoint != id(1)));
        assert_eq!((ranking.len(), pick.decision.exception), (2, None));
    }
    assert!(pool.health(id(1), at(1)) < 1e-9);
    pool.take_check(id(1), true);
    assert_eq!(offered(&mut pool, "m"), (vec![0, 1, 2], None));
}

#[test]
fn an_endpoint_that_lists_nothing_is_not_ready_whatever_its_check_says() {
    let mut pool = pool(2, "");
    pool.take_models(id(0), Some(models(&[])));
    pool.take_check(id(0), true);
    assert_eq!(causes(&pool, 0), [Unusable::NotReady]);
    pool.take_models(id(0), Some(models(&[("m", false)])));
    assert_eq!(causes(&pool, 0), []);
    pool.take_check(id(0), false);
    pool.take_models(id(0), Some(models(&[])));
    pool.take_models(id(0), Some(models(&[("m", false)])));
    assert_eq!(causes(&pool, 0), [Unusable::NotReady], "it fails its check");
    pool.take_models(id(1), None);
    assert_eq!(causes(&pool, 1), [], "it has no list");
}

#[test]
fn a_vm_that_takes_over_knows_why_an_endpoint_is_not_ready() {
    let mut leader = pool(3, "");
    leader.take_check(id(0), false);
    leader.take_models(id(1), Some(models(&[])));
    let mut heir = pool(3, "");
    heir.apply(&leader.snapshot(), at(1));
    assert!(heir.readiness(id(0)).fails_checks && !heir.readiness(id(0)).lists_nothing);
    assert!(!heir.readiness(id(1)).fails_checks && heir.readiness(id(1)).lists_nothing);
    heir.take_models(id(1), Some(models(&[("m", false)])));
    heir.take_check(id(0), true);
    assert_eq!(heir.candidate_count(at(1)), 3);
}

#[test]
fn who_is_known_to_lack_a_listed_model_is_no_candidate_for_it() {
    let mut pool = pool(4, "");
    pool.take_models(id(0), Some(models(&[("a", false)])));
    pool.take_models(id(1), Some(models(&[("b", false), ("lora", true)])));
    pool.take_models(id(2), Some(models(&[("b", false), ("a", true)])));
    assert_eq!(offered(&mut pool, "a"), (vec![0, 2, 3], None));
    assert_eq!(offered(&mut pool, "b"), (vec![1, 2, 3], None));
    // Adapters are loaded where they are asked for, and nobody knows what nobody lists.
    for model in ["lora", "c", ""] {
        assert_eq!(
            offered(&mut pool, model),
            (vec![0, 1, 2, 3], None),
            "{model}"
        );
    }
    // Who lacks the model is no refuge when who has it is ill.
    for endpoint in [0, 3] {
        pool.take_check(id(endpoint), false);
    }
    pool.take_models(id(2), Some(models(&[("b", false)])));
    let nobody_fit = Some(Reason::NoCandidates);
    assert_eq!(offered(&mut pool, "a"), (vec![0, 3], nobody_fit));
}

#[test]
fn a_probe_goes_to_no_endpoint_that_lacks_the_model() {
    let mut pool = pool(3, "");
    pool.take_models(id(0), Some(models(&[("a", false)])));
    pool.take_models(id(1), Some(models(&[("b", false)])));
    for _ in 0..20 {
        pool.failed(id(1));
    }
    assert_eq!(offered(&mut pool, "a"), (vec![0, 2], None));
    assert_eq!(offered(&mut pool, "b"), (vec![1, 2], None));
}

fn running(progress: u64, process_start: f64) -> EndpointMetrics {
    EndpointMetrics {
        running: 2,
        progress: Some(progress),
        process_start: Some(process_start),
        ..EndpointMetrics::default()
    }
}

/// A pool of which endpoint 0 was scraped at each second up to 30 and did nothing.
fn stalled() -> Pool {
    let mut pool = pool(2, "");
    for second in 1..=31 {
        pool.take_scrape(id(0), at(second * 1_000), &running(100, 1.0));
    }
    pool
}

#[test]
fn a_stalled_engine_is_left_out_until_it_goes_on() {
    let mut pool = stalled();
    assert_eq!(causes(&pool, 0), [Unusable::Stalled]);
    assert_eq!(offered(&mut pool, "m").0, [1]);
    pool.take_scrape(id(0), at(32_000), &running(101, 1.0));
    assert_eq!(causes(&pool, 0), []);
}

#[test]
fn a_vm_that_takes_over_lets_a_stalled_engine_be_until_it_sees_progress() {
    let mut heir = pool(2, "");
    heir.apply(&stalled().snapshot(), at(31_000));
    for second in 32..40 {
        heir.take_scrape(id(0), at(second * 1_000), &running(100, 1.0));
        assert_eq!(causes(&heir, 0), [Unusable::Stalled]);
    }
    heir.take_scrape(id(0), at(40_000), &running(101, 1.0));
    assert_eq!(causes(&heir, 0), []);
}

#[test]
fn another_process_has_another_list() {
    let mut pool = pool(2, "");
    pool.take_scrape(id(0), at(1_000), &running(1, 1.0));
    pool.take_models(id(0), Some(models(&[])));
    pool.take_scrape(id(0), at(2_000), &running(1, 1.0));
    assert_eq!(causes(&pool, 0), [Unusable::NotReady]);
    pool.take_scrape(id(0), at(3_000), &running(1, 2.0));
    assert_eq!(causes(&pool, 0), []);
    assert_eq!(pool.snapshot().endpoints[0].models, None);
}

#[test]
fn a_gpu_fault_halves_health_and_excludes_nobody() {
    let mut pool = pool(3, "");
    let faulty = EndpointMetrics {
        gpu_fault: true,
        ..EndpointMetrics::default()
    };
    pool.take_scrape(id(0), at(1), &faulty);
    let exported = GpuReading {
        utilisation: Some(0.5),
        faulty: true,
    };
    pool.update_gpu(id(1), at(1), exported);
    pool.take_scrape(id(1), at(2), &EndpointMetrics::default());
    for (endpoint, expected) in [(0, 0.5), (1, 0.5), (2, 1.0)] {
        let health = pool.health(id(endpoint), at(2));
        assert!((health - expected).abs() < 1e-9, "{endpoint}: {health}");
    }
    assert_eq!(pool.candidate_count(at(2)), 3);
    assert_eq!(offered(&mut pool, "m"), (vec![0, 1, 2], None));
}

#[test]
fn a_change_is_told_once_in_each_direction() {
    let mut pool = pool(2, "");
    let address = pool.endpoint(id(1)).unwrap().address;
    assert_eq!(pool.take_changes(), []);
    pool.take_check(id(1), false);
    let unready = Condition::USABLE.with(Unusable::NotReady, true);
    assert_eq!(pool.take_changes(), [(address, unready)]);
    assert_eq!(pool.take_changes(), []);
    pool.take_check(id(1), true);
    assert_eq!(pool.take_changes(), [(address, Condition::USABLE)]);
    pool.take_check(id(1), false);
    pool.take_check(id(1), true);
    assert_eq!(
        pool.take_changes(),
        [],
        "it was over before it could be told"
    );
}
