//! Drops endpoints with a full queue.

use super::Filter;
use crate::scheduling::Candidate;
use crate::telemetry::Reason;

/// Keeps endpoints where fewer than `max_queue` requests really wait.
#[derive(Debug)]
pub struct QueueLimit {
    /// At least 1.
    pub max_queue: u32,
}

impl Filter for QueueLimit {
    fn name(&self) -> &'static str {
        "queue-limit-filter"
    }

    fn keeps(&self, candidate: &Candidate) -> bool {
        candidate.truly_waiting() < self.max_queue
    }

    fn reason_when_none_stay(&self) -> Reason {
        Reason::AllOverLimit
    }
}
