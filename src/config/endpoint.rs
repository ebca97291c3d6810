//! Endpoints that the configuration lists.

use core::net::SocketAddr;
use std::collections::{BTreeMap, BTreeSet};

use super::error::ConfigError;
use super::fields::{Fields, Item};
use super::json::Value;
use super::text::{self, TextRule};

/// One model server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndpointConfig {
    /// Where it listens; the same address and port that the cluster has for it.
    pub address: SocketAddr,
    /// Labels, as on a pod.
    pub labels: BTreeMap<String, String>,
    /// Requests one of its engines runs at once; `None`: the pool's `scoring.max_running`.
    pub max_running: Option<u32>,
}

/// Envoy's `override_host` policy compares literal addresses with those of the cluster's hosts.
pub(super) const ADDRESS: TextRule = TextRule {
    what: "\"ip:port\", such as 10.0.0.1:8000 or [fd00::1]:8000 \
           (not a host name: Envoy's override_host takes addresses only)",
    fits: |text| address(text).is_some(),
};

/// The endpoints of the pool that `pool` holds.
pub(super) fn read_all(pool: &Fields<'_>) -> Result<Vec<EndpointConfig>, ConfigError> {
    let mut addresses = BTreeSet::new();
    pool.list("endpoints", |item| {
        let endpoint = EndpointConfig::read(&item)?;
        if addresses.insert(endpoint.address) {
            Ok(endpoint)
        } else {
            let expected = "an address that the pool does not have yet";
            let found = format!("{} again", endpoint.address);
            Err(ConfigError::expected(&item.path, expected, found))
        }
    })
}

impl EndpointConfig {
    fn read(item: &Item<'_>) -> Result<Self, ConfigError> {
        if let Value::Text(text) = item.value {
            return Ok(Self {
                address: address(text).ok_or_else(|| item.expected(ADDRESS.what))?,
                labels: BTreeMap::new(),
                max_running: None,
            });
        }
        let fields = item.fields("\"ip:port\" or an object with address")?;
        let text = fields.text("address")?;
        Ok(Self {
            address: address(&text).ok_or_else(|| item.expected(ADDRESS.what))?,
            labels: fields.labels("labels", text::LABEL.fits, text::LABEL.what)?,
            max_running: fields.optional_whole("maxRunning")?,
        })
    }
}

/// The address in `text`, when one server can listen there: a port, one interface, no IPv6 zone
/// (which only means something on the machine that wrote it).
fn address(text: &str) -> Option<SocketAddr> {
    let address: SocketAddr = text.parse().ok()?;
    let has_zone = text.contains('%');
    let is_one_host = !address.ip().is_unspecified() && !address.ip().is_multicast();
    (address.port() != 0 && is_one_host && !has_zone).then_some(address)
}
