//! What all VMs of the process share: clock, shared data, stats, log and calls.

use std::collections::BTreeMap;
use std::time::Duration;

use super::Thread;
use super::calls::Calls;
use super::metrics::Metrics;

#[derive(Debug)]
pub(super) struct World {
    /// The monotonic clock; the test moves it.
    pub(super) now: Duration,
    /// What the wall clock showed when the monotonic clock was 0.
    pub(super) epoch: Duration,
    pub(super) shared: SharedData,
    pub(super) metrics: Metrics,
    pub(super) calls: Calls,
    pub(super) log: Vec<LogLine>,
    /// Major, minor, patch; `None` for a proxy that does not tell.
    pub(super) version: Option<[u64; 3]>,
}

/// A line of Envoy's log that a module wrote.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogLine {
    /// Whose VM wrote it.
    pub thread: Thread,
    pub level: Level,
    pub text: String,
}

/// Severity of a line; panics are critical.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    Trace,
    Debug,
    Info,
    Warn,
    Error,
    Critical,
}

impl World {
    pub(super) fn new() -> Self {
        Self {
            // A machine that has been up for a while.
            now: Duration::from_hours(30),
            epoch: Duration::from_hours(500_000),
            shared: SharedData::default(),
            metrics: Metrics::default(),
            calls: Calls::default(),
            log: Vec::new(),
            version: None,
        }
    }

    pub(super) fn log(&mut self, thread: Thread, level: Level, text: String) {
        self.log.push(LogLine {
            thread,
            level,
            text,
        });
    }
}

/// The process-wide key-value store of one `vm_id`.
#[derive(Debug, Default)]
pub(super) struct SharedData {
    entries: BTreeMap<String, (Vec<u8>, u32)>,
    /// One counter for all keys.
    writes: u32,
}

impl SharedData {
    pub(super) fn get(&self, key: &str) -> Option<(Vec<u8>, u32)> {
        self.entries.get(key).cloned()
    }

    /// Whether it was written. A token other than 0 must be that of the value it replaces; where
    /// there is none to replace, any token will do.
    pub(super) fn set(&mut self, key: String, value: Vec<u8>, cas: u32) -> bool {
        let current = self.entries.get(&key);
        if current.is_some_and(|(_, token)| cas != 0 && cas != *token) {
            return false;
        }
        self.writes += 1;
        self.entries.insert(key, (value, self.writes));
        true
    }

    pub(super) fn keys(&self) -> Vec<String> {
        self.entries.keys().cloned().collect()
    }
}
