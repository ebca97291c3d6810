//! Endpoint health.

use super::Scorer;
use crate::scheduling::Candidate;

/// The endpoint's health.
#[derive(Debug)]
pub struct Health;

impl Scorer for Health {
    fn name(&self) -> &'static str {
        "health-scorer"
    }

    fn score(&self, candidate: &Candidate) -> f64 {
        candidate.health
    }
}
