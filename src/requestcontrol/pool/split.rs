//! What a pool knows for prompts that are computed at one endpoint for another.

use super::Pool;
use crate::config::{ConfigError, DisaggregationConfig, SplitMode};
use crate::prefix::BYTES_PER_TOKEN;
use crate::requestcontrol::token_ratios::float;
use crate::requestcontrol::{End, RequestId};
use crate::scheduling::Scheduler;
use crate::time::Timestamp;

/// Abandoned leases that are kept: more clients than a pool has room for left within one time-out.
const MAX_ABANDONED: usize = 4_096;

/// Refuses a mode that would never do anything.
pub(super) fn check(
    config: &DisaggregationConfig,
    scheduler: &Scheduler,
) -> Result<(), ConfigError> {
    if !config.mode.is_inline() || scheduler.splits() {
        return Ok(());
    }
    let path = format!("{}.mode", config.path);
    let expected = "a disagg-profile-handler in endpointPickerConfig, which names both endpoints";
    let found = format!("{} without one", config.mode.as_str());
    Err(ConfigError::expected(&path, expected, found))
}

impl Pool {
    /// Whether prompts may be computed elsewhere than their requests go: by its profiles and by its
    /// configuration.
    pub fn splits(&self) -> bool {
        self.scheduler.splits() && self.config.disaggregation.mode != SplitMode::Off
    }

    /// A server counted `tokens` in a prompt of `bytes` bytes for `model`, its own name for it.
    pub fn learn_tokens(&mut self, model: &str, bytes: u64, tokens: u64) {
        self.ratios.learn(model, bytes, tokens);
    }

    /// The lease `request` is nobody's any more, and counts `until` its work must have ended. Beyond
    /// [`MAX_ABANDONED`] of them it ends at once.
    pub(in crate::requestcontrol) fn abandon(&mut self, request: RequestId, until: Timestamp) {
        if self.abandoned.len() < MAX_ABANDONED {
            self.abandoned.push((until, request));
        } else {
            self.ledger(|ledger, _| ledger.finish(request, End::default()));
        }
    }

    /// Ends the abandoned leases whose time has come; their blocks, which nobody confirmed, are taken
    /// back.
    pub fn expire_abandoned(&mut self, now: Timestamp) {
        self.end_abandoned(|until| until <= now);
    }

    pub(super) fn end_abandoned(&mut self, ends: impl Fn(Timestamp) -> bool) {
        let abandoned = core::mem::take(&mut self.abandoned);
        let (over, open): (Vec<_>, Vec<_>) =
            abandoned.into_iter().partition(|&(until, _)| ends(until));
        self.abandoned = open;
        for (_, request) in over {
            self.ledger(|ledger, _| ledger.finish(request, End::default()));
        }
    }

    /// Tokens of `bytes` bytes of a prompt for `model`, as far as is known.
    pub(super) fn tokens_in(&self, model: &str, bytes: u64) -> f64 {
        float(bytes) / self.ratios.bytes_per_token(model)
    }

    /// Bytes of a prompt that make a whole block.
    pub(super) fn block_bytes(&self) -> u64 {
        let tokens = u64::from(self.config.prefix.block_tokens);
        tokens.saturating_mul(u64::from(BYTES_PER_TOKEN))
    }
}
