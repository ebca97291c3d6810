//! The decision log: a ring of slots in shared data that every VM appends to and reads.
//!
//! Slot `n mod R` holds entry `n`, or entry `n − R` until `n` is written. Before its first entry slot
//! `i` holds a [`Entry::Void`] numbered `i`, so the first entry is number `R`.
//!
//! * A **reader** polls the slot of its next entry: one `get` while nothing is new.
//! * A **writer** catches up, then writes the slot of the next entry on condition that it still holds
//!   what was read; if not, somebody else's entry is there: it catches up and tries again. So
//!   all VMs see the same entries in the same order. Having caught up just before, as for every
//!   decision, it writes without another `get`.
//! * A reader that finds a number greater than the one it waits for was **lapped**. It searches for
//!   the head, counts what was overwritten as lost and goes on with the oldest entry there is, as
//!   that leaves the fewest out; if writers overtake it again, it counts again.
//! * A **damaged** slot (foreign, cut, of another version, misplaced) is no entry. If one of
//!   the next [`LOOK_AHEAD`] slots shows that the log went on, the reader counts the damaged ones as
//!   lost and goes on there. If none does, nobody can know whether the entry had been written, so
//!   the next writer gives the number up: it writes [`Entry::Void`] there and its own entry
//!   behind. Those who read the entry before it was damaged and those who did not then go on
//!   with the same number, and no number has two entries, unless more slots side by side are
//!   damaged than a reader looks ahead.
//! * A single forged number cannot lead readers away: a newer entry is not believed if the slot
//!   before it holds less than its predecessor, or a slot behind it shows that the log ended.
//!
//! Shared data knows no "create", but a token that was never given: the host takes it for an absent
//! key only.

use core::num::NonZeroU32;

use super::entry::{self, Entry};
use super::ids::Sequence;

/// Slots behind a damaged one in which a reader looks for a sign that the log went on.
pub const LOOK_AHEAD: u32 = 16;

/// Times that a writer begins again because another one was faster. Each time an entry of
/// somebody else got in, so only that many other writers at once can use them up.
pub const ATTEMPTS: u32 = 64;

/// Damaged slots that one call to [`Ring::append`] gives up.
pub const REPAIRS: u32 = 64;

/// The slots of one ring.
pub trait SharedStore {
    /// What `slot` holds and the token that stands for it; `None` for a slot never written.
    fn get(&self, slot: u32) -> Option<(Vec<u8>, Cas)>;

    /// Writes `slot`, on condition that `cas` still stands for what it holds. An absent slot takes
    /// everything.
    fn set(&mut self, slot: u32, value: &[u8], cas: Cas) -> SetResult;
}

impl<S: SharedStore + ?Sized> SharedStore for Box<S> {
    fn get(&self, slot: u32) -> Option<(Vec<u8>, Cas)> {
        (**self).get(slot)
    }

    fn set(&mut self, slot: u32, value: &[u8], cas: Cas) -> SetResult {
        (**self).set(slot, value, cas)
    }
}

/// Stands for one value of one slot: each write gives another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cas(pub u32);

impl Cas {
    /// A token that the host has not given: it counts up from 1 with each write to shared data.
    pub const NEVER_GIVEN: Self = Self(u32::MAX);
}

/// What became of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetResult {
    /// It is there.
    Stored,
    /// The slot holds something else than the token stands for.
    Mismatch,
    /// Shared data does not work.
    Failed,
}

/// What entries are applied to.
pub trait Follower {
    /// Takes over `entry`, the one at `sequence`. Never called with [`Entry::Void`].
    fn apply(&mut self, sequence: Sequence, entry: &Entry);

    /// `entries` entries before the next one applied were lost.
    fn lost(&mut self, entries: u64);
}

/// What a call to [`Ring::catch_up`] did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CaughtUp {
    /// Entries applied.
    pub applied: u64,
    /// Entries overwritten or damaged before they were read.
    pub lost: u64,
    /// No entry is left that could be read.
    pub complete: bool,
}

/// Why an entry was not appended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AppendError {
    /// Others were faster [`ATTEMPTS`] times.
    Contended,
    /// More entries are unread than one call may apply. The next call goes on from there.
    Behind,
    /// More than [`REPAIRS`] damaged slots lie ahead. The next call goes on behind them.
    Damaged,
    /// Shared data does not work.
    Refused,
    /// After what others appended, the entry is not wanted any more.
    Withdrawn,
}

/// One VM's place in the log.
#[derive(Clone, Copy, Debug)]
pub struct Ring {
    slots: NonZeroU32,
    next: Sequence,
    /// What stood for the slot of the entry `next` when it was last seen to be free.
    free: Option<Cas>,
}

/// What the slot of an entry holds.
enum Slot {
    /// The entry.
    Entry(Entry),
    /// Its predecessor there: the entry is not written yet.
    Free(Cas),
    /// An entry that overwrote it.
    Newer(Sequence, Cas),
    /// An entry that was overwritten long ago.
    Stale(Cas),
    /// Nothing one can read.
    Damaged(Cas),
    /// Nothing.
    Absent,
}

/// What the slots behind the next entry's show.
enum Sign {
    /// The entry so many places ahead is written.
    WentOn(u64),
    /// Nothing is written behind.
    Ended,
    /// Nothing can be read.
    Unknown,
}

/// What a reader finds at its next entry.
enum Step {
    /// The entry.
    Apply(Entry),
    /// So many entries are lost.
    Skip(u64),
    /// The end of the log, as far as one can see.
    End(End),
}

/// How the slot is to be written next.
enum End {
    Write(Cas),
    Repair(Cas),
    Create,
}

impl Ring {
    /// A ring of `slots` slots that goes on with entry `next`; the first entry there can be is
    /// number `slots`.
    pub fn at(slots: NonZeroU32, next: Sequence) -> Self {
        let first = Sequence(u64::from(slots.get()));
        Self {
            slots,
            next: next.max(first),
            free: None,
        }
    }

    /// A ring of `slots` slots from its oldest entry on. Takes about log₂ `slots` reads where the
    /// first slot can be read; at worst, with every slot damaged, it takes all of them and
    /// starts with the first number, which is behind all others.
    pub fn join(slots: NonZeroU32, store: &impl SharedStore) -> Self {
        let ring = Self::at(slots, Sequence(0));
        let readable = (0..slots.get()).find_map(|slot| ring.entry_in(store, slot));
        let head = readable.map_or(ring.next, |entry| ring.head_after(store, entry));
        Self::at(slots, ring.oldest(head))
    }

    /// Writes each slot that is absent. Returns how many were, or `None` where shared data does not
    /// work.
    pub fn create(slots: NonZeroU32, store: &mut impl SharedStore) -> Option<u32> {
        let mut created = 0_u32;
        for slot in 0..slots.get() {
            if store.get(slot).is_some() {
                continue;
            }
            let void = entry::encode(Sequence(u64::from(slot)), &Entry::Void);
            match store.set(slot, &void, Cas::NEVER_GIVEN) {
                SetResult::Stored => created = created.saturating_add(1),
                SetResult::Mismatch => {}
                SetResult::Failed => return None,
            }
        }
        Some(created)
    }

    /// The number of the entry that is read or written next.
    pub const fn position(&self) -> Sequence {
        self.next
    }

    /// Whether the next entry is the first there ever was, so that nothing can be missing.
    pub fn is_at_first(&self) -> bool {
        self.next == self.lap()
    }

    /// Applies what is new, at most `limit` entries; a stretch of lost ones counts as one.
    pub fn catch_up(
        &mut self,
        store: &impl SharedStore,
        follower: &mut impl Follower,
        limit: u32,
    ) -> CaughtUp {
        let (done, _) = self.advance(store, follower, limit);
        done
    }

    /// Appends the entry that `compose` makes once everything before it is applied, and applies it.
    /// `compose` is asked again whenever another VM's entry came first; it may then withdraw, and
    /// never answers [`Entry::Void`]. At most `limit` entries are applied before.
    pub fn append<F: Follower>(
        &mut self,
        store: &mut impl SharedStore,
        follower: &mut F,
        limit: u32,
        mut compose: impl FnMut(&mut F) -> Option<Entry>,
    ) -> Result<Sequence, AppendError> {
        let (mut attempts, mut repairs) = (0, 0);
        while attempts < ATTEMPTS && repairs < REPAIRS {
            // Seen to be free when this VM last caught up: unless that still holds, the write fails.
            let end = match self.free.take() {
                Some(cas) => Some(End::Write(cas)),
                None => self.advance(store, follower, limit).1,
            };
            self.free = None;
            let here = self.next;
            let (bytes, cas) = match end.ok_or(AppendError::Behind)? {
                End::Write(cas) => {
                    attempts = attempts.saturating_add(1);
                    let entry = compose(follower).ok_or(AppendError::Withdrawn)?;
                    (entry::encode(here, &entry), cas)
                }
                End::Repair(cas) => {
                    repairs = repairs.saturating_add(1);
                    (entry::encode(here, &Entry::Void), cas)
                }
                End::Create => {
                    repairs = repairs.saturating_add(1);
                    let before = Sequence(here.since(self.lap()));
                    (entry::encode(before, &Entry::Void), Cas::NEVER_GIVEN)
                }
            };
            let written = store.set(self.slot_of(here), &bytes, cas);
            match (written, entry::decode(&bytes)) {
                (SetResult::Failed, _) => return Err(AppendError::Refused),
                (SetResult::Stored, Some((sequence, entry))) if entry != Entry::Void => {
                    // What was read back is what the others will apply.
                    follower.apply(sequence, &entry);
                    self.next = here.plus(1);
                    return Ok(sequence);
                }
                // Lost the race, or repaired: what is there now shows the next turn.
                (SetResult::Stored | SetResult::Mismatch, _) => {}
            }
        }
        Err(if attempts < ATTEMPTS {
            AppendError::Damaged
        } else {
            AppendError::Contended
        })
    }

    /// Goes on to the end of the log, which is returned, or by `limit` steps.
    fn advance(
        &mut self,
        store: &impl SharedStore,
        follower: &mut impl Follower,
        limit: u32,
    ) -> (CaughtUp, Option<End>) {
        let mut done = CaughtUp::default();
        let mut left = limit;
        loop {
            let step = self.step(store);
            if let Step::End(end) = step {
                done.complete = true;
                if let End::Write(cas) = end {
                    self.free = Some(cas);
                }
                return (done, Some(end));
            }
            self.free = None;
            if left == 0 {
                return (done, None);
            }
            left = left.saturating_sub(1);
            let lost = match step {
                Step::Apply(Entry::Void) => 1,
                Step::Skip(lost) => lost,
                Step::Apply(entry) => {
                    follower.apply(self.next, &entry);
                    done.applied = done.applied.saturating_add(1);
                    self.next = self.next.plus(1);
                    continue;
                }
                Step::End(_) => 0,
            };
            follower.lost(lost);
            done.lost = done.lost.saturating_add(lost);
            self.next = self.next.plus(lost);
        }
    }

    fn step(&self, store: &impl SharedStore) -> Step {
        let (end, newer) = match self.read(store, self.next) {
            Slot::Entry(entry) => return Step::Apply(entry),
            Slot::Free(cas) => return Step::End(End::Write(cas)),
            Slot::Newer(newer, cas) => match self.is_credible(store, newer) {
                Some(true) => return self.lapped(store, newer),
                Some(false) => (End::Repair(cas), None),
                None => (End::Repair(cas), Some(newer)),
            },
            Slot::Stale(cas) | Slot::Damaged(cas) => (End::Repair(cas), None),
            Slot::Absent => (End::Create, None),
        };
        match (self.sign(store), newer) {
            (Sign::WentOn(lost), _) => Step::Skip(lost),
            (Sign::Unknown, Some(newer)) => self.lapped(store, newer),
            (Sign::Ended | Sign::Unknown, _) => Step::End(end),
        }
    }

    fn lapped(&self, store: &impl SharedStore, newer: Sequence) -> Step {
        let oldest = self.oldest(self.head_after(store, newer));
        Step::Skip(oldest.since(self.next).max(1))
    }

    /// What can be seen of entries behind the next one.
    fn sign(&self, store: &impl SharedStore) -> Sign {
        let furthest = LOOK_AHEAD.min(self.slots.get().saturating_sub(1));
        for by in 1..=u64::from(furthest) {
            let at = self.next.plus(by);
            match self.read(store, at) {
                Slot::Entry(_) => return Sign::WentOn(by),
                Slot::Newer(newer, _) if self.is_credible(store, newer) != Some(false) => {
                    return Sign::WentOn(by);
                }
                Slot::Free(_) => return Sign::Ended,
                Slot::Newer(..) | Slot::Stale(_) | Slot::Damaged(_) | Slot::Absent => {}
            }
        }
        Sign::Unknown
    }

    /// The number behind the newest entry, given that of any entry: a binary search over the slots
    /// that follow, which hold newer entries up to the head and older ones behind it. Damaged slots
    /// may make it too small, never smaller than `entry`.
    fn head_after(&self, store: &impl SharedStore, entry: Sequence) -> Sequence {
        let (mut written, mut unwritten) = (0, self.lap().0);
        while unwritten.saturating_sub(written) > 1 {
            let middle = written.midpoint(unwritten);
            if self.is_written(store, entry.plus(middle)) {
                written = middle;
            } else {
                unwritten = middle;
            }
        }
        entry.plus(unwritten)
    }

    fn is_written(&self, store: &impl SharedStore, at: Sequence) -> bool {
        match self.read(store, at) {
            Slot::Entry(_) => true,
            Slot::Newer(newer, _) => self.is_credible(store, newer) == Some(true),
            Slot::Free(_) | Slot::Stale(_) | Slot::Damaged(_) | Slot::Absent => false,
        }
    }

    /// Whether the slot before that of `newer` shows that there can be such an entry; `None` where
    /// it shows nothing.
    fn is_credible(&self, store: &impl SharedStore, newer: Sequence) -> Option<bool> {
        match self.read(store, Sequence(newer.0.saturating_sub(1))) {
            Slot::Entry(_) | Slot::Newer(..) => Some(true),
            Slot::Free(_) | Slot::Stale(_) => Some(false),
            Slot::Damaged(_) | Slot::Absent => None,
        }
    }

    /// What the slot of entry `at` holds.
    fn read(&self, store: &impl SharedStore, at: Sequence) -> Slot {
        let Some((bytes, cas)) = store.get(self.slot_of(at)) else {
            return Slot::Absent;
        };
        // Polled for each request: the old entry need not be decoded.
        if entry::leading_number(&bytes).is_some_and(|number| number.plus(self.lap().0) == at) {
            return Slot::Free(cas);
        }
        match entry::decode(&bytes) {
            Some((number, entry)) if number == at => Slot::Entry(entry),
            Some((number, _)) if number > at && self.slot_of(number) == self.slot_of(at) => {
                Slot::Newer(number, cas)
            }
            Some((number, _)) if self.slot_of(number) == self.slot_of(at) => Slot::Stale(cas),
            _ => Slot::Damaged(cas),
        }
    }

    /// The number of the entry in `slot`.
    fn entry_in(&self, store: &impl SharedStore, slot: u32) -> Option<Sequence> {
        let (bytes, _) = store.get(slot)?;
        let (number, _) = entry::decode(&bytes)?;
        let credible = number < self.lap() || self.is_credible(store, number) == Some(true);
        (self.slot_of(number) == slot && credible).then_some(number)
    }

    /// The oldest entry that is not overwritten, given the head.
    fn oldest(&self, head: Sequence) -> Sequence {
        Sequence(head.since(self.lap()))
    }

    /// Entries of one lap around the ring, as the number of the first one behind it.
    fn lap(&self) -> Sequence {
        Sequence(u64::from(self.slots.get()))
    }

    fn slot_of(&self, at: Sequence) -> u32 {
        let slot = at.0.checked_rem(self.lap().0).unwrap_or(0);
        u32::try_from(slot).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests;
