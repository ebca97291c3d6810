//! The adapter slots of one engine: what is loaded, and what has to go for the next one.

use std::collections::BTreeSet;

/// Adapters that can run at once. The one used longest ago, and by nobody now, gives up its slot.
#[derive(Debug)]
pub struct AdapterSlots {
    /// At least 1.
    slots: usize,
    /// Most recently used last.
    loaded: Vec<String>,
}

impl AdapterSlots {
    pub fn new(slots: usize) -> Self {
        Self {
            slots: slots.max(1),
            loaded: Vec::new(),
        }
    }

    /// Whether `adapter` is loaded, or could be while those `in_use` stay.
    pub fn fits(&self, adapter: &str, in_use: &BTreeSet<String>) -> bool {
        self.is_loaded(adapter) || self.has_room() || self.idle(in_use).is_some()
    }

    /// Uses `adapter`, which must fit; `true` when it had to be loaded for that.
    pub fn take(&mut self, adapter: &str, in_use: &BTreeSet<String>) -> bool {
        let loads = !self.is_loaded(adapter);
        let position = if loads {
            (!self.has_room()).then(|| self.idle(in_use)).flatten()
        } else {
            self.loaded.iter().position(|loaded| loaded == adapter)
        };
        if let Some(position) = position {
            self.loaded.remove(position);
        }
        self.loaded.push(adapter.to_owned());
        loads
    }

    fn is_loaded(&self, adapter: &str) -> bool {
        self.loaded.iter().any(|loaded| loaded == adapter)
    }

    fn has_room(&self) -> bool {
        self.loaded.len() < self.slots
    }

    /// The slot to give up.
    fn idle(&self, in_use: &BTreeSet<String>) -> Option<usize> {
        let is_idle = |loaded: &String| !in_use.contains(loaded);
        self.loaded.iter().position(is_idle)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(adapters: &[&str]) -> BTreeSet<String> {
        adapters.iter().copied().map(str::to_owned).collect()
    }

    #[test]
    fn an_adapter_is_loaded_once() {
        let mut slots = AdapterSlots::new(2);
        assert!(slots.take("a", &set(&[])));
        assert!(!slots.take("a", &set(&[])));
        assert!(slots.take("b", &set(&["a"])));
        assert!(!slots.take("a", &set(&["b"])));
    }

    #[test]
    fn the_least_recently_used_one_goes() {
        let mut slots = AdapterSlots::new(2);
        for adapter in ["a", "b", "a", "c"] {
            slots.take(adapter, &set(&[]));
        }
        assert_eq!(slots.loaded, ["a", "c"]);
    }

    #[test]
    fn one_in_use_never_goes() {
        let mut slots = AdapterSlots::new(2);
        slots.take("a", &set(&[]));
        slots.take("b", &set(&["a"]));
        assert!(!slots.fits("c", &set(&["a", "b"])));
        assert!(slots.fits("a", &set(&["a", "b"])));
        assert!(slots.fits("c", &set(&["a"])));
        slots.take("c", &set(&["a"]));
        assert_eq!(slots.loaded, ["a", "c"]);
    }
}
