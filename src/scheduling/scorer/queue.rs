//! Who has the shortest queue.

use super::spread::Spread;
use super::{OLD_METRICS, Score, Scorer};
use crate::scheduling::plugin::{Build, Plugin, PluginType};
use crate::scheduling::{Attribute, Candidate, Request};

pub(in crate::scheduling) const TYPE: PluginType = PluginType {
    effect: "(longest − queue) / (longest − shortest), 1 where all are equal; waiting requests, \
             those just sent included",
    missing: "no metrics: an empty queue, and half of what that is worth; old metrics: times \
              their freshness",
    ..PluginType::scorer("queue-scorer", Build::Plain(|| Plugin::scorer(Queue)))
};

/// Scores the queues between the shortest and the longest.
#[derive(Debug)]
struct Queue;

impl Scorer for Queue {
    fn score(&self, _: &Request, candidates: &[&Candidate], scores: &mut Vec<Score>) {
        score_fewest(candidates, Candidate::queue, scores);
    }

    fn needs(&self) -> Vec<Attribute> {
        vec![Attribute::Metrics, Attribute::InFlight]
    }
}

/// The fewest of what `count` counts is best; old numbers are worth less.
pub(super) fn score_fewest(
    candidates: &[&Candidate],
    count: fn(&Candidate) -> u32,
    scores: &mut Vec<Score>,
) {
    let start = scores.len();
    let counts = candidates.iter().map(|one| Some(f64::from(count(one))));
    Spread::FEWEST.score(counts, "", scores);
    for (score, candidate) in scores.iter_mut().skip(start).zip(candidates) {
        *score = score.times(candidate.freshness, OLD_METRICS);
    }
}
