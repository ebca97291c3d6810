//! How candidates are chosen and weighed, and the presets for it.

use core::fmt;

use super::error::ConfigError;
use super::fields::Fields;
use super::prefix::PendingCredit;

/// How candidates are chosen and weighed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ScoringConfig {
    /// Weights of the five factors, as given.
    pub weights: Weights,
    /// Waiting requests, at least 1, at which an endpoint is no candidate.
    pub max_queue: u32,
    /// Requests one engine runs at once, at least 1.
    pub max_running: u32,
    /// Health in [0, 1] below which an endpoint is no candidate.
    pub min_health: f64,
    /// Distance from the best score, in [0, 0.1], within which scores count as equal.
    pub tie_band: f64,
    /// Open requests, at least 1, below which the load guard never acts.
    pub guard_floor: u32,
    /// Times the candidates' mean of open requests, at least 1, at which the load guard acts.
    pub guard_ratio: f64,
}

/// Weights of the five factors. Each is finite and at least 0, their sum is above 0.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Weights {
    /// Of the matched share of the prompt.
    pub cache: f64,
    /// Of 1 − load.
    pub load: f64,
    /// Of 1 − queue depth / `max_queue`.
    pub queue: f64,
    /// Of health.
    pub health: f64,
    /// Of having the adapter.
    pub adapter: f64,
}

/// What a preset changes; everything else keeps its default.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Preset {
    weights: Option<Weights>,
    max_queue: Option<u32>,
    guard_floor: Option<u32>,
    pub(super) pending_credit: Option<PendingCredit>,
}

/// How far from 1 a sum of weights may be by rounding alone.
const SUM_TOLERANCE: f64 = 1e-9;

impl ScoringConfig {
    pub(super) fn read(fields: &Fields<'_>, preset: &Preset) -> Result<Self, ConfigError> {
        let weights = fields.section("weights", |weights| Weights::read(weights, preset))?;
        if weights.sum() <= 0.0 {
            let path = fields.path_of("weights");
            let expected = "at least one weight above 0";
            return Err(ConfigError::expected(&path, expected, "only 0"));
        }
        Ok(Self {
            weights,
            max_queue: fields.whole_or("maxQueue", preset.max_queue)?,
            max_running: fields.whole("maxRunning")?,
            min_health: fields.number("minHealth")?,
            tie_band: fields.number("tieBand")?,
            guard_floor: fields.whole_or("guardFloor", preset.guard_floor)?,
            guard_ratio: fields.number("guardRatio")?,
        })
    }
}

impl Weights {
    const fn new([cache, load, queue, health, adapter]: [f64; 5]) -> Self {
        Self {
            cache,
            load,
            queue,
            health,
            adapter,
        }
    }

    /// The weights divided by their sum, so that a composite of factors in [0, 1] is in [0, 1];
    /// unchanged when the sum is 0.
    #[must_use]
    pub fn normalised(&self) -> Self {
        let sum = self.sum();
        let sum = if sum > 0.0 { sum } else { 1.0 };
        Self {
            cache: self.cache / sum,
            load: self.load / sum,
            queue: self.queue / sum,
            health: self.health / sum,
            adapter: self.adapter / sum,
        }
    }

    /// The sum of the weights as given.
    pub fn sum(&self) -> f64 {
        self.cache + self.load + self.queue + self.health + self.adapter
    }

    pub(super) fn sum_to_one(&self) -> bool {
        (self.sum() - 1.0).abs() <= SUM_TOLERANCE
    }

    fn read(fields: &Fields<'_>, preset: &Preset) -> Result<Self, ConfigError> {
        let of_preset = |pick: fn(&Self) -> f64| preset.weights.as_ref().map(pick);
        Ok(Self {
            cache: fields.number_or("cache", of_preset(|weights| weights.cache))?,
            load: fields.number_or("load", of_preset(|weights| weights.load))?,
            queue: fields.number_or("queue", of_preset(|weights| weights.queue))?,
            health: fields.number_or("health", of_preset(|weights| weights.health))?,
            adapter: fields.number_or("adapter", of_preset(|weights| weights.adapter))?,
        })
    }
}

impl fmt::Display for Weights {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            out,
            "cache {:.3} load {:.3} queue {:.3} health {:.3} adapter {:.3}",
            self.cache, self.load, self.queue, self.health, self.adapter,
        )
    }
}

impl Preset {
    /// The formula's own weights and limits: follow-up turns stay, load decides between equals.
    const DEFAULT: Self = Self {
        weights: None,
        max_queue: None,
        guard_floor: None,
        pending_credit: None,
    };

    /// Interactive traffic: a queue costs more, and is cut off sooner.
    const LOW_LATENCY: Self = Self {
        weights: Some(Weights::new([0.45, 0.10, 0.30, 0.10, 0.05])),
        max_queue: Some(10),
        ..Self::DEFAULT
    };

    /// Throughput: cache hits are worth waiting for. Long queues of one batch are normal.
    const BATCH: Self = Self {
        weights: Some(Weights::new([0.70, 0.20, 0.05, 0.05, 0.0])),
        max_queue: Some(40),
        ..Self::DEFAULT
    };

    /// Many adapters: loading one costs more than a part of a prompt.
    const MANY_ADAPTER: Self = Self {
        weights: Some(Weights::new([0.50, 0.15, 0.10, 0.05, 0.20])),
        ..Self::DEFAULT
    };

    /// Conversations that share a system prompt: blocks not yet answered for attract nobody, and
    /// the guard acts early, so that they spread.
    const BALANCED: Self = Self {
        guard_floor: Some(4),
        pending_credit: Some(PendingCredit::None),
        ..Self::DEFAULT
    };

    /// The preset that a `scoring` section names.
    pub(super) fn read(scoring: &Fields<'_>) -> Result<Self, ConfigError> {
        scoring.choice(
            "preset",
            &[
                Self::DEFAULT,
                Self::LOW_LATENCY,
                Self::BATCH,
                Self::MANY_ADAPTER,
                Self::BALANCED,
            ],
        )
    }
}
