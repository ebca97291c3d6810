use super::*;

const SGLANG: &str = r#"
# HELP sglang:num_running_reqs The number of running requests.
# TYPE sglang:num_running_reqs gauge
sglang:num_running_reqs{engine_type="unified",model_name="m",pp_rank="0",tp_rank="0"} 8.0
sglang:num_queue_reqs{engine_type="unified",model_name="m",pp_rank="0",tp_rank="0"} 4.0
sglang:token_usage{engine_type="unified",model_name="m",pp_rank="0",tp_rank="0"} 0.52
sglang:cache_config_info{engine_type="unified",model_name="m",num_pages="4096",page_size="64"} 1.0
"#;

const TRTLLM: &str = r#"
trtllm_num_requests_running{engine_type="trtllm",model_name="m"} 8.0
trtllm_num_requests_waiting{engine_type="trtllm",model_name="m"} 4.0
trtllm_kv_cache_utilization{engine_type="trtllm",model_name="m"} 0.52
trtllm_kv_cache_tokens_per_block{engine_type="trtllm",model_name="m"} 64.0
trtllm_kv_cache_max_blocks{engine_type="trtllm",model_name="m"} 4096.0
"#;

const TRITON: &str = r#"
nv_trt_llm_request_metrics{model="tensorrt_llm",request_type="waiting",version="1"} 4
nv_trt_llm_request_metrics{model="tensorrt_llm",request_type="context",version="1"} 1
nv_trt_llm_request_metrics{model="tensorrt_llm",request_type="scheduled",version="1"} 8
nv_trt_llm_request_metrics{model="tensorrt_llm",request_type="max",version="1"} 512
nv_trt_llm_request_metrics{model="tensorrt_llm",request_type="active",version="1"} 12
nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type="fraction",model="tensorrt_llm",version="1"} 0.52
nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type="tokens_per",model="tensorrt_llm",version="1"} 64
nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type="used",model="tensorrt_llm",version="1"} 2130
nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type="free",model="tensorrt_llm",version="1"} 1966
nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type="max",model="tensorrt_llm",version="1"} 4096
"#;

const VLLM: &str = r#"
vllm:num_requests_running{engine="0",model_name="m"} 8.0
vllm:num_requests_waiting{engine="0",model_name="m"} 4.0
vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.52
vllm:cache_config_info{block_size="64",engine="0",num_gpu_blocks="4096"} 1.0
"#;

const PAGES: [(Engine, &str); 4] = [
    (Engine::Vllm, VLLM),
    (Engine::Sglang, SGLANG),
    (Engine::Trtllm, TRTLLM),
    (Engine::Triton, TRITON),
];

/// What every page above says.
fn busy() -> EndpointMetrics {
    EndpointMetrics {
        waiting: 4,
        running: 8,
        kv_utilisation: Some(0.52),
        cache_tokens: Some(64 * 4096),
        ..EndpointMetrics::default()
    }
}

fn sglang(page: &str) -> EndpointMetrics {
    read(Engine::Sglang, page.as_bytes()).expect("an SGLang page")
}

#[test]
fn every_engine_is_read_by_its_own_families() {
    for (engine, page) in PAGES {
        assert_eq!(read(engine, page.as_bytes()), Some(busy()), "{engine:?}");
    }
}

#[test]
fn each_page_of_a_mixed_pool_decides_for_itself() {
    for (_, page) in PAGES {
        assert_eq!(read(Engine::Auto, page.as_bytes()), Some(busy()), "{page}");
    }
}

#[test]
fn a_page_of_another_engine_than_the_configured_one_says_nothing() {
    for (engine, _) in PAGES {
        for (other, page) in PAGES.into_iter().filter(|(other, _)| *other != engine) {
            assert_eq!(read(engine, page.as_bytes()), None, "{engine:?} {other:?}");
        }
    }
}

#[test]
fn a_page_of_no_engine_says_nothing() {
    for page in [
        "",
        "tgi_queue_size 3\n",
        "DCGM_FI_DEV_GPU_UTIL{gpu=\"0\"} 80\nprocess_start_time_seconds 1.7e9\n",
        "nv_inference_request_success{model=\"m\",version=\"1\"} 5\nnv_gpu_utilization 0.5\n",
        "nv_trt_llm_request_metrics{model=\"m\",request_type=\"max\"} 512\n",
        "trtllm_request_success_total{model_name=\"m\"} 1\n",
        "sglang:prompt_tokens_total 12\nsglang:num_pages 0\n",
    ] {
        assert_eq!(read(Engine::Auto, page.as_bytes()), None, "{page}");
    }
}

#[test]
fn a_missing_family_leaves_only_its_own_field_empty() {
    for (engine, page) in PAGES {
        let lines: Vec<&str> = page.lines().collect();
        for gone in 0..lines.len() {
            let line = lines[gone];
            let rest = [&lines[..gone], &lines[gone + 1..]].concat();
            let read = read(engine, rest.join("\n").as_bytes()).unwrap();
            let (all, none) = (busy(), EndpointMetrics::default());
            let fields = [
                (read.waiting == all.waiting, read.waiting == none.waiting),
                (read.running == all.running, read.running == none.running),
                (
                    read.kv_utilisation == all.kv_utilisation,
                    read.kv_utilisation.is_none(),
                ),
                (
                    read.cache_tokens == all.cache_tokens,
                    read.cache_tokens.is_none(),
                ),
            ];
            assert!(fields.iter().all(|(kept, empty)| *kept || *empty), "{line}");
            let lost = fields.iter().filter(|(kept, _)| !kept).count();
            assert!(lost <= 1, "{engine:?} without {line}");
        }
    }
}

#[test]
fn data_parallel_ranks_of_sglang_add_up() {
    let page = sglang(
        "sglang:num_queue_reqs{dp_rank=\"0\",tp_rank=\"0\"} 3\n\
         sglang:num_queue_reqs{dp_rank=\"1\",tp_rank=\"1\"} 4\n\
         sglang:num_running_reqs{dp_rank=\"0\",tp_rank=\"0\"} 10\n\
         sglang:num_running_reqs{dp_rank=\"1\",tp_rank=\"1\"} 20\n\
         sglang:token_usage{dp_rank=\"0\",tp_rank=\"0\"} 0.9\n\
         sglang:token_usage{dp_rank=\"1\",tp_rank=\"1\"} 0.1\n\
         sglang:cache_config_info{dp_rank=\"0\",num_pages=\"10\",page_size=\"16\"} 1\n\
         sglang:cache_config_info{dp_rank=\"1\",num_pages=\"20\",page_size=\"16\"} 1\n",
    );
    assert_eq!((page.waiting, page.running, page.engines), (7, 30, 2));
    assert_eq!(page.kv_utilisation, Some(0.9));
    assert_eq!(page.cache_tokens, Some(480));
}

#[test]
fn tensor_parallel_ranks_of_sglang_show_the_same_requests() {
    let page = sglang(
        "sglang:num_queue_reqs{tp_rank=\"0\"} 3\n\
         sglang:num_queue_reqs{tp_rank=\"1\"} 3\n\
         sglang:num_running_reqs{tp_rank=\"0\"} 10\n\
         sglang:num_running_reqs{tp_rank=\"1\"} 9\n",
    );
    assert_eq!((page.waiting, page.running, page.engines), (3, 10, 1));
}

#[test]
fn newer_sglang_says_its_cache_size_in_gauges() {
    let page = sglang("sglang:page_size{tp_rank=\"0\"} 64\nsglang:num_pages{tp_rank=\"0\"} 100\n");
    assert_eq!(page.cache_tokens, Some(6_400));
}

#[test]
fn models_of_one_triton_are_engines_of_their_own() {
    let page: String = ["a", "b"]
        .map(|model| TRITON.replace("tensorrt_llm", model))
        .concat();
    let both = EndpointMetrics {
        waiting: 8,
        running: 16,
        engines: 2,
        cache_tokens: Some(2 * 64 * 4096),
        ..busy()
    };
    assert_eq!(read(Engine::Triton, page.as_bytes()), Some(both));
}

#[test]
fn gpu_load_and_process_start_are_read_beside_any_engine() {
    for (engine, page) in PAGES {
        let page = format!(
            "{page}DCGM_FI_DEV_GPU_UTIL{{gpu=\"0\"}} 35\n\
             DCGM_FI_DEV_GPU_UTIL{{gpu=\"1\"}} 80\n\
             process_start_time_seconds 1.7e9\n"
        );
        let read = read(engine, page.as_bytes()).unwrap();
        assert_eq!(read.gpu_utilisation, Some(0.8), "{engine:?}");
        assert_eq!(read.process_start, Some(1.7e9), "{engine:?}");
    }
}

#[test]
fn every_engine_but_one_tells_its_progress() {
    for (engine, lines, progress) in [
        (
            Engine::Vllm,
            "vllm:prompt_tokens_total{engine=\"0\"} 100\nvllm:generation_tokens_total{engine=\"0\"} 20\n\
             vllm:generation_tokens_total{engine=\"1\"} 3\nvllm:generation_tokens_created{engine=\"0\"} 1e9\n",
            Some(123),
        ),
        (
            Engine::Sglang,
            "sglang:realtime_tokens_total{mode=\"prefill_compute\",tp_rank=\"0\"} 100\n\
             sglang:realtime_tokens_total{mode=\"decode\",tp_rank=\"0\"} 23\n\
             sglang:generation_tokens_total 9999\n",
            Some(123),
        ),
        (
            Engine::Triton,
            "nv_trt_llm_general_metrics{general_type=\"iteration_counter\",model=\"m\"} 123\n\
             nv_trt_llm_general_metrics{general_type=\"timestamp\",model=\"m\"} 1700074049\n",
            Some(123),
        ),
        (
            Engine::Trtllm,
            "trtllm_num_requests_running 1\ntrtllm_request_success_total 9\n",
            None,
        ),
    ] {
        let metrics = read(engine, lines.as_bytes()).expect("a page of the engine");
        assert_eq!(metrics.progress, progress, "{engine:?}");
    }
}

#[test]
fn a_gpu_fault_on_an_engines_page_is_found_and_makes_no_engine_by_itself() {
    let fault = "DCGM_FI_DEV_XID_ERRORS{gpu=\"0\"} 79\n";
    for (engine, page) in PAGES {
        let with_fault = format!("{fault}{page}");
        let faulty = EndpointMetrics {
            gpu_fault: true,
            ..busy()
        };
        assert_eq!(read(engine, with_fault.as_bytes()), Some(faulty));
        assert_eq!(read(engine, fault.as_bytes()), None);
    }
}
