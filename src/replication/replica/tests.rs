use std::collections::BTreeMap;

use super::*;

const POOL: PoolKey = PoolKey(4);
const ME: VmId = VmId(1);
const OTHER: VmId = VmId(2);

/// Open leases and their weight by endpoint, and what became of requests, as the observer was told.
#[derive(Debug, Default)]
struct Count(BTreeMap<EndpointId, (u32, u32)>, Vec<(EndpointId, Outcome)>);

impl LeaseObserver for Count {
    fn opened(&mut self, _: LeaseId, lease: &OpenLease) {
        let (open, tokens) = self.0.entry(lease.endpoint).or_default();
        *open += 1;
        *tokens += lease.weight.tokens();
    }

    fn closed(&mut self, _: LeaseId, lease: &OpenLease) {
        let (open, tokens) = self.0.entry(lease.endpoint).or_default();
        *open -= 1;
        *tokens -= lease.weight.tokens();
    }

    fn turned_out(&mut self, endpoint: EndpointId, outcome: Outcome) {
        self.1.push((endpoint, outcome));
    }
}

/// A replica of two endpoints and the number of its next entry.
struct Log {
    replica: Replica<Count>,
    next: u64,
}

fn a() -> SocketAddr {
    "10.0.0.1:8000".parse().unwrap()
}

fn b() -> SocketAddr {
    "[fd00::1]:8000".parse().unwrap()
}

fn chain(blocks: impl IntoIterator<Item = u64>) -> Vec<BlockHash> {
    blocks.into_iter().map(BlockHash).collect()
}

impl Log {
    fn new() -> Self {
        let mut replica = Replica::new(POOL, 100, 1_000, Count::default());
        replica.await_no_leases();
        assert_eq!(replica.hold(a()), Some(EndpointId::new(0)));
        assert_eq!(replica.hold(b()), Some(EndpointId::new(1)));
        Self { replica, next: 8 }
    }

    fn apply(&mut self, entry: &Entry) -> LeaseId {
        let at = Sequence(self.next);
        self.replica.apply(at, entry);
        self.next += 1;
        LeaseId(at)
    }

    fn route(&mut self, vm: VmId, endpoint: SocketAddr, chain: &[BlockHash]) -> LeaseId {
        let entry = self.replica.compose_routed(NewRequest {
            vm,
            endpoint,
            sent: Timestamp::from_nanos(self.next),
            weight: Weight::from_tokens(10),
            chain,
        });
        self.apply(&entry)
    }

    fn move_to(&mut self, lease: LeaseId, to: SocketAddr, record: bool) {
        self.apply(&Entry::Moved {
            pool: POOL,
            lease,
            to,
            sent: Timestamp::from_nanos(99),
            record,
        });
    }

    fn open_at(&self, endpoint: SocketAddr) -> u32 {
        let id = self.replica.find(endpoint).unwrap();
        self.replica
            .observer()
            .0
            .get(&id)
            .map_or(0, |(open, _)| *open)
    }

    /// Leading blocks of `chain` that `a` and `b` hold, pending ones included, and confirmed ones
    /// alone.
    fn matches(&self, chain: &[BlockHash]) -> [Vec<usize>; 2] {
        let index = self.replica.index();
        [false, true].map(|proved| {
            let holds = |id: EndpointId, block: &BlockHash| {
                let mut held = index.held(id);
                held.any(|held| held.block == *block && (held.confirmed || !proved))
            };
            let ids = [0, 1].map(EndpointId::new);
            let run = |id| chain.iter().take_while(|block| holds(id, block)).count();
            ids.map(run).to_vec()
        })
    }
}

fn confirmed(lease: LeaseId) -> Entry {
    Entry::Confirmed { pool: POOL, lease }
}

fn finished(lease: LeaseId) -> Entry {
    Entry::Finished {
        pool: POOL,
        lease,
        answered: false,
        succeeded: false,
    }
}

fn answered(lease: LeaseId) -> Entry {
    Entry::Finished {
        pool: POOL,
        lease,
        answered: true,
        succeeded: true,
    }
}

#[test]
fn a_request_is_pending_then_confirmed_and_counts_until_it_is_over() {
    let mut log = Log::new();
    let prompt = chain(1..=4);
    let lease = log.route(ME, a(), &prompt);
    assert_eq!(log.matches(&prompt), [vec![4, 0], vec![0, 0]]);
    assert_eq!((log.open_at(a()), log.replica.leases().count()), (1, 1));
    log.apply(&confirmed(lease));
    assert_eq!(log.matches(&prompt), [vec![4, 0], vec![4, 0]]);
    assert_eq!(log.open_at(a()), 1);
    log.apply(&finished(lease));
    assert_eq!(log.matches(&prompt), [vec![4, 0], vec![4, 0]]);
    assert_eq!((log.open_at(a()), log.replica.leases().count()), (0, 0));
}

#[test]
fn what_never_got_an_answer_is_taken_back() {
    let mut log = Log::new();
    let prompt = chain(1..=4);
    let lease = log.route(ME, a(), &prompt);
    log.apply(&finished(lease));
    assert!(log.replica.index().is_empty());
    let lease = log.route(ME, a(), &prompt);
    log.apply(&Entry::TakenBack { pool: POOL, lease });
    assert!(log.replica.index().is_empty());
    assert_eq!(log.open_at(a()), 1, "still open");
    log.apply(&confirmed(lease));
    assert!(log.replica.index().is_empty());
}

#[test]
fn a_request_moves_with_its_blocks_or_without() {
    let mut log = Log::new();
    let prompt = chain(1..=4);
    let lease = log.route(ME, a(), &prompt);
    log.move_to(lease, b(), true);
    assert_eq!(log.matches(&prompt), [vec![0, 4], vec![0, 0]]);
    assert_eq!((log.open_at(a()), log.open_at(b())), (0, 1));
    assert_eq!(
        log.replica.lease(lease).unwrap().sent,
        Timestamp::from_nanos(99)
    );
    log.apply(&confirmed(lease));
    assert_eq!(log.matches(&prompt)[1], [0, 4]);
    let lease = log.route(ME, a(), &prompt);
    log.move_to(lease, b(), false);
    assert_eq!(log.matches(&prompt)[0], [0, 4]);
    assert_eq!((log.open_at(a()), log.open_at(b())), (0, 2));
}

#[test]
fn only_new_blocks_travel() {
    let mut log = Log::new();
    let first = log.route(ME, a(), &chain(1..=4));
    log.apply(&confirmed(first));
    let entry = log.replica.compose_routed(NewRequest {
        vm: OTHER,
        endpoint: b(),
        sent: Timestamp::default(),
        weight: Weight::default(),
        chain: &chain(1..=6),
    });
    let Entry::Routed(routed) = &entry else {
        panic!("{entry:?}");
    };
    assert_eq!(
        routed.tail(),
        Tail {
            len: 4,
            block: BlockHash(4)
        }
    );
    assert_eq!(routed.new_blocks, chain(5..=6));
    log.apply(&entry);
    assert_eq!(log.matches(&chain(1..=6)), [vec![4, 6], vec![4, 0]]);
}

#[test]
fn an_endpoint_that_goes_takes_blocks_and_leases_along_for_good() {
    let mut log = Log::new();
    let prompt = chain(1..=4);
    let here = log.route(ME, a(), &prompt);
    let there = log.route(ME, b(), &prompt);
    log.apply(&Entry::Capacity {
        pool: POOL,
        endpoint: a(),
        blocks: 7,
    });
    log.apply(&Entry::Removed {
        pool: POOL,
        endpoint: a(),
    });
    assert_eq!((log.open_at(a()), log.open_at(b())), (0, 1));
    for late in [confirmed(here), finished(here)] {
        log.apply(&late);
    }
    log.move_to(here, b(), true);
    assert_eq!(log.matches(&prompt)[0], [0, 4]);
    assert_eq!((log.open_at(a()), log.open_at(b())), (0, 1));
    log.apply(&finished(there));
    // Its place stays as long as the pool lists it; room is what it is for a new one.
    let id = log.replica.find(a()).unwrap();
    assert_eq!(log.replica.index().capacity(id), 100);
    log.replica.release(a());
    assert_eq!(log.replica.find(a()), None);
    let new = "10.0.0.9:80".parse().unwrap();
    assert_eq!(log.replica.hold(new), Some(id));
}

#[test]
fn a_released_endpoint_keeps_its_place_until_the_log_says_it_is_removed() {
    let mut log = Log::new();
    let lease = log.route(ME, a(), &chain(1..=4));
    log.replica.release(a());
    assert!(log.replica.find(a()).is_some());
    log.apply(&finished(lease));
    log.apply(&Entry::Removed {
        pool: POOL,
        endpoint: a(),
    });
    assert_eq!(log.replica.find(a()), None);
}

#[test]
fn a_restart_drops_blocks_and_what_was_sent_before_proves_nothing() {
    let mut log = Log::new();
    let prompt = chain(1..=4);
    let before = log.route(ME, a(), &prompt);
    log.apply(&Entry::Restarted {
        pool: POOL,
        endpoint: a(),
    });
    assert!(log.replica.index().is_empty());
    assert_eq!(log.open_at(a()), 1);
    log.route(ME, a(), &prompt);
    log.apply(&confirmed(before));
    assert_eq!(log.matches(&prompt), [vec![4, 0], vec![0, 0]]);
}

#[test]
fn a_vm_that_is_gone_takes_its_leases_along_and_may_open_them_again() {
    let mut log = Log::new();
    let prompt = chain(1..=4);
    let mine = log.route(ME, a(), &prompt);
    let others = log.route(OTHER, a(), &chain(11..=12));
    log.apply(&Entry::VmGone { vm: ME });
    assert_eq!(log.open_at(a()), 1);
    assert_eq!(log.matches(&prompt)[0], [0, 0]);
    assert!(log.replica.lease(mine).is_none() && log.replica.lease(others).is_some());
    let reopening = Reopening {
        vm: ME,
        endpoint: a(),
        sent: Timestamp::from_nanos(3),
        weight: Weight::from_tokens(10),
    };
    let again = log.replica.compose_reopened(mine, reopening);
    let lease = log.apply(&again);
    assert_eq!(log.open_at(a()), 2);
    // Where the old one is open still, it is not counted twice.
    let again = log.replica.compose_reopened(lease, reopening);
    log.apply(&again);
    assert_eq!(log.open_at(a()), 2);
}

#[test]
fn who_serves_and_who_fails_is_told_once_each() {
    let mut log = Log::new();
    let (here, there) = (EndpointId::new(0), EndpointId::new(1));
    let streamed = log.route(ME, a(), &chain(1..=4));
    log.apply(&confirmed(streamed));
    log.apply(&finished(streamed));
    let whole = log.route(ME, b(), &chain(1..=4));
    log.apply(&answered(whole));
    log.apply(&Entry::Failed {
        pool: POOL,
        endpoint: a(),
    });
    // Nobody has these any more, or never had.
    log.apply(&answered(whole));
    log.apply(&Entry::Failed {
        pool: POOL,
        endpoint: "10.9.9.9:1".parse().unwrap(),
    });
    let told = [
        (here, Outcome::Served),
        (there, Outcome::Served),
        (here, Outcome::Failed),
    ];
    assert_eq!(log.replica.observer().1, told);
}

#[test]
fn other_pools_change_nothing() {
    let mut log = Log::new();
    let lease = log.route(ME, a(), &chain(1..=4));
    let pool = PoolKey(5);
    for entry in [
        Entry::Confirmed { pool, lease },
        Entry::Finished {
            pool,
            lease,
            answered: true,
            succeeded: true,
        },
        Entry::Removed {
            pool,
            endpoint: a(),
        },
        Entry::SnapshotPublished { pool: POOL },
    ] {
        log.apply(&entry);
    }
    assert_eq!(log.matches(&chain(1..=4)), [vec![4, 0], vec![0, 0]]);
    assert_eq!(log.open_at(a()), 1);
}

#[test]
fn new_blocks_behind_an_unknown_beginning_count_once_it_is_known() {
    let mut knows = Log::new();
    let lease = knows.route(ME, a(), &chain(1..=4));
    knows.apply(&confirmed(lease));
    let mut late = Log::new();
    late.next = knows.next;
    let request = NewRequest {
        vm: ME,
        endpoint: a(),
        sent: Timestamp::default(),
        weight: Weight::default(),
        chain: &chain(1..=6),
    };
    let entry = knows.replica.compose_routed(request);
    let lease = late.apply(&entry);
    late.apply(&confirmed(lease));
    assert_eq!(late.matches(&chain(1..=6))[1], [0, 0]);
    let mut writer = crate::replication::checkpoint::CheckpointWriter::new(None);
    let (_, chunk) = writer.next_chunk(&knows.replica, Sequence(9)).unwrap();
    assert_eq!(late.replica.load_chunk(&chunk), 4);
    assert_eq!(late.matches(&chain(1..=6))[1], [6, 0]);
}

#[test]
fn leases_of_before_come_from_the_table_and_what_was_said_since_is_made_up_for() {
    let mut leader = Log::new();
    let open: Vec<LeaseId> = (0..6)
        .map(|number| leader.route(OTHER, a(), &chain(number * 10..number * 10 + 3)))
        .collect();
    let gone = leader.route(VmId(9), b(), &chain(70..72));
    let mut late = Log::new();
    late.replica.lost_entries(ME);
    late.next = leader.next;
    let mut both = |leader: &mut Log, entry: &Entry| {
        leader.apply(entry);
        late.apply(entry);
    };
    both(&mut leader, &confirmed(open[0]));
    both(&mut leader, &finished(open[1]));
    let table = leader
        .replica
        .lease_table(Sequence(leader.next), Vec::new())
        .unwrap();
    both(&mut leader, &confirmed(open[2]));
    both(&mut leader, &finished(open[3]));
    both(
        &mut leader,
        &Entry::Moved {
            pool: POOL,
            lease: open[4],
            to: b(),
            sent: Timestamp::from_nanos(7),
            record: true,
        },
    );
    both(&mut leader, &Entry::VmGone { vm: VmId(9) });
    assert!(late.replica.awaits_leases() && late.replica.leases().count() == 0);
    assert!(late.replica.load_leases(&table));
    assert!(!late.replica.awaits_leases());
    let listed = |log: &Log| -> Vec<(LeaseId, SocketAddr, usize)> {
        let address: BTreeMap<_, _> = log.replica.endpoints().map(|(at, id)| (id, at)).collect();
        let leases = log.replica.leases();
        leases
            .map(|(id, lease)| (id, address[&lease.endpoint], lease.pending.blocks.len()))
            .collect()
    };
    assert_eq!(listed(&late), listed(&leader));
    assert!(late.replica.lease(gone).is_none());
    assert_eq!((late.open_at(a()), late.open_at(b())), (3, 1));
    for number in 2..6 {
        let prompt = chain(number * 10..number * 10 + 3);
        assert_eq!(late.matches(&prompt), leader.matches(&prompt), "{number}");
    }
}

#[test]
fn what_was_confirmed_before_its_server_restarted_does_not_come_back_with_the_table() {
    let mut leader = Log::new();
    let lease = leader.route(OTHER, a(), &chain(1..4));
    let mut late = Log::new();
    late.replica.lost_entries(ME);
    late.next = leader.next;
    let table = leader
        .replica
        .lease_table(Sequence(leader.next), Vec::new())
        .unwrap();
    let restarted = Entry::Restarted {
        pool: POOL,
        endpoint: a(),
    };
    for entry in [confirmed(lease), restarted] {
        leader.apply(&entry);
        late.apply(&entry);
    }
    assert!(late.replica.load_leases(&table));
    assert!(late.replica.lease(lease).is_some(), "the request goes on");
    let held = |log: &Log| log.matches(&chain(1..4));
    assert_eq!(held(&late), held(&leader));
    assert_eq!(held(&late)[0], [0, 0]);
}

#[test]
fn a_table_with_a_gap_behind_it_is_refused() {
    let mut leader = Log::new();
    let lease = leader.route(OTHER, a(), &chain(1..=3));
    let table = leader
        .replica
        .lease_table(Sequence(leader.next), Vec::new())
        .unwrap();
    let mut late = Log::new();
    late.replica.lost_entries(ME);
    assert!(
        late.replica.lease_table(Sequence(9), Vec::new()).is_none(),
        "it knows too little"
    );
    late.next = leader.next + 1;
    late.apply(&finished(lease));
    assert!(!late.replica.load_leases(&table));
    let foreign = crate::replication::lease_table::LeaseTable {
        pool: PoolKey(9),
        ..table
    };
    assert!(!late.replica.load_leases(&foreign));
    assert!(late.replica.awaits_leases());
}

#[test]
fn who_lost_entries_keeps_its_own_leases_only() {
    let mut log = Log::new();
    let mine = log.route(ME, a(), &chain(1..=3));
    log.route(OTHER, a(), &chain(11..=13));
    log.replica.lost_entries(ME);
    assert_eq!(
        log.replica.leases().map(|(id, _)| id).collect::<Vec<_>>(),
        [mine]
    );
    assert_eq!(log.matches(&chain(11..=13))[0], [0, 0]);
    assert_eq!(log.matches(&chain(1..=3))[0], [3, 0]);
}

#[test]
fn the_end_of_an_answer_that_came_whole_confirms_its_blocks() {
    for (end, held) in [(answered as fn(LeaseId) -> Entry, 4), (finished, 0)] {
        let mut log = Log::new();
        let prompt = chain(1..=4);
        let lease = log.route(ME, a(), &prompt);
        log.apply(&end(lease));
        assert_eq!(log.open_at(a()), 0);
        assert_eq!(log.matches(&prompt)[1], [held, 0]);
    }
}
