//! The adapters (`LoRA`) an endpoint has loaded.

use std::collections::BTreeMap;

/// Names of loaded adapters, each once, in order. Bounded, since a page from the network fills it:
/// at most [`Adapters::MAX`] names of at most [`Adapters::MAX_NAME_BYTES`] bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Adapters {
    names: BTreeMap<String, AdapterState>,
    most: Option<u32>,
}

/// What an adapter that a server lists is there for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AdapterState {
    /// Requests for it run: it is loaded.
    Running,
    /// All its requests wait: it is loaded, or about to be.
    Waiting,
}

impl Adapters {
    /// Names kept. GPUs hold tens of adapters at a time.
    pub const MAX: usize = 256;
    /// Bytes of the longest name that is kept.
    pub const MAX_NAME_BYTES: usize = 256;

    /// Adds `name` as running, unless it is empty or too long. Of more than [`Self::MAX`] names the
    /// first in order stay, whatever the order they come in.
    pub fn insert(&mut self, name: &str) {
        self.add(name, AdapterState::Running);
    }

    /// Adds `name` as waiting, unless it runs already; bounds as of [`Self::insert`].
    pub fn insert_waiting(&mut self, name: &str) {
        if !self.names.contains_key(name) {
            self.add(name, AdapterState::Waiting);
        }
    }

    /// The server says that it can have `most` loaded at once.
    pub fn allow(&mut self, most: u32) {
        self.most = Some(most);
    }

    fn add(&mut self, name: &str, state: AdapterState) {
        if name.is_empty() || name.len() > Self::MAX_NAME_BYTES {
            return;
        }
        self.names.insert(name.to_owned(), state);
        if self.names.len() > Self::MAX {
            self.names.pop_last();
        }
    }

    /// Whether `name` is among them.
    pub fn contains(&self, name: &str) -> bool {
        self.names.contains_key(name)
    }

    /// What `name` is listed for, if it is.
    pub fn state(&self, name: &str) -> Option<AdapterState> {
        self.names.get(name).copied()
    }

    /// How many the server can have loaded at once; `None`: it did not say.
    pub const fn most(&self) -> Option<u32> {
        self.most
    }

    /// Whether fewer are listed than can be loaded at once.
    pub fn has_room(&self) -> bool {
        u32::try_from(self.names.len()).is_ok_and(|listed| listed < self.most.unwrap_or(0))
    }

    /// The names, in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &str> {
        self.names.keys().map(String::as_str)
    }
}

impl<'a> FromIterator<&'a str> for Adapters {
    fn from_iter<I: IntoIterator<Item = &'a str>>(names: I) -> Self {
        let mut adapters = Self::default();
        for name in names {
            adapters.insert(name);
        }
        adapters
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_kept_once_and_in_order() {
        let adapters: Adapters = ["b", "a", "", "b"].into_iter().collect();
        assert_eq!(adapters.iter().collect::<Vec<_>>(), ["a", "b"]);
        assert!(adapters.contains("a") && !adapters.contains("") && !adapters.contains("c"));
    }

    #[test]
    fn what_runs_does_not_wait_and_both_take_up_room() {
        let mut adapters: Adapters = ["a"].into_iter().collect();
        assert!(!adapters.has_room());
        adapters.allow(3);
        adapters.insert_waiting("a");
        adapters.insert_waiting("b");
        assert_eq!(adapters.state("a"), Some(AdapterState::Running));
        assert_eq!(adapters.state("b"), Some(AdapterState::Waiting));
        assert_eq!(adapters.state("c"), None);
        assert!(adapters.has_room());
        adapters.insert("c");
        assert!(!adapters.has_room());
        assert_eq!(adapters.most(), Some(3));
    }

    #[test]
    fn names_beyond_the_bounds_are_left_out_in_any_order() {
        let names: Vec<String> = (0..Adapters::MAX + 50).map(|n| format!("{n:04}")).collect();
        let forwards: Adapters = names.iter().map(String::as_str).collect();
        let backwards: Adapters = names.iter().rev().map(String::as_str).collect();
        assert_eq!(forwards, backwards);
        assert_eq!(forwards.iter().len(), Adapters::MAX);
        assert!(forwards.contains("0255") && !forwards.contains("0256"));

        let longest = "a".repeat(Adapters::MAX_NAME_BYTES);
        let adapters: Adapters = [&*longest, &*format!("{longest}a")].into_iter().collect();
        assert_eq!(adapters.iter().collect::<Vec<_>>(), [longest]);
    }
}
