//! Metrics pages captured from real vLLM servers, and what they say.
//!
//! The numbers are those of another parser: each page was read once with the Python package
//! `prometheus_client`, and its samples were counted, summed or maximised as `EndpointMetrics`
//! describes. `cache_tokens` is `kv_cache_size_tokens` summed over the `engine` labels.

use crate::datalayer::metrics::EndpointMetrics;
use crate::datalayer::{Adapters, Signals};

pub(crate) struct Capture {
    pub(crate) name: &'static str,
    pub(crate) page: &'static [u8],
    /// Samples on the page, of any family.
    pub(crate) samples: usize,
    /// Adapters aside.
    pub(crate) metrics: EndpointMetrics,
    /// Those of the newest `vllm:lora_requests_info`, `None` without one.
    adapters: Option<&'static [&'static str]>,
}

impl Capture {
    /// What the page says.
    pub(crate) fn expected(&self) -> EndpointMetrics {
        EndpointMetrics {
            adapters: self.adapters.map(|names| {
                let mut adapters: Adapters = names.iter().copied().collect();
                // All of these servers ran with `--max-loras 2`.
                adapters.allow(2);
                adapters
            }),
            // One server of all was handed a prompt by another.
            external_tokens: Some(if self.name == "13-pd-decode.prom" {
                333
            } else {
                0
            }),
            ..self.metrics.clone()
        }
    }
}

macro_rules! capture {
    (@adapters) => {
        None
    };
    (@adapters [$($adapter:literal),*]) => {
        Some(&[$($adapter),*])
    };
    ($name:literal, $samples:literal, $waiting:literal, $running:literal, $kv:literal,
     $engines:literal, $tokens:literal, $start:expr, $hits:literal, $queries:literal,
     $progress:literal
     $(, [$($adapter:literal),*])?) => {
        Capture {
            name: $name,
            page: include_bytes!(concat!(
                env!("CARGO_MANIFEST_DIR"),
                "/wasm-test/vectors/vllm/metrics/",
                $name
            )),
            samples: $samples,
            metrics: EndpointMetrics {
                waiting: $waiting,
                running: $running,
                kv_utilisation: Some($kv),
                gpu_utilisation: None,
                engines: $engines,
                cache_tokens: Some($tokens),
                process_start: $start,
                prefix_hits: Some($hits),
                prefix_queries: Some($queries),
                progress: Some($progress),
                external_tokens: None,
                gpu_fault: false,
                adapters: None,
                signals: Signals::NONE,
            },
            adapters: capture!(@adapters $([$($adapter),*])?),
        }
    };
}

/// Columns: page, samples, waiting, running, KV-cache utilisation, engines, cache tokens, process
/// start, prefix-cache hits and queries, progress, and the adapters where the page has their family.
#[rustfmt::skip]
pub(crate) const CAPTURES: &[Capture] = &[
    capture!("01-fresh.prom", 410, 0, 0, 0.0, 1, 1_048_576, Some(1_795_968_892.27), 0, 0, 0),
    capture!("02-after-mixed-requests-default-block128.prom", 650, 0, 0, 0.0, 1, 1_048_576, Some(1_795_968_892.27), 2816, 4547, 4662),
    capture!("03-block32-lora-idle.prom", 488, 0, 0, 0.0, 1, 2048, Some(1_795_969_292.05), 448, 1419, 1487, []),
    capture!("04-after-evictions.prom", 488, 0, 0, 0.0, 1, 2048, Some(1_795_969_292.05), 448, 3956, 4031, []),
    capture!("05-lora-busy-0.prom", 659, 2, 4, 0.126_984_126_984_126_98, 1, 2048, Some(1_795_969_292.05), 448, 4142, 4430, ["lora-a", "lora-b"]),
    capture!("05-lora-busy-1.prom", 659, 2, 4, 0.253_968_253_968_253_95, 1, 2048, Some(1_795_969_292.05), 448, 4142, 4622, ["lora-a", "lora-b"]),
    capture!("05-lora-busy-2.prom", 659, 2, 4, 0.317_460_317_460_317_44, 1, 2048, Some(1_795_969_292.05), 448, 4142, 4842, ["lora-a", "lora-b"]),
    capture!("05-lora-busy-3.prom", 659, 2, 4, 0.444_444_444_444_444_4, 1, 2048, Some(1_795_969_292.05), 448, 4142, 5062, ["lora-a", "lora-b"]),
    capture!("06-lora-idle-after.prom", 659, 0, 0, 0.0, 1, 2048, Some(1_795_969_292.05), 448, 4148, 6043, []),
    capture!("08-queue-5conc-00.prom", 425, 4, 1, 0.127_659_574_468_085_07, 1, 1536, Some(1_795_969_801.67), 0, 94, 188),
    capture!("08-queue-5conc-01.prom", 425, 4, 1, 0.340_425_531_914_893_66, 1, 1536, Some(1_795_969_801.67), 0, 94, 515),
    capture!("08-queue-5conc-02.prom", 425, 3, 1, 0.255_319_148_936_170_25, 1, 1536, Some(1_795_969_801.67), 0, 186, 956),
    capture!("08-queue-5conc-03.prom", 425, 3, 1, 0.319_148_936_170_212_8, 1, 1536, Some(1_795_969_801.67), 0, 186, 1055),
    capture!("08-queue-5conc-04.prom", 425, 3, 1, 0.340_425_531_914_893_66, 1, 1536, Some(1_795_969_801.67), 0, 186, 1080),
    capture!("08-queue-5conc-05.prom", 425, 3, 1, 0.382_978_723_404_255_3, 1, 1536, Some(1_795_969_801.67), 0, 186, 1175),
    capture!("08-queue-5conc-06.prom", 425, 2, 1, 0.127_659_574_468_085_07, 1, 1536, Some(1_795_969_801.67), 0, 278, 1381),
    capture!("08-queue-5conc-07.prom", 425, 2, 1, 0.212_765_957_446_808_48, 1, 1536, Some(1_795_969_801.67), 0, 278, 1485),
    capture!("08-queue-5conc-08.prom", 425, 2, 1, 0.276_595_744_680_851, 1, 1536, Some(1_795_969_801.67), 0, 278, 1589),
    capture!("08-queue-5conc-09.prom", 425, 2, 1, 0.340_425_531_914_893_66, 1, 1536, Some(1_795_969_801.67), 0, 278, 1688),
    capture!("08-queue-5conc-10.prom", 425, 1, 1, 0.063_829_787_234_042_53, 1, 1536, Some(1_795_969_801.67), 0, 370, 1876),
    capture!("08-queue-5conc-11.prom", 425, 1, 1, 0.148_936_170_212_765_95, 1, 1536, Some(1_795_969_801.67), 0, 370, 1983),
    capture!("08-queue-5conc-12.prom", 425, 1, 1, 0.212_765_957_446_808_48, 1, 1536, Some(1_795_969_801.67), 0, 370, 2088),
    capture!("08-queue-5conc-13.prom", 425, 1, 1, 0.276_595_744_680_851, 1, 1536, Some(1_795_969_801.67), 0, 370, 2192),
    capture!("09-queue-after.prom", 425, 0, 0, 0.0, 1, 1536, Some(1_795_969_801.67), 0, 462, 2966),
    capture!("10-queue-full.prom", 472, 5, 1, 0.212_765_957_446_808_48, 1, 1536, Some(1_795_969_801.67), 0, 554, 3272),
    capture!("10b-queue-drained.prom", 472, 0, 0, 0.0, 1, 1536, Some(1_795_969_801.67), 0, 1014, 8918),
    capture!("11-after-abort.prom", 472, 0, 0, 0.0, 1, 1536, Some(1_795_969_801.67), 0, 1016, 8999),
    capture!("11-before-abort.prom", 472, 0, 1, 0.063_829_787_234_042_53, 1, 1536, Some(1_795_969_801.67), 0, 1016, 8998),
    capture!("11b-after-abort-and-next.prom", 472, 0, 0, 0.0, 1, 1536, Some(1_795_969_801.67), 0, 1017, 9002),
    capture!("12-pd-prefill.prom", 518, 0, 0, 0.0, 1, 4096, Some(1_795_969_927.97), 960, 1717, 1736),
    capture!("13-pd-decode.prom", 503, 0, 0, 0.0, 1, 4096, Some(1_795_970_175.31), 0, 333, 337),
    capture!("14-dp2-busy.prom", 694, 3, 4, 0.349_206_349_206_349_2, 2, 4096, None, 0, 716, 1479),
    capture!("15-dp2-after.prom", 694, 0, 0, 0.0, 2, 4096, None, 0, 1073, 3177),
];
