//! What is counted and why: reasons, metric names, labels. No values live here.

mod reason;

pub use reason::Reason;
