//! Model servers by address.

use core::net::SocketAddr;

use super::Labels;

/// One endpoint's place in its pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EndpointId(u16);

impl EndpointId {
    /// The endpoint at place `index`.
    pub const fn new(index: u16) -> Self {
        Self(index)
    }

    /// Its place, for tables indexed by endpoint.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// A model server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// Where it listens.
    pub address: SocketAddr,
    /// `ip:port`, IPv6 in brackets: the form the `override_host` policy and the metrics use.
    pub name: String,
    /// What the operator says of it, such as `llm-d.ai/role`.
    pub labels: Labels,
    /// How many requests one of its engines runs at once, where it differs from the pool's.
    pub max_running: Option<u32>,
}
