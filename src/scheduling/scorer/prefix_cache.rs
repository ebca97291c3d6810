//! Prompt blocks the endpoint holds.

use super::Scorer;
use crate::scheduling::Candidate;

/// Matched over total blocks; 0 behind the load guard and without a prompt.
#[derive(Debug)]
pub struct PrefixCache;

impl Scorer for PrefixCache {
    fn name(&self) -> &'static str {
        "prefix-cache-scorer"
    }

    fn score(&self, candidate: &Candidate) -> f64 {
        if candidate.guarded || candidate.total_blocks == 0 {
            return 0.0;
        }
        f64::from(candidate.matched_blocks) / f64::from(candidate.total_blocks)
    }
}
