//! Requests this proxy sent to each endpoint.

use std::rc::Rc;

use super::Producer;
use crate::config::{ConfigError, Fields, KeyDoc, LaterKey, later};
use crate::scheduling::Attribute;
use crate::scheduling::plugin::{Build, Plugin, PluginType, Role};
use crate::scheduling::producer::NAME;
use crate::scheduling::registry::Setup;

pub(in crate::scheduling) const TYPE: PluginType = PluginType {
    parameters: PARAMETERS,
    effect: "nothing to set up: open requests are counted always, and queues and batches include \
             those that a scrape cannot show yet",
    missing: "nothing was sent there: 0",
    later: LATER,
    ..PluginType::new(
        "inflight-load-producer",
        Role::Producer,
        Build::Reads(build),
    )
};

#[rustfmt::skip]
const PARAMETERS: &[KeyDoc] = &[
    crate::config::key("prefixMatchInfoProducerName", NAME, "null", "The producer of matches, by its name."),
];

const TOKENS: &str = "leave it out: requests are counted, not their tokens";
const LATER: &[LaterKey] = &[
    later("addEstimatedOutputTokens", TOKENS),
    later("outputRatio", TOKENS),
    later("maxEstimatedOutputTokens", TOKENS),
    later(
        "syncCrossReplicaState",
        "leave it out: the workers of one Envoy are all there is",
    ),
];

#[derive(Debug)]
struct InFlight;

fn build(fields: &Fields<'_>, setup: &mut Setup<'_>) -> Result<Plugin, ConfigError> {
    setup.check_prefix_producer(fields, "prefixMatchInfoProducerName")?;
    Ok(Plugin::Producer(Rc::new(InFlight)))
}

impl Producer for InFlight {
    fn provides(&self) -> Vec<Attribute> {
        vec![Attribute::InFlight]
    }
}
