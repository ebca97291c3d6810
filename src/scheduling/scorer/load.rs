//! Work being done.

use super::{Score, Scorer};
use crate::scheduling::plugin::{Build, Plugin, PluginType};
use crate::scheduling::{Attribute, Candidate, Request};

pub(in crate::scheduling) const TYPE: PluginType = PluginType {
    effect: "1 − load: GPU utilisation, else the fuller of KV cache and batch (running / `maxRunning`)",
    missing: "no metrics: the batch this proxy sent",
    ..PluginType::own_scorer("load-scorer", Build::Plain(|| Plugin::scorer(Load)))
};

/// 1 − load.
#[derive(Debug)]
pub(crate) struct Load;

impl Scorer for Load {
    fn score(&self, _: &Request, candidates: &[&Candidate], scores: &mut Vec<Score>) {
        scores.extend(candidates.iter().map(|one| Score::from(1.0 - one.load())));
    }

    fn needs(&self) -> Vec<Attribute> {
        vec![Attribute::Metrics, Attribute::InFlight]
    }
}
