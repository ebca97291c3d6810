//! The encoding of what crosses VMs through Envoy's shared data.
//!
//! Other plugins may write to the same store and another version of this module may run beside it,
//! so every reader treats the bytes as hostile: [`snapshot::decode`] either returns what a writer
//! of this version encoded, or nothing.

mod address;
pub mod entry;
mod ids;
pub mod lease;
pub mod ring;
pub mod snapshot;
mod wire;

pub use entry::Entry;
pub use ids::{LeaseId, PoolKey, Sequence, VmId, Weight};
