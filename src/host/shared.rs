//! The scraper's lease and the pools' snapshots in Envoy's shared data.

use core::cell::Cell;
use core::time::Duration;

use super::abi;
use crate::datalayer::PoolSnapshot;
use crate::replication::lease::{self, Claimant, Step, Suitability};
use crate::replication::snapshot;
use crate::time::Timestamp;

/// Keys this module writes start like this; the number changes with any encoding behind it.
pub(super) const PREFIX: &str = "inline-epp/5";

/// No lease lasts longer: two of the longest scrape intervals.
const LONGEST_LEASE: Duration = Duration::from_mins(20);

/// Attempts to count on while other VMs start at the same moment.
const ATTEMPTS: u32 = 64;

/// A number no other VM of this process was given: how many were given before. `None` where shared
/// data does not work.
pub(super) fn unique_number() -> Option<u64> {
    let key = format!("{PREFIX}/vms");
    for _ in 0..ATTEMPTS {
        let (bytes, cas) = abi::shared_data(&key).unwrap_or_default();
        let given = bytes
            .first_chunk()
            .map_or(0, |number| u64::from_le_bytes(*number));
        let next = given.wrapping_add(1).to_le_bytes();
        if abi::set_shared_data(&key, &next, cas).is_ok() {
            return Some(given);
        }
    }
    None
}

/// This VM's claim to scrape for all.
pub(super) struct Leadership {
    key: String,
    /// For each pool, where the key of its newest configuration's lease is.
    newest: Vec<String>,
    me: u64,
    duration: Duration,
    foreign: Foreign,
}

/// Values met under our keys that another plugin wrote, since they were last counted.
#[derive(Default)]
struct Foreign(Cell<u32>);

impl Foreign {
    /// What was read of a value, or that it cannot be.
    fn note<T>(&self, read: Option<T>) -> Option<T> {
        if read.is_none() {
            self.0.set(self.0.get().saturating_add(1));
        }
        read
    }

    fn take(&self) -> u32 {
        self.0.take()
    }
}

impl Leadership {
    /// For VMs of one configuration, told by its `fingerprint`, with these pools.
    pub(super) fn new<'a>(
        fingerprint: u64,
        pools: impl Iterator<Item = &'a str>,
        me: u64,
        duration: Duration,
    ) -> Self {
        Self {
            key: format!("{PREFIX}/lease/{fingerprint:016x}"),
            newest: pools
                .map(|pool| format!("{PREFIX}/newest/{pool}"))
                .collect(),
            me,
            duration,
            foreign: Foreign::default(),
        }
    }

    /// Leases met since the last call that no VM of ours wrote.
    pub(super) fn take_foreign(&self) -> u32 {
        self.foreign.take()
    }

    /// Makes this configuration the newest of its pools: those before it do not lead any more while
    /// it has a leader.
    pub(super) fn is_newest(&self) {
        for pool in &self.newest {
            if let Err(error) = abi::set_shared_data(pool, self.key.as_bytes(), 0) {
                log::debug!("cannot tell that this configuration is the newest: {error:?}");
            }
        }
    }

    /// Whether newer configurations with leaders have all its pools. One that was refused after all
    /// has no leader, and one of another listener has other pools.
    fn is_superseded(&self, now: Timestamp) -> bool {
        self.newest.iter().all(|pool| {
            let newest = abi::shared_data(pool).unwrap_or_default().0;
            let newest = core::str::from_utf8(&newest).unwrap_or_default();
            if newest == self.key || !newest.starts_with(PREFIX) {
                return false;
            }
            let (bytes, _) = abi::shared_data(newest).unwrap_or_default();
            let lease = lease::decode(&bytes);
            // One that ends later than any leader's was not written by one.
            lease.is_some_and(|lease| now < lease.until && lease.until <= now.after(LONGEST_LEASE))
        })
    }

    /// Whether this VM, which `suits`, leads now; claims and renews the lease where it can.
    pub(super) fn holds(&self, now: Timestamp, suits: Suitability) -> bool {
        if self.is_superseded(now) {
            return false;
        }
        let (lease, cas) = match abi::shared_data(&self.key) {
            Ok((bytes, cas)) => (self.foreign.note(lease::decode(&bytes)), cas),
            Err(_) => (None, 0),
        };
        let me = Claimant { vm: self.me, suits };
        let write = |lease| abi::set_shared_data(&self.key, &lease::encode(lease), cas).is_ok();
        match lease::step(lease, me, now, self.duration) {
            Step::Follow => false,
            Step::Lead => true,
            Step::Claim(claim) => write(claim) && self.is_stored(),
            Step::Offer(offer) => {
                // Not written: whoever wrote before leads now.
                write(offer);
                false
            }
        }
    }

    /// Two VMs may create a missing key at once, and the host lets both: the later one stays.
    fn is_stored(&self) -> bool {
        let (bytes, _) = abi::shared_data(&self.key).unwrap_or_default();
        lease::decode(&bytes).is_some_and(|lease| lease.holder == self.me)
    }
}

/// A short word that all VMs of a configuration see, such as how something last went: a VM that takes
/// over says nothing that another has said.
pub(super) struct SharedWord {
    key: String,
}

impl SharedWord {
    /// The word on `subject` of the configuration that `fingerprint` tells.
    pub(super) fn new(fingerprint: u64, subject: &str) -> Self {
        Self {
            key: format!("{PREFIX}/word/{fingerprint:016x}/{subject}"),
        }
    }

    /// Makes `word` the word and returns whether it is a new one, and whether it is the first.
    pub(super) fn change(&self, word: &str) -> (bool, bool) {
        let before = abi::shared_data(&self.key).unwrap_or_default().0;
        let is_new = before != word.as_bytes();
        if is_new {
            // Unwritten it is said again, which is no harm.
            let _ = abi::set_shared_data(&self.key, word.as_bytes(), 0);
        }
        (is_new, before.is_empty())
    }
}

/// One pool's snapshot.
pub(super) struct SharedSnapshot {
    key: String,
    /// Token of the value last seen; the host changes it with every write.
    seen: u32,
    foreign: Foreign,
}

impl SharedSnapshot {
    pub(super) fn new(pool: &str) -> Self {
        Self {
            key: format!("{PREFIX}/snapshot/{pool}"),
            seen: 0,
            foreign: Foreign::default(),
        }
    }

    /// Snapshots met since the last call that no VM of ours wrote.
    pub(super) fn take_foreign(&self) -> u32 {
        self.foreign.take()
    }

    /// What is published is not read back: newer things may be known when it would be.
    pub(super) fn publish(&mut self, snapshot: &PoolSnapshot) {
        match abi::set_shared_data(&self.key, &snapshot::encode(snapshot), 0) {
            Ok(()) => self.seen = abi::shared_data(&self.key).map_or(self.seen, |(_, cas)| cas),
            Err(error) => log::debug!("cannot publish a snapshot: {error:?}"),
        }
    }

    /// The snapshot, if it was written since the last call and is one.
    pub(super) fn read_new(&mut self) -> Option<PoolSnapshot> {
        let (bytes, cas) = abi::shared_data(&self.key).ok()?;
        if cas == self.seen {
            return None;
        }
        self.seen = cas;
        self.foreign.note(snapshot::decode(&bytes))
    }
}
