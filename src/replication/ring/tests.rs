use core::cell::Cell;

use super::*;
use crate::replication::VmId;

const SLOTS: NonZeroU32 = NonZeroU32::new(8).unwrap();
const ALL: u32 = u32::MAX;

/// Shared data as the host keeps it.
#[derive(Default)]
struct Memory {
    slots: Vec<Option<(Vec<u8>, u32)>>,
    writes: u32,
    reads: Cell<u32>,
    broken: bool,
    /// Whom a writer loses to, each time anew.
    rival: Option<Ring>,
}

impl Memory {
    fn created(slots: NonZeroU32) -> Self {
        let mut memory = Self::default();
        assert_eq!(Ring::create(slots, &mut memory), Some(slots.get()));
        memory
    }

    fn force(&mut self, slot: u32, value: &[u8]) {
        let slot = usize::try_from(slot).unwrap();
        if self.slots.len() <= slot {
            self.slots.resize(slot + 1, None);
        }
        self.writes += 1;
        self.slots[slot] = Some((value.to_vec(), self.writes));
    }
}

impl SharedStore for Memory {
    fn get(&self, slot: u32) -> Option<(Vec<u8>, Cas)> {
        self.reads.set(self.reads.get() + 1);
        let (value, cas) = self.slots.get(usize::try_from(slot).unwrap())?.as_ref()?;
        Some((value.clone(), Cas(*cas)))
    }

    fn set(&mut self, slot: u32, value: &[u8], cas: Cas) -> SetResult {
        if self.broken {
            return SetResult::Failed;
        }
        if let Some(mut rival) = self.rival.take() {
            append(&mut rival, self, &mut Log::default(), 900);
            self.rival = Some(rival);
        }
        let held = self.slots.get(usize::try_from(slot).unwrap()).cloned();
        if held.flatten().is_some_and(|(_, current)| current != cas.0) {
            return SetResult::Mismatch;
        }
        self.force(slot, value);
        SetResult::Stored
    }
}

/// What a follower was told: entries by their number and content, and gaps.
#[derive(Debug, Default, PartialEq, Eq)]
struct Log {
    seen: Vec<(u64, u32)>,
    lost: u64,
}

impl Follower for Log {
    fn apply(&mut self, sequence: Sequence, entry: &Entry) {
        let Entry::VmGone { vm } = entry else {
            panic!("not ours: {entry:?}");
        };
        self.seen.push((sequence.0, vm.0));
    }

    fn lost(&mut self, entries: u64) {
        self.lost += entries;
    }
}

fn entry(number: u32) -> Entry {
    Entry::VmGone { vm: VmId(number) }
}

fn fresh() -> Ring {
    Ring::at(SLOTS, Sequence(0))
}

fn append(ring: &mut Ring, memory: &mut Memory, log: &mut Log, number: u32) -> u64 {
    ring.append(memory, log, ALL, |_| Some(entry(number)))
        .unwrap()
        .0
}

/// A ring to which `count` entries, numbered from 0, were appended.
fn written(count: u32) -> (Memory, Ring) {
    let mut memory = Memory::created(SLOTS);
    let mut ring = fresh();
    for number in 0..count {
        append(&mut ring, &mut memory, &mut Log::default(), number);
    }
    (memory, ring)
}

fn read_all(ring: &mut Ring, memory: &Memory) -> Log {
    let mut log = Log::default();
    let done = ring.catch_up(memory, &mut log, ALL);
    assert!(done.complete);
    assert_eq!((done.applied, done.lost), (log.seen.len() as u64, log.lost));
    log
}

#[test]
fn creating_leaves_what_is_there() {
    let (mut memory, _) = written(3);
    memory.slots[5] = None;
    let before = memory.slots.clone();
    assert_eq!(Ring::create(SLOTS, &mut memory), Some(1));
    assert!(memory.slots[5].is_some());
    memory.slots[5] = None;
    assert_eq!(memory.slots, before);
    memory.broken = true;
    assert_eq!(Ring::create(SLOTS, &mut memory), None);
}

#[test]
fn entries_are_numbered_from_the_second_lap_on_and_read_in_order() {
    let (memory, ring) = written(5);
    assert_eq!(ring.position(), Sequence(13));
    let log = read_all(&mut fresh(), &memory);
    assert_eq!(log.seen, [(8, 0), (9, 1), (10, 2), (11, 3), (12, 4)]);
    assert_eq!(log.lost, 0);
}

#[test]
fn one_read_tells_that_nothing_is_new() {
    let (memory, mut ring) = written(5);
    memory.reads.set(0);
    assert_eq!(read_all(&mut ring, &memory), Log::default());
    assert_eq!(memory.reads.get(), 1);
}

#[test]
fn a_limit_stops_a_reader_where_it_can_go_on() {
    let (mut memory, _) = written(5);
    let (mut ring, mut log) = (fresh(), Log::default());
    let done = ring.catch_up(&memory, &mut log, 2);
    assert_eq!((done.applied, done.complete), (2, false));
    let behind = ring.append(&mut memory, &mut log, 2, |_| Some(entry(9)));
    assert_eq!(behind, Err(AppendError::Behind));
    assert_eq!(
        ring.append(&mut memory, &mut log, 2, |_| Some(entry(9))),
        Ok(Sequence(13))
    );
    let numbers: Vec<u64> = log.seen.iter().map(|(number, _)| *number).collect();
    assert_eq!(numbers, [8, 9, 10, 11, 12, 13]);
}

#[test]
fn a_writer_that_loses_the_race_composes_anew_behind_the_winner() {
    let (mut memory, mut ring) = written(0);
    memory.rival = Some(fresh());
    let mut asked = 0;
    let mut log = Log::default();
    let result = ring.append(&mut memory, &mut log, ALL, |log| {
        asked += 1;
        assert_eq!(log.seen.len(), asked - 1, "all before it is applied");
        Some(entry(1))
    });
    assert_eq!(result, Err(AppendError::Contended));
    assert_eq!(asked, usize::try_from(ATTEMPTS).unwrap());
    memory.rival = None;
    let number = append(&mut ring, &mut memory, &mut log, 1);
    assert_eq!(number, 8 + u64::from(ATTEMPTS));
    assert_eq!(log.seen.len() as u64, u64::from(ATTEMPTS) + 1);
    assert_eq!(log.lost, 0);
}

#[test]
fn a_lapped_reader_counts_what_was_overwritten_and_goes_on_with_the_oldest() {
    for count in 9..40 {
        let (memory, _) = written(count);
        let log = read_all(&mut fresh(), &memory);
        assert_eq!(log.lost, u64::from(count) - 8);
        let expected: Vec<(u64, u32)> = (count - 8..count)
            .map(|number| (u64::from(number) + 8, number))
            .collect();
        assert_eq!(log.seen, expected);
    }
}

#[test]
fn who_joins_finds_the_oldest_entry_in_a_few_reads() {
    let slots = NonZeroU32::new(4_096).unwrap();
    for count in [0, 1, 4_095, 4_096, 4_097, 10_000] {
        let mut memory = Memory::created(slots);
        let mut ring = Ring::at(slots, Sequence(0));
        for number in 0..count {
            append(&mut ring, &mut memory, &mut Log::default(), number);
        }
        memory.reads.set(0);
        let joined = Ring::join(slots, &memory);
        assert!(memory.reads.get() <= 16, "{} reads", memory.reads.get());
        let oldest = u64::from(count).saturating_sub(4_096) + 4_096;
        assert_eq!(joined.position(), Sequence(oldest), "{count}");
    }
}

#[test]
fn who_joins_passes_over_damaged_slots() {
    let (mut memory, _) = written(11);
    memory.force(0, b"foreign");
    memory.force(1, b"");
    let mut joined = Ring::join(SLOTS, &memory);
    let log = read_all(&mut joined, &memory);
    let numbers: Vec<u64> = log.seen.iter().map(|(number, _)| *number).collect();
    assert_eq!(numbers, [11, 12, 13, 14, 15, 18]);
}

#[test]
fn a_damaged_slot_in_the_middle_is_counted_and_passed_over() {
    let (mut memory, _) = written(6);
    memory.force(2, &entry::encode(Sequence(10), &entry(2))[..16]);
    let log = read_all(&mut fresh(), &memory);
    assert_eq!(log.lost, 1);
    assert_eq!(log.seen, [(8, 0), (9, 1), (11, 3), (12, 4), (13, 5)]);
}

#[test]
fn a_number_damaged_at_the_head_is_given_up_by_the_next_writer() {
    let (mut memory, mut writer) = written(3);
    let mut ahead = fresh();
    assert_eq!(read_all(&mut ahead, &memory).seen.len(), 3);
    // Entry 10, which two VMs know and a third one does not.
    memory.force(2, b"foreign");
    let mut behind = fresh();
    assert_eq!(read_all(&mut behind, &memory).seen, [(8, 0), (9, 1)]);
    let number = append(&mut behind, &mut memory, &mut Log::default(), 7);
    assert_eq!(number, 11, "10 has an entry already");
    for mut knows in [ahead, writer] {
        let log = read_all(&mut knows, &memory);
        assert_eq!((log.seen, log.lost), (vec![(11, 7)], 0));
    }
    append(&mut writer, &mut memory, &mut Log::default(), 8);
    let log = read_all(&mut fresh(), &memory);
    assert_eq!(log.lost, 1);
    assert_eq!(log.seen, [(8, 0), (9, 1), (11, 7), (12, 8)]);
}

#[test]
fn one_forged_number_leads_nobody_away() {
    for forged in [10 + 8, 10 + 800, u64::MAX - 5] {
        let (mut memory, mut ring) = written(2);
        memory.force(2, &entry::encode(Sequence(forged), &entry(66)));
        assert_eq!(read_all(&mut fresh(), &memory).lost, 0);
        let number = append(&mut ring, &mut memory, &mut Log::default(), 5);
        assert_eq!(number, 11);
        let log = read_all(&mut fresh(), &memory);
        assert_eq!(log.seen, [(8, 0), (9, 1), (11, 5)]);
        assert!(Ring::join(SLOTS, &memory).position() <= Sequence(11));
    }
}

#[test]
fn a_wholly_damaged_ring_heals_with_use() {
    let (mut memory, mut ring) = written(30);
    for slot in 0..SLOTS.get() {
        memory.force(slot, &[0xAB; 40]);
    }
    assert_eq!(read_all(&mut ring, &memory), Log::default());
    let mut log = Log::default();
    for number in 0..20 {
        append(&mut ring, &mut memory, &mut log, number);
    }
    assert_eq!(log.seen.len(), 20);
    let mut joined = Ring::join(SLOTS, &memory);
    assert_eq!(read_all(&mut joined, &memory).seen, log.seen[12..]);
}

#[test]
fn a_ring_nobody_created_is_made_as_it_is_used() {
    let mut memory = Memory::default();
    let mut ring = fresh();
    assert_eq!(read_all(&mut ring, &memory), Log::default());
    for number in 0..20 {
        append(&mut ring, &mut memory, &mut Log::default(), number);
    }
    let log = read_all(&mut Ring::join(SLOTS, &memory), &memory);
    assert_eq!((log.seen.len(), log.lost), (8, 0));
}

#[test]
fn a_store_that_does_not_work_refuses() {
    let (mut memory, mut ring) = written(1);
    memory.broken = true;
    let refused = ring.append(&mut memory, &mut Log::default(), ALL, |_| Some(entry(1)));
    assert_eq!(refused, Err(AppendError::Refused));
}

#[test]
fn more_damage_than_one_call_repairs_takes_several() {
    let slots = NonZeroU32::new(200).unwrap();
    let mut memory = Memory::created(slots);
    for slot in 0..200 {
        memory.force(slot, b"foreign");
    }
    let mut ring = Ring::join(slots, &memory);
    let mut append = || ring.append(&mut memory, &mut Log::default(), ALL, |_| Some(entry(1)));
    for _ in 0..3 {
        assert_eq!(append(), Err(AppendError::Damaged));
    }
    assert_eq!(append(), Ok(Sequence(400)));
}

#[test]
fn the_smallest_ring_works() {
    let one = NonZeroU32::MIN;
    let mut memory = Memory::created(one);
    let (mut writer, mut reader) = (Ring::at(one, Sequence(0)), Ring::at(one, Sequence(0)));
    for number in 0..5 {
        append(&mut writer, &mut memory, &mut Log::default(), number);
    }
    let log = read_all(&mut reader, &memory);
    assert_eq!((log.seen, log.lost), (vec![(5, 4)], 4));
}

#[test]
fn an_append_after_a_catch_up_reads_nothing_and_still_sees_who_came_between() {
    let (mut memory, mut ring) = written(2);
    let mut log = Log::default();
    ring.catch_up(&memory, &mut log, ALL);
    let reads = memory.reads.get();
    assert_eq!(append(&mut ring, &mut memory, &mut log, 2), 10);
    assert_eq!(memory.reads.get(), reads);

    ring.catch_up(&memory, &mut log, ALL);
    let mut other = ring;
    append(&mut other, &mut memory, &mut Log::default(), 3);
    assert_eq!(append(&mut ring, &mut memory, &mut log, 4), 12);
    assert_eq!(log.seen, [(10, 2), (11, 3), (12, 4)]);
    assert_eq!(log.lost, 0);
}

#[test]
fn a_writer_that_loses_the_race_may_withdraw_its_entry() {
    let (mut memory, mut ring) = written(0);
    memory.rival = Some(fresh());
    let mut log = Log::default();
    let result = ring.append(&mut memory, &mut log, ALL, |log| {
        log.seen.is_empty().then(|| entry(1))
    });
    assert_eq!(result, Err(AppendError::Withdrawn));
    memory.rival = None;
    let seen = log.seen.len();
    ring.catch_up(&memory, &mut log, ALL);
    assert_eq!((seen, log.seen.len()), (1, 1), "the rival's entry alone");
}
