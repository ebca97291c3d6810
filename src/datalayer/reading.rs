//! From a sample's float to a value of its unit, and how values of several series combine.
//!
//! A server that says NaN, infinity or a negative number says nothing: such a value is ignored,
//! so it neither hides what another series says nor passes for "idle".

/// A count: whole, saturating at `u64::MAX`.
pub(super) fn count(value: f64) -> Option<u64> {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a float cast saturates, and negatives are excluded"
    )]
    usable(value).map(|value| value as u64)
}

/// A fraction, clamped to [0, 1].
pub(super) fn fraction(value: f64) -> Option<f64> {
    usable(value).map(|value| value.min(1.0))
}

/// A percentage as a fraction. Above 100 it is ignored: DCGM marks "not available" with huge
/// numbers (`DCGM_INT32_BLANK` and the like), and these must not pass for a busy GPU.
pub(super) fn percentage(value: f64) -> Option<f64> {
    usable(value)
        .filter(|value| *value <= 100.0)
        .map(|value| value / 100.0)
}

/// A point in time in seconds since the Unix epoch.
pub(super) fn unix_seconds(value: f64) -> Option<f64> {
    usable(value).filter(|value| *value > 0.0)
}

/// Adds `value`, if there is one, to `sum`, saturating.
pub(super) fn add(sum: &mut Option<u64>, value: Option<u64>) {
    if let Some(value) = value {
        *sum = Some(sum.unwrap_or(0).saturating_add(value));
    }
}

/// Raises `highest` to `value`, if there is one.
pub(super) fn raise<T: PartialOrd>(highest: &mut Option<T>, value: Option<T>) {
    if value > *highest {
        *highest = value;
    }
}

fn usable(value: f64) -> Option<f64> {
    (value.is_finite() && value >= 0.0).then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nan_infinity_and_negatives_say_nothing() {
        for value in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -0.5, -1e300] {
            assert_eq!(count(value), None);
            assert_eq!(fraction(value), None);
            assert_eq!(percentage(value), None);
            assert_eq!(unix_seconds(value), None);
        }
    }

    #[test]
    fn counts_drop_fractions_and_saturate() {
        assert_eq!(count(3.9), Some(3));
        assert_eq!(count(-0.0), Some(0));
        assert_eq!(count(1e300), Some(u64::MAX));
    }

    #[test]
    fn fractions_end_at_one_and_percentages_at_a_hundred() {
        assert_eq!(fraction(1.5), Some(1.0));
        assert_eq!(fraction(0.25), Some(0.25));
        assert_eq!(percentage(25.0), Some(0.25));
        assert_eq!(percentage(100.0), Some(1.0));
        assert_eq!(percentage(f64::from(0x7fff_fff0)), None);
    }

    #[test]
    fn nothing_adds_nothing_and_raises_nothing() {
        let (mut sum, mut highest) = (None, None);
        add(&mut sum, None);
        raise(&mut highest, None::<f64>);
        assert_eq!((sum, highest), (None, None));
        for value in [Some(2), None, Some(u64::MAX)] {
            add(&mut sum, value);
        }
        for value in [Some(0.9), Some(0.1), None] {
            raise(&mut highest, value);
        }
        assert_eq!((sum, highest), (Some(u64::MAX), Some(0.9)));
    }
}
