//! How much of the prompt each endpoint holds, by what was sent to it.

use std::rc::Rc;

use super::Producer;
use crate::config::{
    AT_LEAST_ONE, BLOCK_TOKENS, Capacity, ConfigError, Fields, KeyDoc, Kind, MAX_TOKENS, key,
};
use crate::scheduling::Attribute;
use crate::scheduling::plugin::{Build, Plugin, PluginType, Role};
use crate::scheduling::registry::Setup;

pub(in crate::scheduling) const TYPE: PluginType = PluginType {
    parameters: PARAMETERS,
    effect: "sets up the pool's prefix index, in the place of `prefix`; there can be one",
    missing: "nothing was sent there: nothing matches",
    ..PluginType::new(NAME, Role::Producer, Build::Reads(build))
};

/// What the producer is called that there is without being declared.
pub(in crate::scheduling) const NAME: &str = "approx-prefix-cache-producer";

/// As in llm-d, smaller blocks are not worth their entries.
const SMALLEST_BLOCK: u32 = 64;

/// 0 leaves it to the tokens.
const MAX_BLOCKS: Kind = Kind::Whole {
    min: 0,
    max: 262_144,
};

#[rustfmt::skip]
const PARAMETERS: &[KeyDoc] = &[
    key("autoTune", Kind::Flag, "true", "Take each endpoint's capacity from its metrics."),
    key("blockSizeTokens", BLOCK_TOKENS, "null", "Pseudo-tokens of 4 bytes in a block, at least 64; absent: `prefix.blockTokens`."),
    key("blockSize", BLOCK_TOKENS, "null", "The older name of `blockSizeTokens`."),
    key("maxPrefixTokensToMatch", MAX_TOKENS, "131072", "Pseudo-tokens of a prompt that are hashed."),
    key("maxPrefixBlocksToMatch", MAX_BLOCKS, "0", "The older limit, in blocks; counts without `maxPrefixTokensToMatch`."),
    key("lruCapacityPerServer", AT_LEAST_ONE, "31250", "Blocks an endpoint's cache holds, without `autoTune`."),
];

#[derive(Debug)]
struct ApproxPrefixCache;

fn build(fields: &Fields<'_>, setup: &mut Setup<'_>) -> Result<Plugin, ConfigError> {
    let block = match fields.optional_whole("blockSizeTokens")? {
        Some(tokens) => Some(tokens),
        None => fields.optional_whole("blockSize")?,
    };
    let auto_tune = fields.flag("autoTune")?;
    let max_tokens = fields.whole("maxPrefixTokensToMatch")?;
    let max_blocks = fields.whole("maxPrefixBlocksToMatch")?;
    let capacity = fields.whole("lruCapacityPerServer")?;
    let prefix = &mut setup.pool.prefix;
    if let Some(block) = block {
        prefix.block_tokens = block.max(SMALLEST_BLOCK);
    }
    let counts_blocks = fields.given("maxPrefixTokensToMatch").is_none() && max_blocks > 0;
    prefix.max_tokens = if counts_blocks {
        max_blocks.saturating_mul(prefix.block_tokens)
    } else {
        max_tokens
    };
    prefix.auto_tune = auto_tune;
    prefix.capacity_blocks = if auto_tune {
        Capacity::Auto
    } else {
        Capacity::Blocks(capacity)
    };
    setup.claim_prefix_index(fields)?;
    Ok(Plugin::Producer(Rc::new(ApproxPrefixCache)))
}

impl Producer for ApproxPrefixCache {
    fn provides(&self) -> Vec<Attribute> {
        vec![Attribute::PrefixMatch]
    }
}
