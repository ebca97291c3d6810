//! The metric families of `trtllm-serve` (path `/prometheus/metrics`).

use super::families::{Families, Series, Tells, family};

/// One engine a server, and no label tells engines apart. Versions up to 1.1 have request latencies
/// only, and with these nothing of their load is known. None tells what it did while requests run.
pub(super) const FAMILIES: Families = Families {
    engine: b"",
    series: Series::Parts,
    blocks_are_total: false,
    list: &[
        family(b"trtllm_num_requests_waiting", Tells::Waiting),
        family(b"trtllm_num_requests_running", Tells::Running),
        family(b"trtllm_kv_cache_utilization", Tells::KvUtilisation),
        family(b"trtllm_kv_cache_tokens_per_block", Tells::BlockTokens),
        family(b"trtllm_kv_cache_max_blocks", Tells::Blocks),
    ],
};
