use super::*;
use crate::replication::entry::{self, Entry};
use crate::replication::{LeaseId, NewRequest, Replica, VmId, Weight};
use crate::time::Timestamp;

const POOL: PoolKey = PoolKey(4);

fn address(number: u8) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, number], 8000))
}

fn chunk(blocks: usize) -> Chunk {
    let hash = |number: usize| BlockHash(u64::try_from(number).unwrap());
    Chunk {
        pool: POOL,
        epoch: 2,
        next: Sequence(3),
        part: 1,
        endpoint: "[fe80::1%3]:8000".parse().unwrap(),
        blocks: (0..blocks)
            .map(|number| (hash(number), hash(number + 1)))
            .collect(),
    }
}

fn contents() -> Contents {
    let listed = |number, parts, emptied| ListedEndpoint {
        address: address(number),
        parts,
        emptied,
    };
    Contents {
        pool: POOL,
        epoch: 2,
        next: Sequence(3),
        written: 4,
        previous: 5,
        endpoints: vec![listed(1, 3, None), listed(2, 0, Some(Sequence(9)))],
    }
}

#[test]
fn chunks_and_contents_survive_the_round_trip() {
    for blocks in [0, 1, 100] {
        assert_eq!(
            decode_chunk(&encode_chunk(&chunk(blocks))),
            Some(chunk(blocks))
        );
    }
    assert_eq!(
        decode_contents(&encode_contents(&contents())),
        Some(contents())
    );
}

#[test]
fn the_largest_chunk_is_as_large_as_it_may_be() {
    let bytes = encode_chunk(&chunk(MAX_BLOCKS + 1));
    assert!(bytes.len() <= MAX_CHUNK_BYTES);
    assert!(
        bytes.len() + 1_000 * BLOCK_BYTES > MAX_CHUNK_BYTES,
        "room is used"
    );
    assert_eq!(decode_chunk(&bytes), Some(chunk(MAX_BLOCKS)));
    let mut more = bytes[..bytes.len() - 8].to_vec();
    more.extend([0; BLOCK_BYTES]);
    assert_eq!(decode_chunk(&seal(more)), None);
}

#[test]
fn any_changed_bit_and_any_cut_is_refused() {
    fn check<T>(bytes: &[u8], decode: impl Fn(&[u8]) -> Option<T>, whole: impl Fn(usize) -> bool) {
        for bit in 0..bytes.len() * 8 {
            let mut changed = bytes.to_vec();
            changed[bit / 8] ^= 1 << (bit % 8);
            assert!(decode(&changed).is_none(), "bit {bit}");
        }
        let body = &bytes[..bytes.len() - 8];
        for end in 0..body.len() {
            let cut = decode(&seal(body[..end].to_vec()));
            assert_eq!(cut.is_some(), whole(end), "cut at {end}");
        }
        assert!(decode(&seal([body, &[0]].concat())).is_none());
    }
    let bytes = encode_chunk(&chunk(3));
    let fields = bytes.len() - 8 - 3 * BLOCK_BYTES;
    check(&bytes, decode_chunk, |end| {
        end >= fields && (end - fields).is_multiple_of(BLOCK_BYTES)
    });
    let bytes = encode_contents(&contents());
    let fields = bytes.len() - 8 - 2 * 19;
    check(&bytes, decode_contents, |end| {
        end == fields || end == fields + 19
    });
}

/// A replica with `blocks` confirmed blocks at each of `endpoints`.
fn replica(endpoints: u8, blocks: u64) -> Replica<()> {
    let mut replica = Replica::new(POOL, 100_000, 1_000_000, ());
    for number in 1..=endpoints {
        replica.hold(address(number));
        let first = u64::from(number) * 1_000_000;
        let chain: Vec<BlockHash> = (first..first + blocks).map(BlockHash).collect();
        let mut known: Vec<BlockHash> = Vec::new();
        for part in chain.chunks(entry::MAX_NEW_BLOCKS) {
            known.extend(part);
            let routed = replica.compose_routed(NewRequest {
                vm: VmId(1),
                endpoint: address(number),
                sent: Timestamp::default(),
                weight: Weight::default(),
                chain: &known,
            });
            let at = Sequence(first + known.len() as u64);
            replica.apply(at, &routed);
            let confirmed = Entry::Confirmed {
                pool: POOL,
                lease: LeaseId(at),
            };
            replica.apply(at, &confirmed);
        }
    }
    replica
}

/// The chunks of one round, decoded from their encoding.
fn round(writer: &mut CheckpointWriter, replica: &Replica<()>) -> Vec<Chunk> {
    let mut chunks = Vec::new();
    while let Some((number, chunk)) = writer.next_chunk(replica, Sequence(u64::MAX)) {
        assert_eq!(usize::try_from(number).unwrap(), chunks.len());
        chunks.push(decode_chunk(&encode_chunk(&chunk)).unwrap());
    }
    chunks
}

#[test]
fn a_round_tells_of_every_confirmed_block_once() {
    let from = replica(3, 40_000);
    let mut writer = CheckpointWriter::new(None);
    for epoch in 1..3 {
        let chunks = round(&mut writer, &from);
        let parts: Vec<_> = chunks
            .iter()
            .map(|one| (one.endpoint, one.part, one.epoch))
            .collect();
        let expected =
            (1..=3).flat_map(|number| (0..3).map(move |part| (address(number), part, epoch)));
        assert_eq!(parts, expected.collect::<Vec<_>>());
        let mut to = replica(3, 0);
        let taken: usize = chunks.iter().map(|chunk| to.load_chunk(chunk)).sum();
        assert_eq!(taken, 120_000);
        for (endpoint, id) in from.endpoints() {
            let copy = to.find(endpoint).unwrap();
            assert!(
                from.index().held(id).eq(to.index().held(copy)),
                "{endpoint}"
            );
        }
    }
}

#[test]
fn endpoints_that_come_and_go_during_a_round_do_not_stop_it() {
    let mut from = replica(3, 10);
    let mut writer = CheckpointWriter::new(None);
    writer.next_chunk(&from, Sequence(1)).unwrap();
    let (_, second) = writer.next_chunk(&from, Sequence(1)).unwrap();
    assert_eq!(second.endpoint, address(2));
    let removed = Entry::Removed {
        pool: POOL,
        endpoint: address(2),
    };
    from.apply(Sequence(9_000_000), &removed);
    from.release(address(2));
    let (number, third) = writer.next_chunk(&from, Sequence(1)).unwrap();
    assert_eq!((number, third.endpoint), (2, address(3)));
    let contents = writer.contents(&from, Sequence(1));
    assert_eq!(
        (contents.epoch, contents.written, contents.previous),
        (1, 3, 0)
    );
    assert_eq!(writer.next_chunk(&from, Sequence(1)), None);
    let contents = writer.contents(&from, Sequence(1));
    assert_eq!(
        (contents.epoch, contents.written, contents.previous),
        (2, 0, 3)
    );
    let successor = CheckpointWriter::new(Some(&contents));
    let contents = successor.contents(&from, Sequence(1));
    assert_eq!(
        (contents.epoch, contents.written, contents.previous),
        (3, 0, 3)
    );
}

#[test]
fn blocks_that_are_only_pending_are_not_told() {
    let mut from = replica(1, 10);
    let chain = [BlockHash(5), BlockHash(6)];
    let routed = from.compose_routed(NewRequest {
        vm: VmId(1),
        endpoint: address(2),
        sent: Timestamp::default(),
        weight: Weight::default(),
        chain: &chain,
    });
    from.apply(Sequence(9_000_000), &routed);
    let chunks = round(&mut CheckpointWriter::new(None), &from);
    assert_eq!(chunks.len(), 1);
    assert_eq!(chunks[0].endpoint, address(1));
}

#[test]
fn chunks_of_what_was_emptied_since_are_stale() {
    let from = replica(1, 10);
    let mut writer = CheckpointWriter::new(None);
    let (_, chunk) = writer.next_chunk(&from, Sequence(50)).unwrap();
    let restarted = Entry::Restarted {
        pool: POOL,
        endpoint: address(1),
    };
    for (emptied, taken) in [(49, 10), (50, 0), (51, 0)] {
        let mut heard = replica(1, 0);
        heard.apply(Sequence(emptied), &restarted);
        assert_eq!(heard.load_chunk(&chunk), taken, "{emptied}");
        let mut told = replica(1, 0);
        let contents = CheckpointWriter::new(None).contents(&heard, Sequence(60));
        told.learn(&contents);
        assert_eq!(
            told.load_chunk(&chunk),
            taken,
            "{emptied}, from the contents"
        );
    }
    let mut other = replica(1, 0);
    let foreign = Chunk {
        pool: PoolKey(5),
        ..chunk.clone()
    };
    assert_eq!(other.load_chunk(&foreign), 0);
    let unknown = Chunk {
        endpoint: address(77),
        ..chunk
    };
    assert_eq!(other.load_chunk(&unknown), 0);
}

#[test]
fn a_loader_reads_what_is_there_and_then_a_whole_round() {
    let at = |epoch, written, previous| Contents {
        epoch,
        written,
        previous,
        ..contents()
    };
    let mut loader = Loader::default();
    let mut read = |contents: &Contents| {
        let mut numbers = Vec::new();
        while let Some(number) = loader.next(contents) {
            numbers.push(number);
        }
        (numbers, loader.is_complete())
    };
    assert_eq!(read(&at(7, 2, 4)), (vec![0, 1, 2, 3], false));
    assert_eq!(read(&at(7, 2, 4)), (vec![], false));
    assert_eq!(read(&at(7, 3, 4)), (vec![2], false));
    assert_eq!(read(&at(8, 1, 5)), (vec![0, 3, 4], false));
    assert_eq!(read(&at(8, 2, 5)), (vec![1], true));
    // A leader that lost its place.
    assert_eq!(read(&at(30, 1, 2)), (vec![0, 1], true));
}
