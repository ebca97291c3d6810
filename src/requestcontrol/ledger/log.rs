//! Where entries go: to the ring that all VMs share, or nowhere.

use core::fmt;

use super::state::State;
use crate::replication::ring::{AppendError, Ring, SharedStore};
use crate::replication::{Entry, Sequence};

/// Entries applied in one go at most; the rest follows with the next call.
const LIMIT: u32 = 65_536;

/// The decision log, as this VM uses it.
pub(super) struct Log {
    shared: Option<(Ring, Box<dyn SharedStore>)>,
    /// The number of the next entry that only this VM knows.
    next_local: Sequence,
    /// Entries that were to be shared and are not.
    untold: u64,
}

impl fmt::Debug for Log {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Log")
            .field("ring", &self.shared.as_ref().map(|(ring, _)| ring))
            .field("untold", &self.untold)
            .finish_non_exhaustive()
    }
}

impl Log {
    pub(super) const fn alone() -> Self {
        Self {
            shared: None,
            next_local: Sequence::FIRST_LOCAL,
            untold: 0,
        }
    }

    pub(super) fn shared(ring: Ring, store: Box<dyn SharedStore>) -> Self {
        Self {
            shared: Some((ring, store)),
            ..Self::alone()
        }
    }

    /// Nothing was ever appended that this VM did not see.
    pub(super) fn is_at_first(&self) -> bool {
        self.shared
            .as_ref()
            .is_none_or(|(ring, _)| ring.is_at_first())
    }

    /// The first entry not applied here.
    pub(super) fn position(&self) -> Sequence {
        self.shared
            .as_ref()
            .map_or(Sequence(0), |(ring, _)| ring.position())
    }

    pub(super) fn is_shared(&self) -> bool {
        self.shared.is_some()
    }

    pub(super) fn catch_up(&mut self, state: &mut State) {
        if let Some((ring, store)) = &mut self.shared {
            ring.catch_up(store, state, LIMIT);
        }
    }

    /// Appends what `compose` makes of the state all VMs have reached, applies it, and returns its
    /// number. Where it cannot be shared, it is applied here alone.
    pub(super) fn append(
        &mut self,
        state: &mut State,
        compose: impl Fn(&State) -> Entry,
    ) -> Sequence {
        match self.share(state, |state| Some(compose(state))) {
            Ok(sequence) => sequence,
            Err(_) => self.keep(state, &compose(state)),
        }
    }

    /// The same, unless `compose` wants none after all: it is asked again whenever another VM's
    /// entry came first.
    pub(super) fn append_if(
        &mut self,
        state: &mut State,
        compose: impl Fn(&State) -> Option<Entry>,
    ) -> Option<Sequence> {
        match self.share(state, &compose) {
            Ok(sequence) => Some(sequence),
            Err(AppendError::Withdrawn) => None,
            Err(_) => compose(state).map(|entry| self.keep(state, &entry)),
        }
    }

    fn share(
        &mut self,
        state: &mut State,
        compose: impl Fn(&State) -> Option<Entry>,
    ) -> Result<Sequence, AppendError> {
        let Some((ring, store)) = &mut self.shared else {
            return Err(AppendError::Refused);
        };
        let shared = ring.append(store, state, LIMIT, |state| compose(state));
        if shared.is_err_and(|error| error != AppendError::Withdrawn) {
            self.untold = self.untold.saturating_add(1);
        }
        shared
    }

    /// Applies `entry` in this VM alone.
    fn keep(&mut self, state: &mut State, entry: &Entry) -> Sequence {
        let sequence = self.next_local;
        self.next_local = sequence.plus(1);
        state.apply_entry(sequence, entry);
        sequence
    }

    pub(super) fn take_untold(&mut self) -> u64 {
        core::mem::take(&mut self.untold)
    }
}
