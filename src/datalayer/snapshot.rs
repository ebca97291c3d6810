//! What is known of a pool's endpoints at one moment: written by the one scraper, read by all.

use core::net::SocketAddr;

use super::metrics::EndpointMetrics;
use super::{HostStatus, ModelList};
use crate::time::Timestamp;

/// The endpoints of one pool with their latest metrics.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PoolSnapshot {
    /// The endpoints are those of Envoy's host list: what is not among them is no longer there.
    pub is_host_list: bool,
    /// One entry per endpoint, in the scraper's order.
    pub endpoints: Vec<EndpointSnapshot>,
}

/// One endpoint with its latest metrics.
#[derive(Clone, Debug, PartialEq)]
pub struct EndpointSnapshot {
    /// Where the endpoint serves requests.
    pub address: SocketAddr,
    /// Start of the scrape the metrics come from; `None` when none has succeeded yet. The start,
    /// since what was sent after it may or may not be in the numbers.
    pub scraped_at: Option<Timestamp>,
    /// What that scrape said; the default when there was none.
    pub metrics: EndpointMetrics,
    /// The models it lists; `None` while that is not known, which is not the same as none.
    pub models: Option<ModelList>,
    /// Envoy's word on it, and in its condition the scraper's too.
    pub status: HostStatus,
}
