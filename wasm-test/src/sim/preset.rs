//! How long the simulated GPU takes.

use std::time::Duration;

use clap::ValueEnum;

/// A model on a GPU, by published figures.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Preset {
    /// A 70B model on A100s: 8.2 s for a prompt of 4,096 tokens, 45 ms when all of it is cached.
    #[value(name = "a100-70b")]
    A100Llama70b,
    /// An 8B model on an A100: 0.9 s for a prompt of 4,096 tokens, 45 ms when all of it is cached.
    #[value(name = "a100-8b")]
    A100Llama8b,
    /// No delay at all.
    #[value(name = "instant")]
    Instant,
}

/// Prompt length of the published prefill times, in tokens.
const PUBLISHED_PROMPT: f64 = 4096.0;
/// Prefill of [`PUBLISHED_PROMPT`] when every block is cached, in seconds.
const PUBLISHED_FULL_HIT: f64 = 0.045;
/// What a full hit still computes: its last block, at vLLM's usual block size.
const RECOMPUTED: f64 = 16.0;
/// Seconds to load an adapter of rank [`LORA_RANK`]. An adapter's size is proportional to its rank,
/// so one of rank 64 takes 0.8 s.
const LORA_LOAD: f64 = 0.2;
const LORA_RANK: f64 = 16.0;

impl Preset {
    /// The preset's delays, divided by `time_scale` (above 0; 100 is a hundred times faster).
    ///
    /// Prefill is a line through the two published points. The decode rates are assumptions: 12 ms
    /// a token for the 8B model and 40 ms for the 70B one, the order of magnitude that published
    /// benchmarks of such deployments show, whatever the batch.
    pub fn timing(self, time_scale: f64) -> Timing {
        let (cold, decode) = match self {
            Self::A100Llama70b => (8.2, 0.040),
            Self::A100Llama8b => (0.9, 0.012),
            Self::Instant => return Timing::default(),
        };
        let per_token = (cold - PUBLISHED_FULL_HIT) / (PUBLISHED_PROMPT - RECOMPUTED);
        let base = PUBLISHED_FULL_HIT - per_token * RECOMPUTED;
        let scaled = |seconds: f64| Duration::from_secs_f64(seconds / time_scale);
        Timing {
            prefill_base: scaled(base),
            prefill_per_token: scaled(per_token),
            decode_per_token: scaled(decode),
            lora_load_per_rank: scaled(LORA_LOAD / LORA_RANK),
        }
    }
}

/// Delays of one engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Timing {
    /// Fixed part of every prefill.
    pub prefill_base: Duration,
    /// Added for each prompt token that is not cached.
    pub prefill_per_token: Duration,
    /// Between two output tokens of one request.
    pub decode_per_token: Duration,
    /// Of an adapter that is not loaded yet, for each unit of its rank.
    pub lora_load_per_rank: Duration,
}

impl Timing {
    /// Time the GPU is busy with a prompt of which `uncached` tokens must be computed.
    pub fn prefill(&self, uncached: usize) -> Duration {
        self.prefill_base + self.prefill_per_token.mul_f64(uncached as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn milliseconds(preset: Preset, time_scale: f64, uncached: usize) -> u128 {
        (preset.timing(time_scale).prefill(uncached) + Duration::from_micros(500)).as_millis()
    }

    #[test]
    fn presets_meet_the_published_prefill_times() {
        assert_eq!(milliseconds(Preset::A100Llama70b, 1.0, 4096), 8200);
        assert_eq!(milliseconds(Preset::A100Llama8b, 1.0, 4096), 900);
        assert_eq!(milliseconds(Preset::A100Llama70b, 1.0, 16), 45);
        assert_eq!(milliseconds(Preset::A100Llama8b, 1.0, 16), 45);
    }

    #[test]
    fn time_scale_divides_every_delay() {
        assert_eq!(milliseconds(Preset::A100Llama70b, 100.0, 4096), 82);
        let timing = Preset::A100Llama8b.timing(4.0);
        assert_eq!(timing.decode_per_token, Duration::from_millis(3));
    }

    #[test]
    fn an_adapter_loads_in_proportion_to_its_rank() {
        let load = |time_scale, rank| {
            let timing = Preset::A100Llama8b.timing(time_scale);
            (timing.lora_load_per_rank * rank).as_millis()
        };
        assert_eq!((load(1.0, 16), load(1.0, 64)), (200, 800));
        assert_eq!((load(10.0, 16), load(10.0, 64)), (20, 80));
    }

    #[test]
    fn instant_has_no_delay() {
        assert_eq!(
            Preset::Instant.timing(1.0).prefill(1_000_000),
            Duration::ZERO
        );
    }
}
