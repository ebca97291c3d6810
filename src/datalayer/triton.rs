//! The metric families of Triton with the TensorRT-LLM backend (port 8002).

use super::families::{Families, Series, Tells, series};

const REQUESTS: &[u8] = b"nv_trt_llm_request_metrics";
const REQUEST_TYPE: &[u8] = b"request_type";
const BLOCKS: &[u8] = b"nv_trt_llm_kv_cache_block_metrics";
const BLOCK_TYPE: &[u8] = b"kv_cache_block_type";

/// Each model of a server is an engine with a batch and a cache of its own; several `version`s of
/// one have requests of their own.
pub(super) const FAMILIES: Families = Families {
    engine: b"model",
    series: Series::Parts,
    blocks_are_total: false,
    list: &[
        series(REQUESTS, REQUEST_TYPE, b"waiting", Tells::Waiting),
        // "active" is both, waiting and scheduled.
        series(REQUESTS, REQUEST_TYPE, b"scheduled", Tells::Running),
        series(BLOCKS, BLOCK_TYPE, b"fraction", Tells::KvUtilisation),
        series(BLOCKS, BLOCK_TYPE, b"tokens_per", Tells::BlockTokens),
        series(BLOCKS, BLOCK_TYPE, b"max", Tells::Blocks),
        series(
            b"nv_trt_llm_general_metrics",
            b"general_type",
            b"iteration_counter",
            Tells::Progress,
        ),
    ],
};
