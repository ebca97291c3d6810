//! What is said of many samples.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Median and quartiles of some samples.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Spread {
    /// How many.
    pub samples: usize,
    /// The lower quartile.
    pub lower: f64,
    /// The middle.
    pub median: f64,
    /// The upper quartile.
    pub upper: f64,
}

impl Spread {
    /// Of `samples`, in any order; all 0 without any.
    pub fn of(samples: impl IntoIterator<Item = f64>) -> Self {
        let mut sorted: Vec<f64> = samples.into_iter().collect();
        sorted.sort_unstable_by(f64::total_cmp);
        Self {
            samples: sorted.len(),
            lower: quantile(&sorted, 0.25),
            median: quantile(&sorted, 0.5),
            upper: quantile(&sorted, 0.75),
        }
    }
}

/// `median (lower–upper)`, to the precision the formatter asks for, else two decimals.
impl fmt::Display for Spread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = f.precision().unwrap_or(2);
        let Self {
            lower,
            median,
            upper,
            ..
        } = self;
        write!(f, "{median:.digits$} ({lower:.digits$}–{upper:.digits$})")
    }
}

/// The smallest sample that `share`, in [0, 1], of all samples do not exceed. `sorted` ascends; 0
/// without samples.
pub fn quantile(sorted: &[f64], share: f64) -> f64 {
    let rank = (sorted.len() as f64 * share).ceil() as usize;
    let at = rank.saturating_sub(1);
    sorted.get(at).copied().unwrap_or_default()
}

/// The mean; 0 without samples.
pub fn mean(samples: &[f64]) -> f64 {
    samples.iter().sum::<f64>() / samples.len().max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quartiles_are_samples_whatever_their_order() {
        let spread = Spread::of([4.0, 1.0, 3.0, 2.0]);
        assert_eq!((spread.lower, spread.median, spread.upper), (1.0, 2.0, 3.0));
        assert_eq!(spread.samples, 4);
        assert_eq!(format!("{spread:.0}"), "2 (1–3)");
    }

    #[test]
    fn the_ends_of_a_distribution_are_its_extremes() {
        let sorted: Vec<f64> = (1..=100).map(f64::from).collect();
        let found = [0.0, 0.01, 0.99, 0.995, 1.0].map(|share| quantile(&sorted, share) as u64);
        assert_eq!(found, [1, 1, 99, 100, 100]);
        assert_eq!((quantile(&[], 0.5), mean(&[])), (0.0, 0.0));
    }
}
