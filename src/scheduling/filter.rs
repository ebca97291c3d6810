//! Filters: who is out of the running.

mod active;
mod healthy;
mod queue_limit;
mod serves_model;

use core::fmt::Debug;

pub use active::Active;
pub use healthy::Healthy;
pub use queue_limit::QueueLimit;
pub use serves_model::ServesModel;

use super::Candidate;
use crate::telemetry::Reason;

/// Drops candidates.
pub trait Filter: Debug {
    /// The plugin's name in configuration and diagnostics.
    fn name(&self) -> &'static str;

    /// Whether `candidate` stays.
    fn keeps(&self, candidate: &Candidate) -> bool;

    /// What a request is told when this filter keeps nobody; it is then passed over, because a
    /// request is better served badly than not at all.
    fn reason_when_none_stay(&self) -> Reason;
}
