//! Scheduling allocates a few lists, whatever the number of endpoints.

use dhat::{HeapStats, Profiler};
use inline_epp::config::Config;
use inline_epp::datalayer::EndpointId;
use inline_epp::scheduling::picker::TieKey;
use inline_epp::scheduling::{Candidate, Request, Scheduler, plugin_types};
use serde_json::{Value, json};

#[global_allocator]
static ALLOCATOR: dhat::Alloc = dhat::Alloc;

/// A scheduler of every scorer there is.
fn scheduler() -> Scheduler {
    let plugins: Vec<Value> = plugin_types()
        .iter()
        .filter(|one| one.role == inline_epp::scheduling::Role::Scorer)
        .map(|one| match one.name {
            "metric-scorer" => json!({"type": one.name, "parameters": {"metric": "m"}}),
            "label-scorer" => json!({"type": one.name, "parameters": {"label": "zone"}}),
            "endpoint-attribute-scorer" => {
                json!({"type": one.name, "parameters": {"attributeKey": "a"}})
            }
            name => json!({ "type": name }),
        })
        .chain([
            json!({"type": "core-metrics-extractor", "parameters": {"engineConfigs": [
                {"name": "vllm", "customMetrics": [{"attributeKey": "a", "metricSpec": "m2"}]},
            ]}}),
        ])
        .collect();
    assert!(plugins.len() > 12);
    let config = json!({"pools": [{
        "name": "p", "cluster": "c", "endpoints": ["10.0.0.1:80"],
        "endpointPickerConfig": {
            "apiVersion": "llm-d.ai/v1alpha1", "kind": "EndpointPickerConfig", "plugins": plugins,
        },
    }]});
    let config = Config::parse(config.to_string().as_bytes()).expect("valid");
    Scheduler::new(&mut config.pools[0].clone()).expect("valid")
}

fn candidates(count: u16) -> Vec<Candidate> {
    let labels = [("zone".to_owned(), "3".to_owned())];
    let one = |id| Candidate {
        address_hash: u64::from(id),
        total_blocks: 64,
        matched_blocks: u32::from(id) % 64,
        labels: labels.iter().cloned().collect(),
        ..Candidate::new(EndpointId::new(id))
    };
    (0..count).map(one).collect()
}

fn allocations(scheduler: &Scheduler, candidates: &[Candidate]) -> u64 {
    let request = Request {
        tie: TieKey(7),
        random: 7,
        attempts: 3,
        total_blocks: 64,
        block_tokens: 64,
        prompt_tokens: 4_096.0,
        tokens_per_block: 64.0,
    };
    let before = HeapStats::get().total_blocks;
    let schedule = scheduler.schedule(&request, candidates);
    let after = HeapStats::get().total_blocks;
    assert_eq!(schedule.decision.ranking.len(), 3);
    after - before
}

#[test]
fn more_endpoints_take_no_more_allocations() {
    let _profiler = Profiler::builder().testing().build();
    let scheduler = scheduler();
    let (few, many) = (candidates(8), candidates(512));
    let few = allocations(&scheduler, &few);
    assert_eq!(allocations(&scheduler, &many), few);
    assert!((1..12).contains(&few), "{few}");
}
