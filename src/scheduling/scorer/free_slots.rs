//! Free places in the batch.

use super::{Score, Scorer};
use crate::scheduling::plugin::{Build, Plugin, PluginType};
use crate::scheduling::{Candidate, Request};

pub(in crate::scheduling) const TYPE: PluginType = PluginType {
    effect: "1 − running / `maxRunning`, the endpoint's own: a larger one gets more",
    missing: "no metrics: what this proxy sent",
    ..PluginType::own_scorer(
        "free-slots-scorer",
        Build::Plain(|| Plugin::scorer(FreeSlots)),
    )
};

#[derive(Debug)]
struct FreeSlots;

impl Scorer for FreeSlots {
    fn score(&self, _: &Request, candidates: &[&Candidate], scores: &mut Vec<Score>) {
        let share = |one: &Candidate| f64::from(one.busy()) / f64::from(one.max_running.max(1));
        scores.extend(candidates.iter().map(|one| Score::from(1.0 - share(one))));
    }
}
