//! Short queues, in steps of a fixed size.

use super::{OLD_METRICS, Score, Scorer};
use crate::config::{AT_LEAST_ONE, ConfigError, Fields, KeyDoc, key};
use crate::scheduling::plugin::{Build, Plugin, PluginType};
use crate::scheduling::registry::Setup;
use crate::scheduling::{Attribute, Candidate, Request};

pub(in crate::scheduling) const TYPE: PluginType = PluginType {
    parameters: PARAMETERS,
    effect: "0.5 · (1 − min(queue, threshold) / threshold); waiting requests, those just sent \
             included",
    range: "0 to 0.5",
    missing: "no metrics: an empty queue, and half of what that is worth; old metrics: times \
              their freshness",
    ..PluginType::scorer("load-aware-scorer", Build::Reads(build))
};

const PARAMETERS: &[KeyDoc] = &[key(
    "threshold",
    AT_LEAST_ONE,
    "128",
    "Waiting requests that score 0.",
)];

/// Half a point for an empty queue, none from `threshold` on.
#[derive(Debug)]
struct LoadAware {
    /// At least 1.
    threshold: u32,
}

fn build(fields: &Fields<'_>, _: &mut Setup<'_>) -> Result<Plugin, ConfigError> {
    let threshold = fields.whole("threshold")?;
    Ok(Plugin::scorer(LoadAware { threshold }))
}

impl Scorer for LoadAware {
    fn score(&self, _: &Request, candidates: &[&Candidate], scores: &mut Vec<Score>) {
        let threshold = f64::from(self.threshold.max(1));
        scores.extend(candidates.iter().map(|one| {
            let depth = f64::from(one.queue()).min(threshold);
            Score::from(0.5 * (1.0 - depth / threshold)).times(one.freshness, OLD_METRICS)
        }));
    }

    fn needs(&self) -> Vec<Attribute> {
        vec![Attribute::Metrics, Attribute::InFlight]
    }
}
