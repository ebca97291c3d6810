//! The module's own time for a decision, out of its histogram.

use std::time::Duration;

use serde_json::{Value, json};

use super::BenchError;
use crate::envoy::Envoy;

const NAME: &str = "epp_scoring_latency_us";

/// Microseconds up to which buckets reach, and how much wider each is than the one before.
const WIDEST: f64 = 1e6;
const FACTOR: f64 = 1.08;

/// Cumulative counts by upper bound.
#[derive(Debug, Clone, Default)]
pub struct Latency {
    buckets: Vec<(f64, f64)>,
}

/// Envoy shows what a histogram got only after the next flush.
const FLUSH: Duration = Duration::from_millis(100);

/// Has Envoy keep the histogram in buckets fine enough for a median, and show it soon.
pub fn in_fine_buckets(tree: &mut Value) {
    tree["stats_flush_interval"] = json!(format!("{}s", FLUSH.as_secs_f64()));
    let settings = &mut tree["stats_config"]["histogram_bucket_settings"];
    if let Some(settings) = settings.as_array_mut() {
        // The first that matches counts.
        settings.insert(
            0,
            json!({"match": {"prefix": format!("wasmcustom.{NAME}")}, "buckets": bounds()}),
        );
    }
}

fn bounds() -> Vec<f64> {
    let next = |bound: &f64| Some(bound * FACTOR);
    let all = std::iter::successors(Some(1.0), next);
    all.take_while(|bound| *bound < WIDEST).collect()
}

impl Latency {
    /// What `envoy` counted so far.
    pub async fn read(envoy: &Envoy) -> Result<Self, BenchError> {
        tokio::time::sleep(3 * FLUSH).await;
        let series = envoy.prometheus_series(&format!("{NAME}_bucket")).await?;
        let bucket = |one: &crate::envoy::Series| {
            let bound = one.label("le")?;
            let bound = match bound {
                "+Inf" => f64::INFINITY,
                bound => bound.parse().ok()?,
            };
            Some((bound, one.value))
        };
        let mut buckets: Vec<(f64, f64)> = series.iter().filter_map(bucket).collect();
        buckets.sort_by(|one, other| one.0.total_cmp(&other.0));
        Ok(Self { buckets })
    }

    /// What came since `before`.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        let count = |bound: f64| {
            let mut known = before.buckets.iter();
            known.find(|one| one.0 >= bound).map_or(0.0, |one| one.1)
        };
        let buckets = self.buckets.iter();
        Self {
            buckets: buckets
                .map(|&(bound, counted)| (bound, counted - count(bound)))
                .collect(),
        }
    }

    /// Microseconds that `share` of all decisions, in [0, 1], took no longer than; within a bucket
    /// it is where an even spread puts it. 0 without any.
    pub fn quantile(&self, share: f64) -> f64 {
        let total = self.buckets.last().map_or(0.0, |bucket| bucket.1);
        let wanted = total * share;
        let mut below = (0.0, 0.0);
        for &(bound, counted) in &self.buckets {
            if counted >= wanted && counted > below.1 {
                let part = (wanted - below.1) / (counted - below.1);
                return below.0 + part * (bound.min(WIDEST) - below.0);
            }
            below = (bound, counted);
        }
        0.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quantile_lies_where_an_even_spread_puts_it() {
        let before = Latency {
            buckets: vec![(10.0, 100.0), (20.0, 100.0), (f64::INFINITY, 100.0)],
        };
        let after = Latency {
            buckets: vec![(10.0, 100.0), (20.0, 140.0), (f64::INFINITY, 140.0)],
        };
        let since = after.since(&before);
        assert!((since.quantile(0.5) - 15.0).abs() < 1e-9);
        assert!((since.since(&since).quantile(0.5)).abs() < 1e-9, "nothing");
        assert!((after.quantile(0.5) - 7.0).abs() < 1e-9);
    }

    #[test]
    fn buckets_are_narrow_and_reach_a_second() {
        let bounds = bounds();
        assert!(bounds.len() < 200 && bounds.last() > Some(&900_000.0));
    }
}
