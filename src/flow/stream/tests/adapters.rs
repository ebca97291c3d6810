//! Requests for adapters.

use super::*;
use crate::datalayer::EndpointMetrics;

/// Three endpoints of which the first has `lora-a` loaded, and `waiting` requests.
fn router_with_adapter(waiting: u32) -> Router {
    let mut router = one_pool("");
    let pool = router.pool_mut(0).unwrap();
    let loaded = EndpointMetrics {
        waiting,
        adapters: Some(["lora-a"].into_iter().collect()),
        ..EndpointMetrics::default()
    };
    let none = EndpointMetrics {
        adapters: Some(["lora-b"].into_iter().collect()),
        ..EndpointMetrics::default()
    };
    for (id, metrics) in [(0, &loaded), (1, &none), (2, &none)] {
        pool.update(EndpointId::new(id), at(1), metrics);
    }
    router
}

fn ask(router: &mut Router, model: &str) -> Step {
    let body =
        format!(r#"{{"model":"{model}","messages":[{{"role":"user","content":"What is it?"}}]}}"#);
    send(router, "/v1/chat/completions", &body).1
}

fn loads(step: &Step) -> Vec<&str> {
    let counts = counts(step).into_iter();
    let loads = counts.filter_map(|count| match count {
        Count::AdapterLoad { pool: 0, adapter } => Some(adapter.as_str()),
        _ => None,
    });
    loads.collect()
}

#[test]
fn a_request_goes_where_its_adapter_is_loaded() {
    let step = ask(&mut router_with_adapter(0), "lora-a");
    let list = destination(&step).unwrap();
    assert!(list.starts_with("10.0.0.1:80,"), "{list}");
    assert_eq!(loads(&step), [""; 0]);
}

#[test]
fn a_request_sent_where_its_adapter_is_not_loaded_counts_as_a_load() {
    let step = ask(&mut router_with_adapter(19), "lora-a");
    let list = destination(&step).unwrap();
    assert!(!list.starts_with("10.0.0.1:80,"), "{list}");
    assert_eq!(loads(&step), ["lora-a"]);
}

#[test]
fn a_model_nobody_lists_loads_nothing() {
    for model in ["m", "lora-c", ""] {
        let step = ask(&mut router_with_adapter(19), model);
        assert_eq!(loads(&step), [""; 0], "{model}");
    }
}
