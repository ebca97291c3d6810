//! Properties of replicas: VMs that follow one log hold the same, and one that comes late gets there.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::num::NonZeroU32;

use inline_epp::config::PendingCredit;
use inline_epp::prefix::{BlockHash, Held};
use inline_epp::replication::checkpoint::{self, CheckpointWriter};
use inline_epp::replication::entry::Entry;
use inline_epp::replication::ring::{Follower, Ring};
use inline_epp::replication::{
    LeaseId, NewRequest, PoolKey, Reopening, Replica, Sequence, VmId, Weight, lease_table,
};
use inline_epp::time::Timestamp;
use proptest::prelude::*;

use self::memory::Memory;
use self::racy::Racy;

#[path = "replication/memory.rs"]
mod memory;
#[path = "replication/racy.rs"]
mod racy;

const POOL: PoolKey = PoolKey(7);
const VMS: usize = 3;
const ENDPOINTS: usize = 4;

fn address(endpoint: usize) -> SocketAddr {
    let addresses = [
        "10.0.0.1:8000",
        "10.0.0.2:8000",
        "[fd00::1]:8000",
        "[fe80::1%3]:80",
    ];
    addresses[endpoint % ENDPOINTS].parse().unwrap()
}

#[derive(Debug)]
struct Vm {
    id: VmId,
    ring: Ring,
    state: State,
}

#[derive(Debug)]
struct State {
    id: VmId,
    replica: Replica<()>,
    lost: u64,
}

impl Follower for State {
    fn apply(&mut self, sequence: Sequence, entry: &Entry) {
        self.replica.apply(sequence, entry);
    }

    fn lost(&mut self, entries: u64) {
        self.lost += entries;
        self.replica.lost_entries(self.id);
    }
}

#[derive(Clone, Debug)]
enum Action {
    Route {
        endpoint: usize,
        chain: Vec<u64>,
    },
    Confirm(prop::sample::Index),
    Finish {
        lease: prop::sample::Index,
        answered: bool,
    },
    TakeBack(prop::sample::Index),
    Move {
        lease: prop::sample::Index,
        to: usize,
        record: bool,
    },
    Removed(usize),
    Restarted(usize),
    Capacity {
        endpoint: usize,
        blocks: u32,
    },
    VmGone(u32),
    Reopen {
        lease: u64,
        endpoint: usize,
    },
    CatchUp,
}

/// An action of one VM, which loses the race some times to another that routes this.
#[derive(Clone, Debug)]
struct Turn {
    vm: usize,
    action: Action,
    losses: u32,
    rival: (usize, Vec<u64>),
}

/// Conversations that share beginnings: a block's number says which prefix it ends.
fn chains() -> impl Strategy<Value = Vec<u64>> {
    (0_u64..3, 0_u64..4, 0_usize..6, 0_usize..6).prop_map(|(system, talk, head, tail)| {
        let head_blocks = (0..head as u64).map(|at| 1 + 1_000 * system + at);
        let root = 1_000 * system + 10 * head as u64;
        let tail_blocks = (0..tail as u64).map(|at| 100 + root + 200 * talk + at);
        head_blocks.chain(tail_blocks).collect()
    })
}

fn actions() -> impl Strategy<Value = Action> {
    let lease = any::<prop::sample::Index>;
    let endpoint = || 0..ENDPOINTS;
    prop_oneof![
        8 => (endpoint(), chains()).prop_map(|(endpoint, chain)| Action::Route { endpoint, chain }),
        6 => lease().prop_map(Action::Confirm),
        4 => (lease(), any::<bool>()).prop_map(|(lease, answered)| Action::Finish { lease, answered }),
        1 => lease().prop_map(Action::TakeBack),
        2 => (lease(), endpoint(), any::<bool>())
            .prop_map(|(lease, to, record)| Action::Move { lease, to, record }),
        1 => endpoint().prop_map(Action::Removed),
        1 => endpoint().prop_map(Action::Restarted),
        1 => (endpoint(), 0_u32..20)
            .prop_map(|(endpoint, blocks)| Action::Capacity { endpoint, blocks }),
        1 => (0..VMS as u32).prop_map(Action::VmGone),
        1 => (0_u64..100, endpoint())
            .prop_map(|(lease, endpoint)| Action::Reopen { lease, endpoint }),
        4 => Just(Action::CatchUp),
    ]
}

fn turns(length: usize) -> impl Strategy<Value = Vec<Turn>> {
    let turn = (0..VMS, actions(), 0_u32..2, (0..ENDPOINTS, chains())).prop_map(
        |(vm, action, losses, rival)| Turn {
            vm,
            action,
            losses,
            rival,
        },
    );
    prop::collection::vec(turn, 0..length)
}

fn hashes(chain: &[u64]) -> Vec<BlockHash> {
    chain.iter().copied().map(BlockHash).collect()
}

/// Some VMs with a replica each, at one ring.
struct World {
    memory: Memory,
    vms: Vec<Vm>,
    chains: Vec<Vec<BlockHash>>,
    now: u64,
}

impl World {
    fn new(slots: u32, capacity: u32, max_entries: usize) -> Self {
        let slots = NonZeroU32::new(slots).unwrap();
        let mut memory = Memory::default();
        Ring::create(slots, &mut memory).unwrap();
        let vms = (0..VMS).map(|number| {
            let mut vm = vm(number as u32, slots, capacity, max_entries, &memory);
            vm.state.replica.await_no_leases();
            vm
        });
        Self {
            vms: vms.collect(),
            memory,
            chains: Vec::new(),
            now: 0,
        }
    }

    fn run(&mut self, turn: &Turn) {
        self.now += 1;
        let now = Timestamp::from_nanos(self.now);
        let mut other = self.vms.remove((turn.vm + 1) % VMS);
        let me = if turn.vm + 1 < VMS {
            turn.vm
        } else {
            turn.vm - 1
        };
        let (endpoint, chain) = (address(turn.rival.0), hashes(&turn.rival.1));
        let mut store = Racy {
            memory: &mut self.memory,
            losses: turn.losses,
            rival: |memory: &mut Memory| {
                let id = other.id;
                let route =
                    |state: &mut State| Some(route(&state.replica, id, endpoint, now, &chain));
                other
                    .ring
                    .append(memory, &mut other.state, u32::MAX, route)
                    .unwrap();
            },
        };
        let vm = &mut self.vms[me];
        if let Action::CatchUp = turn.action {
            vm.ring.catch_up(&store, &mut vm.state, u32::MAX);
        } else {
            let id = vm.id;
            let compose = |state: &mut State| Some(compose(&state.replica, id, now, &turn.action));
            vm.ring
                .append(&mut store, &mut vm.state, u32::MAX, compose)
                .unwrap();
        }
        self.vms.insert((turn.vm + 1) % VMS, other);
        self.chains.push(chain);
        if let Action::Route { chain, .. } = &turn.action {
            self.chains.push(hashes(chain));
        }
    }

    fn catch_up_all(&mut self) {
        for vm in &mut self.vms {
            vm.ring.catch_up(&self.memory, &mut vm.state, u32::MAX);
        }
    }

    /// The VM `number` sees those requests end that it knows and `ends` says.
    fn finish(&mut self, number: usize, ends: impl Fn(VmId) -> bool) {
        let Vm { ring, state, .. } = &mut self.vms[number];
        ring.catch_up(&self.memory, state, u32::MAX);
        let open = state.replica.leases().filter(|(_, lease)| ends(lease.vm));
        for lease in open.map(|(lease, _)| lease).collect::<Vec<_>>() {
            let finished = Entry::Finished {
                pool: POOL,
                lease,
                answered: false,
                succeeded: false,
            };
            let finished = |_: &mut State| Some(finished.clone());
            ring.append(&mut self.memory, state, u32::MAX, finished)
                .unwrap();
        }
    }

    /// One round through the first VM's index, as other VMs read it.
    fn checkpoint(&self, writer: &mut CheckpointWriter) -> Checkpoint {
        let Vm { ring, state, .. } = &self.vms[0];
        let mut chunks = Vec::new();
        while let Some((_, chunk)) = writer.next_chunk(&state.replica, ring.position()) {
            chunks.push(checkpoint::encode_chunk(&chunk));
        }
        let contents = writer.contents(&state.replica, ring.position());
        Checkpoint {
            chunks,
            contents: checkpoint::encode_contents(&contents),
        }
    }
}

/// What shared data holds of a checkpoint.
struct Checkpoint {
    contents: Vec<u8>,
    chunks: Vec<Vec<u8>>,
}

impl Checkpoint {
    fn load(&self, replica: &mut Replica<()>) {
        replica.learn(&checkpoint::decode_contents(&self.contents).unwrap());
        for chunk in &self.chunks {
            replica.load_chunk(&checkpoint::decode_chunk(chunk).unwrap());
        }
    }
}

/// A VM that knows nothing yet. Each VM has its endpoints at other places.
fn vm(number: u32, slots: NonZeroU32, capacity: u32, max_entries: usize, memory: &Memory) -> Vm {
    let mut replica = Replica::new(POOL, capacity, max_entries, ());
    for endpoint in 0..ENDPOINTS {
        replica.hold(address(endpoint + number as usize)).unwrap();
    }
    let id = VmId(number);
    Vm {
        id,
        ring: Ring::join(slots, memory),
        state: State {
            id,
            replica,
            lost: 0,
        },
    }
}

fn route(
    replica: &Replica<()>,
    vm: VmId,
    endpoint: SocketAddr,
    sent: Timestamp,
    chain: &[BlockHash],
) -> Entry {
    let weight = Weight::from_tokens(chain.len() as u32);
    replica.compose_routed(NewRequest {
        vm,
        endpoint,
        sent,
        weight,
        chain,
    })
}

fn compose(replica: &Replica<()>, vm: VmId, now: Timestamp, action: &Action) -> Entry {
    // A VM speaks of its own requests only. With none open, of one that is over.
    let own = replica.leases().filter(|(_, lease)| lease.vm == vm);
    let open: Vec<LeaseId> = own.map(|(id, _)| id).collect();
    let pick = |index: &prop::sample::Index| match open.len() {
        0 => LeaseId(Sequence(1)),
        count => open[index.index(count)],
    };
    let pool = POOL;
    match action {
        Action::Route { endpoint, chain } => {
            route(replica, vm, address(*endpoint), now, &hashes(chain))
        }
        Action::Confirm(index) => Entry::Confirmed {
            pool,
            lease: pick(index),
        },
        Action::Finish { lease, answered } => Entry::Finished {
            pool,
            lease: pick(lease),
            answered: *answered,
            succeeded: *answered,
        },
        Action::TakeBack(index) => Entry::TakenBack {
            pool,
            lease: pick(index),
        },
        Action::Move { lease, to, record } => Entry::Moved {
            pool,
            lease: pick(lease),
            to: address(*to),
            sent: now,
            record: *record,
        },
        Action::Removed(endpoint) => Entry::Removed {
            pool,
            endpoint: address(*endpoint),
        },
        Action::Restarted(endpoint) => Entry::Restarted {
            pool,
            endpoint: address(*endpoint),
        },
        Action::Capacity { endpoint, blocks } => Entry::Capacity {
            pool,
            endpoint: address(*endpoint),
            blocks: *blocks,
        },
        Action::VmGone(vm) => Entry::VmGone { vm: VmId(*vm) },
        Action::Reopen { lease, endpoint } => {
            let (endpoint, sent) = (address(*endpoint), now);
            let weight = Weight::from_tokens(1);
            let reopening = Reopening {
                vm,
                endpoint,
                sent,
                weight,
            };
            replica.compose_reopened(LeaseId(Sequence(*lease)), reopening)
        }
        Action::CatchUp => Entry::Alive { vm, at: now },
    }
}

type Lease = (LeaseId, SocketAddr, VmId, Timestamp, Weight, Vec<BlockHash>);

/// All leases with their endpoints' addresses.
fn leases(replica: &Replica<()>) -> Vec<Lease> {
    let addresses: BTreeMap<_, _> = replica.endpoints().map(|(at, id)| (id, at)).collect();
    let leases = replica.leases().map(|(id, lease)| {
        let address = addresses[&lease.endpoint];
        let blocks = lease.pending.blocks.clone();
        (id, address, lease.vm, lease.sent, lease.weight, blocks)
    });
    leases.collect()
}

/// Everything each endpoint holds, in its order of eviction.
fn held(replica: &Replica<()>) -> BTreeMap<SocketAddr, (u32, Vec<Held>)> {
    let index = replica.index();
    let endpoints = replica.endpoints();
    endpoints
        .map(|(address, id)| (address, (index.capacity(id), index.held(id).collect())))
        .collect()
}

/// How much of `chain` each endpoint holds.
fn matches(
    replica: &Replica<()>,
    chain: &[BlockHash],
    credit: PendingCredit,
) -> BTreeMap<SocketAddr, u32> {
    let mut matched = Vec::new();
    replica.index().matches(chain, credit, &mut matched);
    let endpoints = replica.endpoints();
    endpoints
        .map(|(address, id)| (address, matched[id.index()]))
        .collect()
}

proptest! {
    #[test]
    fn vms_that_follow_one_log_hold_the_same(
        turns in turns(120), capacity in 1_u32..20, max_entries in 1_usize..50,
    ) {
        let mut world = World::new(1_024, capacity, max_entries);
        for turn in &turns {
            world.run(turn);
        }
        world.catch_up_all();
        let [first, others @ ..] = &world.vms[..] else { unreachable!() };
        prop_assert_eq!(first.state.lost, 0);
        prop_assert!(first.state.replica.index().len() <= max_entries);
        for other in others {
            prop_assert_eq!(held(&other.state.replica), held(&first.state.replica));
            prop_assert_eq!(leases(&other.state.replica), leases(&first.state.replica));
        }
    }

    #[test]
    fn a_vm_that_comes_late_knows_what_the_others_know(
        before in turns(150), during in turns(15), after in turns(15),
    ) {
        let mut world = World::new(128, 10_000, 100_000);
        let mut writer = CheckpointWriter::new(None);
        // Endpoints have room for all: what is evicted depends on what came before.
        let keeps = |turn: &&Turn| !matches!(turn.action, Action::Capacity { .. });
        for turn in before.iter().filter(keeps) {
            world.run(turn);
        }
        world.catch_up_all();
        let earlier = world.checkpoint(&mut writer);
        for turn in during.iter().filter(keeps) {
            world.run(turn);
        }
        let Vm { ring, state, .. } = &mut world.vms[0];
        ring.catch_up(&world.memory, state, u32::MAX);
        let table = state.replica.lease_table(ring.position(), Vec::new()).unwrap();
        let table = lease_table::encode(&table);
        for turn in after.iter().filter(keeps) {
            world.run(turn);
        }
        world.catch_up_all();

        let slots = NonZeroU32::new(128).unwrap();
        let mut late = vm(9, slots, 10_000, 100_000, &world.memory);
        earlier.load(&mut late.state.replica);
        late.ring.catch_up(&world.memory, &mut late.state, u32::MAX);
        prop_assert_eq!(late.state.lost, 0);
        let table = lease_table::decode(&table).unwrap();
        prop_assert!(late.state.replica.load_leases(&table));
        let open = |state: &State| -> Vec<_> {
            leases(&state.replica).into_iter().map(|lease| (lease.0, lease.1, lease.2)).collect()
        };
        prop_assert_eq!(open(&late.state), open(&world.vms[0].state));

        world.checkpoint(&mut writer).load(&mut late.state.replica);
        world.vms.push(late);
        let [first, .., late] = &world.vms[..] else { unreachable!() };
        for chain in &world.chains {
            let [ours, theirs] = [first, late]
                .map(|vm| matches(&vm.state.replica, chain, PendingCredit::None));
            prop_assert_eq!(theirs, ours, "{:?}", chain);
        }
        // Once what was pending is settled, nothing is left that differs.
        world.finish(0, |_| true);
        world.catch_up_all();
        let [first, .., late] = &world.vms[..] else { unreachable!() };
        prop_assert_eq!(late.state.replica.leases().count(), 0);
        for chain in &world.chains {
            let [ours, theirs] = [first, late]
                .map(|vm| matches(&vm.state.replica, chain, PendingCredit::Full));
            prop_assert_eq!(theirs, ours, "{:?}", chain);
        }
    }

    #[test]
    fn a_lapped_vm_counts_what_it_lost_and_no_lease_stays_open_for_ever(turns in turns(200)) {
        let mut world = World::new(16, 100, 1_000);
        for turn in &turns {
            world.run(turn);
        }
        // Each VM sees its own requests end.
        for number in 0..VMS {
            let own = world.vms[number].id;
            world.finish(number, |vm| vm == own);
        }
        world.catch_up_all();
        for vm in &world.vms {
            prop_assert_eq!(leases(&vm.state.replica), vec![]);
        }
    }
}
