//! How the pick reaches Envoy's load balancer.

use super::error::ConfigError;
use super::fields::Fields;
use super::pool::PoolConfig;

/// The header that carries the pick, and who reads it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OverrideHost {
    /// Who reads it.
    pub mode: OverrideMode,
    /// Its name, in lower case.
    pub header: String,
    /// Next-best endpoints named after the pick, for retries.
    pub fallbacks: u32,
}

/// Who reads the header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OverrideMode {
    /// The cluster's `override_host` policy: a list, one entry for each attempt.
    Header,
    /// A `stateful_session` filter behind this one: one address in base64, for the first attempt.
    StatefulSession,
}

impl OverrideHost {
    pub(super) fn read(fields: &Fields<'_>) -> Result<Self, ConfigError> {
        Ok(Self {
            mode: fields.choice(
                "mode",
                &[OverrideMode::Header, OverrideMode::StatefulSession],
            )?,
            header: fields.text("header")?.to_ascii_lowercase(),
            fallbacks: fields.whole("fallbacks")?,
        })
    }

    /// The cluster through which an endpoint's metrics are read; `None` when none leads to the
    /// endpoint that a call names. Calls do not pass through HTTP filters, so with
    /// `statefulSession` the pool's own cluster would answer for any of its hosts.
    pub fn metrics_cluster<'a>(&self, pool: &'a PoolConfig) -> Option<&'a str> {
        let own = (self.mode == OverrideMode::Header).then_some(&pool.cluster);
        pool.metrics.cluster.as_ref().or(own).map(String::as_str)
    }

    /// The cluster through which an endpoint itself is asked: the way of the requests where it leads
    /// to the endpoint that a call names, else that of the metrics if those are at the same port.
    pub fn checks_cluster<'a>(&self, pool: &'a PoolConfig) -> Option<&'a str> {
        match self.mode {
            OverrideMode::Header => Some(&pool.cluster),
            OverrideMode::StatefulSession if pool.metrics.port.is_none() => {
                pool.metrics.cluster.as_deref()
            }
            OverrideMode::StatefulSession => None,
        }
    }
}
