//! Tells an engine that is stuck from one that is busy.

use core::time::Duration;

use super::metrics::EndpointMetrics;
use crate::time::Timestamp;

/// Scrape intervals without progress after which an engine counts as stalled. One long prompt may
/// be all that an engine works on, and its tokens are counted when it is done.
const INTERVALS: u32 = 30;
/// Scrapes that must have found nothing new in that time: a gap between scrapes tells nothing.
const SCRAPES: u32 = 5;

/// The latest progress of an endpoint's engines. Memory: a few words.
#[derive(Debug, Default)]
pub struct Progress {
    latest: Option<Mark>,
}

/// What a scrape found that was new.
#[derive(Debug)]
struct Mark {
    at: Timestamp,
    done: u64,
    /// KV-cache utilisation by its bits: an engine that computes a long prompt fills blocks before
    /// it counts tokens, and one that is stuck does neither.
    kv_utilisation: Option<u64>,
    /// Scrapes since that found nothing new.
    unchanged: u32,
}

impl Progress {
    /// Takes in the scrape that began at `started`: whether the engines are stalled, or `None`
    /// while that cannot be told. Engines with no request running are not, nor are those that do
    /// not tell what they did, nor those that count from the start again.
    pub fn observe(
        &mut self,
        started: Timestamp,
        metrics: &EndpointMetrics,
        interval: Duration,
    ) -> Option<bool> {
        let Some(done) = metrics.progress.filter(|_| metrics.running > 0) else {
            self.latest = None;
            return Some(false);
        };
        let kv_utilisation = metrics.kv_utilisation.map(f64::to_bits);
        let is_first = self.latest.is_none();
        let is_same = |mark: &&mut Mark| mark.done == done && mark.kv_utilisation == kv_utilisation;
        let Some(mark) = self.latest.as_mut().filter(is_same) else {
            self.latest = Some(Mark {
                at: started,
                done,
                kv_utilisation,
                unchanged: 0,
            });
            return (!is_first).then_some(false);
        };
        mark.unchanged = mark.unchanged.saturating_add(1);
        let long = started.since(mark.at) >= interval.saturating_mul(INTERVALS);
        (long && mark.unchanged >= SCRAPES).then_some(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INTERVAL: Duration = Duration::from_secs(1);

    fn busy(done: u64) -> EndpointMetrics {
        EndpointMetrics {
            running: 3,
            progress: Some(done),
            kv_utilisation: Some(0.5),
            ..EndpointMetrics::default()
        }
    }

    fn observe(progress: &mut Progress, seconds: u64, metrics: &EndpointMetrics) -> Option<bool> {
        let at = Timestamp::from_nanos(seconds * 1_000_000_000);
        progress.observe(at, metrics, INTERVAL)
    }

    /// An engine that is stuck at 100 from second 0 on, seen at every second up to `last`.
    fn stuck_until(last: u64) -> (Progress, Option<bool>) {
        let mut progress = Progress::default();
        let mut verdict = None;
        for second in 0..=last {
            verdict = observe(&mut progress, second, &busy(100));
        }
        (progress, verdict)
    }

    #[test]
    fn an_engine_that_does_nothing_for_thirty_intervals_is_stalled() {
        assert_eq!(stuck_until(29).1, None);
        assert_eq!(stuck_until(30).1, Some(true));
    }

    #[test]
    fn a_gap_between_scrapes_tells_nothing() {
        let mut progress = Progress::default();
        for (second, verdict) in [(0, None), (100, None), (101, None), (102, None)] {
            assert_eq!(observe(&mut progress, second, &busy(100)), verdict);
        }
        assert_eq!(observe(&mut progress, 103, &busy(100)), None);
        assert_eq!(observe(&mut progress, 104, &busy(100)), Some(true));
    }

    #[test]
    fn any_sign_of_work_an_idle_engine_and_a_restart_end_it() {
        let fuller = EndpointMetrics {
            kv_utilisation: Some(0.6),
            ..busy(100)
        };
        let idle = EndpointMetrics {
            running: 0,
            ..busy(100)
        };
        let silent = EndpointMetrics {
            progress: None,
            ..busy(100)
        };
        for sign in [busy(101), busy(7), fuller, idle, silent] {
            let (mut progress, _) = stuck_until(40);
            assert_eq!(observe(&mut progress, 41, &sign), Some(false), "{sign:?}");
            assert_ne!(observe(&mut progress, 42, &sign), Some(true), "{sign:?}");
        }
    }

    #[test]
    fn who_has_seen_one_scrape_only_tells_nothing_of_a_busy_engine() {
        assert_eq!(observe(&mut Progress::default(), 0, &busy(100)), None);
    }
}
