//! What comes out: defaults, presets, warnings, the summary.

use core::num::NonZeroU32;
use core::time::Duration;
use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::{full, minimal, parse, with};
use crate::config::{
    Capacity, Config, DisaggregationConfig, DiscoveryConfig, DiscoverySource, EndpointConfig,
    EndpointPickerConfig, Engine, FailureMode, GpuConfig, HealthConfig, Limits, LogLevel,
    MetricsConfig, ModelConfig, ModelTarget, OverrideHost, OverrideMode, Pattern, PendingCredit,
    PoolConfig, PoolMatch, PrefixConfig, ScoringConfig, SplitMode, Weights,
};

fn weights([cache, load, queue, health, adapter]: [f64; 5]) -> Weights {
    Weights {
        cache,
        load,
        queue,
        health,
        adapter,
    }
}

fn endpoint(address: &str) -> EndpointConfig {
    EndpointConfig {
        address: address.parse().unwrap(),
        labels: BTreeMap::new(),
        max_running: None,
    }
}

fn absent_disaggregation() -> DisaggregationConfig {
    DisaggregationConfig {
        path: "pools[0].disaggregation".to_owned(),
        mode: SplitMode::Header,
        prefill_timeout: Duration::from_secs(30),
        cluster: None,
        bootstrap_port: 8998,
    }
}

fn full_disaggregation() -> DisaggregationConfig {
    DisaggregationConfig {
        path: "pools[0].disaggregation".to_owned(),
        mode: SplitMode::InlineNixl,
        prefill_timeout: Duration::from_secs(5),
        cluster: Some("prefill".to_owned()),
        bootstrap_port: 9000,
    }
}

/// The only pool of the minimal configuration with this `scoring` section.
fn scored(scoring: Value) -> PoolConfig {
    let config = parse(&with(minimal(), "pools[0].scoring", scoring)).unwrap();
    config.pools[0].clone()
}

#[test]
fn a_name_a_cluster_and_an_endpoint_are_enough() {
    let pool = PoolConfig {
        name: "llama".to_owned(),
        cluster: "model-servers".to_owned(),
        matcher: PoolMatch::default(),
        endpoints: vec![endpoint("10.0.0.1:8000")],
        models: Vec::new(),
        discovery: None,
        metrics: MetricsConfig {
            path: "/metrics".to_owned(),
            interval: Duration::from_secs(1),
            timeout: Duration::from_secs(3),
            cluster: None,
            port: None,
            engine: Engine::Auto,
            gpu: None,
            signals: Vec::new(),
        },
        scoring: ScoringConfig {
            weights: weights([0.60, 0.20, 0.10, 0.05, 0.05]),
            max_queue: 20,
            max_running: 256,
            min_health: 0.3,
            tie_band: 0.002,
            guard_floor: 20,
            guard_ratio: 1.5,
        },
        prefix: PrefixConfig {
            block_tokens: 64,
            auto_tune: true,
            max_tokens: 131_072,
            capacity_blocks: Capacity::Auto,
            pending_credit: PendingCredit::UnlessConfirmed,
        },
        health: HealthConfig {
            stale_after: 3,
            stale_floor: 0.5,
            error_window: Duration::from_secs(10),
        },
        endpoint_picker: None,
        disaggregation: absent_disaggregation(),
    };
    let expected = Config {
        pools: vec![pool],
        override_host: OverrideHost {
            mode: OverrideMode::Header,
            header: "x-gateway-destination-endpoint".to_owned(),
            fallbacks: 2,
        },
        max_buffered_bytes: 983_040,
        failure_mode: FailureMode::FailOpen,
        limits: Limits {
            log_slots: NonZeroU32::new(4_096).unwrap(),
            index_bytes: 64 << 20,
            label_values: 100,
        },
        debug_headers: false,
        log_level: LogLevel::Info,
    };
    assert_eq!(parse(&minimal()).unwrap(), expected);
    assert_eq!(expected.warnings(), Vec::<String>::new());
}

/// The `metrics` section of the full configuration.
fn full_discovery() -> DiscoveryConfig {
    let labels = [("llm-d.ai/role".to_owned(), "decode".to_owned())];
    DiscoveryConfig {
        admin_cluster: "admin".to_owned(),
        interval: Duration::from_secs(2),
        sources: vec![DiscoverySource {
            cluster: "decode".to_owned(),
            labels: labels.into(),
        }],
    }
}

#[test]
fn discovery_takes_the_place_of_endpoints() {
    let config =
        json!({"pools": [{"name": "p", "cluster": "c", "discovery": {"adminCluster": "admin"}}]});
    let config = parse(&config).unwrap();
    let pool = &config.pools[0];
    assert!(pool.endpoints.is_empty());
    let expected = DiscoveryConfig {
        admin_cluster: "admin".to_owned(),
        interval: Duration::from_secs(1),
        sources: Vec::new(),
    };
    assert_eq!(pool.discovery, Some(expected));
}

fn full_metrics() -> MetricsConfig {
    MetricsConfig {
        path: "/stats/prometheus?x".to_owned(),
        interval: Duration::from_millis(500),
        timeout: Duration::from_millis(250),
        cluster: Some("scrape".to_owned()),
        port: Some(9090),
        engine: Engine::Vllm,
        gpu: Some(GpuConfig {
            cluster: "gpus".to_owned(),
            port: 9401,
        }),
        signals: Vec::new(),
    }
}

fn full_endpoint_picker() -> EndpointPickerConfig {
    EndpointPickerConfig {
        path: "pools[0].endpointPickerConfig".to_owned(),
        plugins: Vec::new(),
        profiles: Vec::new(),
        parsers: Vec::new(),
        sources: Vec::new(),
        inject_defaults: true,
        has_flow_control: false,
        is_beside_scoring: true,
    }
}

fn full_model() -> ModelConfig {
    ModelConfig {
        name: "support".to_owned(),
        targets: vec![ModelTarget {
            model: "billing-lora".to_owned(),
            weight: 9,
            adapter: true,
        }],
    }
}

fn full_health() -> HealthConfig {
    HealthConfig {
        stale_after: 5,
        stale_floor: 0.25,
        error_window: Duration::from_secs(4),
    }
}

#[test]
fn every_key_reaches_its_field() {
    let labels = [("llm-d.ai/role", "decode"), ("zone", "")]
        .map(|(name, value)| (name.to_owned(), value.to_owned()));
    let second = EndpointConfig {
        labels: BTreeMap::from(labels),
        max_running: Some(128),
        ..endpoint("[fd00::1]:8000")
    };
    let pool = PoolConfig {
        name: "llama".to_owned(),
        cluster: "model-servers".to_owned(),
        matcher: PoolMatch {
            models: vec![Pattern::new("llama-3-8b*")],
            hosts: vec![Pattern::new("llm.example.com")],
            path_prefix: Some("/v1".to_owned()),
        },
        endpoints: vec![endpoint("10.0.0.1:8000"), second],
        models: vec![full_model()],
        discovery: Some(full_discovery()),
        metrics: full_metrics(),
        scoring: ScoringConfig {
            weights: weights([5.0, 2.0, 1.5, 1.0, 0.5]),
            max_queue: 7,
            max_running: 8,
            min_health: 0.1,
            tie_band: 0.01,
            guard_floor: 9,
            guard_ratio: 2.0,
        },
        prefix: PrefixConfig {
            block_tokens: 128,
            auto_tune: false,
            max_tokens: 65_536,
            capacity_blocks: Capacity::Blocks(1_000),
            pending_credit: PendingCredit::Full,
        },
        health: full_health(),
        endpoint_picker: Some(full_endpoint_picker()),
        disaggregation: full_disaggregation(),
    };
    let expected = Config {
        pools: vec![pool],
        override_host: OverrideHost {
            mode: OverrideMode::StatefulSession,
            header: "x-pick".to_owned(),
            fallbacks: 3,
        },
        max_buffered_bytes: 32 << 20,
        failure_mode: FailureMode::FailClose,
        limits: Limits {
            log_slots: NonZeroU32::new(512).unwrap(),
            index_bytes: 32 << 20,
            label_values: 10,
        },
        debug_headers: true,
        log_level: LogLevel::Trace,
    };
    assert_eq!(parse(&full()).unwrap(), expected);
}

#[test]
fn presets_set_what_they_are_for() {
    let credit = PendingCredit::UnlessConfirmed;
    for (preset, shares, max_queue, guard_floor, credit) in [
        ("default", [0.60, 0.20, 0.10, 0.05, 0.05], 20, 20, credit),
        (
            "low-latency",
            [0.45, 0.10, 0.30, 0.10, 0.05],
            10,
            20,
            credit,
        ),
        ("batch", [0.70, 0.20, 0.05, 0.05, 0.0], 40, 20, credit),
        (
            "many-adapter",
            [0.50, 0.15, 0.10, 0.05, 0.20],
            20,
            20,
            credit,
        ),
        (
            "balanced",
            [0.60, 0.20, 0.10, 0.05, 0.05],
            20,
            4,
            PendingCredit::None,
        ),
    ] {
        let expected = {
            let mut pool = scored(json!({}));
            pool.scoring.weights = weights(shares);
            pool.scoring.max_queue = max_queue;
            pool.scoring.guard_floor = guard_floor;
            pool.prefix.pending_credit = credit;
            pool
        };
        let pool = scored(json!({"preset": preset}));
        assert_eq!(pool, expected, "{preset}");
        assert!(pool.scoring.weights.sum_to_one(), "{preset}");
    }
}

#[test]
fn a_key_given_beside_a_preset_wins() {
    let pool = scored(json!({"preset": "batch", "weights": {"load": 0.5}, "maxQueue": 20}));
    assert_eq!(pool.scoring.weights, weights([0.70, 0.5, 0.05, 0.05, 0.0]));
    assert_eq!(pool.scoring.max_queue, 20);

    let config = with(
        minimal(),
        "pools[0].scoring",
        json!({"preset": "balanced", "guardFloor": 20}),
    );
    let config = with(
        config,
        "pools[0].prefix",
        json!({"pendingCredit": "unlessconfirmed"}),
    );
    let pool = &parse(&config).unwrap().pools[0];
    assert_eq!(pool.scoring.guard_floor, 20);
    assert_eq!(pool.prefix.pending_credit, PendingCredit::UnlessConfirmed);
}

#[test]
fn an_object_and_a_text_describe_the_same_endpoint() {
    let object = with(
        minimal(),
        "pools[0].endpoints[0]",
        json!({"address": "10.0.0.1:8000"}),
    );
    assert_eq!(parse(&object).unwrap(), parse(&minimal()).unwrap());
}

#[test]
fn a_slash_at_the_end_of_the_prefix_changes_nothing() {
    for (given, prefix) in [("/v1/", Some("/v1")), ("/v1//", Some("/v1")), ("/", None)] {
        let config = parse(&with(minimal(), "pools[0].match.pathPrefix", json!(given))).unwrap();
        assert_eq!(
            config.pools[0].matcher.path_prefix.as_deref(),
            prefix,
            "{given}"
        );
    }
}

/// A protobuf `Struct` holds every number as a double.
#[test]
fn whole_numbers_may_come_as_doubles() {
    let json = r#"{"pools": [{"name": "a", "cluster": "b", "endpoints": ["10.0.0.1:80"],
                   "scoring": {"maxQueue": 7.0}}], "maxBufferedBytes": 3.3554432e+07}"#;
    let config = Config::parse(json.as_bytes()).unwrap();
    assert_eq!(config.pools[0].scoring.max_queue, 7);
    assert_eq!(config.max_buffered_bytes, 33_554_432);
}

#[test]
fn normalised_weights_sum_to_one_and_keep_their_ratio() {
    let whole = weights([3.0, 1.0, 0.0, 0.0, 0.0]).normalised();
    assert_eq!(whole, weights([0.75, 0.25, 0.0, 0.0, 0.0]));
    let zero = weights([0.0; 5]);
    assert_eq!(zero.normalised(), zero);
    assert!(
        weights([1e6, 1e-300, 7.0, 0.3, 0.1])
            .normalised()
            .sum_to_one()
    );
}

#[test]
fn weights_that_do_not_sum_to_one_are_warned_of() {
    let config = parse(&with(
        minimal(),
        "pools[0].scoring.weights",
        json!({"cache": 1.6}),
    ));
    assert_eq!(
        config.unwrap().warnings(),
        [
            "pools[0].scoring.weights: pool llama: they sum to 2.000, used as \
             cache 0.800 load 0.100 queue 0.050 health 0.025 adapter 0.025"
        ],
    );
}

#[test]
fn a_pool_behind_one_that_takes_everything_is_warned_of() {
    let pool = |name: &str, matcher: Value| json!({"name": name, "cluster": "c", "endpoints": ["10.0.0.1:80"], "match": matcher});
    let pools = json!([
        pool("a", json!({"models": ["x"]})),
        pool("b", json!({"pathPrefix": "/"})),
        pool("c", json!({"models": ["y"]})),
    ]);
    assert_eq!(
        parse(&json!({ "pools": pools })).unwrap().warnings(),
        ["pools[2]: pool c gets no request: pool b comes first and has no match"],
    );
}

#[test]
fn the_summary_names_pools_endpoints_and_weights_as_used() {
    let mut config = full();
    let mut second = minimal()["pools"][0].clone();
    second["name"] = json!("base");
    config["pools"].as_array_mut().unwrap().push(second);
    let pasted = parse(&config).unwrap().summary();
    let shown = "discovery, endpointPickerConfig, guardFloor 9";
    assert!(pasted.contains(shown), "{pasted}");
    config["pools"][0]["endpointPickerConfig"] = json!(null);
    assert_eq!(
        parse(&config).unwrap().summary(),
        "pools 2: \
         llama (cluster model-servers, endpoints 2 and discovery, weights \
         cache 0.500 load 0.200 queue 0.150 health 0.100 adapter 0.050, \
         maxQueue 7, guardFloor 9, pendingCredit full); \
         base (cluster model-servers, endpoints 1, weights \
         cache 0.600 load 0.200 queue 0.100 health 0.050 adapter 0.050, \
         maxQueue 20, guardFloor 20, pendingCredit unlessConfirmed)",
    );
}

#[test]
fn a_session_leads_calls_only_through_a_cluster_of_their_own() {
    let clusters = |mode: &str, metrics: Value| {
        let config = with(minimal(), "overrideHost", json!({ "mode": mode }));
        let config = parse(&with(config, "pools[0].metrics", metrics)).unwrap();
        let pool = &config.pools[0];
        let header = &config.override_host;
        let names = [header.metrics_cluster(pool), header.checks_cluster(pool)];
        let warned = config
            .warnings()
            .iter()
            .any(|line| line.contains("metrics.cluster"));
        (names.map(|name| name.map(str::to_owned)), warned)
    };
    let some = |names: [&str; 2]| names.map(|name| Some(name.to_owned()));
    let other = json!({ "cluster": "m" });
    let port = json!({ "cluster": "m", "port": 9 });
    let own = "model-servers";
    assert_eq!(clusters("header", json!({})), (some([own, own]), false));
    assert_eq!(clusters("header", port.clone()), (some(["m", own]), false));
    let session = "statefulSession";
    assert_eq!(clusters(session, json!({})), ([None, None], true));
    assert_eq!(clusters(session, other), (some(["m", "m"]), false));
    assert_eq!(
        clusters(session, port),
        ([Some("m".to_owned()), None], false)
    );
}
