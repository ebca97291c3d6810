//! Free KV cache.

use super::{OLD_METRICS, Score, Scorer};
use crate::scheduling::plugin::{Build, Plugin, PluginType};
use crate::scheduling::{Attribute, Candidate, Request};

pub(in crate::scheduling) const TYPE: PluginType = PluginType {
    effect: "1 − KV-cache utilisation",
    missing: "no metrics, or none of the KV cache: 0; old metrics: times their freshness",
    ..PluginType::scorer(
        "kv-cache-utilization-scorer",
        Build::Plain(|| Plugin::scorer(KvCache)),
    )
};

/// 1 − KV-cache utilisation.
#[derive(Debug)]
struct KvCache;

impl Scorer for KvCache {
    fn score(&self, _: &Request, candidates: &[&Candidate], scores: &mut Vec<Score>) {
        scores.extend(candidates.iter().map(|one| match one.kv_utilisation {
            None => Score::none("no KV-cache metric"),
            Some(used) => Score::from(1.0 - used).times(one.freshness, OLD_METRICS),
        }));
    }

    fn needs(&self) -> Vec<Attribute> {
        vec![Attribute::Metrics]
    }
}
