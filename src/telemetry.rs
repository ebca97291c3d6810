//! What is counted and why: reasons, metric names, labels. No values live here.

pub mod metric;
mod reason;

pub use reason::Reason;
