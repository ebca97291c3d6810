//! How much old metrics are still worth.

use core::time::Duration;

/// Scrape intervals after which metrics are as stale as they get.
const STALEST: u32 = 10;

/// Freshness of metrics of `age`: 1 up to `stale_after` scrape intervals, then falling in a
/// straight line to `floor` at ten intervals. `None`, never scraped, is fresh: nothing known of the
/// endpoint is out of date, and a new one that scored less than its equals would get nothing.
///
/// The result lies in [`floor`, 1]; staleness alone takes nobody out of the running.
pub fn freshness(age: Option<Duration>, interval: Duration, stale_after: u32, floor: f64) -> f64 {
    let Some(age) = age else { return 1.0 };
    let intervals = age.as_secs_f64() / interval.as_secs_f64().max(f64::MIN_POSITIVE);
    let start = f64::from(stale_after);
    let end = f64::from(STALEST.max(stale_after));
    if intervals <= start {
        return 1.0;
    }
    if intervals >= end {
        return floor;
    }
    1.0 - (1.0 - floor) * (intervals - start) / (end - start)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fresh(intervals: f64, stale_after: u32) -> f64 {
        let age = Duration::try_from_secs_f64(intervals * 2.0).unwrap();
        freshness(Some(age), Duration::from_secs(2), stale_after, 0.5)
    }

    #[test]
    fn freshness_falls_in_a_straight_line_between_its_limits() {
        for (intervals, expected) in [
            (0.0, 1.0),
            (3.0, 1.0),
            (6.5, 0.75),
            (10.0, 0.5),
            (99.0, 0.5),
        ] {
            let actual = fresh(intervals, 3);
            assert!((actual - expected).abs() < 1e-9, "{intervals}: {actual}");
        }
    }

    #[test]
    fn metrics_that_never_came_are_not_out_of_date() {
        assert!((freshness(None, Duration::from_secs(1), 3, 0.4) - 1.0).abs() < 1e-9);
    }

    #[test]
    fn a_late_start_drops_to_the_floor_at_once() {
        assert!((fresh(20.0, 20) - 1.0).abs() < 1e-9);
        assert!((fresh(20.1, 20) - 0.5).abs() < 1e-9);
    }
}
