//! The encoding of what crosses VMs through Envoy's shared data.
//!
//! Other plugins may write to the same store and another version of this module may run beside it,
//! so every reader treats the bytes as hostile: [`snapshot::decode`] either returns what a writer
//! of this version encoded, or nothing.

pub mod lease;
pub mod snapshot;
mod wire;
