//! Drops endpoints that are not well.

use super::Filter;
use crate::scheduling::{Candidate, Request};

/// Keeps endpoints that may be used and whose fitness is at least `min_health`. Every profile
/// begins with it.
#[derive(Debug)]
pub(crate) struct Healthy {
    /// In [0, 1].
    pub(crate) min_health: f64,
}

impl Filter for Healthy {
    fn filter(&self, _: &Request, kept: &mut Vec<&Candidate>) {
        kept.retain(|candidate| candidate.is_fit(self.min_health));
    }
}
