use super::captures::CAPTURES;
use super::*;

const WAITING: &str = "vllm:num_requests_waiting";

fn metrics(page: &str) -> EndpointMetrics {
    read(page.as_bytes()).expect("a vLLM page")
}

#[test]
fn captured_pages_read_as_another_parser_reads_them() {
    for capture in CAPTURES {
        assert_eq!(
            read(capture.page).as_ref(),
            Some(&capture.metrics),
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
