//! Where an adapter is loaded, or can be.

use super::{Score, Scorer};
use crate::scheduling::plugin::{Build, Plugin, PluginType};
use crate::scheduling::{AdapterFit, Attribute, Candidate, Request};

pub(in crate::scheduling) const TYPE: PluginType = PluginType {
    effect: "the model is a loaded adapter 1, there is room for one more 0.8, it waits to be \
             loaded 0.6, else 0",
    missing: "no adapters on the page: 0",
    ..PluginType::scorer(
        "lora-affinity-scorer",
        Build::Plain(|| Plugin::scorer(LoraAffinity)),
    )
};

/// The better, the sooner the adapter can be used.
#[derive(Debug)]
struct LoraAffinity;

impl Scorer for LoraAffinity {
    fn score(&self, _: &Request, candidates: &[&Candidate], scores: &mut Vec<Score>) {
        scores.extend(candidates.iter().map(|one| match one.adapter {
            AdapterFit::Loaded => Score::from(1.0),
            AdapterFit::Room => Score::from(0.8),
            AdapterFit::Waiting => Score::from(0.6),
            AdapterFit::Full => Score::none("no room for an adapter"),
        }));
    }

    fn needs(&self) -> Vec<Attribute> {
        vec![Attribute::Metrics]
    }
}
