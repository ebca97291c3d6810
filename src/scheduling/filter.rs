//! Filters: who is out of the running.

pub(super) mod active;
pub(super) mod healthy;
pub(super) mod label_selector;
pub(super) mod queue_limit;
pub(super) mod role;
pub(super) mod serves_model;

use core::fmt::Debug;

use super::{Attribute, Candidate, Request};
use crate::telemetry::Reason;

/// Drops candidates.
pub trait Filter: Debug {
    /// Takes out of `kept` whom the request must not go to. Where it would take everybody out, it is
    /// passed over: a request is better served badly than not at all.
    fn filter(&self, request: &Request, kept: &mut Vec<&Candidate>);

    /// What a request is told when this filter was passed over.
    fn reason_when_none_stay(&self) -> Reason {
        Reason::NoCandidates
    }

    /// Waiting requests at which it drops an endpoint, when that is what it does.
    fn queue_limit(&self) -> Option<u32> {
        None
    }

    /// What it reads of a candidate, beside what is always known.
    fn needs(&self) -> Vec<Attribute> {
        Vec::new()
    }
}
