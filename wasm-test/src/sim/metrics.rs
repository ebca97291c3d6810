//! The `/metrics` page: vLLM's names, labels and units.

use crate::sim::config::SimConfig;
use crate::sim::exposition::{Labels, Page};
use crate::sim::faults::Overrides;
use crate::sim::stats::{Gauges, Stats};

/// Content type of the page.
pub const CONTENT_TYPE: &str = "text/plain; version=1.0.0; charset=utf-8";

/// Writes the page. `started` is the process's start in Unix seconds.
pub fn page(
    config: &SimConfig,
    started: f64,
    stats: &Stats,
    gauges: Gauges,
    overrides: &Overrides,
) -> String {
    let mut page = Page::new(started);
    let help = "Start time of the process since unix epoch in seconds.";
    page.gauge("process_start_time_seconds", help, &[(&[], started)]);
    load(&mut page, config, gauges, overrides);
    cache(&mut page, config, stats);
    requests(&mut page, config, stats);
    histograms(&mut page, config, stats);
    cache_config(&mut page, config);
    adapters(&mut page, config, stats);
    if let Some(percent) = overrides.gpu_util {
        page.gauge(
            "DCGM_FI_DEV_GPU_UTIL",
            "GPU utilization (in %).",
            &[(&[("gpu", "0")], percent)],
        );
    }
    page.into_text()
}

fn load(page: &mut Page, config: &SimConfig, gauges: Gauges, overrides: &Overrides) {
    let model = config.model_name();
    let labels: Labels<'_> = &[("engine", "0"), ("model_name", model)];
    let running = overrides
        .num_requests_running
        .unwrap_or(gauges.num_requests_running as f64);
    let waiting = overrides
        .num_requests_waiting
        .unwrap_or(gauges.num_requests_waiting as f64);
    let usage = overrides.kv_cache_usage.unwrap_or(gauges.kv_cache_usage);
    let help = "Number of requests in model execution batches.";
    page.gauge("vllm:num_requests_running", help, &[(labels, running)]);
    let help = "Number of requests waiting to be processed.";
    page.gauge("vllm:num_requests_waiting", help, &[(labels, waiting)]);
    page.gauge(
        "vllm:num_requests_waiting_by_reason",
        "Number of waiting requests by reason. Reason labels: 'capacity' = waiting for scheduling \
         capacity; 'deferred' = deferred by transient constraints (LoRA budget, KV transfer, \
         blocked status). Sum of all reasons equals vllm:num_requests_waiting.",
        &[
            (
                &[
                    ("engine", "0"),
                    ("model_name", model),
                    ("reason", "capacity"),
                ],
                waiting,
            ),
            (
                &[
                    ("engine", "0"),
                    ("model_name", model),
                    ("reason", "deferred"),
                ],
                0.0,
            ),
        ],
    );
    let help = "KV-cache usage. 1 means 100 percent usage.";
    page.gauge("vllm:kv_cache_usage_perc", help, &[(labels, usage)]);
}

fn cache(page: &mut Page, config: &SimConfig, stats: &Stats) {
    let labels: Labels<'_> = &[("engine", "0"), ("model_name", config.model_name())];
    let counters = &stats.counters;
    let families = [
        (
            "vllm:prefix_cache_queries",
            "Prefix cache queries, in terms of number of queried tokens.",
            counters.prefix_cache_queries,
        ),
        (
            "vllm:prefix_cache_hits",
            "Prefix cache hits, in terms of number of cached tokens.",
            counters.prefix_cache_hits,
        ),
        (
            "vllm:num_preemptions",
            "Cumulative number of preemption from the engine.",
            counters.preemptions,
        ),
        (
            "vllm:prompt_tokens",
            "Number of prefill tokens processed.",
            counters.prompt_tokens,
        ),
        (
            "vllm:prompt_tokens_cached",
            "Number of cached prompt tokens (local + external).",
            counters.prefix_cache_hits,
        ),
        (
            "vllm:generation_tokens",
            "Number of generation tokens processed.",
            counters.generation_tokens,
        ),
    ];
    for (name, help, value) in families {
        page.counter(name, help, &[(labels, value as f64)]);
    }
}

fn requests(page: &mut Page, config: &SimConfig, stats: &Stats) {
    let model = config.model_name();
    let counters = &stats.counters;
    // vLLM does not count a client that went away as `abort`, so neither does this page.
    let reasons = [
        ("stop", counters.finished_stop),
        ("length", counters.finished_length),
        ("abort", 0),
        ("error", 0),
        ("repetition", 0),
    ];
    let labels = reasons.map(|(reason, _)| {
        [
            ("engine", "0"),
            ("finished_reason", reason),
            ("model_name", model),
        ]
    });
    let samples: Vec<(Labels<'_>, f64)> = labels
        .iter()
        .zip(reasons)
        .map(|(labels, (_, count))| (labels.as_slice(), count as f64))
        .collect();
    let help = "Count of successfully processed requests.";
    page.counter("vllm:request_success", help, &samples);
    page.counter(
        "vllm:admission_rejections",
        "Number of admission attempts rejected by a queue limit, by reason.",
        &[
            (
                &[("model_name", model), ("reason", "max_num_queued_reqs")],
                counters.rejected as f64,
            ),
            (
                &[("model_name", model), ("reason", "max_num_queued_tokens")],
                0.0,
            ),
        ],
    );
}

fn histograms(page: &mut Page, config: &SimConfig, stats: &Stats) {
    let labels: Labels<'_> = &[("engine", "0"), ("model_name", config.model_name())];
    page.histogram(
        "vllm:time_to_first_token_seconds",
        "Histogram of time to first token in seconds.",
        labels,
        &stats.time_to_first_token,
    );
    page.histogram(
        "vllm:e2e_request_latency_seconds",
        "Histogram of e2e request latency in seconds.",
        labels,
        &stats.request_latency,
    );
    page.histogram(
        "vllm:request_queue_time_seconds",
        "Histogram of time spent in WAITING phase for request.",
        labels,
        &stats.queue_time,
    );
}

/// Every label of the real page; those that mean nothing here carry its usual values.
fn cache_config(page: &mut Page, config: &SimConfig) {
    let block_size = config.block_size.to_string();
    let blocks = config.num_gpu_blocks.to_string();
    let size = u64::from(config.num_gpu_blocks) * u64::from(config.block_size);
    let concurrency = format!("{:?}", size as f64 / config.context_tokens() as f64);
    let size = size.to_string();
    let labels = [
        ("_block_size_resolved", "True"),
        ("block_size", &block_size),
        ("cache_dtype", "auto"),
        ("cache_hit_alignment_tokens", "None"),
        ("effective_attention_block_size", &block_size),
        ("enable_mamba_shared_prefix_checkpoint", "False"),
        ("enable_prefix_caching", "True"),
        ("engine", "0"),
        ("gpu_memory_utilization", "0.92"),
        ("hash_block_size", "None"),
        ("is_attention_free", "False"),
        ("kv_cache_dtype_skip_layers", "[]"),
        ("kv_cache_layout", "None"),
        ("kv_cache_max_concurrency", &concurrency),
        ("kv_cache_memory_bytes", "None"),
        ("kv_cache_size_tokens", &size),
        ("kv_offloading_backend", "native"),
        ("kv_offloading_size", "None"),
        ("kv_sharing_fast_prefill", "False"),
        ("mamba_block_size", "None"),
        ("mamba_cache_dtype", "auto"),
        ("mamba_cache_mode", "none"),
        ("mamba_page_size_padded", "None"),
        ("mamba_ssm_cache_dtype", "float32"),
        ("num_cpu_blocks", "None"),
        ("num_gpu_blocks", &blocks),
        ("num_gpu_blocks_override", "None"),
        ("prefix_cache_retention_interval", "0"),
        ("prefix_caching_hash_algo", "sha256"),
        ("prefix_match_unit", "None"),
        ("replayssm_buffer_len", "16"),
        ("skip_page_size_padded", "None"),
        ("sliding_window", "None"),
        ("swa_bounded_replay", "True"),
        ("use_kda_recoverssm", "False"),
        ("use_replayssm", "False"),
        ("user_specified_block_size", "True"),
    ];
    let help = "Information of the LLMEngine CacheConfig";
    page.gauge("vllm:cache_config_info", help, &[(&labels, 1.0)]);
}

/// Both lists name the same adapters, as they do on the real page, whatever really waits.
fn adapters(page: &mut Page, config: &SimConfig, stats: &Stats) {
    if config.lora_modules.is_empty() || stats.lora_sets.is_empty() {
        return;
    }
    let max_lora = config.lora_modules.len().to_string();
    let labels: Vec<_> = stats
        .lora_sets
        .keys()
        .map(|set| {
            [
                ("max_lora", max_lora.as_str()),
                ("running_lora_adapters", set.as_str()),
                ("waiting_lora_adapters", set.as_str()),
            ]
        })
        .collect();
    let samples: Vec<(Labels<'_>, f64)> = labels
        .iter()
        .zip(stats.lora_sets.values())
        .map(|(labels, time)| (labels.as_slice(), *time))
        .collect();
    page.gauge(
        "vllm:lora_requests_info",
        "Running stats on lora requests.",
        &samples,
    );
}
