use super::*;

const POOL: PoolKey = PoolKey(0x0807_0605_0403_0201);
const V4: &str = "10.0.0.1:8000";
const V6: &str = "[2001:db8::1]:8000";
const SCOPED: &str = "[fe80::1%3]:8000";

fn lease() -> LeaseId {
    LeaseId(Sequence(70_000))
}

fn routed(endpoint: &str, known: u16, new_blocks: u64) -> Routed {
    Routed {
        pool: POOL,
        vm: VmId(7),
        endpoint: endpoint.parse().unwrap(),
        sent: Timestamp::from_nanos(1_700_000_000_123_456_789),
        weight: Weight::from_tokens(130_000),
        known: NonZeroU16::new(known).map(|blocks| Known {
            blocks,
            last: BlockHash(u64::MAX),
        }),
        new_blocks: (0..new_blocks).map(BlockHash).collect(),
    }
}

/// One of each kind with `endpoint`, and the bytes it takes without the endpoint's.
fn all(endpoint: &str) -> Vec<(Entry, usize)> {
    let address: SocketAddr = endpoint.parse().unwrap();
    let (pool, lease, sent) = (POOL, lease(), Timestamp::from_nanos(5));
    let reopened = Reopened {
        pool,
        vm: VmId(7),
        lease,
        endpoint: address,
        sent,
        weight: Weight::MAX,
    };
    let moved = Entry::Moved {
        pool,
        lease,
        to: address,
        sent,
        record: true,
    };
    let capacity = Entry::Capacity {
        pool,
        endpoint: address,
        blocks: 31_250,
    };
    let finished = |answered, succeeded| Entry::Finished {
        pool,
        lease,
        answered,
        succeeded,
    };
    vec![
        (Entry::Void, 13),
        (Entry::Routed(routed(endpoint, 9, 0)), 46),
        (Entry::Routed(routed(endpoint, 0, 3)), 36 + 3 * 8),
        (Entry::Routed(routed(endpoint, 65_535, 2)), 46 + 2 * 8),
        (Entry::Confirmed { pool, lease }, 29),
        (finished(false, false), 29),
        (finished(true, false), 29),
        (finished(true, true), 29),
        (moved, 37),
        (Entry::TakenBack { pool, lease }, 29),
        (Entry::SnapshotPublished { pool }, 21),
        (of_endpoint(endpoint)[0].clone(), 21),
        (of_endpoint(endpoint)[1].clone(), 21),
        (of_endpoint(endpoint)[2].clone(), 21),
        (capacity, 25),
        (
            Entry::Alive {
                vm: VmId(7),
                at: sent,
            },
            25,
        ),
        (Entry::VmGone { vm: VmId(7) }, 17),
        (Entry::Reopened(reopened), 44),
    ]
}

/// Those that tell of `endpoint` alone.
fn of_endpoint(endpoint: &str) -> [Entry; 3] {
    let (pool, endpoint) = (POOL, endpoint.parse().unwrap());
    [
        Entry::Removed { pool, endpoint },
        Entry::Restarted { pool, endpoint },
        Entry::Failed { pool, endpoint },
    ]
}

fn has_endpoint(entry: &Entry) -> bool {
    tag(entry) >> FORM_SHIFT != 0
}

#[test]
fn every_kind_survives_the_round_trip_in_the_bytes_it_should_take() {
    for (endpoint, bytes) in [(V4, 6), (V6, 18), (SCOPED, 26)] {
        for (entry, rest) in all(endpoint) {
            let encoded = encode(Sequence(u64::MAX - 3), &entry);
            let address = if has_endpoint(&entry) { bytes } else { 0 };
            assert_eq!(encoded.len(), rest + address, "{entry:?}");
            assert_eq!(decode(&encoded), Some((Sequence(u64::MAX - 3), entry)));
        }
    }
}

#[test]
fn a_decision_about_a_known_prompt_takes_at_most_64_bytes() {
    for (endpoint, bytes) in [(V4, 52), (V6, 64)] {
        let entry = Entry::Routed(routed(endpoint, u16::MAX, 0));
        assert_eq!(encode(Sequence(u64::MAX), &entry).len(), bytes);
    }
}

#[test]
fn the_layout_is_the_documented_one() {
    let encoded = encode(Sequence(0x0102), &Entry::Routed(routed(V4, 2, 1)));
    let mut expected = vec![2, 1, 0, 0, 0, 0, 0, 0, 0b0101_0001];
    expected.extend([1, 2, 3, 4, 5, 6, 7, 8, 7, 0, 0, 0]);
    expected.extend([10, 0, 0, 1, 0x40, 0x1f]);
    expected.extend(1_700_000_000_123_456_789_u64.to_le_bytes());
    expected.extend([0xd0, 0xfb, 1, 2, 0]);
    expected.extend([0xff; 8]);
    expected.extend([0; 8]);
    assert_eq!(encoded[..encoded.len() - 4], expected);
    let checksum = xxh64(&expected, SEED).to_le_bytes();
    assert_eq!(encoded[encoded.len() - 4..], checksum[..4]);
}

#[test]
fn any_changed_bit_and_any_cut_is_refused() {
    for (entry, _) in all(V6) {
        let encoded = encode(Sequence(9), &entry);
        for bit in 0..encoded.len() * 8 {
            let mut changed = encoded.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(decode(&changed), None, "bit {bit} of {entry:?}");
        }
        for end in 0..encoded.len() {
            assert_eq!(decode(&encoded[..end]), None, "{end} bytes of {entry:?}");
        }
    }
}

/// `body` with a checksum that fits.
fn sealed(mut body: Vec<u8>) -> Vec<u8> {
    let checksum = checksum(&body);
    body.extend(checksum);
    body
}

fn body(entry: &Entry) -> Vec<u8> {
    let mut bytes = encode(Sequence(9), entry);
    bytes.truncate(bytes.len() - 4);
    bytes
}

#[test]
fn what_has_no_meaning_is_refused_even_with_a_fitting_checksum() {
    for (entry, _) in all(V4) {
        let tag_at = 8;
        let mut longer = body(&entry);
        longer.push(0);
        assert_eq!(decode(&sealed(longer)), None, "a byte more: {entry:?}");
        if !matches!(entry, Entry::Finished { .. }) {
            let mut reserved = body(&entry);
            reserved[tag_at] |= SECOND_FLAG;
            assert_eq!(decode(&sealed(reserved)), None, "second flag: {entry:?}");
        }
        let mut unknown = body(&entry);
        unknown[tag_at] |= 0x0F;
        assert_eq!(decode(&sealed(unknown)), None, "kind: {entry:?}");
        let mut no_form = body(&entry);
        no_form[tag_at] &= 0x3F;
        let decoded = decode(&sealed(no_form));
        assert_eq!(decoded.is_none(), has_endpoint(&entry), "form: {entry:?}");
    }
    let mut flagged = body(&Entry::VmGone { vm: VmId(1) });
    flagged[8] |= FLAG;
    assert_eq!(decode(&sealed(flagged)), None, "a flag that says nothing");
    let mut none_known = body(&Entry::Routed(routed(V4, 1, 0)));
    let length_at = none_known.len() - 10;
    none_known[length_at] = 0;
    assert_eq!(decode(&sealed(none_known)), None, "zero blocks known");
}

#[test]
fn an_address_has_one_form() {
    let mut scoped = body(&of_endpoint(V6)[0]);
    scoped[8] |= (Form::Scoped as u8) << FORM_SHIFT;
    scoped.extend([0; 8]);
    assert_eq!(decode(&sealed(scoped)), None);
}

#[test]
fn blocks_beyond_the_limit_are_left_out_and_refused() {
    let limit = u64::try_from(MAX_NEW_BLOCKS).unwrap();
    let encoded = encode(Sequence(9), &Entry::Routed(routed(V6, 9, limit + 1)));
    assert!(encoded.len() < 64 << 10);
    let expected = Entry::Routed(routed(V6, 9, limit));
    assert_eq!(decode(&encoded), Some((Sequence(9), expected.clone())));
    let mut longer = body(&expected);
    longer.extend([0; 8]);
    assert_eq!(decode(&sealed(longer)), None);
}
