//! From candidates to a ranking: filters drop, scorers weigh, a picker orders.
//!
//! Plugins read attributes that producers attached to a [`Candidate`]; the prefix scorer divides
//! two integers and knows nothing of hashing. A plugin is one file and one line in the registry
//! ([`plugin_types`]): its file says what it is called, what parameters it takes and what it does,
//! and configuration, documentation and JSON schema come from there. Filters, scorers and a picker
//! make a [`Profile`]; a profile handler says which profiles run; all of them together are a
//! pool's [`Scheduler`].

mod attribute;
mod build;
mod candidate;
pub mod filter;
mod five_factor;
mod passive;
pub mod picker;
mod plugin;
mod producer;
mod profile;
pub mod profile_handler;
mod registry;
mod request;
mod scheduler;
pub mod scorer;

pub use attribute::Attribute;
pub use candidate::{AdapterFit, Candidate, Standing};
pub use five_factor::five_factor;
pub use plugin::{PluginType, Role};
pub use profile::{Decision, Explained, Profile, Ranked, Scored, Weighted};
pub use registry::{missing_types, plugin_types};
pub use request::Request;
pub use scheduler::{Schedule, Scheduler};

#[cfg(test)]
mod tests;
