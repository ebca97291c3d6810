use super::*;

fn lease(id: u64, endpoint: &str, known: u16, blocks: u64) -> ListedLease {
    ListedLease {
        id: LeaseId(Sequence(id)),
        vm: VmId(3),
        endpoint: endpoint.parse().unwrap(),
        sent: Timestamp::from_nanos(5),
        weight: Weight::from_tokens(70_000),
        known: NonZeroU16::new(known).map(|blocks| Known {
            blocks,
            last: BlockHash(9),
        }),
        new_blocks: (0..blocks).map(BlockHash).collect(),
    }
}

fn table(leases: Vec<ListedLease>) -> LeaseTable {
    LeaseTable {
        pool: PoolKey(1),
        next: Sequence(2),
        leases,
        heartbeats: vec![
            (VmId(1), Timestamp::from_nanos(7)),
            (VmId(2), Timestamp::default()),
        ],
    }
}

fn some() -> LeaseTable {
    table(vec![
        lease(1, "10.0.0.1:8000", 0, 0),
        lease(2, "[2001:db8::1]:8000", 7, 3),
        lease(3, "[fe80::1%3]:8000", 0, 2),
    ])
}

#[test]
fn a_table_survives_the_round_trip_and_its_bytes_are_bounded() {
    assert_eq!(decode(&encode(&some())), Some(some()));
    let mut empty = table(vec![]);
    empty.heartbeats.clear();
    let envelope = 13;
    assert_eq!(encode(&empty).len(), envelope + 20);
    let largest = encode(&table(vec![lease(1, "[fe80::1%3]:8000", 1, 0)]));
    assert_eq!(largest.len(), envelope + 20 + 2 * 12 + MAX_LEASE_BYTES);
    const { assert!(MAX_LEASE_BYTES <= 64) };
}

#[test]
fn any_changed_bit_any_cut_and_any_byte_more_is_refused() {
    let bytes = encode(&some());
    for bit in 0..bytes.len() * 8 {
        let mut changed = bytes.clone();
        changed[bit / 8] ^= 1 << (bit % 8);
        assert_eq!(decode(&changed), None, "bit {bit}");
    }
    let body = &bytes[..bytes.len() - 8];
    for end in 0..body.len() {
        assert_eq!(decode(&seal(body[..end].to_vec())), None, "cut at {end}");
    }
    assert_eq!(decode(&seal([body, &[0]].concat())), None);
}

#[test]
fn blocks_beyond_the_limit_leave_their_leases_without() {
    let each = 7_000;
    let leases: Vec<_> = (1..=6)
        .map(|id| lease(id, "10.0.0.1:80", 1, each))
        .collect();
    let decoded = decode(&encode(&table(leases.clone()))).unwrap();
    assert_eq!(decoded.leases[..4], leases[..4]);
    for (found, sent) in decoded.leases.iter().zip(&leases).skip(4) {
        assert_eq!(
            (found.id, &found.new_blocks, found.known),
            (sent.id, &vec![], None)
        );
    }
}

#[test]
fn counts_beyond_the_limits_are_cut_and_refused() {
    let many = table(vec![lease(1, "10.0.0.1:80", 0, 0); MAX_LEASES + 1]);
    assert_eq!(decode(&encode(&many)).unwrap().leases.len(), MAX_LEASES);
    let mut many = table(vec![]);
    many.heartbeats = vec![(VmId(1), Timestamp::default()); MAX_HEARTBEATS + 1];
    let bytes = encode(&many);
    assert_eq!(decode(&bytes).unwrap().heartbeats.len(), MAX_HEARTBEATS);
    let mut more = bytes[..bytes.len() - 8].to_vec();
    more[5 + 16] += 1;
    more.extend([0; 12]);
    assert_eq!(decode(&seal(more)), None);
}
