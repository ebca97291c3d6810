//! Where a pool's endpoints come from when nobody lists them.

use core::time::Duration;
use std::collections::BTreeMap;

use super::error::ConfigError;
use super::fields::Fields;
use super::text;

/// Envoy's own host list, read from its admin interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiscoveryConfig {
    /// The cluster of Envoy's admin interface.
    pub admin_cluster: String,
    /// Time between two readings.
    pub interval: Duration,
    /// Whose hosts make up the pool, at most 32; empty: those of the pool's cluster.
    pub sources: Vec<DiscoverySource>,
}

/// How many clusters one pool can be made of; [`crate::datalayer::HostStatus`] has a bit for each.
pub(super) const MAX_SOURCES: usize = 32;

/// One cluster whose hosts belong to the pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiscoverySource {
    /// An Envoy cluster.
    pub cluster: String,
    /// Labels of all its hosts, as on a pod.
    pub labels: BTreeMap<String, String>,
}

impl DiscoveryConfig {
    pub(super) fn read(fields: &Fields<'_>) -> Result<Self, ConfigError> {
        let sources = fields.list("sources", |item| {
            let fields = item.fields("an object with cluster")?;
            Ok(DiscoverySource {
                cluster: fields.text("cluster")?,
                labels: fields.labels("labels", text::LABEL.fits, text::LABEL.what)?,
            })
        })?;
        Ok(Self {
            admin_cluster: fields.text("adminCluster")?,
            interval: fields.duration("interval")?,
            sources,
        })
    }
}
