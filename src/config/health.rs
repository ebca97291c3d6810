//! How doubt about an endpoint is weighed.

use core::time::Duration;

use super::error::ConfigError;
use super::fields::Fields;

/// How doubt about an endpoint is weighed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HealthConfig {
    /// Scrape intervals, 1 to 9, up to which metrics count as fresh.
    pub stale_after: u32,
    /// Freshness in [0, 1] at ten intervals and beyond.
    pub stale_floor: f64,
    /// How long a failed answer counts.
    pub error_window: Duration,
}

impl HealthConfig {
    pub(super) fn read(fields: &Fields<'_>) -> Result<Self, ConfigError> {
        Ok(Self {
            stale_after: fields.whole("staleAfter")?,
            stale_floor: fields.number("staleFloor")?,
            error_window: fields.duration("errorWindow")?,
        })
    }
}
