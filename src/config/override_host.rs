//! How the pick reaches Envoy's load balancer.

use super::error::ConfigError;
use super::fields::Fields;

/// The header that the cluster's `override_host` policy reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OverrideHost {
    /// Its name, in lower case.
    pub header: String,
    /// Next-best endpoints named after the pick, for retries.
    pub fallbacks: u32,
}

impl OverrideHost {
    pub(super) fn read(fields: &Fields<'_>) -> Result<Self, ConfigError> {
        // The header is the only mode so far: there is nothing to keep, only to check.
        fields.choice("mode", &[()])?;
        Ok(Self {
            header: fields.text("header")?.to_ascii_lowercase(),
            fallbacks: fields.whole("fallbacks")?,
        })
    }
}
