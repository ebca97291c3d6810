//! The last requests a server received, for tests to look at.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};

/// Requests kept.
pub const LOG_LENGTH: usize = 10_000;

/// One request as it arrived.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogEntry {
    /// Number of the request at this server.
    pub seq: u64,
    /// Unix microseconds at which the whole body was there.
    pub arrived_us: u64,
    pub method: String,
    /// Path and query.
    pub path: String,
    /// `x-request-id` as received.
    pub request_id: Option<String>,
    /// Lower-case names of the headers received.
    pub headers: Vec<String>,
    /// SHA-256 of the body in lower-case hex.
    pub body_sha256: String,
    /// Length of the body in bytes.
    pub body_bytes: usize,
    /// Tokens of all prompts; `None` unless the body asked for text.
    pub prompt_tokens: Option<usize>,
    /// Cached tokens of the last prompt; `None` until its prefill began.
    pub cached_tokens: Option<usize>,
    /// What its transfer parameters asked for: `keep`, `fetch` or `partial`.
    pub transfer: Option<String>,
    /// `None` until the answer began.
    pub status: Option<u16>,
}

/// A bounded log.
#[derive(Debug, Default)]
pub struct RequestLog {
    entries: Mutex<Entries>,
}

#[derive(Debug, Default)]
struct Entries {
    kept: VecDeque<LogEntry>,
    next: u64,
}

impl RequestLog {
    /// Adds an entry, whose `seq` is set here and returned.
    pub fn push(&self, mut entry: LogEntry) -> u64 {
        let mut entries = self.lock();
        entry.seq = entries.next;
        entries.next += 1;
        if entries.kept.len() == LOG_LENGTH {
            entries.kept.pop_front();
        }
        let seq = entry.seq;
        entries.kept.push_back(entry);
        seq
    }

    /// Changes an entry that is still kept.
    pub fn update(&self, seq: u64, change: impl FnOnce(&mut LogEntry)) {
        let mut entries = self.lock();
        let first = entries.next - entries.kept.len() as u64;
        let index = seq.checked_sub(first);
        if let Some(entry) = index.and_then(|index| entries.kept.get_mut(index as usize)) {
            change(entry);
        }
    }

    /// A copy, oldest first.
    pub fn entries(&self) -> Vec<LogEntry> {
        self.lock().kept.iter().cloned().collect()
    }

    fn lock(&self) -> MutexGuard<'_, Entries> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry() -> LogEntry {
        LogEntry {
            seq: 0,
            arrived_us: 0,
            method: "GET".into(),
            path: "/".into(),
            request_id: None,
            headers: Vec::new(),
            body_sha256: String::new(),
            body_bytes: 0,
            prompt_tokens: None,
            cached_tokens: None,
            transfer: None,
            status: None,
        }
    }

    #[test]
    fn only_the_last_requests_are_kept() {
        let log = RequestLog::default();
        for expected in 0..LOG_LENGTH as u64 + 5 {
            assert_eq!(log.push(entry()), expected);
        }
        let kept = log.entries();
        assert_eq!((kept.len(), kept[0].seq), (LOG_LENGTH, 5));
    }

    #[test]
    fn updates_reach_their_entry_and_ignore_a_dropped_one() {
        let log = RequestLog::default();
        for _ in 0..LOG_LENGTH + 5 {
            log.push(entry());
        }
        for seq in [4, 7] {
            log.update(seq, |entry| entry.status = Some(200));
        }
        let answered: Vec<u64> = log
            .entries()
            .iter()
            .filter(|entry| entry.status.is_some())
            .map(|e| e.seq)
            .collect();
        assert_eq!(answered, [7]);
    }
}
