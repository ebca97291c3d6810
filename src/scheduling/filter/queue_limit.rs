//! Drops endpoints with a full queue.

use super::Filter;
use crate::config::{AT_LEAST_ONE, ConfigError, Fields, KeyDoc, key};
use crate::scheduling::plugin::{Build, Plugin, PluginType};
use crate::scheduling::registry::Setup;
use crate::scheduling::{Attribute, Candidate, Request};
use crate::telemetry::Reason;

pub(in crate::scheduling) const TYPE: PluginType = PluginType {
    parameters: PARAMETERS,
    effect: "keeps endpoints where fewer than `maxQueue` requests really wait",
    missing: "no metrics: nothing waits but what this proxy sent beyond `maxRunning`",
    ..PluginType::own_filter("queue-limit-filter", Build::Reads(build))
};

const PARAMETERS: &[KeyDoc] = &[key(
    "maxQueue",
    AT_LEAST_ONE,
    "20",
    "Waiting requests at which an endpoint is no candidate.",
)];

/// Keeps endpoints where fewer than `max_queue` requests really wait.
#[derive(Debug)]
pub(crate) struct QueueLimit {
    /// At least 1.
    pub(crate) max_queue: u32,
}

fn build(fields: &Fields<'_>, _: &mut Setup<'_>) -> Result<Plugin, ConfigError> {
    let max_queue = fields.whole("maxQueue")?;
    Ok(Plugin::filter(QueueLimit { max_queue }))
}

impl Filter for QueueLimit {
    fn filter(&self, _: &Request, kept: &mut Vec<&Candidate>) {
        kept.retain(|candidate| candidate.truly_waiting() < self.max_queue);
    }

    fn reason_when_none_stay(&self) -> Reason {
        Reason::AllOverLimit
    }

    fn queue_limit(&self) -> Option<u32> {
        Some(self.max_queue)
    }

    fn needs(&self) -> Vec<Attribute> {
        vec![Attribute::Metrics, Attribute::InFlight]
    }
}
