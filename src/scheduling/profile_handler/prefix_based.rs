//! A second endpoint where much of the prompt is still to be computed.

use std::rc::Rc;

use super::Decider;
use crate::config::{ConfigError, Fields, KeyDoc, Kind, key};
use crate::scheduling::plugin::{Build, Plugin, PluginType, Role};
use crate::scheduling::producer::NAME;
use crate::scheduling::registry::Setup;
use crate::scheduling::{Attribute, Candidate, Request};

pub(in crate::scheduling) const TYPE: PluginType = PluginType {
    parameters: PARAMETERS,
    effect: "tokens of the prompt ≥ `promptTokens`, and tokens less those of the blocks that the \
             decode pick holds ≥ `nonCachedTokens` > 0; tokens are bytes by the model's learned \
             bytes per token, 4 until learned",
    missing: "no prompt, or no decode pick: no",
    ..PluginType::new(
        "prefix-based-pd-decider",
        Role::Decider,
        Build::Reads(build),
    )
};

const TOKENS: Kind = Kind::Whole {
    min: 0,
    max: u32::MAX,
};

#[rustfmt::skip]
const PARAMETERS: &[KeyDoc] = &[
    key("nonCachedTokens", TOKENS, "0", "Tokens to compute from which it is worth it; 0: never."),
    key("promptTokens", TOKENS, "0", "Tokens of a prompt below which it is not."),
    key("prefixMatchInfoProducerName", NAME, "null", "The producer of matches, by its name."),
];

/// Compares what is left to compute with a limit.
#[derive(Debug)]
struct PrefixBased {
    non_cached_tokens: u32,
    prompt_tokens: u32,
}

fn build(fields: &Fields<'_>, setup: &mut Setup<'_>) -> Result<Plugin, ConfigError> {
    setup.check_prefix_producer(fields, "prefixMatchInfoProducerName")?;
    Ok(Plugin::Decider(Rc::new(PrefixBased {
        non_cached_tokens: fields.whole("nonCachedTokens")?,
        prompt_tokens: fields.whole("promptTokens")?,
    })))
}

impl Decider for PrefixBased {
    fn wants_prefill(&self, request: &Request, decode: Option<&Candidate>) -> bool {
        let (Some(decode), 1..) = (decode, self.non_cached_tokens) else {
            return false;
        };
        let tokens = request.prompt_tokens;
        // The last block counts as whole, so what is left can be less than nothing.
        let cached = f64::from(decode.matched_blocks) * request.tokens_per_block;
        tokens >= f64::from(self.prompt_tokens)
            && tokens - cached >= f64::from(self.non_cached_tokens)
    }

    fn needs(&self) -> Vec<Attribute> {
        vec![Attribute::PrefixMatch]
    }
}
