//! From values of any unit to scores.

use super::Score;
use crate::config::{ConfigError, Fields};

/// What counts as the best and the worst value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Range {
    /// The best and the worst among the candidates; all are best where they are equal.
    Adaptive,
    /// These, `min` below `max`; what is beyond counts as they do.
    Fixed {
        /// Scores 0, or 1 where lower is better.
        min: f64,
        /// Scores 1, or 0 where lower is better.
        max: f64,
    },
}

/// Which end is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Better {
    Lower,
    Higher,
}

/// How values become scores.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Spread {
    pub(super) better: Better,
    pub(super) range: Range,
}

impl Spread {
    /// Fewer is better, among the candidates.
    pub(super) const FEWEST: Self = Self {
        better: Better::Lower,
        range: Range::Adaptive,
    };

    /// Appends the score of each of `values`; who has none gets none, with `missing` as the note.
    /// Reads them twice.
    pub(super) fn score(
        self,
        values: impl Iterator<Item = Option<f64>> + Clone,
        missing: &'static str,
        scores: &mut Vec<Score>,
    ) {
        let (min, max) = match self.range {
            Range::Fixed { min, max } => (min, max),
            Range::Adaptive => values
                .clone()
                .flatten()
                .fold((f64::INFINITY, f64::NEG_INFINITY), |(min, max), value| {
                    (min.min(value), max.max(value))
                }),
        };
        scores.extend(values.map(|value| match value {
            None => Score::none(missing),
            Some(value) => self.place(value, min, max).into(),
        }));
    }

    fn place(self, value: f64, min: f64, max: f64) -> f64 {
        let width = max - min;
        if width <= 0.0 {
            return 1.0;
        }
        let place = (value.max(min).min(max) - min) / width;
        match self.better {
            Better::Lower => 1.0 - place,
            Better::Higher => place,
        }
    }
}

/// The range between the fields `min` and `max`; adaptive without both.
pub(super) fn read_range(fields: &Fields<'_>) -> Result<Range, ConfigError> {
    let min = fields.optional_number("min")?;
    let max = fields.optional_number("max")?;
    match (min, max) {
        (None, None) => Ok(Range::Adaptive),
        (Some(min), Some(max)) if min < max => Ok(Range::Fixed { min, max }),
        (_, max) => {
            let path = fields.path_of("max");
            let expected = "min and max, min below max, or neither";
            let found = max.map_or_else(|| "nothing".to_owned(), |max| max.to_string());
            Err(ConfigError::expected(&path, expected, found))
        }
    }
}
