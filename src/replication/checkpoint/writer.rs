//! Makes the checkpoint, a chunk at a time.

use core::net::SocketAddr;
use core::ops::Bound;
use std::collections::BTreeMap;

use super::{Chunk, Contents, ListedEndpoint, MAX_BLOCKS};
use crate::datalayer::EndpointId;
use crate::replication::{LeaseObserver, Replica, Sequence};

/// Goes round and round the endpoints, each from its youngest block to its oldest.
///
/// The index changes meanwhile. A block that moves before the place reached is left out of this
/// round, one that is moved behind it is told twice; whoever follows the log learns of either.
#[derive(Debug)]
pub struct CheckpointWriter {
    epoch: u64,
    written: u32,
    previous: u32,
    /// The endpoint reached, the part that follows and the blocks passed over so far: included while
    /// there may be more of them.
    at: Bound<(SocketAddr, u32, usize)>,
    /// Parts written of each endpoint.
    parts: BTreeMap<SocketAddr, u32>,
}

impl CheckpointWriter {
    /// Begins a round; `last` is what shared data says of the rounds of others.
    pub fn new(last: Option<&Contents>) -> Self {
        Self {
            epoch: last.map_or(1, |last| last.epoch.saturating_add(1)),
            written: 0,
            previous: last.map_or(0, |last| last.written.max(last.previous)),
            at: Bound::Unbounded,
            parts: BTreeMap::new(),
        }
    }

    /// The next chunk and the number to store it under; `next` is the first entry `replica` has not
    /// applied. `None` at the end of a round: the call after that begins another. Time is linear
    /// in the endpoints, and in the blocks of one up to the chunk's end.
    pub fn next_chunk<O: LeaseObserver>(
        &mut self,
        replica: &Replica<O>,
        next: Sequence,
    ) -> Option<(u32, Chunk)> {
        let endpoints: BTreeMap<SocketAddr, EndpointId> = replica.endpoints().collect();
        while let Some((endpoint, id)) = self.endpoint(&endpoints) {
            let (part, passed) = if let Bound::Included((address, part, passed)) = self.at
                && address == endpoint
            {
                (part, passed)
            } else {
                (0, 0)
            };
            let mut walked = 0_usize;
            let held = replica.index().held(id).skip(passed).take(MAX_BLOCKS);
            let blocks: Vec<_> = held
                .inspect(|_| walked = walked.saturating_add(1))
                .filter(|held| held.confirmed)
                .map(|held| (held.block, held.parent))
                .collect();
            let following = part.saturating_add(u32::from(!blocks.is_empty()));
            let place = (endpoint, following, passed.saturating_add(walked));
            self.at = if walked < MAX_BLOCKS {
                Bound::Excluded(place)
            } else {
                Bound::Included(place)
            };
            if blocks.is_empty() {
                continue;
            }
            self.parts.insert(endpoint, following);
            let number = self.written;
            self.written = number.saturating_add(1);
            let chunk = Chunk {
                pool: replica.pool(),
                epoch: self.epoch,
                next,
                part,
                endpoint,
                blocks,
            };
            return Some((number, chunk));
        }
        self.end_round();
        None
    }

    /// The endpoint to go on with.
    fn endpoint(
        &self,
        endpoints: &BTreeMap<SocketAddr, EndpointId>,
    ) -> Option<(SocketAddr, EndpointId)> {
        let from = self.at.map(|(address, ..)| address);
        let (address, id) = endpoints.range((from, Bound::Unbounded)).next()?;
        Some((*address, *id))
    }

    /// What to store with each chunk and at the end of a round.
    pub fn contents<O: LeaseObserver>(&self, replica: &Replica<O>, next: Sequence) -> Contents {
        let listed = replica.endpoints().map(|(address, _)| ListedEndpoint {
            address,
            parts: self.parts.get(&address).copied().unwrap_or(0),
            emptied: replica.last_emptied(address),
        });
        Contents {
            pool: replica.pool(),
            epoch: self.epoch,
            next,
            written: self.written,
            previous: self.previous,
            endpoints: listed.collect(),
        }
    }

    fn end_round(&mut self) {
        self.epoch = self.epoch.saturating_add(1);
        self.previous = self.written;
        self.written = 0;
        self.at = Bound::Unbounded;
        self.parts.clear();
    }
}
