//! How many bytes of a prompt make a token, by model: learned from the token counts that servers
//! report with their answers.
//!
//! Each VM learns for itself. One answer is enough to be near the truth, and a ratio that differs a
//! little between VMs moves a threshold a little; telling all of them would cost an entry of the log
//! for every answer.

use std::collections::BTreeMap;

/// Bytes a token while nothing is learned: what a pseudo-token has.
const UNLEARNED: f64 = 4.0;
/// Models whose ratio is kept. Servers answer for the models they have: more than these are none.
const MAX_MODELS: usize = 256;
/// Tokens after which earlier answers count half, so that the ratio follows what is asked lately.
const MEMORY: u64 = 1 << 20;
/// What a ratio can be at all: a token of white space or of a common phrase may have some tens of
/// bytes, one of a rare script less than one.
const SANE: (f64, f64) = (0.25, 32.0);

/// Learned ratios. Memory: [`MAX_MODELS`] names.
#[derive(Debug, Default)]
pub(super) struct TokenRatios(BTreeMap<String, Sums>);

#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    bytes: u64,
    tokens: u64,
}

impl TokenRatios {
    /// A server counted `tokens` in a prompt of `bytes` bytes for `model`, its own name for it.
    pub(super) fn learn(&mut self, model: &str, bytes: u64, tokens: u64) {
        if bytes == 0 || tokens == 0 {
            return;
        }
        if !self.0.contains_key(model) && self.0.len() >= MAX_MODELS {
            return;
        }
        let sums = self.0.entry(model.to_owned()).or_default();
        sums.bytes = sums.bytes.saturating_add(bytes);
        sums.tokens = sums.tokens.saturating_add(tokens);
        while sums.tokens > MEMORY {
            (sums.bytes, sums.tokens) = (sums.bytes / 2, sums.tokens / 2);
        }
    }

    /// Bytes of a prompt for `model` that make a token.
    pub(super) fn bytes_per_token(&self, model: &str) -> f64 {
        let Some(Sums { bytes, tokens }) = self.0.get(model) else {
            return UNLEARNED;
        };
        let (least, most) = SANE;
        (float(*bytes) / float((*tokens).max(1))).clamp(least, most)
    }
}

/// Exact up to 2^53, far beyond any prompt.
#[expect(clippy::cast_precision_loss, reason = "a ratio needs no more digits")]
pub(super) fn float(count: u64) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ratio(ratios: &TokenRatios, model: &str) -> String {
        format!("{:.3}", ratios.bytes_per_token(model))
    }

    #[test]
    fn a_model_has_four_bytes_a_token_until_an_answer_tells_otherwise() {
        let mut ratios = TokenRatios::default();
        assert_eq!(ratio(&ratios, "m"), "4.000");
        ratios.learn("m", 900, 300);
        assert_eq!(
            (ratio(&ratios, "m"), ratio(&ratios, "n")),
            ("3.000".into(), "4.000".into())
        );
        // Longer prompts say more.
        ratios.learn("m", 9_100, 1_700);
        assert_eq!(ratio(&ratios, "m"), "5.000");
    }

    #[test]
    fn what_is_asked_lately_counts_most() {
        let mut ratios = TokenRatios::default();
        for _ in 0..100 {
            ratios.learn("m", 400_000, 100_000);
        }
        for _ in 0..100 {
            ratios.learn("m", 200_000, 100_000);
        }
        assert!(ratios.bytes_per_token("m") < 2.01);
    }

    #[test]
    fn nonsense_is_bounded_and_so_is_the_table() {
        let mut ratios = TokenRatios::default();
        ratios.learn("huge", u64::MAX, 1);
        ratios.learn("huge", u64::MAX, u64::MAX);
        ratios.learn("tiny", 1, 1_000);
        ratios.learn("none", 0, 10);
        ratios.learn("none", 10, 0);
        assert_eq!(ratio(&ratios, "tiny"), "0.250");
        assert_eq!(ratio(&ratios, "none"), "4.000");
        assert!((0.25..=32.0).contains(&ratios.bytes_per_token("huge")));
        for model in 0..1_000 {
            ratios.learn(&model.to_string(), 800, 100);
        }
        assert_eq!(ratios.0.len(), MAX_MODELS);
        assert_eq!(ratio(&ratios, "999"), "4.000");
    }
}
