//! Who runs the fewest requests.

use super::queue::score_fewest;
use super::{Score, Scorer};
use crate::scheduling::plugin::{Build, Plugin, PluginType};
use crate::scheduling::{Attribute, Candidate, Request};

pub(in crate::scheduling) const TYPE: PluginType = PluginType {
    effect: "(most − running) / (most − fewest), 1 where all are equal; running requests, those \
             just sent included",
    missing: "no metrics: none running, and half of what that is worth; old metrics: times their \
              freshness",
    ..PluginType::scorer(
        "running-requests-size-scorer",
        Build::Plain(|| Plugin::scorer(RunningRequests)),
    )
};

/// Scores the batches between the smallest and the largest.
#[derive(Debug)]
struct RunningRequests;

impl Scorer for RunningRequests {
    fn score(&self, _: &Request, candidates: &[&Candidate], scores: &mut Vec<Score>) {
        score_fewest(candidates, Candidate::busy, scores);
    }

    fn needs(&self) -> Vec<Attribute> {
        vec![Attribute::Metrics, Attribute::InFlight]
    }
}
