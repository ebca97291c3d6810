//! Drops endpoints that only stand by.

use super::Filter;
use crate::scheduling::{Candidate, Standing};
use crate::telemetry::Reason;

/// Keeps endpoints of the lowest tier that has a fit one.
#[derive(Debug)]
pub struct Active;

impl Filter for Active {
    fn name(&self) -> &'static str {
        "active-filter"
    }

    fn keeps(&self, candidate: &Candidate) -> bool {
        candidate.standing != Standing::Standby
    }

    fn reason_when_none_stay(&self) -> Reason {
        Reason::NoCandidates
    }
}
