//! Reads the checkpoint: all that is there, then one whole round as it is written.

use std::collections::BTreeSet;

use super::Contents;

/// Which chunks a VM that misses blocks reads next.
///
/// One that is read while a round goes on misses blocks that moved meanwhile or whose chunk was
/// overwritten by another's; after a whole round behind the first look none is missing.
#[derive(Debug, Default)]
pub struct Loader {
    /// Chunks to read.
    due: BTreeSet<u32>,
    /// The round and its chunks at the first look.
    first: Option<(u64, u32)>,
    /// The same at the last one.
    seen: Option<(u64, u32)>,
}

impl Loader {
    /// The number of the chunk to read next; `None` when there is none for now. `contents` is the
    /// latest table of contents.
    pub fn next(&mut self, contents: &Contents) -> Option<u32> {
        let Contents {
            epoch,
            written,
            previous,
            ..
        } = *contents;
        // More chunks than an index can fill are not read.
        let written = written.min(MAX_CHUNKS);
        let previous = previous.min(MAX_CHUNKS);
        match self.seen {
            Some((last, from)) if last == epoch => self.due.extend(from..written),
            Some((last, from)) if last.checked_add(1) == Some(epoch) => {
                self.due.extend(from..previous);
                self.due.extend(0..written);
            }
            _ => self.due.extend(0..written.max(previous)),
        }
        self.first.get_or_insert((epoch, written));
        self.seen = Some((epoch, written));
        self.due.pop_first()
    }

    /// Whether a whole round was read.
    pub fn is_complete(&self) -> bool {
        let (Some((began, from)), Some((epoch, written))) = (self.first, self.seen) else {
            return false;
        };
        let rounds = epoch.saturating_sub(began);
        self.due.is_empty() && (rounds > 1 || (rounds == 1 && written >= from))
    }
}

/// Chunks of an index of 64 million entries and 60,000 endpoints.
const MAX_CHUNKS: u32 = 1 << 16;
