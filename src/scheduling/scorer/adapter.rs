//! Adapters that are loaded.

use super::{Score, Scorer};
use crate::scheduling::plugin::{Build, Plugin, PluginType};
use crate::scheduling::{Attribute, Candidate, Request};

pub(in crate::scheduling) const TYPE: PluginType = PluginType {
    effect: "1 when the adapter is loaded or none is needed, else 0",
    range: "0 or 1",
    missing: "nobody lists the model: none is needed",
    ..PluginType::own_scorer("adapter-scorer", Build::Plain(|| Plugin::scorer(Adapter)))
};

/// 1 when the adapter is loaded or none is needed, else 0.
#[derive(Debug)]
pub(crate) struct Adapter;

impl Scorer for Adapter {
    fn score(&self, _: &Request, candidates: &[&Candidate], scores: &mut Vec<Score>) {
        scores.extend(candidates.iter().map(|one| {
            if one.adapter_ready {
                Score::from(1.0)
            } else {
                Score::none("the adapter is not loaded")
            }
        }));
    }

    fn needs(&self) -> Vec<Attribute> {
        vec![Attribute::Metrics]
    }
}
