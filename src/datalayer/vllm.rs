//! vLLM's metric families.

use super::families::{AdapterLists, Families, Series, Tells, family, series};

/// Label sets differ between versions: older ones have no `engine`, newer ones add labels. Several
/// series of one engine are those of its `model_name`s, each with requests of its own.
///
/// With data parallelism every engine's `num_gpu_blocks` shows the total; the newer
/// `kv_cache_size_tokens` is the engine's own.
pub(super) const FAMILIES: Families = Families {
    engine: b"engine",
    series: Series::Parts,
    blocks_are_total: true,
    list: &[
        family(b"vllm:num_requests_waiting", Tells::Waiting),
        family(b"vllm:num_requests_running", Tells::Running),
        family(b"vllm:kv_cache_usage_perc", Tells::KvUtilisation),
        // The older name; versions in between send both, with equal values.
        family(b"vllm:gpu_cache_usage_perc", Tells::KvUtilisation),
        family(
            b"vllm:cache_config_info",
            Tells::CacheConfig {
                tokens: b"kv_cache_size_tokens",
                block_tokens: b"block_size",
                blocks: b"num_gpu_blocks",
            },
        ),
        family(b"vllm:prefix_cache_hits_total", Tells::PrefixHits),
        family(b"vllm:prefix_cache_queries_total", Tells::PrefixQueries),
        series(
            b"vllm:prompt_tokens_by_source_total",
            b"source",
            b"external_kv_transfer",
            Tells::External,
        ),
        family(b"vllm:prompt_tokens_total", Tells::Progress),
        family(b"vllm:generation_tokens_total", Tells::Progress),
        // Both lists are loaded adapters or such that are about to be.
        family(
            b"vllm:lora_requests_info",
            Tells::Adapters(AdapterLists {
                running: b"running_lora_adapters",
                waiting: b"waiting_lora_adapters",
                most: b"max_lora",
            }),
        ),
    ],
};

#[cfg(test)]
pub(crate) mod captures;
#[cfg(test)]
mod tests;
