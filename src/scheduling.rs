//! From candidates to a ranking: filters drop, scorers weigh, a picker orders.
//!
//! Plugins read attributes that producers attached to a [`Candidate`]; the prefix scorer divides
//! two integers and knows nothing of hashing.

mod candidate;
pub mod filter;
mod five_factor;
pub mod picker;
mod profile;
pub mod scorer;

pub use candidate::{Candidate, Standing};
pub use five_factor::five_factor;
pub use profile::{Decision, Profile, Ranked, Scored, Weighted};

#[cfg(test)]
mod tests;
