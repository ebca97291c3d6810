//! One set of filters, weighted scorers and a picker.

use super::Candidate;
use super::filter::Filter;
use super::picker::{Picker, TieKey};
use super::scorer::Scorer;
use crate::datalayer::EndpointId;
use crate::telemetry::Reason;

/// A scorer and how much it counts.
#[derive(Debug)]
pub struct Weighted {
    /// The plugin.
    pub scorer: Box<dyn Scorer>,
    /// At least 0, relative to the profile's other weights.
    pub weight: f64,
}

/// Filters, scorers and a picker that belong together.
#[derive(Debug)]
pub struct Profile {
    filters: Vec<Box<dyn Filter>>,
    scorers: Vec<Weighted>,
    picker: Box<dyn Picker>,
    weight_sum: f64,
}

/// A candidate's composite score.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scored {
    /// Whose score this is.
    pub endpoint: EndpointId,
    /// See [`Candidate::address_hash`].
    pub address_hash: u64,
    /// In [0, 1].
    pub score: f64,
}

/// One entry of the list the request is offered to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ranked {
    /// Where to send it.
    pub endpoint: EndpointId,
    /// Composite score, in [0, 1].
    pub score: f64,
}

/// What a profile made of the candidates.
#[derive(Clone, Debug, PartialEq)]
pub struct Decision {
    /// Best first; empty only when there was no candidate at all.
    pub ranking: Vec<Ranked>,
    /// Set when a filter would have left nobody.
    pub exception: Option<Reason>,
}

impl Profile {
    /// A profile of these plugins. Weights are normalised, so the composite lies in [0, 1].
    pub fn new(
        filters: Vec<Box<dyn Filter>>,
        scorers: Vec<Weighted>,
        picker: Box<dyn Picker>,
    ) -> Self {
        let weight_sum = scorers.iter().map(|weighted| weighted.weight).sum();
        Self {
            filters,
            scorers,
            picker,
            weight_sum,
        }
    }

    /// Filters, scores and ranks `candidates`; at most `count` are returned.
    ///
    /// Time: candidates times plugins, and a sort.
    pub fn run(&self, candidates: &[Candidate], tie: TieKey, count: usize) -> Decision {
        let mut exception = None;
        let mut kept: Vec<&Candidate> = candidates.iter().collect();
        for filter in &self.filters {
            if kept.iter().any(|candidate| filter.keeps(candidate)) {
                kept.retain(|candidate| filter.keeps(candidate));
            } else {
                exception = exception.or_else(|| Some(filter.reason_when_none_stay()));
            }
        }
        let scored: Vec<Scored> = kept
            .into_iter()
            .map(|candidate| Scored {
                endpoint: candidate.endpoint,
                address_hash: candidate.address_hash,
                score: self.composite(candidate),
            })
            .collect();
        Decision {
            ranking: self.picker.pick(&scored, tie, count),
            exception,
        }
    }

    /// `Σ wᵢ·clamp(sᵢ) / Σ wᵢ`, 0 when no weight is above 0.
    pub fn composite(&self, candidate: &Candidate) -> f64 {
        if self.weight_sum <= 0.0 {
            return 0.0;
        }
        let weigh = |Weighted { scorer, weight }: &Weighted| {
            let score = scorer.score(candidate);
            // A NaN, of which no comparison is true, scores nothing.
            weight * if score > 0.0 { score.min(1.0) } else { 0.0 }
        };
        self.scorers.iter().map(weigh).sum::<f64>() / self.weight_sum
    }
}
