//! The leases that are open, for VMs that missed when they were opened.
//!
//! Within the envelope: pool and next entry (u64 each); count of heartbeats (u16) and for each the
//! VM (u32) and the time (u64); count of leases (u16) and for each its number (u64), VM (u32), address
//! behind a byte for its form, time sent (u64), weight (three bytes), known blocks (u16) and, unless
//! that is 0, the last of them (u64), count of new blocks (u16) and these (u64 each).
//!
//! The leader writes it once a tick: it must not be older than what the ring still holds. Size: at
//! most 256 KiB of blocks and 64 bytes for each lease.

use core::net::SocketAddr;
use core::num::NonZeroU16;

use super::entry::{Known, MAX_NEW_BLOCKS};
use super::wire::{Kind, Reader, open, seal, unseal};
use super::{LeaseId, PoolKey, Sequence, VmId, Weight, address};
use crate::prefix::{BlockHash, Tail};
use crate::time::Timestamp;

/// Leases one table holds; those opened last are left out.
pub const MAX_LEASES: usize = u16::MAX as usize;

/// Blocks one table holds: 256 KiB. Leases whose blocks do not fit are listed without.
pub const MAX_BLOCKS: usize = 32_768;

/// VMs one table tells of.
pub const MAX_HEARTBEATS: usize = 1_024;

/// One pool's open leases.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseTable {
    /// The pool.
    pub pool: PoolKey,
    /// The first entry the table knows nothing of.
    pub next: Sequence,
    /// In the order they were opened.
    pub leases: Vec<ListedLease>,
    /// When each VM was last seen alive.
    pub heartbeats: Vec<(VmId, Timestamp)>,
}

/// An open lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedLease {
    /// Its number.
    pub id: LeaseId,
    /// Whose VM serves it.
    pub vm: VmId,
    /// Where it is.
    pub endpoint: SocketAddr,
    /// When it was sent there.
    pub sent: Timestamp,
    /// How much work it is.
    pub weight: Weight,
    /// What its pending blocks follow.
    pub known: Option<Known>,
    /// Its pending blocks behind those.
    pub new_blocks: Vec<BlockHash>,
}

impl ListedLease {
    /// What the new blocks follow.
    pub fn tail(&self) -> Tail {
        Known::tail(self.known)
    }
}

/// Encodes `table`, without what exceeds its limits.
pub fn encode(table: &LeaseTable) -> Vec<u8> {
    let leases = table.leases.len().min(MAX_LEASES);
    let mut out = open(KIND, leases.saturating_mul(MAX_LEASE_BYTES));
    put_u64(&mut out, table.pool.0);
    put_u64(&mut out, table.next.0);
    let heartbeats = table.heartbeats.len().min(MAX_HEARTBEATS);
    put_count(&mut out, heartbeats);
    for (vm, at) in table.heartbeats.iter().take(heartbeats) {
        out.extend_from_slice(&vm.0.to_le_bytes());
        put_u64(&mut out, at.as_nanos());
    }
    put_count(&mut out, leases);
    let mut room = MAX_BLOCKS;
    for lease in table.leases.iter().take(leases) {
        let fits = lease.new_blocks.len() <= room.min(MAX_NEW_BLOCKS);
        let blocks: &[BlockHash] = if fits { &lease.new_blocks } else { &[] };
        room = room.saturating_sub(blocks.len());
        write_lease(&mut out, lease, lease.known.filter(|_| fits), blocks);
    }
    seal(out)
}

/// Decodes what [`encode`] wrote, and nothing else. Allocates at most in proportion to `bytes`.
pub fn decode(bytes: &[u8]) -> Option<LeaseTable> {
    let mut reader = unseal(bytes, KIND)?;
    let pool = PoolKey(reader.u64()?);
    let next = Sequence(reader.u64()?);
    let count = usize::from(reader.u16()?);
    if count > MAX_HEARTBEATS {
        return None;
    }
    let mut heartbeats = Vec::with_capacity(count);
    for _ in 0..count {
        let vm = VmId(reader.u32()?);
        heartbeats.push((vm, Timestamp::from_nanos(reader.u64()?)));
    }
    let count = usize::from(reader.u16()?);
    if count.saturating_mul(MIN_LEASE_BYTES) > reader.remaining() {
        return None;
    }
    let mut leases = Vec::with_capacity(count);
    let mut room = MAX_BLOCKS;
    for _ in 0..count {
        let lease = read_lease(&mut reader)?;
        room = room.checked_sub(lease.new_blocks.len())?;
        leases.push(lease);
    }
    (reader.remaining() == 0).then_some(LeaseTable {
        pool,
        next,
        leases,
        heartbeats,
    })
}

const KIND: Kind = Kind {
    magic: *b"EPPO",
    version: 1,
};

const FIXED_BYTES: usize = 8 + 4 + 8 + 3 + 2 + 2;
const MIN_LEASE_BYTES: usize = FIXED_BYTES + address::MIN_TAGGED_BYTES;
const MAX_LEASE_BYTES: usize = FIXED_BYTES + address::MAX_TAGGED_BYTES + 8;

fn write_lease(out: &mut Vec<u8>, lease: &ListedLease, known: Option<Known>, blocks: &[BlockHash]) {
    put_u64(out, lease.id.0.0);
    out.extend_from_slice(&lease.vm.0.to_le_bytes());
    address::write_tagged(out, lease.endpoint);
    put_u64(out, lease.sent.as_nanos());
    let [a, b, c, _] = lease.weight.tokens().to_le_bytes();
    out.extend_from_slice(&[a, b, c]);
    put_count(
        out,
        known.map_or(0, |known| usize::from(known.blocks.get())),
    );
    if let Some(known) = known {
        put_u64(out, known.last.0);
    }
    put_count(out, blocks.len());
    for block in blocks {
        put_u64(out, block.0);
    }
}

fn read_lease(reader: &mut Reader<'_>) -> Option<ListedLease> {
    let id = LeaseId(Sequence(reader.u64()?));
    let vm = VmId(reader.u32()?);
    let endpoint = address::read_tagged(reader)?;
    let sent = Timestamp::from_nanos(reader.u64()?);
    let [a, b, c] = reader.array()?;
    let known = match NonZeroU16::new(reader.u16()?) {
        Some(blocks) => Some(Known {
            blocks,
            last: BlockHash(reader.u64()?),
        }),
        None => None,
    };
    let count = usize::from(reader.u16()?);
    if count > MAX_NEW_BLOCKS || count.saturating_mul(8) > reader.remaining() {
        return None;
    }
    let mut new_blocks = Vec::with_capacity(count);
    for _ in 0..count {
        new_blocks.push(BlockHash(reader.u64()?));
    }
    Some(ListedLease {
        id,
        vm,
        endpoint,
        sent,
        weight: Weight::from_tokens(u32::from_le_bytes([a, b, c, 0])),
        known,
        new_blocks,
    })
}

fn put_u64(out: &mut Vec<u8>, value: u64) {
    out.extend_from_slice(&value.to_le_bytes());
}

/// The limits keep every count below `u16::MAX`.
fn put_count(out: &mut Vec<u8>, count: usize) {
    let count = u16::try_from(count).unwrap_or(u16::MAX);
    out.extend_from_slice(&count.to_le_bytes());
}

#[cfg(test)]
mod tests;
