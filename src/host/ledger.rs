//! The VM's one ledger, and the shared data behind it.

use core::cell::RefCell;
use core::num::NonZeroU32;
use std::collections::BTreeMap;

use super::abi::{self, HostError};
use super::shared::PREFIX;
use super::switches;
use crate::replication::VmId;
use crate::replication::ring::{Cas, Ring, SetResult, SharedStore};
use crate::requestcontrol::{Board, Ledger, LedgerHandle};

thread_local! {
    /// By the ring's size. It outlives the configurations of this VM.
    static LEDGERS: RefCell<BTreeMap<NonZeroU32, LedgerHandle>> = const { RefCell::new(BTreeMap::new()) };
}

/// The ledger of this VM with a ring of `slots` entries; `vm` is the number it gets if it is new.
///
/// Envoy configures one VM before all others, so the ring is there when they come.
pub(super) fn of_this_vm(slots: NonZeroU32, vm: VmId) -> LedgerHandle {
    let found = LEDGERS.try_with(|ledgers| {
        let mut ledgers = ledgers.try_borrow_mut().ok()?;
        let known = ledgers.entry(slots);
        Some(known.or_insert_with(|| open(slots, vm)).clone())
    });
    let found = found.ok().flatten();
    found.unwrap_or_else(|| LedgerHandle::new(Ledger::alone()))
}

fn open(slots: NonZeroU32, vm: VmId) -> LedgerHandle {
    let mut store = RingStore {
        prefix: format!("{PREFIX}/log/{slots}/"),
    };
    let ledger = if switches::keeps_to_itself() || Ring::create(slots, &mut store).is_none() {
        log::warn!(
            "inline-epp: shared data does not work: each worker knows its own requests only"
        );
        Ledger::alone()
    } else {
        let ring = Ring::join(slots, &store);
        Ledger::shared(vm, ring, Box::new(store))
    };
    LedgerHandle::new(ledger)
}

/// The ring's slots.
struct RingStore {
    prefix: String,
}

impl RingStore {
    fn key(&self, slot: u32) -> String {
        format!("{}{slot}", self.prefix)
    }
}

impl SharedStore for RingStore {
    fn get(&self, slot: u32) -> Option<(Vec<u8>, Cas)> {
        let (value, cas) = abi::shared_data(&self.key(slot)).ok()?;
        Some((value, Cas(cas)))
    }

    fn set(&mut self, slot: u32, value: &[u8], cas: Cas) -> SetResult {
        match abi::set_shared_data(&self.key(slot), value, cas.0) {
            Ok(()) => SetResult::Stored,
            Err(error) if error == HostError::CAS_MISMATCH => SetResult::Mismatch,
            Err(_) => SetResult::Failed,
        }
    }
}

/// What the leader writes for all.
pub(super) struct SharedBoard;

impl Board for SharedBoard {
    fn get(&self, key: &str) -> Option<Vec<u8>> {
        let (value, _) = abi::shared_data(&format!("{PREFIX}/{key}")).ok()?;
        Some(value)
    }

    fn set(&mut self, key: &str, value: &[u8]) {
        if let Err(error) = abi::set_shared_data(&format!("{PREFIX}/{key}"), value, 0) {
            log::debug!("cannot write {key}: {error:?}");
        }
    }
}
