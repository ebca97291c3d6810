//! Scorers: how good each candidate is in one respect.

pub(super) mod adapter;
pub(super) mod endpoint_attribute;
pub(super) mod free_slots;
pub(super) mod health;
pub(super) mod kv_cache;
pub(super) mod label;
pub(super) mod load;
pub(super) mod load_aware;
pub(super) mod lora_affinity;
pub(super) mod metric;
pub(super) mod prefix_cache;
pub(super) mod queue;
pub(super) mod queue_depth;
pub(super) mod running_requests;
mod spread;

use core::fmt::Debug;

use super::{Attribute, Candidate, Request};

/// Gives each candidate a score in [0, 1]; more is better. The profile clamps what is outside.
pub trait Scorer: Debug {
    /// Appends the scores of `candidates` to `scores`, in their order. Candidates for whom there is
    /// none in the end have 0.
    fn score(&self, request: &Request, candidates: &[&Candidate], scores: &mut Vec<Score>);

    /// What it reads of a candidate, beside what is always known.
    fn needs(&self) -> Vec<Attribute> {
        Vec::new()
    }
}

/// A score, and where it needs one a word on how it came about.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Score {
    /// In [0, 1].
    pub value: f64,
    /// For people who ask why.
    pub note: Option<&'static str>,
}

impl Score {
    /// No points, because of `why`.
    pub const fn none(why: &'static str) -> Self {
        Self {
            value: 0.0,
            note: Some(why),
        }
    }

    /// This much of it, because of `why`; all of it where `share` is 1.
    #[must_use]
    pub fn times(self, share: f64, why: &'static str) -> Self {
        if share >= 1.0 {
            return self;
        }
        Self {
            value: self.value * share,
            note: self.note.or(Some(why)),
        }
    }

    /// The score in [0, 1]; a NaN, of which no comparison is true, is nothing.
    pub fn clamped(self) -> f64 {
        // In the module `f64::min` is a call.
        if self.value >= 1.0 {
            1.0
        } else if self.value > 0.0 {
            self.value
        } else {
            0.0
        }
    }
}

impl From<f64> for Score {
    fn from(value: f64) -> Self {
        Self { value, note: None }
    }
}

/// Why a score from metrics is less than they say.
const OLD_METRICS: &str = "old metrics";
