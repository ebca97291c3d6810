//! What is counted and why: reasons, metric names, labels. No values live here.

pub mod metric;
mod reason;
mod split;

pub use reason::Reason;
pub use split::SplitDecision;
