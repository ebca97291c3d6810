//! Several VMs over one shared data: what one does, all know.

use core::cell::{Ref, RefMut};
use core::num::NonZeroU32;
use core::time::Duration;
use std::collections::BTreeMap;

use super::*;
use crate::datalayer::EndpointId;
use crate::prefix::BlockHash;
use crate::replication::ring::{Cas, SetResult};

/// Shared data of one process: values with the tokens that stand for them.
#[derive(Clone, Debug, Default)]
struct SharedData(Rc<RefCell<Values>>);

#[derive(Debug, Default)]
struct Values {
    slots: BTreeMap<u32, (Vec<u8>, u32)>,
    board: BTreeMap<String, Vec<u8>>,
    writes: u32,
    broken: bool,
}

impl SharedData {
    fn values(&self) -> Ref<'_, Values> {
        self.0.try_borrow().unwrap()
    }

    fn values_mut(&self) -> RefMut<'_, Values> {
        self.0.try_borrow_mut().unwrap()
    }
}

impl SharedStore for SharedData {
    fn get(&self, slot: u32) -> Option<(Vec<u8>, Cas)> {
        let values = self.values();
        let (bytes, cas) = values.slots.get(&slot)?;
        Some((bytes.clone(), Cas(*cas)))
    }

    fn set(&mut self, slot: u32, value: &[u8], cas: Cas) -> SetResult {
        let mut values = self.values_mut();
        if values.broken {
            return SetResult::Failed;
        }
        if values
            .slots
            .get(&slot)
            .is_some_and(|(_, now)| *now != cas.0)
        {
            return SetResult::Mismatch;
        }
        values.writes += 1;
        let token = values.writes;
        values.slots.insert(slot, (value.to_vec(), token));
        SetResult::Stored
    }
}

impl Board for SharedData {
    fn get(&self, key: &str) -> Option<Vec<u8>> {
        self.values().board.get(key).cloned()
    }

    fn set(&mut self, key: &str, value: &[u8]) {
        self.values_mut()
            .board
            .insert(key.to_owned(), value.to_vec());
    }
}

const SLOTS: NonZeroU32 = NonZeroU32::new(64).unwrap();
const POOL: PoolKey = PoolKey(7);
const LIMITS: ReplicaLimits = ReplicaLimits {
    capacity: 10_000,
    max_entries: 100_000,
};

fn at(seconds: u64) -> Timestamp {
    Timestamp::from_nanos(seconds * 1_000_000_000)
}

fn address(last: u8) -> SocketAddr {
    ([10, 0, 0, last], 8_000).into()
}

fn chain(first: u64, len: u64) -> Vec<BlockHash> {
    (first..first + len).map(BlockHash).collect()
}

/// A VM that follows the pool.
fn vm(number: u32, shared: &SharedData) -> Ledger {
    let mut store = shared.clone();
    Ring::create(SLOTS, &mut store).unwrap();
    let ring = Ring::join(SLOTS, &store);
    let mut ledger = Ledger::shared(VmId(number), ring, Box::new(store));
    ledger.admit(POOL, LIMITS);
    ledger
}

fn send(ledger: &mut Ledger, endpoint: u8, seconds: u64, chain: &[BlockHash]) -> RequestId {
    let sent = Sent {
        endpoint: address(endpoint),
        at: at(seconds),
        weight: Weight::from_tokens(64),
        chain,
    };
    ledger.open(POOL, sent)
}

fn replica(ledger: &Ledger) -> &Replica<InFlight> {
    ledger.replica(POOL).unwrap()
}

fn place(ledger: &Ledger, endpoint: u8) -> EndpointId {
    replica(ledger).find(address(endpoint)).unwrap()
}

/// Open requests at `endpoint`.
fn open(ledger: &Ledger, endpoint: u8) -> u32 {
    let place = replica(ledger).find(address(endpoint));
    place.map_or(0, |place| replica(ledger).observer().open_at(place))
}

/// Blocks of `chain` that `endpoint` holds.
fn matched(ledger: &Ledger, endpoint: u8, chain: &[BlockHash]) -> u32 {
    let mut matched = Vec::new();
    let credit = crate::config::PendingCredit::Full;
    replica(ledger).index().matches(chain, credit, &mut matched);
    matched[place(ledger, endpoint).index()]
}

fn upkeep(ledger: &mut Ledger, shared: &SharedData, seconds: u64, leads: bool) {
    let upkeep = Upkeep {
        now: at(seconds),
        leads,
    };
    ledger.upkeep(upkeep, &mut shared.clone());
}

#[test]
fn what_one_vm_sends_all_know() {
    let shared = SharedData::default();
    let (mut one, mut other) = (vm(1, &shared), vm(2, &shared));
    let request = send(&mut one, 1, 1, &chain(1, 10));
    other.catch_up();
    assert_eq!(
        (open(&other, 1), matched(&other, 1, &chain(1, 10))),
        (1, 10)
    );
    one.move_to(request, address(2), at(2), true);
    one.confirm(request);
    other.catch_up();
    assert_eq!((open(&other, 1), open(&other, 2)), (0, 1));
    assert_eq!(matched(&other, 1, &chain(1, 10)), 0);
    one.finish(request, End::default());
    other.catch_up();
    assert_eq!(
        (open(&other, 2), matched(&other, 2, &chain(1, 10))),
        (0, 10)
    );
}

#[test]
fn a_vm_that_is_told_of_a_known_prompt_by_its_end_knows_all_of_it() {
    let shared = SharedData::default();
    let (mut one, mut other) = (vm(1, &shared), vm(2, &shared));
    let first = send(&mut one, 1, 1, &chain(1, 40));
    one.confirm(first);
    // The other VM has not looked yet; the prompt goes on, at another endpoint.
    let second = send(&mut one, 2, 2, &chain(1, 41));
    other.catch_up();
    assert_eq!(matched(&other, 2, &chain(1, 41)), 41);
    one.take_back(second);
    other.catch_up();
    assert_eq!(matched(&other, 2, &chain(1, 41)), 0);
}

#[test]
fn while_shared_data_is_broken_a_vm_knows_its_own_requests() {
    let shared = SharedData::default();
    let (mut one, mut other) = (vm(1, &shared), vm(2, &shared));
    shared.values_mut().broken = true;
    let request = send(&mut one, 1, 1, &chain(1, 10));
    one.confirm(request);
    assert_eq!((open(&one, 1), matched(&one, 1, &chain(1, 10))), (1, 10));
    assert_eq!(one.take_untold(), 2);
    shared.values_mut().broken = false;
    one.finish(request, End::default());
    // The end of a request that nobody heard of means nothing to others.
    other.catch_up();
    assert_eq!((open(&one, 1), open(&other, 1)), (0, 0));
    // A prompt that goes on is told whole, or as far as it can be.
    let request = send(&mut one, 1, 2, &chain(1, 11));
    one.confirm(request);
    other.catch_up();
    assert_eq!(open(&other, 1), 1);
}

#[test]
fn the_leases_of_a_vm_that_is_gone_are_closed_and_of_a_silent_stream_are_not() {
    let shared = SharedData::default();
    let (mut leader, mut alive) = (vm(1, &shared), vm(2, &shared));
    let silent = send(&mut alive, 1, 0, &chain(1, 3));
    {
        let mut gone = vm(3, &shared);
        send(&mut gone, 2, 0, &chain(9, 3));
    }
    for seconds in 0..=360 {
        upkeep(&mut alive, &shared, seconds, false);
        upkeep(&mut leader, &shared, seconds, true);
        if seconds == 10 {
            assert_eq!((open(&leader, 1), open(&leader, 2)), (1, 1));
        }
        if seconds == 30 {
            assert_eq!((open(&leader, 1), open(&leader, 2)), (1, 0));
        }
    }
    assert_eq!((open(&leader, 1), open(&alive, 1)), (1, 1));
    alive.finish(silent, End::default());
    leader.catch_up();
    assert_eq!(open(&leader, 1), 0);
}

#[test]
fn a_vm_wrongly_thought_gone_opens_its_leases_again() {
    let shared = SharedData::default();
    let (mut leader, mut slow) = (vm(1, &shared), vm(2, &shared));
    let request = send(&mut slow, 1, 0, &chain(1, 3));
    for seconds in 0..=40 {
        upkeep(&mut leader, &shared, seconds, true);
    }
    assert_eq!(open(&leader, 1), 0);
    upkeep(&mut slow, &shared, 41, false);
    upkeep(&mut leader, &shared, 41, true);
    assert_eq!((open(&slow, 1), open(&leader, 1)), (1, 1));
    slow.finish(request, End::default());
    leader.catch_up();
    assert_eq!((open(&slow, 1), open(&leader, 1)), (0, 0));
}

#[test]
fn a_vm_that_comes_late_learns_what_the_ring_no_longer_holds() {
    let shared = SharedData::default();
    let mut leader = vm(1, &shared);
    upkeep(&mut leader, &shared, 0, true);
    let open_all_along = send(&mut leader, 2, 0, &chain(1_000_000, 5));
    leader.confirm(open_all_along);
    // Ten times what the ring holds.
    for number in 0..640 {
        let request = send(&mut leader, 1, 1, &chain(number * 100, 20));
        leader.confirm(request);
        leader.finish(request, End::default());
    }
    for tick in 0..20 {
        upkeep(&mut leader, &shared, 2 + tick / 10, true);
    }
    let mut late = vm(2, &shared);
    assert_eq!(open(&late, 2), 0);
    for tick in 0..30 {
        upkeep(&mut leader, &shared, 5 + tick / 10, true);
        upkeep(&mut late, &shared, 5 + tick / 10, false);
    }
    assert_eq!(open(&late, 2), 1);
    for number in 0..640 {
        let chain = chain(number * 100, 20);
        assert_eq!(
            matched(&late, 1, &chain),
            matched(&leader, 1, &chain),
            "{number}"
        );
    }
    assert_eq!(replica(&late).index().len(), replica(&leader).index().len());
    leader.finish(open_all_along, End::default());
    late.catch_up();
    assert_eq!(open(&late, 2), 0);
}

#[test]
fn a_vm_that_was_lapped_counts_it_and_learns_what_it_missed() {
    let shared = SharedData::default();
    let (mut leader, mut idle) = (vm(1, &shared), vm(2, &shared));
    // Both have read what checkpoint there was.
    for seconds in 0..5 {
        upkeep(&mut leader, &shared, seconds, true);
        upkeep(&mut idle, &shared, seconds, false);
    }
    let first = send(&mut leader, 1, 0, &chain(9_000_000, 2));
    leader.finish(first, End::default());
    for _ in 0..30 {
        upkeep(&mut leader, &shared, 5, true);
        upkeep(&mut idle, &shared, 5, false);
    }
    let old = send(&mut leader, 3, 0, &chain(5_000_000, 2));
    idle.catch_up();
    for number in 0..100 {
        let request = send(&mut leader, 1, 1, &chain(number * 100, 20));
        leader.confirm(request);
        leader.finish(request, End::default());
    }
    leader.finish(old, End::default());
    for tick in 0..20 {
        upkeep(&mut leader, &shared, 2, true);
        upkeep(&mut idle, &shared, 2 + tick / 10, false);
    }
    assert!(idle.take_lost() > 200);
    assert_eq!(open(&idle, 3), 0, "its end was among what was missed");
    for number in 0..100 {
        assert_eq!(matched(&idle, 1, &chain(number * 100, 20)), 20, "{number}");
    }
}

#[test]
fn what_was_written_of_a_pool_goes_with_its_last_configuration() {
    let shared = SharedData::default();
    let mut leader = vm(1, &shared);
    send(&mut leader, 1, 0, &chain(0, 50));
    for second in 0..4 {
        upkeep(&mut leader, &shared, second, true);
    }
    let bytes = || shared.values().board.values().map(Vec::len).sum::<usize>();
    assert!(bytes() > 50 * 8, "a checkpoint is there");
    // Another configuration has the pool, too.
    leader.admit(POOL, LIMITS);
    leader.release(POOL);
    upkeep(&mut leader, &shared, 5, true);
    assert!(bytes() > 50 * 8, "it is still needed");
    leader.release(POOL);
    upkeep(&mut leader, &shared, 6, true);
    assert_eq!(bytes(), 0);
    // It comes back with nothing, and is written again.
    leader.admit(POOL, LIMITS);
    send(&mut leader, 1, 7, &chain(0, 50));
    for second in 7..12 {
        upkeep(&mut leader, &shared, second, true);
    }
    assert!(bytes() > 50 * 8, "written anew");
}

#[test]
fn who_serves_nobody_suits_best_to_lead_unless_it_fell_behind() {
    let shared = SharedData::default();
    let (mut idle, mut busy) = (vm(1, &shared), vm(2, &shared));
    let suits = |ledger: &Ledger| ledger.suits(core::iter::once(POOL));
    let request = send(&mut busy, 1, 0, &chain(1, 4));
    for _ in 0..3 {
        upkeep(&mut idle, &shared, 0, true);
        upkeep(&mut busy, &shared, 0, false);
    }
    assert_eq!(suits(&idle), Suitability::Idles);
    assert_eq!(suits(&busy), Suitability::Serves);
    // More than the ring holds, of which only one has read.
    for number in 0..100 {
        send(&mut busy, 1, 1, &chain(number * 100, 2));
    }
    idle.catch_up();
    assert_eq!(suits(&idle), Suitability::Behind);
    for _ in 0..20 {
        // As with each scrape: checkpoints are written anew while anything happens.
        busy.published(POOL);
        upkeep(&mut busy, &shared, 1, true);
        upkeep(&mut idle, &shared, 1, false);
    }
    assert_eq!((suits(&idle), open(&idle, 1)), (Suitability::Idles, 101));
    busy.finish(request, End::default());
    // A pool it does not have says nothing against it, and nothing for it.
    assert_eq!(
        idle.suits(core::iter::once(PoolKey(8))),
        Suitability::Behind
    );
    assert_eq!(idle.suits(core::iter::empty()), Suitability::Idles);
}

#[test]
fn how_requests_turned_out_at_one_vm_all_know() {
    let shared = SharedData::default();
    let (mut one, mut other) = (vm(1, &shared), vm(2, &shared));
    let streamed = send(&mut one, 1, 1, &chain(1, 4));
    one.confirm(streamed);
    one.finish(streamed, End::default());
    let refused = send(&mut one, 1, 2, &chain(1, 4));
    one.take_back(refused);
    let end = End {
        answered: false,
        succeeded: true,
    };
    one.finish(refused, end);
    one.failed(POOL, address(1));
    // What is remembered says nothing of how well it was served.
    one.remember(POOL, address(1), &chain(1, 6), at(3));
    other.catch_up();
    for ledger in [&one, &other] {
        let in_flight = replica(ledger).observer();
        let tally = in_flight.turned_out(place(ledger, 1));
        assert_eq!((tally.served, tally.failed), (2, 1));
        assert_eq!(in_flight.last_sent(place(ledger, 1)), Some(at(3)));
    }
}

#[test]
fn a_pool_is_known_while_a_configuration_has_it() {
    let shared = SharedData::default();
    let mut ledger = vm(1, &shared);
    ledger.admit(POOL, LIMITS);
    let request = send(&mut ledger, 1, 1, &chain(1, 5));
    ledger.confirm(request);
    ledger.release(POOL);
    assert_eq!(matched(&ledger, 1, &chain(1, 5)), 5);
    ledger.release(POOL);
    assert!(ledger.replica(POOL).is_none());
    // Late ends of its requests do no harm.
    ledger.finish(request, End::default());
}

#[test]
fn a_decision_on_a_known_prompt_takes_64_bytes_at_most() {
    let shared = SharedData::default();
    let mut ledger = vm(1, &shared);
    let words = chain(1, 2_000);
    let request = send(&mut ledger, 1, 1, &words);
    ledger.confirm(request);
    let before = slots(&shared);
    send(&mut ledger, 1, 2, &words);
    let after = slots(&shared);
    let written: Vec<usize> = after
        .iter()
        .filter(|(slot, bytes)| before.get(*slot) != Some(bytes))
        .map(|(_, bytes)| bytes.len())
        .collect();
    assert!(written.len() == 1 && written[0] <= 64, "{written:?}");
}

fn slots(shared: &SharedData) -> BTreeMap<u32, Vec<u8>> {
    let values = shared.values();
    let slots = values.slots.iter();
    slots
        .map(|(slot, (bytes, _))| (*slot, bytes.clone()))
        .collect()
}

#[test]
fn the_patience_with_a_vm_spans_several_signs_of_life() {
    assert!(upkeep::PATIENCE >= 3 * upkeep::HEARTBEAT);
    assert!(upkeep::HEARTBEAT >= Duration::from_secs(1));
}

#[test]
fn an_end_that_could_not_be_told_is_told_when_it_can_be() {
    let shared = SharedData::default();
    let (mut one, mut other) = (vm(1, &shared), vm(2, &shared));
    let request = send(&mut one, 1, 1, &chain(1, 4));
    shared.values_mut().broken = true;
    let end = End {
        answered: true,
        ..End::default()
    };
    one.finish(request, end);
    shared.values_mut().broken = false;
    other.catch_up();
    assert_eq!((open(&one, 1), open(&other, 1)), (0, 1));
    let mut board = shared;
    let upkeep = Upkeep {
        now: at(2),
        leads: false,
    };
    one.upkeep(upkeep, &mut board);
    other.catch_up();
    assert_eq!((open(&one, 1), open(&other, 1)), (0, 0));
}
