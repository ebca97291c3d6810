//! How prompts are cut into blocks and remembered.

use super::error::ConfigError;
use super::fields::Fields;
use super::scoring::Preset;

/// How prompts are cut into blocks and remembered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PrefixConfig {
    /// Pseudo-tokens, of 4 bytes each, in a block.
    pub block_tokens: u32,
    /// Whether a capacity of [`Capacity::Auto`] follows the endpoints' metrics.
    pub auto_tune: bool,
    /// Pseudo-tokens of a prompt that are hashed, at least `block_tokens`; the rest is ignored.
    pub max_tokens: u32,
    /// How much one endpoint's cache holds.
    pub capacity_blocks: Capacity,
    /// What blocks count that were sent to an endpoint but not answered by it yet.
    pub pending_credit: PendingCredit,
}

/// How much one endpoint's cache holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Capacity {
    /// What its metrics say.
    Auto,
    /// So many blocks, at least 1.
    Blocks(u32),
}

/// What blocks count that were sent to an endpoint but not answered by it yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PendingCredit {
    /// As held, unless another endpoint has answered for them.
    UnlessConfirmed,
    /// As held.
    Full,
    /// Nothing.
    None,
}

impl PendingCredit {
    /// As it is written in a configuration.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::UnlessConfirmed => "unlessConfirmed",
            Self::Full => "full",
            Self::None => "none",
        }
    }
}

impl PrefixConfig {
    pub(super) fn read(fields: &Fields<'_>, preset: &Preset) -> Result<Self, ConfigError> {
        let block_tokens = fields.whole("blockTokens")?;
        let max_tokens = fields.whole("maxTokens")?;
        if max_tokens < block_tokens {
            let expected = format!("a whole number of at least blockTokens, {block_tokens}");
            let path = fields.path_of("maxTokens");
            return Err(ConfigError::expected(&path, expected, max_tokens));
        }
        let capacity = fields.auto_or_whole("capacityBlocks")?;
        Ok(Self {
            block_tokens,
            auto_tune: fields.flag("autoTune")?,
            max_tokens,
            capacity_blocks: capacity.map_or(Capacity::Auto, Capacity::Blocks),
            pending_credit: fields.choice_or(
                "pendingCredit",
                preset.pending_credit,
                &[
                    PendingCredit::UnlessConfirmed,
                    PendingCredit::Full,
                    PendingCredit::None,
                ],
            )?,
        })
    }
}
