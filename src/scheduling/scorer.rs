//! Scorers: how good a candidate is in one respect.

mod adapter;
mod health;
mod load;
mod prefix_cache;
mod queue;

use core::fmt::Debug;

pub use adapter::Adapter;
pub use health::Health;
pub use load::Load;
pub use prefix_cache::PrefixCache;
pub use queue::Queue;

use super::Candidate;

/// Gives a candidate a score in [0, 1]; more is better. The profile clamps what is outside.
pub trait Scorer: Debug {
    /// The plugin's name in configuration and diagnostics.
    fn name(&self) -> &'static str;

    /// The score of `candidate`.
    fn score(&self, candidate: &Candidate) -> f64;
}
