//! vLLM's metrics page: which families are read and how its engines are combined.
//!
//! Label sets differ between versions (older ones have no `engine`, newer ones add labels), so a
//! series is known by its name and only the labels named here are looked at. Several series of one
//! family and one engine, such as one per `model_name`, are further parts of that engine's load:
//! counts add up and fractions take the highest, whatever tells the series apart.
//!
//! Each family stands alone: a missing, renamed or garbled one leaves its own field empty.

use std::collections::BTreeMap;

use super::exposition::{self, Labels, Sample};
use super::metrics::EndpointMetrics;
use super::reading::{add, count, fraction, percentage, raise, unix_seconds};

/// Reads a vLLM metrics page. `None` when it holds no usable sample of a vLLM family: another
/// engine's page, or no metrics page at all. Never fails otherwise; linear in `text`, and memory
/// grows with the number of engines only, up to [`MAX_ENGINES`].
pub fn read(text: &[u8]) -> Option<EndpointMetrics> {
    let mut page = Page::default();
    for sample in exposition::samples(text) {
        page.read(&sample);
    }
    page.into_metrics()
}

/// Engines told apart on one page; further ones count in sums and maxima but not in `engines` and
/// `cache_tokens`. Data-parallel deployments stay in the hundreds; this bounds a hostile page.
pub const MAX_ENGINES: usize = 1024;

#[derive(Default)]
struct Page<'a> {
    waiting: Option<u64>,
    running: Option<u64>,
    kv_utilisation: Option<f64>,
    gpu_utilisation: Option<f64>,
    process_start: Option<f64>,
    prefix_hits: Option<u64>,
    prefix_queries: Option<u64>,
    /// `engine` label (empty when absent) → that engine's `kv_cache_size_tokens`.
    engines: BTreeMap<&'a [u8], Option<u64>>,
    /// Highest `num_gpu_blocks` × `block_size`.
    block_tokens: Option<u64>,
}

impl<'a> Page<'a> {
    fn read(&mut self, sample: &Sample<'a>) {
        match sample.name {
            b"vllm:num_requests_waiting" => {
                add(&mut self.waiting, count(sample.value));
                self.note_engine(sample.labels, None);
            }
            b"vllm:num_requests_running" => {
                add(&mut self.running, count(sample.value));
                self.note_engine(sample.labels, None);
            }
            // The second is the older name; versions in between send both, with equal values.
            b"vllm:kv_cache_usage_perc" | b"vllm:gpu_cache_usage_perc" => {
                raise(&mut self.kv_utilisation, fraction(sample.value));
                self.note_engine(sample.labels, None);
            }
            b"vllm:cache_config_info" => self.read_cache_config(sample.labels),
            b"vllm:prefix_cache_hits_total" => add(&mut self.prefix_hits, count(sample.value)),
            b"vllm:prefix_cache_queries_total" => {
                add(&mut self.prefix_queries, count(sample.value));
            }
            // Not vLLM's own: a DCGM exporter's series merged into the page.
            b"DCGM_FI_DEV_GPU_UTIL" => raise(&mut self.gpu_utilisation, percentage(sample.value)),
            // Absent with several API servers. On a merged page the youngest process counts.
            b"process_start_time_seconds" => {
                raise(&mut self.process_start, unix_seconds(sample.value));
            }
            _ => {}
        }
    }

    /// The info metric says everything in labels, as text: `None`, `True`, `2048`.
    fn read_cache_config(&mut self, labels: Labels<'a>) {
        let number = |name: &[u8]| labels.value(name)?.number().filter(|tokens| *tokens > 0);
        self.note_engine(labels, number(b"kv_cache_size_tokens"));
        let blocks = number(b"num_gpu_blocks");
        let block_size = number(b"block_size");
        let tokens = blocks
            .zip(block_size)
            .map(|(n, size)| n.saturating_mul(size));
        raise(&mut self.block_tokens, tokens);
    }

    fn note_engine(&mut self, labels: Labels<'a>, cache_tokens: Option<u64>) {
        let engine = labels
            .value(b"engine")
            .map_or(&b""[..], |value| value.raw());
        if self.engines.len() < MAX_ENGINES || self.engines.contains_key(engine) {
            raise(self.engines.entry(engine).or_default(), cache_tokens);
        }
    }

    fn into_metrics(self) -> Option<EndpointMetrics> {
        let cache_tokens = self.cache_tokens();
        let carries_vllm = self.waiting.is_some()
            || self.running.is_some()
            || self.kv_utilisation.is_some()
            || cache_tokens.is_some()
            || self.prefix_hits.is_some()
            || self.prefix_queries.is_some();
        let engines = self.engines.keys().filter(|engine| !engine.is_empty());
        carries_vllm.then(|| EndpointMetrics {
            waiting: narrow(self.waiting),
            running: narrow(self.running),
            kv_utilisation: self.kv_utilisation,
            gpu_utilisation: self.gpu_utilisation,
            engines: u32::try_from(engines.count()).unwrap_or(u32::MAX).max(1),
            cache_tokens,
            process_start: self.process_start,
            prefix_hits: self.prefix_hits,
            prefix_queries: self.prefix_queries,
        })
    }

    /// `kv_cache_size_tokens` is per engine and so adds up. The older `num_gpu_blocks` is not
    /// summed: with data parallelism every engine's series already shows the total.
    fn cache_tokens(&self) -> Option<u64> {
        let mut sum = None;
        for tokens in self.engines.values() {
            add(&mut sum, *tokens);
        }
        sum.or(self.block_tokens)
    }
}

fn narrow(count: Option<u64>) -> u32 {
    u32::try_from(count.unwrap_or(0)).unwrap_or(u32::MAX)
}

#[cfg(test)]
pub(crate) mod captures;
#[cfg(test)]
mod tests;
