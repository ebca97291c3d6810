//! Properties of what reads foreign bytes: the metrics scanner, the engines' readers and the
//! snapshot codec. Well-formed input comes back as it was generated; any other input is survived.

use std::fmt::Write;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use inline_epp::config::Engine;
use inline_epp::datalayer::exposition::{Names, Sample, samples, samples_of};
use inline_epp::datalayer::metrics::EndpointMetrics;
use inline_epp::datalayer::snapshot::{EndpointSnapshot, PoolSnapshot};
use inline_epp::datalayer::{
    Adapters, Condition, HostStatus, ModelList, Signals, Unusable, clusters, engine,
};
use inline_epp::replication::lease;
use inline_epp::replication::snapshot::{decode, encode};
use inline_epp::time::Timestamp;
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::{Index, select};
use xxhash_rust::xxh64::xxh64;

fn suits() -> impl Strategy<Value = lease::Suitability> {
    use lease::Suitability::{Behind, Idles, KnowsNothing, Serves};
    select(vec![Behind, KnowsNothing, Serves, Idles])
}

proptest! {
    #[test]
    fn a_generated_page_reads_as_it_was_generated(lines in vec(line(), 0..20), cut in any::<bool>()) {
        let mut page: String = lines.iter().map(|line| line.text.as_str()).collect();
        if cut {
            // A last line without its newline still counts.
            page.truncate(page.trim_end_matches(['\r', '\n']).len());
        }
        let read: Vec<_> = samples(page.as_bytes()).map(|sample| series(&sample)).collect();
        let generated: Vec<_> = lines.into_iter().filter_map(|line| line.series).collect();
        prop_assert_eq!(read, generated);
    }

    #[test]
    fn any_bytes_are_scanned_without_a_panic(page in vec(any::<u8>(), 0..2000)) {
        read_everything(&page);
    }

    #[test]
    fn any_text_in_the_formats_alphabet_is_scanned_without_a_panic(
        page in r#"([am_:]|[{}="\\,# \t\r\n+.-]|[0-9]|NaN|Inf|vllm:num_requests_waiting|engine=|vllm:lora_requests_info|running_lora_adapters=){0,200}"#
    ) {
        read_everything(page.as_bytes());
    }

    #[test]
    fn a_mutated_capture_is_scanned_without_a_panic(
        path in select(captures()),
        mutations in vec((any::<Index>(), mutation()), 1..30),
    ) {
        let mut page = std::fs::read(path).expect("a readable capture");
        for (at, mutation) in mutations {
            mutation.apply(&mut page, at);
        }
        read_everything(&page);
        if let Some(metrics) = engine::read(Engine::Auto, &page) {
            prop_assert!(metrics.engines >= 1);
            prop_assert!(metrics.kv_utilisation.is_none_or(|kv| (0.0..=1.0).contains(&kv)));
            prop_assert!(metrics.cache_tokens != Some(0));
            // What is read is what the codec accepts, but for what stays with who scraped it.
            let pool = pool_of(EndpointMetrics {
                external_tokens: None,
                ..metrics
            });
            prop_assert_eq!(decode(&encode(&pool)), Some(pool));
        }
    }

    #[test]
    fn the_order_of_lines_does_not_matter(
        (page, shuffled) in select(captures()).prop_flat_map(|path| {
            let page = std::fs::read_to_string(path).expect("a readable capture");
            let lines: Vec<_> = page.lines().map(str::to_owned).collect();
            (Just(page), Just(lines).prop_shuffle())
        })
    ) {
        let read = |page: &str| engine::read(Engine::Auto, page.as_bytes());
        prop_assert_eq!(read(&shuffled.join("\n")), read(&page));
    }

    #[test]
    fn engines_combine_as_a_fold_over_them(engines in vec(engine_load(), 1..9)) {
        let mut page = String::new();
        for (n, (waiting, running, kv, tokens)) in engines.iter().enumerate() {
            writeln!(page, "vllm:num_requests_waiting{{engine=\"{n}\"}} {waiting}").unwrap();
            writeln!(page, "vllm:num_requests_running{{engine=\"{n}\"}} {running}.0").unwrap();
            writeln!(page, "vllm:kv_cache_usage_perc{{engine=\"{n}\"}} {kv:?}").unwrap();
            let labels = format!("engine=\"{n}\",kv_cache_size_tokens=\"{tokens}\"");
            writeln!(page, "vllm:cache_config_info{{{labels}}} 1").unwrap();
        }
        let expected = EndpointMetrics {
            waiting: engines.iter().map(|engine| engine.0).sum(),
            running: engines.iter().map(|engine| engine.1).sum(),
            kv_utilisation: engines.iter().map(|engine| engine.2).reduce(f64::max),
            engines: engines.len() as u32,
            cache_tokens: Some(engines.iter().map(|engine| engine.3).sum()),
            ..EndpointMetrics::default()
        };
        prop_assert_eq!(engine::read(Engine::Vllm, page.as_bytes()), Some(expected));
    }

    #[test]
    fn the_newest_adapter_series_are_what_is_loaded(
        series in vec((vec("[a-z]{1,3}", 0..4), vec("[a-z]{1,3}", 0..4), 1_u32..5), 1..8)
    ) {
        let mut page = String::new();
        for (running, waiting, time) in &series {
            let (running, waiting) = (running.join(","), waiting.join(","));
            let labels = format!("running_lora_adapters=\"{running}\",waiting_lora_adapters=\"{waiting}\"");
            writeln!(page, "vllm:lora_requests_info{{{labels}}} {time}").unwrap();
        }
        let newest = series.iter().map(|(.., time)| *time).max().unwrap();
        let current: Vec<_> = series.iter().filter(|(.., time)| *time == newest).collect();
        let running = current.iter().flat_map(|(running, ..)| running);
        let mut expected: Adapters = running.map(String::as_str).collect();
        for name in current.iter().flat_map(|(_, waiting, _)| waiting) {
            expected.insert_waiting(name);
        }
        let read = engine::read(Engine::Vllm, page.as_bytes()).and_then(|metrics| metrics.adapters);
        prop_assert_eq!(read, Some(expected));
    }

    #[test]
    fn a_snapshot_survives_the_round_trip(
        is_host_list in any::<bool>(),
        endpoints in vec(endpoint(), 0..40),
    ) {
        let pool = PoolSnapshot { is_host_list, endpoints };
        prop_assert_eq!(decode(&encode(&pool)), Some(pool));
    }

    /// Envoy's host list, with any bytes put over it anywhere.
    #[test]
    fn a_mutated_host_list_is_read_without_a_panic(
        mutations in vec((any::<Index>(), mutation()), 0..8),
        cut in any::<Index>(),
    ) {
        let mut text = HOST_LIST.as_bytes().to_vec();
        for (at, mutation) in mutations {
            mutation.apply(&mut text, at);
        }
        let end = cut.index(text.len() + 1);
        for text in [&text[..], &text[..end]] {
            if let Ok(hosts) = clusters::read(text, &["c", "d"]) {
                prop_assert!(hosts.windows(2).all(|pair| pair[0].address < pair[1].address));
            }
        }
    }

    #[test]
    fn any_bytes_as_a_host_list_are_read_without_a_panic(bytes in vec(any::<u8>(), 0..500)) {
        prop_assert!(clusters::read(&bytes, &["c"]).is_err());
    }

    /// Envoy's filter is RE2; what it must match is the same in this dialect.
    #[test]
    fn the_query_matches_the_names_it_was_made_of_and_no_others(
        names in vec("[ -~é]{1,12}", 1..4),
        other in ".{0,12}",
    ) {
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let path = clusters::path(&names);
        let (_, filter) = path.split_once("&filter=").unwrap();
        let filter = percent_encoding::percent_decode_str(filter).decode_utf8().unwrap();
        let filter = regex::Regex::new(&filter).unwrap();
        for name in &names {
            prop_assert!(filter.is_match(name), "{name}");
        }
        prop_assert_eq!(filter.is_match(&other), names.contains(&other.as_str()));
    }

    #[test]
    fn any_bytes_are_decoded_without_a_panic(bytes in vec(any::<u8>(), 0..500)) {
        prop_assert_eq!(decode(&bytes), None);
    }

    /// With a checksum that fits, the fields themselves are what must be survived. What is still
    /// accepted has one encoding, so it must be the very bytes.
    #[test]
    fn mutated_fields_are_refused_or_mean_what_they_say(
        endpoints in vec(endpoint(), 0..5),
        mutations in vec((any::<Index>(), mutation()), 1..8),
    ) {
        let mut bytes = encode(&PoolSnapshot { is_host_list: false, endpoints });
        bytes.truncate(bytes.len() - 8);
        for (at, mutation) in mutations {
            mutation.apply(&mut bytes, at);
        }
        let checksum = xxh64(&bytes, 0);
        bytes.extend(checksum.to_le_bytes());
        if let Some(pool) = decode(&bytes) {
            prop_assert_eq!(encode(&pool), bytes);
        }
    }

    #[test]
    fn any_bytes_are_no_lease(bytes in vec(any::<u8>(), 0..60)) {
        prop_assert_eq!(lease::decode(&bytes), None);
    }

    /// With a checksum that fits, the fields themselves are what must be survived, and nobody may be
    /// locked out for longer than a lease lasts.
    #[test]
    fn a_mutated_lease_is_refused_or_lapses(
        (holder, holder_suits, ends_in_ms) in (any::<u64>(), suits(), 0_u64..6_000),
        mutations in vec((any::<Index>(), mutation()), 0..2),
        (vm, suits, now) in (any::<u64>(), suits(), 0_u64..1 << 62),
    ) {
        let now = Timestamp::from_nanos(now);
        let until = now.after(Duration::from_millis(ends_in_ms));
        let mut bytes = lease::encode(lease::Lease { holder, until, suits: holder_suits });
        bytes.truncate(bytes.len() - 8);
        for (at, mutation) in mutations {
            mutation.apply(&mut bytes, at);
        }
        let checksum = xxh64(&bytes, 0);
        bytes.extend(checksum.to_le_bytes());
        let found = lease::decode(&bytes);
        let me = lease::Claimant { vm, suits };
        let duration = Duration::from_secs(2);
        let follows = |now| lease::step(found, me, now, duration) == lease::Step::Follow;
        prop_assert!(!follows(now) || !follows(now.after(duration)), "{:?}", found);
    }
}

/// Name, labels, and the value's bits (NaN as one value).
type Series = (String, Vec<(String, String)>, u64);

/// A line of a page and the series it holds, `None` for a comment or a malformed line.
#[derive(Clone, Debug)]
struct Line {
    text: String,
    series: Option<Series>,
}

fn line() -> impl Strategy<Value = Line> {
    prop_oneof![
        8 => sample_line(),
        1 => "#[^\n]{0,30}\n".prop_map(|text| Line { text, series: None }),
        1 => select(vec!["\n", "\r\n", "m{a=\"\n", "m{a=\"1\"} x\n", "9 9\n", "m{a=\"1\" 1\n"])
            .prop_map(|text| Line { text: text.to_owned(), series: None }),
    ]
}

fn sample_line() -> impl Strategy<Value = Line> {
    let name = "[a-zA-Z_:][a-zA-Z0-9_:]{0,12}";
    let label = ("[a-zA-Z_][a-zA-Z0-9_]{0,8}", label_text(), blank(), blank());
    let value = prop_oneof![
        any::<f64>().prop_map(|value| (format!("{value:?}"), value)),
        (-1000_i64..1000).prop_map(|value| (value.to_string(), value as f64)),
        select(vec![
            ("+Inf", f64::INFINITY),
            ("-Inf", f64::NEG_INFINITY),
            ("NaN", f64::NAN)
        ])
        .prop_map(|(text, value)| (text.to_owned(), value)),
    ];
    let tail = select(vec![
        "",
        " ",
        " 1395066363000",
        "\t-1 ",
        " # {id=\"} 1\"} 0.5 1.5",
        " 1.5 # {} 2",
    ]);
    let end = select(vec!["\n", "\r\n"]);
    (
        name,
        vec(label, 0..5),
        blank(),
        any::<bool>(),
        value,
        tail,
        end,
    )
        .prop_map(|(name, labels, gap, comma, (number, value), tail, end)| {
            let mut text = format!("{gap}{name}");
            if !labels.is_empty() {
                let list: Vec<_> = labels
                    .iter()
                    .map(|(key, value, a, b)| format!("{a}{key}{b}={a}\"{}\"{b}", escaped(value)))
                    .collect();
                let comma = if comma { "," } else { "" };
                write!(text, "{gap}{{{}{comma}{gap}}}", list.join(",")).unwrap();
            }
            write!(text, " {gap}{number}{tail}{end}").unwrap();
            let labels = labels.into_iter().map(|(key, value, ..)| (key, value));
            let series = Some((name, labels.collect(), bits(value)));
            Line { text, series }
        })
}

/// Text rich in what delimits labels.
fn label_text() -> impl Strategy<Value = String> {
    prop_oneof![r#"[\\"\n{},=# na]{0,10}"#, any::<String>()]
}

fn blank() -> impl Strategy<Value = &'static str> {
    select(vec!["", " ", "\t", "  "])
}

fn escaped(value: &str) -> String {
    let value = value.replace('\\', r"\\");
    value.replace('"', "\\\"").replace('\n', r"\n")
}

fn series(sample: &Sample<'_>) -> Series {
    let text = |bytes| String::from_utf8(bytes).expect("generated pages are UTF-8");
    let labels = sample.labels.iter();
    let labels = labels.map(|(key, value)| {
        let plain: Vec<u8> = value.unescaped().collect();
        assert!(value.is(&plain));
        (text(key.to_vec()), text(plain))
    });
    (
        text(sample.name.to_vec()),
        labels.collect(),
        bits(sample.value),
    )
}

/// As [`series`], of any bytes; values stay escaped.
fn lossy(sample: &Sample<'_>) -> Series {
    let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
    let labels = sample.labels.iter();
    let labels = labels.map(|(key, value)| (text(key), text(value.raw())));
    (text(sample.name), labels.collect(), bits(sample.value))
}

fn bits(value: f64) -> u64 {
    if value.is_nan() {
        f64::NAN.to_bits()
    } else {
        value.to_bits()
    }
}

fn read_everything(page: &[u8]) {
    for sample in samples(page) {
        assert!(!sample.name.is_empty());
        for (name, value) in sample.labels.iter() {
            assert!(!name.is_empty());
            assert!(sample.labels.value(name).is_some());
            assert!(value.unescaped().count() <= value.raw().len());
        }
    }
    let wanted: Vec<&[u8]> = samples(page).step_by(3).map(|sample| sample.name).collect();
    let names: Names<'_> = wanted.iter().copied().collect();
    let found: Vec<Series> = samples_of(page, &names).map(|one| lossy(&one)).collect();
    let all = samples(page).filter(|one| wanted.contains(&one.name));
    assert_eq!(found, all.map(|one| lossy(&one)).collect::<Vec<_>>());
    for engine in [
        Engine::Auto,
        Engine::Vllm,
        Engine::Sglang,
        Engine::Trtllm,
        Engine::Triton,
    ] {
        let _ = engine::read(engine, page);
    }
}

/// The paths of the captured pages.
fn captures() -> Vec<PathBuf> {
    let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/vectors/vllm/metrics");
    let entries = std::fs::read_dir(directory).expect("the captures are part of the package");
    let paths = entries.map(|entry| entry.expect("a readable directory").path());
    paths
        .filter(|path| {
            path.extension()
                .is_some_and(|extension| extension == "prom")
        })
        .collect()
}

#[derive(Clone, Debug)]
enum Mutation {
    Replace(u8),
    Insert(u8),
    Delete,
    Repeat(u8),
    Cut,
}

fn mutation() -> impl Strategy<Value = Mutation> {
    let byte = prop_oneof![
        any::<u8>(),
        select(b"{}\"\\=,\n\r# \t0-+.eN".to_vec()),
        Just(0)
    ];
    prop_oneof![
        6 => byte.clone().prop_map(Mutation::Replace),
        6 => byte.prop_map(Mutation::Insert),
        6 => Just(Mutation::Delete),
        2 => any::<u8>().prop_map(Mutation::Repeat),
        1 => Just(Mutation::Cut),
    ]
}

impl Mutation {
    fn apply(self, bytes: &mut Vec<u8>, at: Index) {
        if bytes.is_empty() {
            return;
        }
        let at = at.index(bytes.len());
        match self {
            Self::Replace(byte) => bytes[at] = byte,
            Self::Insert(byte) => bytes.insert(at, byte),
            Self::Delete => drop(bytes.remove(at)),
            Self::Repeat(length) => {
                let end = bytes.len().min(at + usize::from(length));
                let part = bytes[at..end].to_vec();
                bytes.splice(at..at, part);
            }
            Self::Cut => bytes.truncate(at),
        }
    }
}

fn engine_load() -> impl Strategy<Value = (u32, u32, f64, u64)> {
    (0_u32..1000, 0_u32..1000, 0.0..=1.0, 1_u64..1 << 40)
}

const HOST_LIST: &str = r#"{"cluster_statuses":[{"name":"d"},{"name":"c","host_statuses":[
    {"address":{"socket_address":{"address":"10.0.0.1","port_value":8000}},
     "stats":[{"type":"GAUGE","name":"rq_active","value":"7"}],
     "health_status":{"failed_active_health_check":true,"eds_health_status":"DRAINING"},"priority":1},
    {"address":{"socket_address":{"address":"fd00::1","port_value":8001}},
     "health_status":{"eds_health_status":"HEALTHY"}}]}]}"#;

fn pool_of(metrics: EndpointMetrics) -> PoolSnapshot {
    let address = SocketAddr::from(([127, 0, 0, 1], 8000));
    let scraped_at = Some(Timestamp::from_nanos(1));
    PoolSnapshot {
        is_host_list: false,
        endpoints: vec![EndpointSnapshot {
            address,
            scraped_at,
            metrics,
            models: None,
            status: HostStatus::default(),
        }],
    }
}

fn endpoint() -> impl Strategy<Value = EndpointSnapshot> {
    let address = prop_oneof![
        any::<([u8; 4], u16)>().prop_map(SocketAddr::from),
        any::<([u8; 16], u16)>().prop_map(SocketAddr::from),
    ];
    let scraped_at = option::of(any::<u64>().prop_map(Timestamp::from_nanos));
    let parts = (
        address,
        scraped_at,
        metrics(),
        option::of(models()),
        status(),
    );
    parts.prop_map(
        |(address, scraped_at, metrics, models, status)| EndpointSnapshot {
            address,
            scraped_at,
            metrics,
            models,
            status,
        },
    )
}

fn models() -> impl Strategy<Value = ModelList> {
    vec((".{0,80}", any::<bool>()), 0..12).prop_map(|names| {
        let mut models = ModelList::default();
        for (name, is_adapter) in &names {
            models.insert(name, *is_adapter);
        }
        models
    })
}

fn status() -> impl Strategy<Value = HostStatus> {
    let condition = vec(select(Unusable::ALL.as_slice()), 0..4).prop_map(|causes| {
        causes
            .into_iter()
            .fold(Condition::USABLE, |all, cause| all.with(cause, true))
    });
    let parts = (condition, any::<u8>(), any::<u32>(), any::<u32>());
    parts.prop_map(|(condition, tier, sources, active)| HostStatus {
        condition,
        tier,
        sources,
        active,
    })
}

fn adapters() -> impl Strategy<Value = Adapters> {
    let names = vec((".{0,80}", any::<bool>()), 0..12);
    (names, option::of(0..u32::MAX)).prop_map(|(names, most)| {
        let mut adapters = Adapters::default();
        for (name, runs) in names {
            if runs {
                adapters.insert(&name);
            } else {
                adapters.insert_waiting(&name);
            }
        }
        if let Some(most) = most {
            adapters.allow(most);
        }
        adapters
    })
}

fn signals() -> impl Strategy<Value = Signals> {
    vec(option::of(-1e300..1e300_f64), Signals::MAX).prop_map(|values| {
        let mut signals = Signals::default();
        for (place, value) in values.into_iter().enumerate() {
            if let Some(value) = value {
                signals.set(place, value);
            }
        }
        signals
    })
}

fn metrics() -> impl Strategy<Value = EndpointMetrics> {
    let fraction = || option::of(0.0..=1.0);
    let gauges = (
        any::<u32>(),
        any::<u32>(),
        fraction(),
        fraction(),
        1..=u32::MAX,
    );
    let totals = (option::of(1..=u64::MAX), option::of(1.0..4e9));
    (
        gauges,
        totals,
        any::<(Option<u64>, Option<u64>, Option<u64>, bool)>(),
        (option::of(adapters()), signals()),
    )
        .prop_map(
            |(gauges, (cache_tokens, process_start), counters, extras)| {
                let (prefix_hits, prefix_queries, progress, gpu_fault) = counters;
                let (adapters, signals) = extras;
                let (waiting, running, kv_utilisation, gpu_utilisation, engines) = gauges;
                EndpointMetrics {
                    waiting,
                    running,
                    kv_utilisation,
                    gpu_utilisation,
                    engines,
                    cache_tokens,
                    process_start,
                    prefix_hits,
                    prefix_queries,
                    progress,
                    external_tokens: None,
                    gpu_fault,
                    adapters,
                    signals,
                }
            },
        )
}
