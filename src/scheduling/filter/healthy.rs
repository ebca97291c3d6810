//! Drops endpoints that are not well.

use super::Filter;
use crate::scheduling::Candidate;
use crate::telemetry::Reason;

/// Keeps endpoints that may be used and whose fitness is at least `min_health`.
#[derive(Debug)]
pub struct Healthy {
    /// In [0, 1].
    pub min_health: f64,
}

impl Filter for Healthy {
    fn name(&self) -> &'static str {
        "healthy-filter"
    }

    fn keeps(&self, candidate: &Candidate) -> bool {
        candidate.is_fit(self.min_health)
    }

    fn reason_when_none_stay(&self) -> Reason {
        Reason::NoCandidates
    }
}
