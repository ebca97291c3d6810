//! What a model server says about itself, whichever engine it runs.

use super::adapters::Adapters;
use super::signals::Signals;

/// One scrape of one endpoint, reduced to what routing uses. A server with several engines behind
/// one address (data parallel) is one endpoint: see each field for how its engines are combined.
#[derive(Clone, Debug, PartialEq)]
pub struct EndpointMetrics {
    /// Requests queued and not running, summed over engines.
    pub waiting: u32,
    /// Requests in execution, summed over engines.
    pub running: u32,
    /// Share of KV-cache blocks in use by running requests, in [0, 1], of the fullest engine.
    /// Blocks kept for reuse only do not count: an idle server reports 0.
    pub kv_utilisation: Option<f64>,
    /// Share of time the GPU was busy, in [0, 1], of the busiest GPU.
    pub gpu_utilisation: Option<f64>,
    /// Engines behind the address, at least 1.
    pub engines: u32,
    /// Tokens the KV cache holds, over all engines; never 0.
    pub cache_tokens: Option<u64>,
    /// When the server process started, in seconds since the Unix epoch, finite and positive.
    /// Another value at the same address is another process, with an empty cache.
    pub process_start: Option<f64>,
    /// Prompt tokens found in the prefix cache since the process started, over all engines.
    pub prefix_hits: Option<u64>,
    /// Prompt tokens looked up in the prefix cache since the process started, over all engines.
    pub prefix_queries: Option<u64>,
    /// What the engines have done since the process started, in tokens or steps, over all engines.
    /// Its size says nothing, only whether it changes.
    pub progress: Option<u64>,
    /// Prompt tokens taken over from other servers since the process started, over all engines. Stays
    /// with who scraped it.
    pub external_tokens: Option<u64>,
    /// A GPU reports an error that only a reset or a repair takes away.
    pub gpu_fault: bool,
    /// Adapters that are loaded or about to be; `None` while the server says nothing of them,
    /// which is not the same as having none.
    pub adapters: Option<Adapters>,
    /// Series that plugins asked for.
    pub signals: Signals,
}

impl EndpointMetrics {
    /// Whether `later` is of another process: with another start, or with counters that went
    /// backwards.
    pub fn is_before_restart(&self, later: &Self) -> bool {
        let fell = |before: Option<u64>, after: Option<u64>| {
            before
                .zip(after)
                .is_some_and(|(before, after)| after < before)
        };
        let starts = self.process_start.zip(later.process_start);
        starts.is_some_and(|(before, after)| after.to_bits() != before.to_bits())
            || fell(self.prefix_queries, later.prefix_queries)
            || fell(self.prefix_hits, later.prefix_hits)
    }
}

impl Default for EndpointMetrics {
    /// An endpoint nothing is known of: idle, one engine.
    fn default() -> Self {
        Self {
            waiting: 0,
            running: 0,
            kv_utilisation: None,
            gpu_utilisation: None,
            engines: 1,
            cache_tokens: None,
            process_start: None,
            prefix_hits: None,
            prefix_queries: None,
            progress: None,
            external_tokens: None,
            gpu_fault: false,
            adapters: None,
            signals: Signals::default(),
        }
    }
}
