//! Producers: what is known of endpoints, and how it is found out.
//!
//! The pool's own parts do the work, whatever is configured; the plugins of llm-d's names set them
//! up and say what they provide.

pub(super) mod approx_prefix_cache;
pub(super) mod core_metrics;
pub(super) mod in_flight;
pub(super) mod metrics_source;
pub(super) mod token;

use core::fmt::Debug;

use super::Attribute;
use crate::config::{Kind, LABEL};

/// Attaches attributes to endpoints.
pub(crate) trait Producer: Debug {
    /// What it attaches.
    fn provides(&self) -> Vec<Attribute>;
}

/// The name of a plugin or an attribute.
pub(super) const NAME: Kind = Kind::Text(&LABEL);
