//! One pool: model servers that stand in for each other.

use std::collections::BTreeSet;

use super::disaggregation::DisaggregationConfig;
use super::discovery::DiscoveryConfig;
use super::endpoint::{self, EndpointConfig};
use super::endpoint_picker::EndpointPickerConfig;
use super::error::ConfigError;
use super::fields::Fields;
use super::health::HealthConfig;
use super::json::quoted;
use super::metrics::MetricsConfig;
use super::models::{self, ModelConfig};
use super::prefix::PrefixConfig;
use super::route::PoolMatch;
use super::scoring::{Preset, ScoringConfig};

/// One pool: which requests it takes and how it picks among its endpoints.
#[derive(Clone, Debug, PartialEq)]
pub struct PoolConfig {
    /// Unique among the pools; part of metric labels and shared keys.
    pub name: String,
    /// The Envoy cluster that holds the endpoints.
    pub cluster: String,
    /// Which requests the pool takes.
    pub matcher: PoolMatch,
    /// At least one where there is no discovery; addresses are unique.
    pub endpoints: Vec<EndpointConfig>,
    /// Models that servers are asked for under other names; the rest go out as they came.
    pub models: Vec<ModelConfig>,
    /// Envoy's host list instead of `endpoints`; `None`: these alone.
    pub discovery: Option<DiscoveryConfig>,
    /// How the endpoints' metrics are read.
    pub metrics: MetricsConfig,
    /// How candidates are chosen and weighed.
    pub scoring: ScoringConfig,
    /// How prompts are cut into blocks and remembered.
    pub prefix: PrefixConfig,
    /// How doubt about an endpoint is weighed.
    pub health: HealthConfig,
    /// Profiles in the place of the five factors; `None`: those of `scoring`.
    pub endpoint_picker: Option<EndpointPickerConfig>,
    /// How prompts are computed at one endpoint for another, where its profiles ask for that.
    pub disaggregation: DisaggregationConfig,
}

/// The pools of the whole configuration.
pub(super) fn read_all(root: &Fields<'_>) -> Result<Vec<PoolConfig>, ConfigError> {
    let mut names = BTreeSet::new();
    root.list("pools", |item| {
        let fields = item.fields("an object with name, cluster, and endpoints or discovery")?;
        let pool = PoolConfig::read(&fields)?;
        if names.insert(pool.name.clone()) {
            Ok(pool)
        } else {
            let expected = "a name that no other pool has";
            let found = format!("{} again", quoted(&pool.name));
            let path = fields.path_of("name");
            Err(ConfigError::expected(&path, expected, found))
        }
    })
}

impl PoolConfig {
    /// What clients ask for as `name`, if servers know it by another name.
    pub fn model(&self, name: &str) -> Option<&ModelConfig> {
        self.models.iter().find(|model| model.name == name)
    }

    /// Whether `model`, as servers know it, is an adapter by the configuration.
    pub fn declares_adapter(&self, model: &str) -> bool {
        let mut targets = self.models.iter().flat_map(|model| &model.targets);
        targets.any(|target| target.adapter && target.model == model)
    }

    fn read(fields: &Fields<'_>) -> Result<Self, ConfigError> {
        let name = fields.text("name")?;
        let cluster = fields.text("cluster")?;
        let matcher = fields.section("match", PoolMatch::read)?;
        let endpoints = endpoint::read_all(fields)?;
        let models = models::read_all(fields)?;
        let discovery = fields.optional_section("discovery", DiscoveryConfig::read)?;
        if endpoints.is_empty() && discovery.is_none() {
            let path = fields.path_of("endpoints");
            let expected = "at least one endpoint, or discovery beside it";
            return Err(ConfigError::expected(&path, expected, "nothing"));
        }
        let metrics = fields.section("metrics", MetricsConfig::read)?;
        let preset = fields.section("scoring", Preset::read)?;
        let mut endpoint_picker = EndpointPickerConfig::read(fields, "endpointPickerConfig")?;
        if let Some(picker) = &mut endpoint_picker {
            picker.is_beside_scoring = weighs_five_factors(fields)?;
        }
        Ok(Self {
            name,
            cluster,
            matcher,
            endpoints,
            models,
            discovery,
            metrics,
            scoring: fields.section("scoring", |scoring| ScoringConfig::read(scoring, &preset))?,
            prefix: fields.section("prefix", |prefix| PrefixConfig::read(prefix, &preset))?,
            health: fields.section("health", HealthConfig::read)?,
            endpoint_picker,
            disaggregation: fields.section("disaggregation", DisaggregationConfig::read)?,
        })
    }
}

/// What of `scoring` does not count beside an `endpointPickerConfig`.
const OF_FIVE_FACTORS: [&str; 3] = ["preset", "weights", "maxQueue"];

/// Whether any of it is written.
fn weighs_five_factors(pool: &Fields<'_>) -> Result<bool, ConfigError> {
    pool.section("scoring", |scoring| {
        let mut names = OF_FIVE_FACTORS.iter();
        Ok(names.any(|name| scoring.given(name).is_some()))
    })
}
