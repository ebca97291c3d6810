//! Work being done.

use super::Scorer;
use crate::scheduling::Candidate;

/// 1 − load.
#[derive(Debug)]
pub struct Load;

impl Scorer for Load {
    fn name(&self) -> &'static str {
        "load-scorer"
    }

    fn score(&self, candidate: &Candidate) -> f64 {
        1.0 - candidate.load()
    }
}
