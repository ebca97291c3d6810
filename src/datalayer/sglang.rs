//! `SGLang`'s metric families (with `--enable-metrics`).

use super::families::{Families, Series, Tells, family};

/// Each data-parallel rank has a queue, a batch and a cache of its own. Within one, every tensor-
/// and pipeline-parallel rank works on the same requests, and with
/// `--enable-metrics-for-all-schedulers` each of them reports these.
pub(super) const FAMILIES: Families = Families {
    engine: b"dp_rank",
    series: Series::Copies,
    blocks_are_total: false,
    list: &[
        family(b"sglang:num_queue_reqs", Tells::Waiting),
        family(b"sglang:num_running_reqs", Tells::Running),
        family(b"sglang:token_usage", Tells::KvUtilisation),
        // Versions up to 0.5.10 say the cache's size in labels, newer ones in two gauges.
        family(
            b"sglang:cache_config_info",
            Tells::CacheConfig {
                tokens: b"",
                block_tokens: b"page_size",
                blocks: b"num_pages",
            },
        ),
        family(b"sglang:page_size", Tells::BlockTokens),
        family(b"sglang:num_pages", Tells::Blocks),
        // Its other counters of tokens grow when a request ends only.
        family(b"sglang:realtime_tokens_total", Tells::Progress),
    ],
};
