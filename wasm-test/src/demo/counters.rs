//! The servers' own prefix-cache counters, read from their metrics pages over HTTP.

use std::ops::Sub;

use serde::Serialize;

use super::DemoError;
use crate::envoy::prometheus;
use crate::sim::Sim;

const QUERIES: &str = "vllm:prefix_cache_queries_total";
const HITS: &str = "vllm:prefix_cache_hits_total";

/// Tokens, summed over servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct CacheCounters {
    /// Prompt tokens looked up.
    pub queries: u64,
    /// Of those, tokens found.
    pub hits: u64,
}

impl CacheCounters {
    /// The present values of all of `sim`'s servers.
    pub async fn read(sim: &Sim) -> Result<Self, DemoError> {
        let mut sum = Self {
            queries: 0,
            hits: 0,
        };
        for server in sim.servers() {
            let page = reqwest::get(server.url("/metrics")).await?;
            let page = page.error_for_status()?.text().await?;
            sum.queries += value(&page, QUERIES)?;
            sum.hits += value(&page, HITS)?;
        }
        Ok(sum)
    }

    /// Share of the prompt tokens that were found, in [0, 1].
    pub fn hit_ratio(self) -> f64 {
        self.hits as f64 / self.queries.max(1) as f64
    }

    /// Prompt tokens the GPUs had to compute.
    pub fn prefilled(self) -> u64 {
        self.queries - self.hits
    }
}

impl Sub for CacheCounters {
    type Output = Self;

    fn sub(self, earlier: Self) -> Self {
        Self {
            queries: self.queries - earlier.queries,
            hits: self.hits - earlier.hits,
        }
    }
}

fn value(page: &str, name: &'static str) -> Result<u64, DemoError> {
    let value = prometheus::sum(page, name, &[]).ok_or(DemoError::NoSuchMetric(name))?;
    Ok(value as u64)
}
