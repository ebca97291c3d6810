//! How an endpoint's latest answers turned out.

use core::time::Duration;

use crate::time::Timestamp;

/// Parts of the window that expire one by one.
const BUCKETS: usize = 10;

/// Answers an endpoint is credited with before any is seen. With two, five failures in a row bring
/// success below 0.3, and one failure among many answers changes little.
const CREDIT: f64 = 2.0;

/// Successes and failures of a sliding window. Memory: a few numbers for each of ten buckets.
#[derive(Clone, Debug, Default)]
pub struct Outcomes {
    buckets: [Bucket; BUCKETS],
    /// The latest tenth of a window with a failure.
    last_failed: Option<u64>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Bucket {
    /// Which tenth of a window this counts, from the clock's origin on.
    number: u64,
    succeeded: u32,
    failed: u32,
}

impl Outcomes {
    /// By `now`, `succeeded` answers more had come, and `failed` more had failed to.
    pub fn record(&mut self, now: Timestamp, window: Duration, succeeded: u32, failed: u32) {
        let number = bucket_number(now, window);
        let place = usize::try_from(number % BUCKETS as u64).unwrap_or(0);
        let Some(bucket) = self.buckets.get_mut(place) else {
            return;
        };
        if bucket.number != number {
            *bucket = Bucket {
                number,
                ..Bucket::default()
            };
        }
        if failed > 0 {
            self.last_failed = self.last_failed.max(Some(number));
        }
        bucket.succeeded = bucket.succeeded.saturating_add(succeeded);
        bucket.failed = bucket.failed.saturating_add(failed);
    }

    /// The share of answers that succeeded in the window before `now`, in (0, 1]; 1 when none
    /// failed.
    pub fn success(&self, now: Timestamp, window: Duration) -> f64 {
        // Nearly always so, and every request asks it of every endpoint.
        let Some(last_failed) = self.last_failed else {
            return 1.0;
        };
        let number = bucket_number(now, window);
        if number.saturating_sub(last_failed) >= BUCKETS as u64 {
            return 1.0;
        }
        let recent = self
            .buckets
            .iter()
            .filter(|bucket| bucket.number <= number && number - bucket.number < BUCKETS as u64);
        let (mut succeeded, mut failed) = (CREDIT, 0.0);
        for bucket in recent {
            succeeded += f64::from(bucket.succeeded);
            failed += f64::from(bucket.failed);
        }
        succeeded / (succeeded + failed)
    }
}

fn bucket_number(now: Timestamp, window: Duration) -> u64 {
    let length = u64::try_from(window.as_nanos()).unwrap_or(u64::MAX) / BUCKETS as u64;
    now.as_nanos() / length.max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const WINDOW: Duration = Duration::from_secs(10);

    fn at(millis: u64) -> Timestamp {
        Timestamp::from_nanos(millis * 1_000_000)
    }

    fn success(outcomes: &Outcomes, millis: u64) -> f64 {
        outcomes.success(at(millis), WINDOW)
    }

    #[test]
    fn an_endpoint_nobody_heard_of_is_well() {
        assert!((success(&Outcomes::default(), 0) - 1.0).abs() < 1e-9);
        assert!((success(&Outcomes::default(), 5) - 1.0).abs() < 1e-9);
    }

    #[test]
    fn five_failures_in_a_row_fall_below_the_default_minimum() {
        let mut outcomes = Outcomes::default();
        for failures in 1..=5 {
            assert!(success(&outcomes, 1_000) > 0.3, "before failure {failures}");
            outcomes.record(at(1_000), WINDOW, 0, 1);
        }
        assert!(success(&outcomes, 1_000) < 0.3);
    }

    #[test]
    fn one_failure_among_many_answers_changes_little() {
        let mut outcomes = Outcomes::default();
        outcomes.record(at(1_000), WINDOW, 97, 1);
        assert!((success(&outcomes, 1_000) - 0.99).abs() < 1e-9);
    }

    #[test]
    fn a_clean_window_restores_it_fully() {
        let mut outcomes = Outcomes::default();
        outcomes.record(at(3_500), WINDOW, 0, 50);
        assert!(success(&outcomes, 12_900) < 0.1);
        assert!((success(&outcomes, 13_000) - 1.0).abs() < 1e-9);
        // The same places of the ring, a round later, start anew.
        outcomes.record(at(13_500), WINDOW, 1, 0);
        assert!((success(&outcomes, 13_500) - 1.0).abs() < 1e-9);
    }
}
