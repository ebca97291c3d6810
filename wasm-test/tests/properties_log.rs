//! Properties of the decision log: its entries' encoding, and the ring against a list.

use std::net::{IpAddr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::num::{NonZeroU16, NonZeroU32};

use inline_epp::prefix::BlockHash;
use inline_epp::replication::entry::{Entry, Known, Reopened, Routed, decode, encode};
use inline_epp::replication::ring::{Follower, Ring};
use inline_epp::replication::{LeaseId, PoolKey, Sequence, VmId, Weight};
use inline_epp::time::Timestamp;
use proptest::prelude::*;
use xxhash_rust::xxh64::xxh64;

use self::memory::Memory;
use self::racy::Racy;

#[path = "replication/memory.rs"]
mod memory;
#[path = "replication/racy.rs"]
mod racy;

fn addresses() -> impl Strategy<Value = SocketAddr> {
    let scoped = |(ip, port, flow, scope): (Ipv6Addr, u16, u32, u32)| {
        SocketAddrV6::new(ip, port, flow, scope).into()
    };
    prop_oneof![
        any::<(IpAddr, u16)>().prop_map(SocketAddr::from),
        any::<(Ipv6Addr, u16, u32, u32)>().prop_map(scoped),
    ]
}

fn weights() -> impl Strategy<Value = Weight> {
    any::<u32>().prop_map(Weight::from_tokens)
}

fn times() -> impl Strategy<Value = Timestamp> {
    any::<u64>().prop_map(Timestamp::from_nanos)
}

fn leases() -> impl Strategy<Value = LeaseId> {
    any::<u64>().prop_map(|number| LeaseId(Sequence(number)))
}

fn routed() -> impl Strategy<Value = Entry> {
    let known = prop::option::of((1..=u16::MAX, any::<u64>()));
    let blocks = prop::collection::vec(any::<u64>().prop_map(BlockHash), 0..40);
    let who = (any::<u64>(), any::<u32>(), addresses(), times(), weights());
    (who, known, blocks).prop_map(|((pool, vm, endpoint, sent, weight), known, new_blocks)| {
        Entry::Routed(Routed {
            pool: PoolKey(pool),
            vm: VmId(vm),
            endpoint,
            sent,
            weight,
            known: known.map(|(blocks, last)| Known {
                blocks: NonZeroU16::new(blocks).unwrap(),
                last: BlockHash(last),
            }),
            new_blocks,
        })
    })
}

fn others() -> impl Strategy<Value = Entry> {
    let numbers = (any::<u64>(), any::<u32>(), any::<bool>(), 0..13_u8);
    (numbers, leases(), addresses(), times(), weights()).prop_map(
        |((pool, number, record, kind), lease, endpoint, sent, weight)| {
            let (pool, vm) = (PoolKey(pool), VmId(number));
            match kind {
                0 => Entry::Void,
                1 => Entry::Confirmed { pool, lease },
                2 => Entry::Finished {
                    pool,
                    lease,
                    answered: record,
                    succeeded: number % 2 == 0,
                },
                3 => Entry::Moved {
                    pool,
                    lease,
                    to: endpoint,
                    sent,
                    record,
                },
                4 => Entry::TakenBack { pool, lease },
                5 => Entry::SnapshotPublished { pool },
                6 => Entry::Removed { pool, endpoint },
                7 => Entry::Restarted { pool, endpoint },
                8 => Entry::Capacity {
                    pool,
                    endpoint,
                    blocks: number,
                },
                9 => Entry::Alive { vm, at: sent },
                10 => Entry::VmGone { vm },
                11 => Entry::Failed { pool, endpoint },
                _ => Entry::Reopened(Reopened {
                    pool,
                    vm,
                    lease,
                    endpoint,
                    sent,
                    weight,
                }),
            }
        },
    )
}

fn entries() -> impl Strategy<Value = Entry> {
    prop_oneof![routed(), others()]
}

/// What one VM was told.
#[derive(Clone, Debug, Default)]
struct Told {
    seen: Vec<(u64, u32)>,
    lost: u64,
}

impl Follower for Told {
    fn apply(&mut self, sequence: Sequence, entry: &Entry) {
        if let Entry::VmGone { vm } = entry {
            self.seen.push((sequence.0, vm.0));
        }
    }

    fn lost(&mut self, entries: u64) {
        self.lost += entries;
    }
}

#[derive(Clone, Debug)]
struct Vm {
    ring: Ring,
    told: Told,
}

const VMS: usize = 4;

#[derive(Clone, Debug)]
enum Operation {
    /// This VM appends, and loses the race some times to that one.
    Append {
        vm: usize,
        rival: usize,
        losses: u32,
    },
    /// This VM reads so much.
    CatchUp { vm: usize, limit: u32 },
    /// Another plugin writes to this slot.
    Damage { slot: u32, damage: Damage },
}

#[derive(Clone, Debug)]
enum Damage {
    Bytes(Vec<u8>),
    /// The slot's own value, cut.
    Cut(usize),
    /// Another slot's value.
    Copy(u32),
    /// An entry with a number that far ahead.
    Forged(u64),
}

fn operations() -> impl Strategy<Value = Vec<Operation>> {
    let append = (0..VMS, 1..VMS, 0_u32..3).prop_map(|(vm, by, losses)| Operation::Append {
        vm,
        rival: (vm + by) % VMS,
        losses,
    });
    let catch_up = (0..VMS, 0_u32..12).prop_map(|(vm, limit)| Operation::CatchUp { vm, limit });
    prop::collection::vec(prop_oneof![2 => append, 1 => catch_up], 0..150)
}

/// Damage done now and then: fewer slots than a reader looks ahead, so that some tell how far the
/// log is, or one forged number.
fn damages() -> impl Strategy<Value = Vec<(prop::sample::Index, u32, Damage)>> {
    let damage = prop_oneof![
        prop::collection::vec(any::<u8>(), 0..40).prop_map(Damage::Bytes),
        (0_usize..20).prop_map(Damage::Cut),
        (1_u32..20).prop_map(Damage::Copy),
    ];
    let forged = (1_000_u64..u64::MAX / 64).prop_map(Damage::Forged);
    let one = |damage| (any::<prop::sample::Index>(), 0_u32..40, damage);
    prop_oneof![
        3 => prop::collection::vec(one(damage.boxed()), 1..=8),
        1 => prop::collection::vec(one(forged.boxed()), 1),
    ]
}

/// Some VMs at one ring.
struct World {
    slots: NonZeroU32,
    memory: Memory,
    vms: Vec<Vm>,
    /// Each append: its number and content.
    appended: Vec<(u64, u32)>,
}

impl World {
    fn new(slots: u32) -> Self {
        let slots = NonZeroU32::new(slots).unwrap();
        let mut memory = Memory::default();
        assert!(Ring::create(slots, &mut memory).is_some());
        let vm = Vm {
            ring: Ring::join(slots, &memory),
            told: Told::default(),
        };
        Self {
            slots,
            memory,
            vms: vec![vm; VMS],
            appended: Vec::new(),
        }
    }

    fn run(&mut self, operation: &Operation) {
        match operation {
            Operation::Append { vm, rival, losses } => self.append(*vm, *rival, *losses),
            Operation::CatchUp { vm, limit } => {
                let Vm { ring, told } = &mut self.vms[*vm];
                let (before, lost) = (told.seen.len(), told.lost);
                let done = ring.catch_up(&self.memory, told, *limit);
                assert_eq!(done.applied, (told.seen.len() - before) as u64);
                assert_eq!(done.lost, told.lost - lost);
            }
            Operation::Damage { slot, damage } => self.damage(*slot % self.slots, damage),
        }
    }

    fn append(&mut self, vm: usize, rival: usize, losses: u32) {
        let content = self.appended.len() as u32;
        let mut other = self.vms[rival].clone();
        let mut faster = Vec::new();
        let mut store = Racy {
            memory: &mut self.memory,
            losses,
            rival: |memory: &mut Memory| {
                let content = 1_000_000 + content * 10 + faster.len() as u32;
                let entry = |_: &mut Told| Some(Entry::VmGone { vm: VmId(content) });
                let appended = other.ring.append(memory, &mut other.told, u32::MAX, entry);
                faster.extend(appended.map(|number| (number.0, content)));
            },
        };
        let Vm { ring, told } = &mut self.vms[vm];
        let entry = |_: &mut Told| Some(Entry::VmGone { vm: VmId(content) });
        let appended = ring.append(&mut store, told, u32::MAX, entry);
        self.vms[rival] = other;
        self.appended.extend(faster);
        self.appended
            .extend(appended.map(|number| (number.0, content)));
    }

    fn damage(&mut self, slot: u32, damage: &Damage) {
        use inline_epp::replication::ring::SharedStore;
        let held = |slot| {
            self.memory
                .get(slot)
                .map(|(value, _)| value)
                .unwrap_or_default()
        };
        let value = match damage {
            Damage::Bytes(bytes) => bytes.clone(),
            Damage::Cut(length) => held(slot).into_iter().take(*length).collect(),
            Damage::Copy(by) if *by % self.slots == 0 => return,
            Damage::Copy(by) => held((slot + by) % self.slots),
            Damage::Forged(laps) => {
                let number = u64::from(slot) + laps * u64::from(self.slots.get());
                encode(Sequence(number), &Entry::VmGone { vm: VmId(u32::MAX) })
            }
        };
        self.memory.force(slot, value);
    }

    fn catch_up_all(&mut self) {
        for Vm { ring, told } in &mut self.vms {
            assert!(ring.catch_up(&self.memory, told, u32::MAX).complete);
        }
    }
}

proptest! {
    #[test]
    fn entries_survive_the_round_trip(entry in entries(), number in any::<u64>()) {
        let bytes = encode(Sequence(number), &entry);
        prop_assert_eq!(decode(&bytes), Some((Sequence(number), entry)));
    }

    #[test]
    fn any_bytes_are_one_entry_or_none(
        body in prop::collection::vec(any::<u8>(), 0..80), kind in 0_u8..13, form in 0_u8..4,
        flag in any::<bool>(),
    ) {
        prop_assert_eq!(decode(&body), None);
        // With a fitting checksum and, mostly, a tag that means something.
        let mut sealed = body;
        if let Some(tag) = sealed.get_mut(8) {
            *tag = kind | u8::from(flag) << 4 | form << 6;
        }
        let checksum = xxh64(&sealed, u64::from_le_bytes(*b"EPPlog\0\x01"));
        sealed.extend_from_slice(&checksum.to_le_bytes()[..4]);
        if let Some((number, entry)) = decode(&sealed) {
            prop_assert_eq!(encode(number, &entry), sealed);
        }
    }

    #[test]
    fn all_vms_apply_the_same_entries_in_the_same_order(
        operations in operations(), slots in 1_u32..40,
    ) {
        let mut world = World::new(slots);
        for operation in &operations {
            world.run(operation);
        }
        world.catch_up_all();
        let numbers: Vec<u64> = world.appended.iter().map(|(number, _)| *number).collect();
        let first = u64::from(slots);
        prop_assert_eq!(numbers, (first..first + world.appended.len() as u64).collect::<Vec<_>>());
        for Vm { told, .. } in &world.vms {
            // What is missing was lost, and counted.
            prop_assert!(told.seen.is_sorted_by(|a, b| a.0 < b.0));
            prop_assert!(told.seen.iter().all(|one| world.appended.contains(one)));
            prop_assert_eq!(told.seen.len() as u64 + told.lost, world.appended.len() as u64);
            let newest = world.appended.len().min(slots as usize);
            prop_assert!(told.seen.ends_with(&world.appended[world.appended.len() - newest..]));
        }
    }

    #[test]
    fn damage_costs_entries_but_neither_order_nor_agreement(
        mut operations in operations(), damages in damages(), slots in 16_u32..40,
    ) {
        for (at, slot, damage) in damages {
            operations.insert(at.index(operations.len() + 1), Operation::Damage { slot, damage });
        }
        let mut world = World::new(slots);
        for operation in &operations {
            world.run(operation);
        }
        // Everybody goes on: what is damaged still is repaired as it is come upon.
        let mut marker = Err(());
        for _ in 0..3 * slots {
            let Vm { ring, told } = &mut world.vms[0];
            let entry = |_: &mut Told| Some(Entry::VmGone { vm: VmId(77) });
            marker = ring.append(&mut world.memory, told, u32::MAX, entry).map_err(|_| ());
        }
        prop_assert!(marker.is_ok());
        world.catch_up_all();
        let newest = world.vms[0].told.seen.last().copied();
        prop_assert_eq!(newest, marker.ok().map(|number| (number.0, 77)));
        let mut contents = std::collections::BTreeMap::new();
        for Vm { ring, told } in &world.vms {
            prop_assert!(told.seen.is_sorted_by(|a, b| a.0 < b.0));
            prop_assert_eq!(told.seen.last().copied(), newest);
            prop_assert_eq!(ring.position(), world.vms[0].ring.position());
            for (number, content) in &told.seen {
                prop_assert_eq!(contents.entry(*number).or_insert(content), &content);
            }
        }
        let joined = Ring::join(world.slots, &world.memory);
        prop_assert!(joined.position() <= world.vms[0].ring.position());
    }
}
