//! What stands for the prompt's tokens.

use std::rc::Rc;

use super::Producer;
use crate::config::{ConfigError, Fields, KeyDoc, Kind, LABEL, LaterKey, key, later};
use crate::scheduling::Attribute;
use crate::scheduling::plugin::{Build, Plugin, PluginType, Role};
use crate::scheduling::registry::Setup;

pub(in crate::scheduling) const TYPE: PluginType = PluginType {
    parameters: PARAMETERS,
    effect: "nothing to set up: 4 bytes of prompt stand for a token, as in its `estimate` backend",
    missing: "no prompt: no tokens",
    later: LATER,
    ..PluginType::new("token-producer", Role::Producer, Build::Reads(build))
};

#[rustfmt::skip]
const PARAMETERS: &[KeyDoc] = &[
    key("modelName", Kind::Text(&LABEL), "null", "Accepted; tokens are not asked of a server."),
];

const ESTIMATE: &str = "leave it out: tokens are always estimated, and of text alone";
const LATER: &[LaterKey] = &[
    later("estimate", ESTIMATE),
    later("vllm", ESTIMATE),
    later("udsTokenizerConfig", ESTIMATE),
];

#[derive(Debug)]
struct Tokens;

fn build(fields: &Fields<'_>, _: &mut Setup<'_>) -> Result<Plugin, ConfigError> {
    fields.optional_text("modelName")?;
    Ok(Plugin::Producer(Rc::new(Tokens)))
}

impl Producer for Tokens {
    fn provides(&self) -> Vec<Attribute> {
        Vec::new()
    }
}
