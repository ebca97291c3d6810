//! Work that waits.

use super::Scorer;
use crate::scheduling::Candidate;

/// 1 − queue depth over `max_queue`, 0 from there on.
#[derive(Debug)]
pub struct Queue {
    /// The depth that scores 0; at least 1.
    pub max_queue: u32,
}

impl Scorer for Queue {
    fn name(&self) -> &'static str {
        "queue-scorer"
    }

    fn score(&self, candidate: &Candidate) -> f64 {
        let depth = f64::from(candidate.queue()) / f64::from(self.max_queue.max(1));
        1.0 - depth.min(1.0)
    }
}
