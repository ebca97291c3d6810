//! One set of filters, weighted scorers and a picker.

use core::fmt;
use std::rc::Rc;

use super::filter::Filter;
use super::picker::Picker;
use super::scorer::{Score, Scorer};
use super::{Candidate, Request};
use crate::datalayer::EndpointId;
use crate::telemetry::Reason;

/// A scorer and how much it counts.
#[derive(Clone, Debug)]
pub struct Weighted {
    /// What the configuration calls it.
    pub name: String,
    /// The plugin.
    pub scorer: Rc<dyn Scorer>,
    /// At least 0, relative to the profile's other weights.
    pub weight: f64,
}

/// Filters, scorers and a picker that belong together.
#[derive(Debug)]
pub struct Profile {
    name: String,
    filters: Vec<Rc<dyn Filter>>,
    scorers: Vec<Weighted>,
    picker: Rc<dyn Picker>,
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
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Decision {
    /// Best first; empty only when there was no candidate at all.
    pub ranking: Vec<Ranked>,
    /// Set when a filter would have left nobody.
    pub exception: Option<Reason>,
}

/// What one scorer says of one candidate.
#[derive(Clone, Debug, PartialEq)]
pub struct Explained<'a> {
    /// What the configuration calls the scorer.
    pub scorer: &'a str,
    /// Its share of the composite, in [0, 1].
    pub share: f64,
    /// Score and note.
    pub score: Score,
}

/// As a log shows it: name, share, score, and the note in brackets.
impl fmt::Display for Explained<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (share, score) = (self.share, self.score.clamped());
        write!(out, "{} {share:.3}×{score:.3}", self.scorer)?;
        self.score
            .note
            .map_or(Ok(()), |note| write!(out, " ({note})"))
    }
}

impl fmt::Display for Profile {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "profile {}:", self.name)?;
        if self.scorers.is_empty() {
            write!(out, " no scorers")?;
        }
        for (at, weighted) in self.scorers.iter().enumerate() {
            let comma = if at == 0 { "" } else { "," };
            write!(out, "{comma} {} {:.3}", weighted.name, self.share(weighted))?;
        }
        Ok(())
    }
}

impl Profile {
    /// A profile of these plugins. Weights are normalised, so the composite lies in [0, 1].
    pub fn new(
        name: impl Into<String>,
        filters: Vec<Rc<dyn Filter>>,
        scorers: Vec<Weighted>,
        picker: Rc<dyn Picker>,
    ) -> Self {
        let weight_sum = scorers.iter().map(|weighted| weighted.weight).sum();
        Self {
            name: name.into(),
            filters,
            scorers,
            picker,
            weight_sum,
        }
    }

    /// What the configuration calls it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What chooses.
    #[cfg(test)]
    pub(super) fn picker(&self) -> &dyn Picker {
        self.picker.as_ref()
    }

    /// Filters, scores and ranks `candidates`.
    ///
    /// Time: candidates times plugins, and a sort. It allocates a few lists, whatever the number of
    /// candidates.
    pub fn run(&self, request: &Request, candidates: &[Candidate]) -> Decision {
        let (kept, exception) = self.kept(request, candidates);
        let composites = self.composites(request, &kept);
        let scored: Vec<Scored> = kept
            .iter()
            .zip(composites)
            .map(|(candidate, score)| Scored {
                endpoint: candidate.endpoint,
                address_hash: candidate.address_hash,
                score,
            })
            .collect();
        Decision {
            ranking: self.picker.pick(request, &scored),
            exception,
        }
    }

    /// Those of `candidates` that are scored, and what a filter that would have left nobody says.
    pub(super) fn kept<'a>(
        &self,
        request: &Request,
        candidates: &'a [Candidate],
    ) -> (Vec<&'a Candidate>, Option<Reason>) {
        let mut exception = None;
        let mut kept: Vec<&Candidate> = candidates.iter().collect();
        let mut tried = Vec::with_capacity(kept.len());
        for filter in &self.filters {
            tried.clear();
            tried.extend_from_slice(&kept);
            filter.filter(request, &mut tried);
            if tried.is_empty() {
                exception = exception.or_else(|| Some(filter.reason_when_none_stay()));
            } else {
                core::mem::swap(&mut kept, &mut tried);
            }
        }
        (kept, exception)
    }

    /// How many of `candidates` every filter lets through.
    pub fn passing(&self, request: &Request, candidates: &[Candidate]) -> usize {
        let mut kept: Vec<&Candidate> = candidates.iter().collect();
        for filter in &self.filters {
            filter.filter(request, &mut kept);
        }
        kept.len()
    }

    /// Waiting requests at which an endpoint is no candidate; `None` where no queue is too long.
    pub fn queue_limit(&self) -> Option<u32> {
        let limits = self.filters.iter().filter_map(|one| one.queue_limit());
        limits.min()
    }

    /// `Σ wᵢ·clamp(sᵢ) / Σ wᵢ` of each of `candidates`, 0 when no weight is above 0.
    pub fn composites(&self, request: &Request, candidates: &[&Candidate]) -> Vec<f64> {
        let mut totals = vec![0.0; candidates.len()];
        if self.weight_sum <= 0.0 {
            return totals;
        }
        let mut scores = Vec::with_capacity(candidates.len());
        for Weighted { scorer, weight, .. } in &self.scorers {
            scores.clear();
            scorer.score(request, candidates, &mut scores);
            for (total, score) in totals.iter_mut().zip(&scores) {
                *total += weight * score.clamped();
            }
        }
        for total in &mut totals {
            *total /= self.weight_sum;
        }
        totals
    }

    /// What each scorer says of `candidate`, which is one of `candidates`.
    pub fn explain(
        &self,
        request: &Request,
        candidates: &[&Candidate],
        candidate: EndpointId,
    ) -> Vec<Explained<'_>> {
        let place = candidates.iter().position(|one| one.endpoint == candidate);
        let Some(place) = place else {
            return Vec::new();
        };
        let explain = |weighted: &'_ Weighted| {
            let mut scores = Vec::with_capacity(candidates.len());
            weighted.scorer.score(request, candidates, &mut scores);
            scores.get(place).copied().unwrap_or_default()
        };
        let scorers = self.scorers.iter();
        scorers
            .map(|weighted| Explained {
                scorer: &weighted.name,
                share: self.share(weighted),
                score: explain(weighted),
            })
            .collect()
    }

    fn share(&self, weighted: &Weighted) -> f64 {
        if self.weight_sum > 0.0 {
            weighted.weight / self.weight_sum
        } else {
            0.0
        }
    }

    /// Whether `candidate`, however it does, is one that requests are for: the filters that say
    /// who is too busy are not asked.
    pub fn is_for(&self, request: &Request, candidate: &Candidate) -> bool {
        let well = Candidate {
            fitness: 1.0,
            ..candidate.clone()
        };
        let filters = self.filters.iter();
        let mut filters = filters.filter(|one| one.reason_when_none_stay() == Reason::NoCandidates);
        filters.all(|filter| {
            let mut kept = vec![&well];
            filter.filter(request, &mut kept);
            !kept.is_empty()
        })
    }
}
