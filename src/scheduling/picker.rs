//! Pickers: the order in which endpoints are offered.

mod max_score;

use core::fmt::Debug;

pub use max_score::{MaxScore, TieKey};

use super::{Ranked, Scored};

/// Orders scored candidates, best first.
pub trait Picker: Debug {
    /// The plugin's name in configuration and diagnostics.
    fn name(&self) -> &'static str;

    /// The best `count` of `scored`, in the order they should be tried. `tie` decides among equals.
    fn pick(&self, scored: &[Scored], tie: TieKey, count: usize) -> Vec<Ranked>;
}
