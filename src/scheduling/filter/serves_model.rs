//! Drops endpoints that lack the model.

use super::Filter;
use crate::scheduling::{Candidate, Request};

/// Keeps endpoints that list the model the request wants, or of which no list is known. Every
/// profile begins with it: an unhealthy endpoint may answer, one without the model answers 404.
#[derive(Debug)]
pub(crate) struct ServesModel;

impl Filter for ServesModel {
    fn filter(&self, _: &Request, kept: &mut Vec<&Candidate>) {
        kept.retain(|candidate| candidate.serves_model);
    }
}
