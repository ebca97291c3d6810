//! Endpoint health.

use super::{Score, Scorer};
use crate::scheduling::plugin::{Build, Plugin, PluginType};
use crate::scheduling::{Candidate, Request};

pub(in crate::scheduling) const TYPE: PluginType = PluginType {
    effect: "health: share of good answers, times the freshness of the metrics",
    missing: "no answers: 1; no metrics: times `staleFloor`",
    ..PluginType::own_scorer("health-scorer", Build::Plain(|| Plugin::scorer(Health)))
};

/// The endpoint's health.
#[derive(Debug)]
pub(crate) struct Health;

impl Scorer for Health {
    fn score(&self, _: &Request, candidates: &[&Candidate], scores: &mut Vec<Score>) {
        scores.extend(candidates.iter().map(|one| Score::from(one.health)));
    }
}
