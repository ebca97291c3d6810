//! Where this VM keeps which endpoint: VMs name endpoints by address, places are each one's own.

use core::net::SocketAddr;
use std::collections::BTreeMap;

use xxhash_rust::xxh64::xxh64;

use super::{LeaseObserver, Replica};
use crate::datalayer::EndpointId;
use crate::prefix::PrefixIndex;
use crate::replication::Sequence;

/// Addresses of which it is kept when they were last emptied: those emptied longest ago are
/// forgotten.
const MAX_EMPTIED: usize = 4_096;

#[derive(Debug)]
pub(super) struct Places {
    /// Room of an endpoint that nobody told of.
    capacity: u32,
    by_address: BTreeMap<SocketAddr, Place>,
    emptied: BTreeMap<SocketAddr, Sequence>,
}

#[derive(Clone, Copy, Debug)]
struct Place {
    id: EndpointId,
    /// The pool lists it, so its place stays its own.
    held: bool,
}

impl Places {
    pub(super) const fn new(capacity: u32) -> Self {
        Self {
            capacity,
            by_address: BTreeMap::new(),
            emptied: BTreeMap::new(),
        }
    }

    pub(super) fn find(&self, address: SocketAddr) -> Option<EndpointId> {
        self.by_address.get(&address).map(|place| place.id)
    }

    /// The place of `address`, a new one if it has none: another VM may know it earlier than this
    /// one. `None` when all places are taken.
    pub(super) fn find_or_add(
        &mut self,
        address: SocketAddr,
        index: &mut PrefixIndex,
    ) -> Option<EndpointId> {
        if let Some(id) = self.find(address) {
            return Some(id);
        }
        let key = xxh64(address.to_string().as_bytes(), 0);
        let id = index.add_endpoint(self.capacity, key)?;
        self.by_address.insert(address, Place { id, held: false });
        Some(id)
    }

    /// Makes `address`, which holds nothing, as new, and frees its place unless the pool lists it.
    pub(super) fn reset(&mut self, address: SocketAddr, index: &mut PrefixIndex) {
        match self.by_address.get(&address) {
            Some(&Place { id, held: true }) => index.set_capacity(id, self.capacity),
            Some(&Place { id, held: false }) => {
                self.by_address.remove(&address);
                index.remove_endpoint(id);
            }
            None => {}
        }
    }

    /// All that `address` held was dropped by the entry at `sequence`.
    pub(super) fn emptied(&mut self, address: SocketAddr, sequence: Sequence) {
        let last = self.emptied.entry(address).or_default();
        *last = sequence.max(*last);
        if self.emptied.len() > MAX_EMPTIED {
            let oldest = self.emptied.iter().min_by_key(|(_, at)| **at);
            if let Some(address) = oldest.map(|(address, _)| *address) {
                self.emptied.remove(&address);
            }
        }
    }

    pub(super) fn last_emptied(&self, address: SocketAddr) -> Option<Sequence> {
        self.emptied.get(&address).copied()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (SocketAddr, EndpointId)> {
        self.by_address
            .iter()
            .map(|(address, place)| (*address, place.id))
    }
}

impl<O: LeaseObserver> Replica<O> {
    /// The pool lists `address`: its place is its own until [`Self::release`]. `None` when all
    /// 65,536 places are taken.
    pub fn hold(&mut self, address: SocketAddr) -> Option<EndpointId> {
        let id = self.places.find_or_add(address, &mut self.index)?;
        if let Some(place) = self.places.by_address.get_mut(&address) {
            place.held = true;
        }
        Some(id)
    }

    /// The pool does not list `address` any more. Its place is free once nothing is known of it: at
    /// once if it is as new, else with the entry that says it is removed.
    pub fn release(&mut self, address: SocketAddr) {
        let Some(place) = self.places.by_address.get_mut(&address) else {
            return;
        };
        place.held = false;
        let id = place.id;
        let as_new = self.index.blocks_at(id) == 0
            && self.index.capacity(id) == self.places.capacity
            && self.leases.iter().all(|(_, lease)| lease.endpoint != id);
        if as_new {
            self.places.reset(address, &mut self.index);
        }
    }

    /// The place of `address`, if it has one.
    pub fn find(&self, address: SocketAddr) -> Option<EndpointId> {
        self.places.find(address)
    }

    /// All endpoints that have a place, by address.
    pub fn endpoints(&self) -> impl Iterator<Item = (SocketAddr, EndpointId)> {
        self.places.iter()
    }
}
