//! Configuration: the JSON a user writes, checked into values the rest can trust.
//!
//! [`keys()`] is the single list of what may be written: name, type, range, default and meaning of
//! every key. A key that is not in it is refused, and an absent key reads as its default there, so
//! the list, the reader and the documentation cannot drift apart. Sections read themselves from
//! `Fields`, a cursor that knows its JSON path, which is how every error can name the place.

mod disaggregation;
mod discovery;
mod endpoint;
mod endpoint_picker;
mod error;
mod fields;
mod health;
mod json;
mod keys;
mod kind;
mod metric_spec;
mod metrics;
mod models;
mod override_host;
mod parameters;
mod pattern;
mod pool;
mod prefix;
mod protobuf_struct;
mod route;
mod scoring;
mod text;
mod units;

#[cfg(test)]
mod tests;

pub use disaggregation::{DisaggregationConfig, SplitMode};
pub use discovery::{DiscoveryConfig, DiscoverySource};
pub use endpoint::EndpointConfig;
pub use endpoint_picker::{
    EndpointPickerConfig, PluginConfig, PluginRef, ProfileConfig, picker_keys,
};
pub use error::ConfigError;
pub use health::HealthConfig;
pub use keys::{KeyDoc, keys};
pub use kind::Kind;
pub use metric_spec::MetricSpec;
pub use metrics::{Engine, GpuConfig, MetricsConfig};
pub use models::{ModelConfig, ModelTarget};
pub use override_host::{OverrideHost, OverrideMode};
pub use parameters::Parameters;
pub use pattern::Pattern;
pub use pool::PoolConfig;
pub use prefix::{Capacity, PendingCredit, PrefixConfig};
pub use protobuf_struct::json_text;
pub use route::PoolMatch;
pub use scoring::{ScoringConfig, Weights};
pub use text::TextRule;

use core::num::NonZeroU32;

pub(crate) use fields::Fields;
use json::Value;
pub(crate) use json::quoted;
pub(crate) use keys::{
    AT_LEAST_ONE, BLOCK_TOKENS, LaterKey, MAX_TOKENS, Rows, SCRAPE_INTERVAL, SHARE, choice, key,
    later, required, section,
};
pub(crate) use text::{LABEL, REQUEST_PATH};

/// A whole configuration, every value of it inside its range.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// At least one; the first whose match fits takes the request. Names are unique.
    pub pools: Vec<PoolConfig>,
    /// How the pick reaches Envoy's load balancer.
    pub override_host: OverrideHost,
    /// Bytes of a request body held before the pick; what is longer is routed by this much of it.
    pub max_buffered_bytes: usize,
    /// What becomes of a request for which no endpoint is fit.
    pub failure_mode: FailureMode,
    /// Caps on what grows with traffic.
    pub limits: Limits,
    /// Whether responses carry the `x-epp-*` headers.
    pub debug_headers: bool,
    /// The most detailed level that is logged.
    pub log_level: LogLevel,
}

/// What becomes of a request for which nothing could be picked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureMode {
    /// It is routed by the same scores; with no endpoint known at all, the cluster's own
    /// load-balancing policy chooses.
    FailOpen,
    /// The client gets 503.
    FailClose,
}

/// Caps on what grows with traffic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes one VM spends on the prefix indexes of all its pools together.
    pub index_bytes: usize,
    /// Entries of the decision log that shared data keeps.
    pub log_slots: NonZeroU32,
    /// Distinct client-controlled values of one metric label; the rest counts as `other`.
    pub label_values: u32,
}

/// The most detailed level that is logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogLevel {
    /// Start, configuration, changes of state.
    Info,
    /// And what each request was routed by.
    Debug,
    /// And what is in flight.
    Trace,
}

impl Config {
    /// Reads a configuration from the bytes of a JSON object, or of the `Struct` that Envoy hands
    /// over as its wire form.
    ///
    /// # Errors
    /// The first thing that is wrong, with its JSON path: malformed JSON, an unknown, repeated or
    /// ill-typed field, a value out of its range, a missing required one, or a key that this
    /// version does not have yet.
    pub fn parse(bytes: &[u8]) -> Result<Self, ConfigError> {
        let json = json_text(bytes);
        if json.trim_ascii().is_empty() {
            return Err(ConfigError::expected("", "an object with pools", "nothing"));
        }
        let value = Value::parse(&json).map_err(|error| ConfigError::json(&error))?;
        let root = Fields::root(&value)?;
        Ok(Self {
            pools: pool::read_all(&root)?,
            override_host: root.section("overrideHost", OverrideHost::read)?,
            max_buffered_bytes: root.size("maxBufferedBytes")?,
            failure_mode: root.choice(
                "failureMode",
                &[FailureMode::FailOpen, FailureMode::FailClose],
            )?,
            limits: root.section("limits", Limits::read)?,
            debug_headers: root.flag("debugHeaders")?,
            log_level: root.choice(
                "logLevel",
                &[LogLevel::Info, LogLevel::Debug, LogLevel::Trace],
            )?,
        })
    }

    /// What is valid but probably not meant, one line each: weights that do not sum to 1, a pool
    /// that an earlier one hides.
    pub fn warnings(&self) -> Vec<String> {
        let mut lines = Vec::new();
        let mut takes_all: Option<&PoolConfig> = None;
        for (at, pool) in self.pools.iter().enumerate() {
            if self.override_host.metrics_cluster(pool).is_none() {
                lines.push(format!(
                    "pools[{at}].metrics.cluster: pool {}: absent, so no metrics are read: with \
                     overrideHost.mode statefulSession the pool's own cluster cannot lead a call to \
                     one endpoint; name a cluster that does",
                    pool.name,
                ));
            }
            if pool.endpoint_picker.is_none() && !pool.scoring.weights.sum_to_one() {
                lines.push(format!(
                    "pools[{at}].scoring.weights: pool {}: they sum to {:.3}, used as {}",
                    pool.name,
                    pool.scoring.weights.sum(),
                    pool.scoring.weights.normalised(),
                ));
            }
            if let Some(picker) = &pool.endpoint_picker {
                lines.extend(picker.warnings());
            }
            if let Some(earlier) = takes_all {
                lines.push(format!(
                    "pools[{at}]: pool {} gets no request: pool {} comes first and has no match",
                    pool.name, earlier.name,
                ));
            } else if pool.matcher.fits_everything() {
                takes_all = Some(pool);
            }
        }
        lines
    }

    /// One line for the start-up log: pools, how many endpoints each has, and what a preset sets.
    pub fn summary(&self) -> String {
        let pools: Vec<String> = self
            .pools
            .iter()
            .map(|pool| {
                let scoring = match pool.endpoint_picker {
                    Some(_) => "endpointPickerConfig".to_owned(),
                    None => format!(
                        "weights {}, maxQueue {}",
                        pool.scoring.weights.normalised(),
                        pool.scoring.max_queue,
                    ),
                };
                format!(
                    "{} (cluster {}, endpoints {}{}, {scoring}, guardFloor {}, pendingCredit {})",
                    pool.name,
                    pool.cluster,
                    pool.endpoints.len(),
                    if pool.discovery.is_some() {
                        " and discovery"
                    } else {
                        ""
                    },
                    pool.scoring.guard_floor,
                    pool.prefix.pending_credit.as_str(),
                )
            })
            .collect();
        format!("pools {}: {}", self.pools.len(), pools.join("; "))
    }
}

impl Limits {
    fn read(fields: &Fields<'_>) -> Result<Self, ConfigError> {
        Ok(Self {
            index_bytes: fields.size("indexBytes")?,
            // The list of keys holds it to far more than 1.
            log_slots: NonZeroU32::new(fields.whole("logSlots")?).unwrap_or(NonZeroU32::MIN),
            label_values: fields.whole("labelValues")?,
        })
    }
}
