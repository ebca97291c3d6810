//! What one engine has counted since its start.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;

/// Bucket bounds of `vllm:time_to_first_token_seconds`.
const TTFT_BOUNDS: &[f64] = &[
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0,
    20.0, 40.0, 80.0, 160.0, 640.0, 2560.0,
];
/// Bucket bounds of `vllm:e2e_request_latency_seconds` and `vllm:request_queue_time_seconds`.
const REQUEST_BOUNDS: &[f64] = &[
    0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0,
    480.0, 960.0, 1920.0, 7680.0,
];

/// Counters of one engine. Token counts and requests, never time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Counters {
    /// Prompt tokens looked up in the prefix cache.
    pub prefix_cache_queries: u64,
    /// Of those, tokens that were cached.
    pub prefix_cache_hits: u64,
    /// Prompt tokens of requests whose prefill has ended.
    pub prompt_tokens: u64,
    /// Tokens generated.
    pub generation_tokens: u64,
    /// Requests ended by their own token limit.
    pub finished_length: u64,
    /// Requests ended by the model.
    pub finished_stop: u64,
    /// Requests whose client went away.
    pub aborted: u64,
    /// Requests refused with 503.
    pub rejected: u64,
    /// Times a running request lost its blocks to an older one.
    pub preemptions: u64,
    /// Times an adapter was loaded for a request that had to wait for that.
    pub adapter_loads: u64,
    /// Prompt tokens taken over from other servers.
    pub external_tokens: u64,
    /// Prompts computed for another server.
    pub kv_kept: u64,
    /// Of those, prompts another server has fetched.
    pub kv_fetched: u64,
    /// Of those, prompts nobody fetched in time.
    pub kv_expired: u64,
    /// Prompts that another server did not hand over.
    pub kv_failed: u64,
    /// Requests with transfer parameters that are not whole.
    pub kv_partial: u64,
}

impl std::iter::Sum for Counters {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::default(), |sum, one| Self {
            prefix_cache_queries: sum.prefix_cache_queries + one.prefix_cache_queries,
            prefix_cache_hits: sum.prefix_cache_hits + one.prefix_cache_hits,
            prompt_tokens: sum.prompt_tokens + one.prompt_tokens,
            generation_tokens: sum.generation_tokens + one.generation_tokens,
            finished_length: sum.finished_length + one.finished_length,
            finished_stop: sum.finished_stop + one.finished_stop,
            aborted: sum.aborted + one.aborted,
            rejected: sum.rejected + one.rejected,
            preemptions: sum.preemptions + one.preemptions,
            adapter_loads: sum.adapter_loads + one.adapter_loads,
            external_tokens: sum.external_tokens + one.external_tokens,
            kv_kept: sum.kv_kept + one.kv_kept,
            kv_fetched: sum.kv_fetched + one.kv_fetched,
            kv_expired: sum.kv_expired + one.kv_expired,
            kv_failed: sum.kv_failed + one.kv_failed,
            kv_partial: sum.kv_partial + one.kv_partial,
        })
    }
}

/// Load of one engine at one moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Gauges {
    pub num_requests_running: u64,
    pub num_requests_waiting: u64,
    /// Of those, requests that wait for an adapter slot.
    pub num_requests_deferred: u64,
    /// Blocks in use ÷ blocks that can be given out, 0 to 1.
    pub kv_cache_usage: f64,
    /// Distinct blocks a prompt can hit.
    pub cached_blocks: u64,
}

impl Gauges {
    /// Several engines as one: sums, and the mean of their cache usage.
    pub fn total(all: &[Self]) -> Self {
        let sum = |pick: fn(&Self) -> u64| all.iter().map(pick).sum();
        let usage: f64 = all.iter().map(|gauges| gauges.kv_cache_usage).sum();
        Self {
            num_requests_running: sum(|gauges| gauges.num_requests_running),
            num_requests_waiting: sum(|gauges| gauges.num_requests_waiting),
            num_requests_deferred: sum(|gauges| gauges.num_requests_deferred),
            kv_cache_usage: usage / all.len().max(1) as f64,
            cached_blocks: sum(|gauges| gauges.cached_blocks),
        }
    }
}

/// Counters, histograms and adapter sets.
#[derive(Debug, Clone)]
pub struct Stats {
    pub counters: Counters,
    pub time_to_first_token: Histogram,
    pub request_latency: Histogram,
    pub queue_time: Histogram,
    /// Every set of running adapters there has been, comma separated, with its last Unix time.
    /// vLLM never drops one either: readers must take the newest.
    pub lora_sets: BTreeMap<String, f64>,
}

impl Default for Stats {
    fn default() -> Self {
        Self {
            counters: Counters::default(),
            time_to_first_token: Histogram::new(TTFT_BOUNDS),
            request_latency: Histogram::new(REQUEST_BOUNDS),
            queue_time: Histogram::new(REQUEST_BOUNDS),
            lora_sets: BTreeMap::new(),
        }
    }
}

/// A Prometheus histogram of seconds.
#[derive(Debug, Clone)]
pub struct Histogram {
    bounds: &'static [f64],
    /// Observations at or below each bound, not cumulative.
    counts: Vec<u64>,
    total: u64,
    sum: f64,
}

impl Histogram {
    fn new(bounds: &'static [f64]) -> Self {
        Self {
            bounds,
            counts: vec![0; bounds.len()],
            total: 0,
            sum: 0.0,
        }
    }

    pub fn observe(&mut self, duration: Duration) {
        let seconds = duration.as_secs_f64();
        if let Some(bucket) = self.bounds.iter().position(|bound| seconds <= *bound) {
            self.counts[bucket] += 1;
        }
        self.total += 1;
        self.sum += seconds;
    }

    /// Bounds with the number of observations at or below each; `+Inf` is [`Self::total`].
    pub fn buckets(&self) -> impl Iterator<Item = (f64, u64)> {
        let cumulative = self.counts.iter().scan(0, |below, count| {
            *below += count;
            Some(*below)
        });
        self.bounds.iter().copied().zip(cumulative)
    }

    pub fn total(&self) -> u64 {
        self.total
    }

    pub fn sum(&self) -> f64 {
        self.sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_cumulative_and_inclusive() {
        let mut histogram = Histogram::new(&[0.5, 1.0]);
        for milliseconds in [500, 501, 1000, 5000] {
            histogram.observe(Duration::from_millis(milliseconds));
        }
        assert_eq!(
            histogram.buckets().collect::<Vec<_>>(),
            [(0.5, 1), (1.0, 3)]
        );
        assert_eq!(histogram.total(), 4);
        assert!((histogram.sum() - 7.001).abs() < 1e-9);
    }
}
