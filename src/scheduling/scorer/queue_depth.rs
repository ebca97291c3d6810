//! Work that waits.

use super::{Score, Scorer};
use crate::config::{AT_LEAST_ONE, ConfigError, Fields, KeyDoc, key};
use crate::scheduling::plugin::{Build, Plugin, PluginType};
use crate::scheduling::registry::Setup;
use crate::scheduling::{Attribute, Candidate, Request};

pub(in crate::scheduling) const TYPE: PluginType = PluginType {
    parameters: PARAMETERS,
    effect: "1 − min(queue / `maxQueue`, 1); waiting requests, those just sent included",
    missing: "no metrics: what this proxy sent",
    ..PluginType::own_scorer("queue-depth-scorer", Build::Reads(build))
};

const PARAMETERS: &[KeyDoc] = &[key(
    "maxQueue",
    AT_LEAST_ONE,
    "20",
    "Waiting requests that score 0.",
)];

/// 1 − queue depth over `max_queue`, 0 from there on.
#[derive(Debug)]
pub(crate) struct QueueDepth {
    /// The depth that scores 0; at least 1.
    pub(crate) max_queue: u32,
}

fn build(fields: &Fields<'_>, _: &mut Setup<'_>) -> Result<Plugin, ConfigError> {
    let max_queue = fields.whole("maxQueue")?;
    Ok(Plugin::scorer(QueueDepth { max_queue }))
}

impl Scorer for QueueDepth {
    fn score(&self, _: &Request, candidates: &[&Candidate], scores: &mut Vec<Score>) {
        let most = f64::from(self.max_queue.max(1));
        scores.extend(candidates.iter().map(|one| {
            let depth = f64::from(one.queue()) / most;
            Score::from(1.0 - depth.min(1.0))
        }));
    }

    fn needs(&self) -> Vec<Attribute> {
        vec![Attribute::Metrics, Attribute::InFlight]
    }
}
