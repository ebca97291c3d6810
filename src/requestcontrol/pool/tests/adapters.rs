//! Who has the adapter a request asks for.

use super::*;
use crate::datalayer::GpuReading;

/// A pool of an endpoint for each list of adapters.
fn pool_with_adapters(lists: &[Option<&[&str]>]) -> Pool {
    let mut pool = pool(u16::try_from(lists.len()).unwrap(), "");
    for (id, list) in (0..).zip(lists) {
        let metrics = EndpointMetrics {
            adapters: list.map(|names| names.iter().copied().collect()),
            ..EndpointMetrics::default()
        };
        pool.update(EndpointId::new(id), at(1), &metrics);
    }
    pool
}

fn ready(pool: &mut Pool, model: &str) -> Vec<bool> {
    let candidates = pool.candidates(&cold(1), model, at(1));
    let ready = candidates.iter().map(|candidate| candidate.adapter_ready);
    ready.collect()
}

#[test]
fn a_model_that_any_endpoint_lists_is_ready_only_where_it_is_listed() {
    let mut pool = pool_with_adapters(&[None, Some(&[]), Some(&["a"]), Some(&["a", "b"])]);
    assert_eq!(ready(&mut pool, "a"), [false, false, true, true]);
    assert_eq!(ready(&mut pool, "b"), [false, false, false, true]);
    for model in ["base", ""] {
        assert_eq!(ready(&mut pool, model), [true; 4], "{model}");
    }
}

#[test]
fn equal_endpoints_yield_to_the_one_with_the_adapter() {
    for holder in 0..4 {
        let mut lists = [Some(&[][..]); 4];
        lists[holder] = Some(&["a"]);
        let mut pool = pool_with_adapters(&lists);
        for prompt in 0..20 {
            let pick = pool.pick(&cold(prompt), "a", TieKey(prompt), 1, at(1));
            assert_eq!(pick.decision.ranking[0].endpoint.index(), holder);
            assert!(!pick.loads_adapter);
        }
    }
}

#[test]
fn a_pick_without_the_adapter_loads_it() {
    let mut pool = pool_with_adapters(&[Some(&["a"]), None]);
    let busy = EndpointMetrics {
        waiting: 19,
        running: 256,
        adapters: Some(["a"].into_iter().collect()),
        ..EndpointMetrics::default()
    };
    pool.update(EndpointId::new(0), at(2), &busy);
    for (model, loads) in [("a", true), ("base", false)] {
        let pick = pool.pick(&cold(1), model, TieKey(1), 1, at(2));
        assert_eq!(pick.decision.ranking[0].endpoint, EndpointId::new(1));
        assert_eq!(pick.loads_adapter, loads, "{model}");
    }
}

/// The load of the only endpoint after its scrape at `millis` said `own`.
fn load(pool: &mut Pool, millis: u64, own: Option<f64>) -> f64 {
    let metrics = EndpointMetrics {
        gpu_utilisation: own,
        kv_utilisation: Some(0.25),
        ..EndpointMetrics::default()
    };
    pool.update(EndpointId::new(0), at(millis), &metrics);
    pool.candidates(&cold(1), "m", at(millis))[0].load()
}

#[test]
fn the_exporters_gpu_load_counts_where_the_own_page_tells_none() {
    let mut pool = pool(1, "");
    assert!((load(&mut pool, 10, None) - 0.25).abs() < 1e-9);
    pool.update_gpu(EndpointId::new(0), at(20), busy_gpu());
    assert!((load(&mut pool, 30, None) - 0.75).abs() < 1e-9);
    assert!((load(&mut pool, 40, Some(0.5)) - 0.5).abs() < 1e-9);
    let shared = pool.snapshot().endpoints[0].metrics.gpu_utilisation;
    assert_eq!(shared, Some(0.5));
}

#[test]
fn gpu_load_that_the_exporter_stopped_telling_is_forgotten() {
    let mut pool = pool(1, "");
    pool.update_gpu(EndpointId::new(0), at(20), busy_gpu());
    assert!((load(&mut pool, 3_020, None) - 0.75).abs() < 1e-9);
    assert!((load(&mut pool, 3_021, None) - 0.25).abs() < 1e-9);
    assert_eq!(pool.snapshot().endpoints[0].metrics.gpu_utilisation, None);
}

fn busy_gpu() -> GpuReading {
    GpuReading {
        utilisation: Some(0.75),
        faulty: false,
    }
}
