//! The adapters (`LoRA`) an endpoint has loaded.

use std::collections::BTreeSet;

/// Names of loaded adapters, each once, in order. Bounded, since a page from the network fills it:
/// at most [`Adapters::MAX`] names of at most [`Adapters::MAX_NAME_BYTES`] bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Adapters {
    names: BTreeSet<String>,
}

impl Adapters {
    /// Names kept. GPUs hold tens of adapters at a time.
    pub const MAX: usize = 256;
    /// Bytes of the longest name that is kept.
    pub const MAX_NAME_BYTES: usize = 256;

    /// Adds `name`, unless it is empty or too long. Of more than [`Self::MAX`] names the first in
    /// order stay, whatever the order they come in.
    pub fn insert(&mut self, name: &str) {
        if name.is_empty() || name.len() > Self::MAX_NAME_BYTES {
            return;
        }
        self.names.insert(name.to_owned());
        if self.names.len() > Self::MAX {
            self.names.pop_last();
        }
    }

    /// Whether `name` is among them.
    pub fn contains(&self, name: &str) -> bool {
        self.names.contains(name)
    }

    /// The names, in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &str> {
        self.names.iter().map(String::as_str)
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
