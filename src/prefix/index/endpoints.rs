//! The endpoints of an index: they come, change and go.

use super::PrefixIndex;
use super::lru::Lru;
use crate::datalayer::EndpointId;

/// One LRU list for each endpoint, by its place.
#[derive(Debug, Default)]
pub(super) struct Lists {
    /// `None` where no endpoint is.
    places: Vec<Option<Lru>>,
    /// How many places are without one.
    vacant: usize,
}

impl Lists {
    /// Places, those without an endpoint included.
    pub(super) fn len(&self) -> usize {
        self.places.len()
    }

    pub(super) fn get(&self, endpoint: EndpointId) -> Option<&Lru> {
        self.places.get(endpoint.index())?.as_ref()
    }

    pub(super) fn get_mut(&mut self, endpoint: EndpointId) -> Option<&mut Lru> {
        self.places.get_mut(endpoint.index())?.as_mut()
    }

    /// The endpoint with the most entries; of several, the one with the greatest key.
    pub(super) fn largest(&self) -> Option<EndpointId> {
        let mut largest: Option<(&Lru, u16)> = None;
        for (list, place) in self.places.iter().zip(0..) {
            let Some(list) = list else { continue };
            // Nearly always settled by the length alone: this runs once for each block that a full
            // index takes.
            let beats = largest.is_none_or(|(best, _)| {
                list.len > best.len || (list.len == best.len && list.key > best.key)
            });
            if beats {
                largest = Some((list, place));
            }
        }
        largest.map(|(_, place)| EndpointId::new(place))
    }

    fn add(&mut self, list: Lru) -> Option<EndpointId> {
        let vacant = (self.vacant > 0).then(|| self.places.iter().position(Option::is_none));
        let place = vacant.flatten().unwrap_or(self.places.len());
        let id = EndpointId::new(u16::try_from(place).ok()?);
        if let Some(vacant) = self.places.get_mut(place) {
            *vacant = Some(list);
            self.vacant = self.vacant.saturating_sub(1);
        } else {
            self.places.push(Some(list));
        }
        Some(id)
    }

    fn remove(&mut self, endpoint: EndpointId) {
        let place = self.places.get_mut(endpoint.index());
        if place.and_then(Option::take).is_some() {
            self.vacant = self.vacant.saturating_add(1);
        }
    }
}

impl PrefixIndex {
    /// Adds an endpoint with room for `capacity` blocks, at the first free place. Where eviction
    /// must choose between endpoints that hold equally much, the greater `key` decides: VMs agree
    /// if each gives an endpoint the same key and different endpoints different ones. `None` when
    /// all 65,536 places are taken.
    pub fn add_endpoint(&mut self, capacity: u32, key: u64) -> Option<EndpointId> {
        self.lists.add(Lru::new(capacity, key))
    }

    /// Drops all that `endpoint` holds, in time linear in that; it stays.
    pub fn drop_endpoint(&mut self, endpoint: EndpointId) {
        while self.evict_oldest(endpoint) {}
    }

    /// Drops all that `endpoint` holds, and frees its place for another.
    pub fn remove_endpoint(&mut self, endpoint: EndpointId) {
        self.drop_endpoint(endpoint);
        self.lists.remove(endpoint);
    }

    /// Sets how many blocks `endpoint` has room for; what exceeds it is evicted.
    pub fn set_capacity(&mut self, endpoint: EndpointId, capacity: u32) {
        let Some(list) = self.lists.get_mut(endpoint) else {
            return;
        };
        list.capacity = capacity;
        while self.blocks_at(endpoint) > capacity {
            if !self.evict_oldest(endpoint) {
                break;
            }
        }
    }

    /// How many blocks `endpoint` has room for.
    pub fn capacity(&self, endpoint: EndpointId) -> u32 {
        self.lists.get(endpoint).map_or(0, |list| list.capacity)
    }

    /// How many blocks `endpoint` is thought to hold.
    pub fn blocks_at(&self, endpoint: EndpointId) -> u32 {
        self.lists.get(endpoint).map_or(0, |list| list.len)
    }
}
