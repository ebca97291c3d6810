//! The encoding of what crosses VMs through Envoy's shared data.
//!
//! Other plugins may write to the same store and another version of this module may run beside it,
//! so every reader treats the bytes as hostile: [`snapshot::decode`] either returns what a writer
//! of this version encoded, or nothing.

mod address;
pub mod checkpoint;
pub mod entry;
mod heartbeats;
mod ids;
pub mod lease;
pub mod lease_table;
mod replica;
pub mod ring;
pub mod snapshot;
mod wire;

pub use entry::Entry;
pub use heartbeats::Heartbeats;
pub use ids::{LeaseId, PoolKey, Sequence, VmId, Weight};
pub use replica::{LeaseObserver, NewRequest, OpenLease, Outcome, Pending, Reopening, Replica};
