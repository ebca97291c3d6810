//! What producers attach to candidates and other plugins read.

use core::fmt;

/// One thing that may be known of an endpoint. Health, labels and whether an endpoint may be used
/// are always known.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Attribute {
    /// How much of the prompt it holds.
    PrefixMatch,
    /// Requests this proxy sent it.
    InFlight,
    /// Its queue, batch, KV cache and adapters.
    Metrics,
    /// A series of its metrics page, by the name a producer gave it.
    Series(String),
}

impl fmt::Display for Attribute {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::PrefixMatch => out.write_str("prefix-match"),
            Self::InFlight => out.write_str("in-flight"),
            Self::Metrics => out.write_str("metrics"),
            Self::Series(name) => write!(out, "series {name:?}"),
        }
    }
}
