//! What Envoy's host list, or the operator's, says of an endpoint.

use core::net::SocketAddr;

use super::Condition;

/// An endpoint that belongs to a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Member {
    /// Where it listens.
    pub address: SocketAddr,
    /// Envoy's word on it.
    pub status: HostStatus,
}

/// Envoy's word on one host; the default for a host nobody says anything of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HostStatus {
    /// What takes it out of the running.
    pub condition: Condition,
    /// Hosts of a higher tier get requests only while no lower one has a fit host. Envoy's
    /// priorities, and within each its degraded hosts after the others.
    pub tier: u8,
    /// Bit `n` is set when the `n`th source of the pool's discovery lists it.
    pub sources: u32,
    /// Requests this proxy has open there, all workers and routes together.
    pub active: u32,
}
