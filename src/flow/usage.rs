//! Learns from a response how many tokens its prompt has.

use super::prompt::Model;
use crate::prefix::Chain;
use crate::requestcontrol::Pool;
use crate::requesthandling::{USAGE_BYTES, prompt_tokens};
use crate::telemetry::Reason;

/// Looks out for the usage in one response. Memory: three times [`USAGE_BYTES`].
#[derive(Debug)]
pub(super) struct UsageWatch {
    model: String,
    /// Of the prompt.
    bytes: u64,
    /// The response's end, as far as it came.
    end: Vec<u8>,
}

impl UsageWatch {
    /// `None` where nobody needs to know, or where the prompt was not read to its end.
    pub(super) fn new(pool: &Pool, chain: &Chain, model: &Model, reason: Reason) -> Option<Self> {
        let prefix = &pool.config().prefix;
        let most = prefix.max_tokens / prefix.block_tokens.max(1);
        let most = usize::try_from(most).unwrap_or(usize::MAX);
        let is_whole = reason == Reason::Picked && chain.blocks.len() < most;
        (pool.splits() && is_whole && chain.bytes > 0).then(|| Self {
            model: model.target.clone(),
            bytes: chain.bytes,
            end: Vec::new(),
        })
    }

    /// A piece of the response came, which ends in `end`.
    pub(super) fn saw(&mut self, end: &[u8]) {
        if self.end.len() >= USAGE_BYTES.saturating_mul(2) {
            let old = self.end.len().saturating_sub(USAGE_BYTES);
            self.end = self.end.get(old..).unwrap_or_default().to_vec();
        }
        let kept = end.len().saturating_sub(USAGE_BYTES);
        self.end.extend_from_slice(end.get(kept..).unwrap_or(end));
    }

    /// The response is whole.
    pub(super) fn learn(&self, pool: &mut Pool) {
        if let Some(tokens) = prompt_tokens(&self.end) {
            pool.learn_tokens(&self.model, self.bytes, tokens);
        }
    }
}
