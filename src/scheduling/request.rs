//! What the plugins know of the request itself.

use super::picker::TieKey;

/// One request. Everything that differs from endpoint to endpoint is in the candidates.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Request {
    /// What equals are told apart by.
    pub tie: TieKey,
    /// Differs from request to request, whatever they ask for.
    pub random: u64,
    /// How many endpoints to name, for the request and its retries; at least 1.
    pub attempts: usize,
    /// Blocks of the prompt, 0 when none was read.
    pub total_blocks: u32,
    /// Pseudo-tokens of a block.
    pub block_tokens: u32,
    /// Tokens of the prompt as its servers count them, estimated from its bytes.
    pub prompt_tokens: f64,
    /// Tokens of a whole block, estimated alike.
    pub tokens_per_block: f64,
}
