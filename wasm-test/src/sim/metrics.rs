//! The `/metrics` page: vLLM's names, labels and units.

use crate::sim::config::SimConfig;
use crate::sim::engines::lora_sets;
use crate::sim::exposition::{Labels, Page};
use crate::sim::faults::Overrides;
use crate::sim::stats::{Counters, Gauges, Histogram, Stats};

/// Content type of the page.
pub const CONTENT_TYPE: &str = "text/plain; version=1.0.0; charset=utf-8";

/// Each engine's counters and load, in order of their rank.
type Engines<'a> = &'a [(Stats, Gauges)];

/// Writes the page. `started` is the process's start in Unix seconds. With several engines there
/// are several processes behind the page, and Python's client then tells nothing of a process.
pub fn page(
    config: &SimConfig,
    started: f64,
    engines: Engines<'_>,
    overrides: &Overrides,
) -> String {
    let started = (engines.len() == 1).then_some(started);
    let mut page = Page::new(started);
    if let Some(started) = started {
        let help = "Start time of the process since unix epoch in seconds.";
        page.gauge("process_start_time_seconds", help, &[(&[], started)]);
    }
    let ranks: Vec<String> = (0..engines.len()).map(|rank| rank.to_string()).collect();
    load(&mut page, config, &ranks, engines, overrides);
    cache(&mut page, config, &ranks, engines);
    if config.kv_transfer {
        transfers(&mut page, config, &ranks, engines);
    }
    requests(&mut page, config, &ranks, engines);
    histograms(&mut page, config, &ranks, engines);
    cache_config(&mut page, config, &ranks);
    adapters(&mut page, config, engines);
    if let Some(percent) = overrides.gpu_util {
        page.gauge(
            "DCGM_FI_DEV_GPU_UTIL",
            "GPU utilization (in %).",
            &[(&[("gpu", "0")], percent)],
        );
    }
    page.into_text()
}

/// Labels and values of one family, one series for each engine.
fn by_engine<'a, T>(
    config: &'a SimConfig,
    ranks: &'a [String],
    values: impl Iterator<Item = T>,
) -> Vec<([(&'a str, &'a str); 2], T)> {
    let label = |(rank, value): (&'a String, T)| {
        let labels = [
            ("engine", rank.as_str()),
            ("model_name", config.model_name()),
        ];
        (labels, value)
    };
    ranks.iter().zip(values).map(label).collect()
}

/// Borrows label arrays as the page takes them.
fn borrowed<'a, const N: usize, T: Copy>(
    series: &'a [([(&'a str, &'a str); N], T)],
) -> Vec<(Labels<'a>, T)> {
    series
        .iter()
        .map(|(labels, value)| (labels.as_slice(), *value))
        .collect()
}

fn load(
    page: &mut Page,
    config: &SimConfig,
    ranks: &[String],
    engines: Engines<'_>,
    overrides: &Overrides,
) {
    let gauge = |forced: Option<f64>, own: fn(&Gauges) -> f64| {
        let values = engines
            .iter()
            .map(move |(_, gauges)| forced.unwrap_or(own(gauges)));
        by_engine(config, ranks, values)
    };
    let running = gauge(overrides.num_requests_running, |gauges| {
        gauges.num_requests_running as f64
    });
    let waiting = gauge(overrides.num_requests_waiting, |gauges| {
        gauges.num_requests_waiting as f64
    });
    let usage = gauge(overrides.kv_cache_usage, |gauges| gauges.kv_cache_usage);
    let help = "Number of requests in model execution batches.";
    page.gauge("vllm:num_requests_running", help, &borrowed(&running));
    let help = "Number of requests waiting to be processed.";
    page.gauge("vllm:num_requests_waiting", help, &borrowed(&waiting));
    let forced = overrides.num_requests_waiting;
    let deferred = gauge(forced.map(|_| 0.0), |gauges| {
        gauges.num_requests_deferred as f64
    });
    let capacity = gauge(forced, |gauges| {
        (gauges.num_requests_waiting - gauges.num_requests_deferred) as f64
    });
    let reasons = [("capacity", capacity), ("deferred", deferred)];
    let series: Vec<_> = reasons
        .into_iter()
        .flat_map(|(reason, series)| {
            series
                .into_iter()
                .map(move |([engine, model], value)| ([engine, model, ("reason", reason)], value))
        })
        .collect();
    page.gauge(
        "vllm:num_requests_waiting_by_reason",
        "Number of waiting requests by reason. Reason labels: 'capacity' = waiting for scheduling \
         capacity; 'deferred' = deferred by transient constraints (LoRA budget, KV transfer, \
         blocked status). Sum of all reasons equals vllm:num_requests_waiting.",
        &borrowed(&series),
    );
    let help = "KV-cache usage. 1 means 100 percent usage.";
    page.gauge("vllm:kv_cache_usage_perc", help, &borrowed(&usage));
}

/// Name, help and value of a counter.
type CounterFamily = (&'static str, &'static str, fn(&Counters) -> u64);

const CACHE_COUNTERS: [CounterFamily; 6] = [
    (
        "vllm:prefix_cache_queries",
        "Prefix cache queries, in terms of number of queried tokens.",
        |counters| counters.prefix_cache_queries,
    ),
    (
        "vllm:prefix_cache_hits",
        "Prefix cache hits, in terms of number of cached tokens.",
        |counters| counters.prefix_cache_hits,
    ),
    (
        "vllm:num_preemptions",
        "Cumulative number of preemption from the engine.",
        |counters| counters.preemptions,
    ),
    (
        "vllm:prompt_tokens",
        "Number of prefill tokens processed.",
        |counters| counters.prompt_tokens,
    ),
    (
        "vllm:prompt_tokens_cached",
        "Number of cached prompt tokens (local + external).",
        |counters| counters.prefix_cache_hits,
    ),
    (
        "vllm:generation_tokens",
        "Number of generation tokens processed.",
        |counters| counters.generation_tokens,
    ),
];

fn cache(page: &mut Page, config: &SimConfig, ranks: &[String], engines: Engines<'_>) {
    for (name, help, value) in CACHE_COUNTERS {
        let values = engines
            .iter()
            .map(|(stats, _)| value(&stats.counters) as f64);
        page.counter(name, help, &borrowed(&by_engine(config, ranks, values)));
    }
}

const TRANSFER_COUNTERS: [CounterFamily; 4] = [
    (
        "vllm:external_prefix_cache_hits",
        "External prefix cache hits from KV connector cross-instance cache sharing, in terms of \
         number of cached tokens.",
        |counters| counters.external_tokens,
    ),
    (
        "vllm:external_prefix_cache_queries",
        "External prefix cache queries from KV connector cross-instance cache sharing, in terms of \
         number of queried tokens.",
        |counters| counters.external_tokens,
    ),
    (
        "vllm:nixl_num_kv_expired_reqs",
        "Number of requests that had their KV expire. NOTE: This metric is tracked on the P instance.",
        |counters| counters.kv_expired,
    ),
    (
        "vllm:nixl_num_failed_transfers",
        "Number of failed NIXL KV Cache transfers, including handshake and notification failures. \
         NOTE: KV expiry is tracked separately in vllm:nixl_num_kv_expired_reqs.",
        |counters| counters.kv_failed,
    ),
];

/// Where prompt tokens came from.
const SOURCES: [FinishReason; 3] = [
    ("local_compute", |counters| {
        let cached = counters.prefix_cache_hits + counters.external_tokens;
        counters.prompt_tokens.saturating_sub(cached)
    }),
    ("local_cache_hit", |counters| counters.prefix_cache_hits),
    ("external_kv_transfer", |counters| counters.external_tokens),
];

fn transfers(page: &mut Page, config: &SimConfig, ranks: &[String], engines: Engines<'_>) {
    for (name, help, value) in TRANSFER_COUNTERS {
        let values = engines
            .iter()
            .map(|(stats, _)| value(&stats.counters) as f64);
        page.counter(name, help, &borrowed(&by_engine(config, ranks, values)));
    }
    let mut series = Vec::new();
    for (source, count) in SOURCES {
        let values = engines
            .iter()
            .map(|(stats, _)| count(&stats.counters) as f64);
        for ([engine, model], value) in by_engine(config, ranks, values) {
            series.push(([engine, model, ("source", source)], value));
        }
    }
    let help = "Number of prompt tokens by source.";
    page.counter("vllm:prompt_tokens_by_source", help, &borrowed(&series));
}

/// A label value and its count.
type FinishReason = (&'static str, fn(&Counters) -> u64);

/// Why requests ended. vLLM does not count a client that went away as `abort`, so neither does this
/// page.
const FINISH_REASONS: [FinishReason; 5] = [
    ("stop", |counters| counters.finished_stop),
    ("length", |counters| counters.finished_length),
    ("abort", |_| 0),
    ("error", |_| 0),
    ("repetition", |_| 0),
];

fn requests(page: &mut Page, config: &SimConfig, ranks: &[String], engines: Engines<'_>) {
    let mut series = Vec::new();
    for (reason, count) in FINISH_REASONS {
        let values = engines
            .iter()
            .map(|(stats, _)| count(&stats.counters) as f64);
        for ([engine, model], value) in by_engine(config, ranks, values) {
            series.push(([engine, ("finished_reason", reason), model], value));
        }
    }
    let help = "Count of successfully processed requests.";
    page.counter("vllm:request_success", help, &borrowed(&series));
    let model = ("model_name", config.model_name());
    let rejected: u64 = engines
        .iter()
        .map(|(stats, _)| stats.counters.rejected)
        .sum();
    page.counter(
        "vllm:admission_rejections",
        "Number of admission attempts rejected by a queue limit, by reason.",
        &[
            (&[model, ("reason", "max_num_queued_reqs")], rejected as f64),
            (&[model, ("reason", "max_num_queued_tokens")], 0.0),
        ],
    );
}

/// Name, help and value of a histogram.
type HistogramFamily = (&'static str, &'static str, fn(&Stats) -> &Histogram);

const HISTOGRAMS: [HistogramFamily; 3] = [
    (
        "vllm:time_to_first_token_seconds",
        "Histogram of time to first token in seconds.",
        |stats| &stats.time_to_first_token,
    ),
    (
        "vllm:e2e_request_latency_seconds",
        "Histogram of e2e request latency in seconds.",
        |stats| &stats.request_latency,
    ),
    (
        "vllm:request_queue_time_seconds",
        "Histogram of time spent in WAITING phase for request.",
        |stats| &stats.queue_time,
    ),
];

fn histograms(page: &mut Page, config: &SimConfig, ranks: &[String], engines: Engines<'_>) {
    for (name, help, value) in HISTOGRAMS {
        let values = engines.iter().map(|(stats, _)| value(stats));
        page.histogram(name, help, &borrowed(&by_engine(config, ranks, values)));
    }
}

/// Every label of the real page; those that mean nothing here carry its usual values. Blocks are
/// those of all engines together, tokens are one engine's.
fn cache_config(page: &mut Page, config: &SimConfig, ranks: &[String]) {
    let block_size = config.block_size.to_string();
    let blocks = config.num_gpu_blocks as usize * ranks.len();
    let blocks = blocks.to_string();
    let size = u64::from(config.num_gpu_blocks) * u64::from(config.block_size);
    let concurrency = format!("{:?}", size as f64 / config.context_tokens() as f64);
    let size = size.to_string();
    let labels = |rank| {
        [
            ("_block_size_resolved", "True"),
            ("block_size", &block_size),
            ("cache_dtype", "auto"),
            ("cache_hit_alignment_tokens", "None"),
            ("effective_attention_block_size", &block_size),
            ("enable_mamba_shared_prefix_checkpoint", "False"),
            ("enable_prefix_caching", "True"),
            ("engine", rank),
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
        ]
    };
    let help = "Information of the LLMEngine CacheConfig";
    let series: Vec<_> = ranks.iter().map(|rank| (labels(rank), 1.0)).collect();
    page.gauge("vllm:cache_config_info", help, &borrowed(&series));
}

/// Both lists name the same adapters, as they do on the real page, whatever really waits.
fn adapters(page: &mut Page, config: &SimConfig, engines: Engines<'_>) {
    let sets = lora_sets(engines);
    if config.lora_modules.is_empty() || sets.is_empty() {
        return;
    }
    let max_lora = config.max_loras().to_string();
    let label = |(set, time)| {
        let labels = [
            ("max_lora", max_lora.as_str()),
            ("running_lora_adapters", set),
            ("waiting_lora_adapters", set),
        ];
        (labels, time)
    };
    let series: Vec<_> = sets.into_iter().map(label).collect();
    page.gauge(
        "vllm:lora_requests_info",
        "Running stats on lora requests.",
        &borrowed(&series),
    );
}
