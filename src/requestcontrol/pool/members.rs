//! Who belongs to a pool, by id and by address.

use core::net::SocketAddr;
use std::collections::BTreeMap;

use super::known::Known;
use crate::datalayer::EndpointId;

/// The endpoints of a pool, at the places their replica has for them. Memory: one [`Known`] for each
/// place.
#[derive(Debug, Default)]
pub(super) struct Members {
    places: Vec<Option<Known>>,
    by_address: BTreeMap<SocketAddr, EndpointId>,
    /// How many have joined.
    joined: u64,
}

impl Members {
    pub(super) fn get(&self, id: EndpointId) -> Option<&Known> {
        self.places.get(id.index())?.as_ref()
    }

    pub(super) fn get_mut(&mut self, id: EndpointId) -> Option<&mut Known> {
        self.places.get_mut(id.index())?.as_mut()
    }

    pub(super) fn find(&self, address: SocketAddr) -> Option<EndpointId> {
        self.by_address.get(&address).copied()
    }

    /// The members, in the order of their ids.
    pub(super) fn iter(&self) -> impl Iterator<Item = (EndpointId, &Known)> {
        self.places.iter().zip(0_u16..).filter_map(|(place, id)| {
            let known = place.as_ref()?;
            Some((EndpointId::new(id), known))
        })
    }

    /// The same, to change them.
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = (EndpointId, &mut Known)> {
        let places = self.places.iter_mut().zip(0_u16..);
        places.filter_map(|(place, id)| Some((EndpointId::new(id), place.as_mut()?)))
    }

    pub(super) fn addresses(&self) -> Vec<SocketAddr> {
        self.by_address.keys().copied().collect()
    }

    pub(super) fn len(&self) -> usize {
        self.by_address.len()
    }

    /// How many have joined so far: tells a member from an earlier one of the same place.
    pub(super) const fn joined(&self) -> u64 {
        self.joined
    }

    /// Takes `known` in as `id`, which no member has.
    pub(super) fn join(&mut self, mut known: Known, id: EndpointId) {
        let address = known.endpoint.address;
        self.joined = self.joined.saturating_add(1);
        known.joined = self.joined;
        while self.places.len() <= id.index() {
            self.places.push(None);
        }
        if let Some(place) = self.places.get_mut(id.index()) {
            *place = Some(known);
        }
        self.by_address.insert(address, id);
    }

    pub(super) fn leave(&mut self, id: EndpointId) -> Option<Known> {
        let known = self.places.get_mut(id.index())?.take()?;
        self.by_address.remove(&known.endpoint.address);
        Some(known)
    }
}
