use super::captures::CAPTURES;
use crate::config::Engine;
use crate::datalayer::metrics::EndpointMetrics;
use crate::datalayer::page::MAX_ENGINES;
use crate::datalayer::{AdapterState, Adapters, engine};

const WAITING: &str = "vllm:num_requests_waiting";

fn read(page: &[u8]) -> Option<EndpointMetrics> {
    engine::read(Engine::Vllm, page)
}

fn metrics(page: &str) -> EndpointMetrics {
    read(page.as_bytes()).expect("a vLLM page")
}

#[test]
fn captured_pages_read_as_another_parser_reads_them() {
    for capture in CAPTURES {
        assert_eq!(
            read(capture.page),
            Some(capture.expected()),
            "{}",
            capture.name
        );
    }
}

#[cfg(not(target_arch = "wasm32"))]
#[test]
fn every_captured_page_has_a_row() {
    let directory = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/wasm-test/vectors/vllm/metrics"
    );
    let mut pages: Vec<_> = std::fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| {
            path.extension()
                .is_some_and(|extension| extension == "prom")
        })
        .map(|path| path.file_name().unwrap().to_str().unwrap().to_owned())
        .collect();
    pages.sort();
    let rows: Vec<_> = CAPTURES.iter().map(|capture| capture.name).collect();
    assert_eq!(pages, rows);
}

#[test]
fn a_page_cut_anywhere_never_invents_values() {
    let busy = CAPTURES
        .iter()
        .find(|capture| capture.name == "14-dp2-busy.prom")
        .unwrap();
    for end in (0..busy.page.len()).step_by(97) {
        if let Some(part) = read(&busy.page[..end]) {
            assert!(
                part.waiting <= 3 && part.running <= 4 && part.engines <= 2,
                "{end}"
            );
            assert!(part.kv_utilisation <= busy.metrics.kv_utilisation, "{end}");
            assert!(part.cache_tokens <= busy.metrics.cache_tokens, "{end}");
        }
    }
}

#[test]
fn a_page_without_vllm_families_is_not_vllm() {
    for page in [
        "",
        "<!doctype html><title>404</title>",
        "sglang:num_queue_reqs{engine=\"0\"} 3\n",
        "vllm:num_requests_waiting_by_reason{engine=\"0\",reason=\"capacity\"} 4\n",
        "DCGM_FI_DEV_GPU_UTIL{gpu=\"0\"} 80\nprocess_start_time_seconds 1.7e9\n",
        "# TYPE vllm:num_requests_waiting gauge\n",
        "vllm:num_requests_waiting NaN\nvllm:kv_cache_usage_perc -1\n",
        "vllm:cache_config_info{engine=\"0\",num_gpu_blocks=\"None\"} 1\n",
    ] {
        assert_eq!(read(page.as_bytes()), None, "{page}");
    }
}

#[test]
fn one_family_is_enough_and_leaves_the_others_empty() {
    let nothing = EndpointMetrics::default();
    for (page, expected) in [
        (
            "vllm:num_requests_waiting 7\n",
            EndpointMetrics {
                waiting: 7,
                ..nothing.clone()
            },
        ),
        (
            "vllm:num_requests_running 7\n",
            EndpointMetrics {
                running: 7,
                ..nothing.clone()
            },
        ),
        (
            "vllm:kv_cache_usage_perc 0.5\n",
            EndpointMetrics {
                kv_utilisation: Some(0.5),
                ..nothing.clone()
            },
        ),
        (
            "vllm:gpu_cache_usage_perc 0.5\n",
            EndpointMetrics {
                kv_utilisation: Some(0.5),
                ..nothing.clone()
            },
        ),
        (
            "vllm:cache_config_info{kv_cache_size_tokens=\"512\"} 1\n",
            EndpointMetrics {
                cache_tokens: Some(512),
                ..nothing.clone()
            },
        ),
        (
            "vllm:prefix_cache_hits_total 12\n",
            EndpointMetrics {
                prefix_hits: Some(12),
                ..nothing.clone()
            },
        ),
        (
            "vllm:prefix_cache_queries_total 12\n",
            EndpointMetrics {
                prefix_queries: Some(12),
                ..nothing
            },
        ),
    ] {
        assert_eq!(metrics(page), expected, "{page}");
    }
}

#[test]
fn engines_add_their_queues_and_show_the_fullest_cache() {
    let page = metrics(
        "vllm:num_requests_waiting{engine=\"0\",model_name=\"m\"} 3\n\
         vllm:num_requests_waiting{engine=\"1\",model_name=\"m\"} 4\n\
         vllm:num_requests_running{engine=\"0\",model_name=\"m\"} 10\n\
         vllm:num_requests_running{engine=\"1\",model_name=\"m\"} 20\n\
         vllm:kv_cache_usage_perc{engine=\"0\",model_name=\"m\"} 0.9\n\
         vllm:kv_cache_usage_perc{engine=\"1\",model_name=\"m\"} 0.1\n",
    );
    assert_eq!((page.waiting, page.running, page.engines), (7, 30, 2));
    assert_eq!(page.kv_utilisation, Some(0.9));
}

#[test]
fn several_models_of_one_engine_add_up_and_stay_one_engine() {
    let page = metrics(
        "vllm:num_requests_waiting{engine=\"0\",model_name=\"a\"} 3\n\
         vllm:num_requests_waiting{engine=\"0\",model_name=\"b\"} 4\n",
    );
    assert_eq!((page.waiting, page.engines), (7, 1));
}

#[test]
fn a_server_without_engine_labels_is_one_engine() {
    let page = metrics(
        "vllm:num_requests_waiting{model_name=\"m\"} 1\n\
         vllm:num_requests_running{model_name=\"m\"} 2\n",
    );
    assert_eq!(page.engines, 1);
    // A label on some families only, as versions in between have it, adds no engine.
    let page = metrics(
        "vllm:num_requests_waiting{engine=\"0\"} 1\n\
         vllm:cache_config_info{block_size=\"16\",num_gpu_blocks=\"10\"} 1\n",
    );
    assert_eq!((page.engines, page.cache_tokens), (1, Some(160)));
}

#[test]
fn both_names_of_kv_utilisation_are_read_and_the_higher_value_counts() {
    let page = "vllm:gpu_cache_usage_perc 0.25\nvllm:kv_cache_usage_perc 0.75\n";
    assert_eq!(metrics(page).kv_utilisation, Some(0.75));
}

#[test]
fn the_busiest_gpu_counts_and_not_available_does_not() {
    let page = metrics(
        "vllm:num_requests_waiting 0\n\
         DCGM_FI_DEV_GPU_UTIL{gpu=\"0\",UUID=\"GPU-a\",modelName=\"NVIDIA A100, 80GB {x}\"} 35\n\
         DCGM_FI_DEV_GPU_UTIL{gpu=\"1\",UUID=\"GPU-b\"} 80\n\
         DCGM_FI_DEV_GPU_UTIL{gpu=\"2\",UUID=\"GPU-c\"} 2147483632\n\
         DCGM_FI_DEV_GPU_UTIL{gpu=\"3\",UUID=\"GPU-d\"} NaN\n\
         DCGM_FI_DEV_MEM_COPY_UTIL{gpu=\"0\"} 99\n",
    );
    assert_eq!(page.gpu_utilisation, Some(0.8));
}

#[test]
fn unusable_gauges_are_ignored_and_absurd_ones_clamped() {
    for (value, waiting) in [
        ("NaN", 0),
        ("-3", 0),
        ("-Inf", 0),
        ("+Inf", 0),
        ("1e300", u32::MAX),
        ("4294967296", u32::MAX),
        ("2.0", 2),
    ] {
        let page = metrics(&format!(
            "{WAITING} {value}\nvllm:kv_cache_usage_perc 0.5\n"
        ));
        assert_eq!(page.waiting, waiting, "{value}");
        assert_eq!(page.kv_utilisation, Some(0.5), "{value}");
    }
    for (value, kv) in [
        ("NaN", None),
        ("-0.5", None),
        ("17", Some(1.0)),
        ("1.0", Some(1.0)),
    ] {
        let page = metrics(&format!("{WAITING} 2\nvllm:kv_cache_usage_perc {value}\n"));
        assert_eq!((page.waiting, page.kv_utilisation), (2, kv), "{value}");
    }
}

#[test]
fn summed_queues_saturate() {
    let line = format!("{WAITING}{{engine=\"0\"}} 4294967295\n");
    assert_eq!(metrics(&line.repeat(3)).waiting, u32::MAX);
}

#[test]
fn capacity_is_the_sum_of_the_engines_sizes() {
    let page = metrics(
        "vllm:cache_config_info{block_size=\"32\",engine=\"0\",kv_cache_size_tokens=\"2048\",num_gpu_blocks=\"128\"} 1\n\
         vllm:cache_config_info{block_size=\"32\",engine=\"1\",kv_cache_size_tokens=\"1024\",num_gpu_blocks=\"128\"} 1\n",
    );
    assert_eq!((page.cache_tokens, page.engines), (Some(3072), 2));
}

#[test]
fn a_repeated_series_of_one_engine_is_not_added_twice() {
    let page = metrics(
        "vllm:cache_config_info{engine=\"0\",kv_cache_size_tokens=\"1024\"} 1\n\
         vllm:cache_config_info{engine=\"0\",kv_cache_size_tokens=\"2048\"} 1\n",
    );
    assert_eq!(page.cache_tokens, Some(2048));
}

#[test]
fn without_sizes_the_block_count_is_the_servers_total() {
    for size in [
        "",
        ",kv_cache_size_tokens=\"None\"",
        ",kv_cache_size_tokens=\"0\"",
    ] {
        let page = metrics(&format!(
            "vllm:cache_config_info{{block_size=\"32\",engine=\"0\",num_gpu_blocks=\"128\"{size}}} 1\n\
             vllm:cache_config_info{{block_size=\"32\",engine=\"1\",num_gpu_blocks=\"128\"{size}}} 1\n",
        ));
        assert_eq!((page.cache_tokens, page.engines), (Some(4096), 2), "{size}");
    }
}

#[test]
fn garbled_cache_labels_say_nothing() {
    for (blocks, size) in [
        ("None", "16"),
        ("128", "auto"),
        ("-1", "16"),
        ("0", "16"),
        ("128.5", "16"),
        ("99999999999999999999999", "16"),
    ] {
        let page = metrics(&format!(
            "{WAITING} 0\n\
             vllm:cache_config_info{{block_size=\"{size}\",num_gpu_blocks=\"{blocks}\"}} 1\n"
        ));
        assert_eq!(page.cache_tokens, None, "{blocks} {size}");
    }
}

#[test]
fn absurd_capacities_saturate() {
    let most = u64::MAX;
    let page = metrics(&format!(
        "vllm:cache_config_info{{engine=\"0\",kv_cache_size_tokens=\"{most}\"}} 1\n\
         vllm:cache_config_info{{engine=\"1\",kv_cache_size_tokens=\"{most}\"}} 1\n"
    ));
    assert_eq!(page.cache_tokens, Some(most));
    let page = metrics(&format!(
        "vllm:cache_config_info{{block_size=\"16\",num_gpu_blocks=\"{most}\"}} 1\n"
    ));
    assert_eq!(page.cache_tokens, Some(most));
}

#[test]
fn the_youngest_process_on_the_page_counts() {
    let page = metrics(
        "vllm:num_requests_waiting 0\n\
         process_start_time_seconds 1.79596889227e+09\n\
         process_start_time_seconds{job=\"side\"} 1.5e+09\n\
         process_start_time_seconds{job=\"broken\"} +Inf\n",
    );
    assert_eq!(page.process_start, Some(1_795_968_892.27));
}

#[test]
fn engines_beyond_the_cap_add_to_the_queue_and_to_nothing_else() {
    use std::fmt::Write;
    let mut page = String::new();
    for engine in 0..MAX_ENGINES + 10 {
        writeln!(page, "{WAITING}{{engine=\"{engine}\"}} 1").unwrap();
    }
    for engine in [MAX_ENGINES - 1, MAX_ENGINES] {
        let labels = format!("engine=\"{engine}\",kv_cache_size_tokens=\"512\"");
        writeln!(page, "vllm:cache_config_info{{{labels}}} 1").unwrap();
    }
    let page = metrics(&page);
    assert_eq!((page.engines, page.waiting), (1024, 1034));
    assert_eq!(page.cache_tokens, Some(512));
}

/// A page with one series of `vllm:lora_requests_info` for each (running, waiting, time).
fn lora_page(series: &[(&str, &str, &str)]) -> String {
    let lines = series.iter().map(|(running, waiting, time)| {
        format!(
            "vllm:lora_requests_info{{max_lora=\"2\",running_lora_adapters=\"{running}\",\
             waiting_lora_adapters=\"{waiting}\"}} {time}\n"
        )
    });
    lines.collect()
}

/// The adapters read from such a page, comma separated.
fn adapters(series: &[(&str, &str, &str)]) -> Option<String> {
    let page = lora_page(series);
    let adapters = read(page.as_bytes())?.adapters?;
    Some(adapters.iter().collect::<Vec<_>>().join(","))
}

#[test]
fn adapters_alone_are_enough() {
    let mut adapters: Adapters = ["a"].into_iter().collect();
    adapters.allow(2);
    let expected = EndpointMetrics {
        adapters: Some(adapters),
        ..EndpointMetrics::default()
    };
    assert_eq!(metrics(&lora_page(&[("a", "", "1")])), expected);
}

#[test]
fn only_the_newest_adapter_series_counts_wherever_it_stands() {
    let old = ("a", "a", "1.79596943841e+09");
    let newest = ("b", "b", "1.79596943906e+09");
    let older = ("a,c", "a,c", "1.79596943905e+09");
    assert_eq!(adapters(&[old, newest, older]), Some("b".into()));
    assert_eq!(adapters(&[newest, older, old]), Some("b".into()));
    assert_eq!(adapters(&[older, old, newest]), Some("b".into()));
}

#[test]
fn adapter_series_of_equal_age_are_one_list() {
    let first = ("a", "", "5");
    let second = ("b", "a", "5.0");
    assert_eq!(
        adapters(&[first, ("c", "", "4"), second]),
        Some("a,b".into())
    );
}

#[test]
fn running_and_waiting_adapters_are_both_loaded_or_about_to_be() {
    assert_eq!(adapters(&[("a,b", "c", "5")]), Some("a,b,c".into()));
    let read = metrics(&lora_page(&[("a,b", "b,c", "5")]))
        .adapters
        .unwrap();
    let state = |name| read.state(name);
    assert_eq!(state("b"), Some(AdapterState::Running));
    assert_eq!(state("c"), Some(AdapterState::Waiting));
}

#[test]
fn a_server_that_lists_no_adapter_is_told_from_one_that_says_nothing() {
    assert_eq!(
        adapters(&[("", "", "6"), ("a", "a", "5")]),
        Some(String::new())
    );
    assert_eq!(metrics(&format!("{WAITING} 1\n")).adapters, None);
}

#[test]
fn adapter_series_without_a_time_say_nothing() {
    for time in ["NaN", "+Inf", "-1", "0"] {
        assert_eq!(
            adapters(&[("b", "b", time), ("a", "", "5")]),
            Some("a".into())
        );
        assert_eq!(adapters(&[("b", "b", time)]), None);
    }
}

#[test]
fn adapter_names_are_unescaped_and_garbage_is_left_out() {
    let list = r#"say \"hi\", sql\\lora,,"#;
    assert_eq!(
        adapters(&[(list, "", "5")]),
        Some(r#"say "hi",sql\lora"#.into())
    );
    let page = b"vllm:lora_requests_info{running_lora_adapters=\"a,\xff\xfe\"} 5\n";
    let read = read(page).unwrap().adapters;
    assert_eq!(read, Some(["a"].into_iter().collect()));
}

#[test]
fn a_page_full_of_adapters_is_bounded() {
    let many: Vec<String> = (0..Adapters::MAX * 4)
        .map(|n| format!("lora-{n:05}"))
        .collect();
    let long = "x".repeat(Adapters::MAX_NAME_BYTES + 1);
    let list = format!("{long},{}", many.join(","));
    let read = adapters(&[(&list, &list, "5")]).unwrap();
    assert_eq!(read, many[..Adapters::MAX].join(","));
}
