use super::*;
use crate::datalayer::Unusable;

/// One runs, one waits, and there is room for four.
fn adapters() -> Adapters {
    let mut adapters: Adapters = ["lora-a"].into_iter().collect();
    adapters.insert_waiting("lora-b");
    adapters.allow(4);
    adapters
}

fn signals(count: usize) -> Signals {
    let mut signals = Signals::default();
    for (place, value) in (0..count).zip([-1.5, 0.0, 1e300, 4.0, 5.0, 6.0, 7.0, 8.0]) {
        signals.set(place, value);
    }
    signals
}

fn full() -> EndpointSnapshot {
    EndpointSnapshot {
        address: "[fe80::1%3]:8000".parse().unwrap(),
        scraped_at: Some(Timestamp::from_nanos(0x0102_0304_0506_0708)),
        metrics: EndpointMetrics {
            waiting: 3,
            running: 4,
            kv_utilisation: Some(0.349_206_349_206_349_2),
            gpu_utilisation: Some(1.0),
            engines: 2,
            cache_tokens: Some(4096),
            process_start: Some(1_795_968_892.27),
            prefix_hits: Some(0),
            prefix_queries: Some(716),
            progress: Some(9_002),
            external_tokens: None,
            gpu_fault: true,
            adapters: Some(adapters()),
            signals: signals(8),
        },
        models: Some(models(&[("base", false), ("lora-a", true)])),
        status: HostStatus {
            condition: Condition::USABLE.with(Unusable::Draining, true),
            tier: 2,
            sources: 0x8000_0001,
            active: 12,
        },
    }
}

fn models(names: &[(&str, bool)]) -> ModelList {
    let mut models = ModelList::default();
    for (name, is_adapter) in names {
        assert!(models.insert(name, *is_adapter));
    }
    models
}

fn bare() -> EndpointSnapshot {
    EndpointSnapshot {
        address: "10.0.0.1:8000".parse().unwrap(),
        scraped_at: None,
        metrics: EndpointMetrics::default(),
        models: None,
        status: HostStatus::default(),
    }
}

fn pool(endpoints: Vec<EndpointSnapshot>) -> PoolSnapshot {
    PoolSnapshot {
        is_host_list: true,
        endpoints,
    }
}

/// `bytes` with a checksum that fits, so that only the fields can be refused.
fn resealed(mut bytes: Vec<u8>) -> Vec<u8> {
    bytes.truncate(bytes.len() - 8);
    seal(bytes)
}

#[test]
fn a_snapshot_survives_the_round_trip() {
    for snapshot in [
        pool(vec![]),
        pool(vec![bare()]),
        pool(vec![full(), bare(), full()]),
    ] {
        assert_eq!(decode(&encode(&snapshot)), Some(snapshot));
    }
}

#[test]
fn the_layout_is_the_documented_one() {
    let bytes = encode(&pool(vec![bare()]));
    let (body, checksum) = bytes.split_last_chunk::<8>().unwrap();
    let mut expected = b"EPPS\x05\x01\x01\x00\x04\x0a\x00\x00\x01\x40\x1f".to_vec();
    expected.extend([0; 10]);
    expected.extend([0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0]);
    assert_eq!(body, expected);
    assert_eq!(
        *checksum,
        xxhash_rust::xxh64::xxh64(&expected, 0).to_le_bytes()
    );
    assert_eq!(body.len(), 4 + 1 + 1 + 2 + MIN_ENDPOINT_BYTES);
    let largest = encode(&pool(vec![full()]));
    let names = b"\x02\x00\x06\x00lora-a\x06\x00lora-b\x02\x00\x00\x04\x00base\x01\x06\x00lora-a";
    let fixed = 4 + 1 + 1 + 2 + MAX_ENDPOINT_BYTES;
    let most_and_waiting = b"\x04\x00\x00\x00\x01\x00\x01\x00";
    let length = fixed + names.len() + most_and_waiting.len();
    assert_eq!(largest.len(), length + 8);
    let start = fixed - (1 + 8 * Signals::MAX);
    assert_eq!(&largest[start..start + names.len()], names);
    assert_eq!(largest[start + names.len()], 0xFF);
    assert_eq!(&largest[length - 8..length], most_and_waiting);
}

#[test]
fn any_changed_bit_is_refused() {
    let bytes = encode(&pool(vec![full(), bare()]));
    for at in 0..bytes.len() * 8 {
        let mut changed = bytes.clone();
        changed[at / 8] ^= 1 << (at % 8);
        assert_eq!(decode(&changed), None, "bit {at}");
    }
}

#[test]
fn missing_and_trailing_bytes_are_refused_even_with_a_fitting_checksum() {
    let bytes = encode(&pool(vec![full(), bare()]));
    for end in 0..bytes.len() {
        assert_eq!(decode(&bytes[..end]), None, "cut at {end}");
        if end > 8 && end < bytes.len() {
            assert_eq!(
                decode(&resealed(bytes[..end].to_vec())),
                None,
                "sealed at {end}"
            );
        }
    }
    let mut longer = bytes;
    longer.push(0);
    assert_eq!(decode(&longer), None);
    assert_eq!(decode(&resealed(longer)), None);
}

#[test]
fn other_kinds_and_versions_are_refused() {
    for (at, byte) in [(0, b'X'), (4, 4), (4, 6)] {
        let mut other = encode(&pool(vec![bare()]));
        other[at] = byte;
        assert_eq!(decode(&resealed(other)), None);
    }
}

#[test]
fn a_count_larger_than_the_bytes_is_refused() {
    let mut bytes = encode(&pool(vec![bare()]));
    bytes[7] = 0xff;
    assert_eq!(decode(&resealed(bytes)), None);
}

#[test]
fn fields_out_of_range_are_refused() {
    let bytes = encode(&pool(vec![full()]));
    let address = 1 + 16 + 2 + 4 + 4;
    let condition = 8 + address;
    let engines = condition + 10 + 8;
    let present = engines + 4;
    let field = |index: usize| present + 2 + index * 8;
    let patched = |at: usize, value: &[u8]| {
        let mut bytes = bytes.clone();
        bytes.splice(at..at + value.len(), value.iter().copied());
        decode(&resealed(bytes))
    };
    assert_eq!(patched(present, &[0xff, 0x07]), Some(pool(vec![full()])));
    assert_eq!(patched(present, &[0xff, 0x0f]), None, "no such flag");
    let mut well = full();
    well.metrics.gpu_fault = false;
    assert_eq!(patched(present, &[0xff, 0x03]), Some(pool(vec![well])));
    assert_eq!(patched(5, &[2]), None, "neither list");
    assert_eq!(patched(8, &[5]), None, "address tag");
    assert_eq!(patched(condition, &[0x20]), None, "no such cause");
    assert_eq!(patched(engines, &[0; 4]), None, "no engine");
    assert_eq!(
        patched(present, &[0xff, 0x06]),
        None,
        "adapters unannounced"
    );
    assert_eq!(patched(present, &[0xff, 0x05]), None, "models unannounced");
    assert_eq!(patched(field(3), &[0; 8]), None, "no capacity");
    for float in [f64::NAN, f64::INFINITY, -0.1] {
        for index in [1, 2, 4] {
            let value = float.to_bits().to_le_bytes();
            assert_eq!(patched(field(index), &value), None, "{float} in {index}");
        }
    }
    assert_eq!(patched(field(1), &1.1_f64.to_bits().to_le_bytes()), None);
}

/// The bare endpoint's encoding with `flags` and `names` behind it.
fn with_names(flags: u16, names: &[u8]) -> Option<PoolSnapshot> {
    let mut bytes = encode(&pool(vec![bare()]));
    // Checksum, signals, flags.
    bytes.truncate(bytes.len() - 8 - 1 - 2);
    bytes.extend(flags.to_le_bytes());
    bytes.extend(names);
    bytes.push(0);
    if flags & ADAPTERS != 0 {
        // No limit, nobody waits.
        bytes.extend(b"\xff\xff\xff\xff\0\0");
    }
    decode(&seal(bytes))
}

fn with_adapters(adapters: &[u8]) -> Option<PoolSnapshot> {
    with_names(ADAPTERS, adapters)
}

#[test]
fn having_no_adapter_is_told_from_saying_nothing_of_adapters() {
    let mut none = bare();
    none.metrics.adapters = Some(Adapters::default());
    assert_eq!(with_adapters(b"\0\0"), Some(pool(vec![none.clone()])));
    assert_eq!(
        decode(&encode(&pool(vec![none.clone()]))),
        Some(pool(vec![none]))
    );
}

#[test]
fn adapters_that_are_not_encoded_so_are_refused() {
    let read = with_adapters(b"\x02\0\x01\0a\x01\0b").unwrap();
    let adapters = read.endpoints[0].metrics.adapters.clone();
    assert_eq!(adapters, Some(["a", "b"].into_iter().collect()));
    let long = [&b"\x01\0\x01\x01"[..], &[b'a'; 257]].concat();
    for (refused, why) in [
        (&b"\x02\0\x01\0b\x01\0a"[..], "out of order"),
        (b"\x02\0\x01\0a\x01\0a", "twice"),
        (b"\x01\0\0\0", "empty"),
        (b"\x01\0\x01\0\xff", "not UTF-8"),
        (b"\x02\0\x01\0a", "one missing"),
        (b"\x01\0\x09\0a", "cut"),
        (b"\x01\0\x01\0a!", "bytes behind"),
        (&long, "too long"),
    ] {
        assert_eq!(with_adapters(refused), None, "{why}");
    }
    let mut many = 257_u16.to_le_bytes().to_vec();
    for number in 0..257 {
        many.extend([4, 0]);
        many.extend(format!("{number:04}").bytes());
    }
    assert_eq!(with_adapters(&many), None, "too many");
}

#[test]
fn signals_and_waiting_adapters_that_are_not_encoded_so_are_refused() {
    for count in 0..=Signals::MAX {
        let mut some = full();
        some.metrics.signals = signals(count);
        let some = pool(vec![some, bare()]);
        assert_eq!(decode(&encode(&some)), Some(some), "{count}");
    }
    let bytes = encode(&pool(vec![full()]));
    let end = bytes.len() - 8;
    // Behind the last signal: the limit, one that waits, its place.
    let patched = |back: usize, value: &[u8]| {
        let mut bytes = bytes.clone();
        bytes.splice(end - back..end - back + value.len(), value.iter().copied());
        decode(&resealed(bytes))
    };
    assert_eq!(patched(2, &[1, 0]), Some(pool(vec![full()])));
    assert!(patched(2, &[0, 0]).is_some());
    assert_eq!(patched(2, &[2, 0]), None, "nobody stands there");
    let nan = f64::NAN.to_bits().to_le_bytes();
    assert_eq!(patched(16, &nan), None, "no number");
    let mut twice = bytes.clone();
    twice[end - 4] = 2;
    twice.splice(end..end, [1, 0]);
    assert_eq!(decode(&resealed(twice)), None, "the same place twice");
}

#[test]
fn listing_nothing_is_told_from_having_no_list() {
    let mut none = bare();
    none.models = Some(ModelList::default());
    assert_eq!(with_names(MODELS, b"\0\0"), Some(pool(vec![none.clone()])));
    assert_eq!(
        decode(&encode(&pool(vec![none.clone()]))),
        Some(pool(vec![none]))
    );
}

#[test]
fn models_that_are_not_encoded_so_are_refused() {
    let read = with_names(MODELS, b"\x02\0\x01\x01\0a\0\x01\0b").unwrap();
    let expected = models(&[("a", true), ("b", false)]);
    assert_eq!(read.endpoints[0].models, Some(expected));
    for (refused, why) in [
        (&b"\x02\0\0\x01\0b\0\x01\0a"[..], "out of order"),
        (b"\x02\0\0\x01\0a\x01\x01\0a", "twice"),
        (b"\x01\0\0\0\0", "empty"),
        (b"\x01\0\x02\x01\0a", "neither kind"),
        (b"\x02\0\0\x01\0a", "one missing"),
    ] {
        assert_eq!(with_names(MODELS, refused), None, "{why}");
    }
    let mut many = 257_u16.to_le_bytes().to_vec();
    for number in 0..257 {
        many.extend([0, 4, 0]);
        many.extend(format!("{number:04}").bytes());
    }
    assert_eq!(with_names(MODELS, &many), None, "too many");
}

#[test]
fn a_value_that_breaks_its_promise_is_left_out_alone() {
    let mut broken = full();
    broken.metrics.kv_utilisation = Some(f64::NAN);
    broken.metrics.gpu_utilisation = Some(1.5);
    broken.metrics.process_start = Some(f64::INFINITY);
    broken.metrics.cache_tokens = Some(0);
    broken.metrics.engines = 0;
    let decoded = decode(&encode(&pool(vec![broken, bare()]))).unwrap();
    let mut expected = full();
    expected.metrics.kv_utilisation = None;
    expected.metrics.gpu_utilisation = None;
    expected.metrics.process_start = None;
    expected.metrics.cache_tokens = None;
    expected.metrics.engines = 1;
    assert_eq!(decoded, pool(vec![expected, bare()]));
}

#[test]
fn endpoints_beyond_the_limit_are_left_out() {
    let snapshot = pool(vec![bare(); MAX_ENDPOINTS + 1]);
    let decoded = decode(&encode(&snapshot)).unwrap();
    assert_eq!(decoded.endpoints.len(), MAX_ENDPOINTS);
}
