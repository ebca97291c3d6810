//! Drops endpoints that lack the model.

use super::Filter;
use crate::scheduling::Candidate;
use crate::telemetry::Reason;

/// Keeps endpoints that list the model the request wants, or of which no list is known. Before the
/// others: an unhealthy endpoint may answer, one without the model answers 404.
#[derive(Debug)]
pub struct ServesModel;

impl Filter for ServesModel {
    fn name(&self) -> &'static str {
        "serves-model-filter"
    }

    fn keeps(&self, candidate: &Candidate) -> bool {
        candidate.serves_model
    }

    fn reason_when_none_stay(&self) -> Reason {
        Reason::NoCandidates
    }
}
