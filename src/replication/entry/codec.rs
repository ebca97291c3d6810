//! The encoding of entries.
//!
//! ```text
//! sequence u64 | tag u8 | fields | checksum u32
//! ```
//!
//! All little-endian. The tag's low four bits say which entry it is, bits 4 and 5 are its flags, the
//! top two the form of its address (0 where it has none). The checksum is the low half of an
//! XXH64 over all before it whose seed names encoding and version: what another version wrote does
//! not fit. An entry has exactly one encoding.
//!
//! A decision about a wholly known prompt takes 52 bytes with an IPv4 endpoint and 64 with IPv6; each
//! new block adds 8. Only a link-local address with its scope takes more.

use core::net::SocketAddr;
use core::num::NonZeroU16;

use xxhash_rust::xxh64::xxh64;

use super::{Entry, Known, MAX_NEW_BLOCKS, Reopened, Routed};
use crate::prefix::BlockHash;
use crate::replication::address::{self, Form};
use crate::replication::wire::Reader;
use crate::replication::{LeaseId, PoolKey, Sequence, VmId, Weight};
use crate::time::Timestamp;

/// Encodes `entry` as the one at `sequence`.
pub fn encode(sequence: Sequence, entry: &Entry) -> Vec<u8> {
    let mut out = Vec::with_capacity(capacity(entry));
    put_u64(&mut out, sequence.0);
    out.push(tag(entry));
    write_fields(&mut out, entry);
    let checksum = checksum(&out);
    out.extend_from_slice(&checksum);
    out
}

/// Decodes what [`encode`] wrote, and nothing else. Allocates at most in proportion to `bytes`.
pub fn decode(bytes: &[u8]) -> Option<(Sequence, Entry)> {
    let (body, found) = bytes.split_last_chunk()?;
    if checksum(body) != *found {
        return None;
    }
    let mut reader = Reader::new(body);
    let sequence = Sequence(reader.u64()?);
    let tag = reader.u8()?;
    let entry = read_fields(&mut reader, tag)?;
    (reader.remaining() == 0 && self::tag(&entry) == tag).then_some((sequence, entry))
}

/// The number that `bytes` start with, whether or not an entry follows: enough to see that a slot
/// still holds what is known.
pub fn leading_number(bytes: &[u8]) -> Option<Sequence> {
    Reader::new(bytes).u64().map(Sequence)
}

/// Encoding and version.
const SEED: u64 = u64::from_le_bytes(*b"EPPlog\0\x03");
const FLAG: u8 = 1 << 4;
const SECOND_FLAG: u8 = 1 << 5;
const FORM_SHIFT: u32 = 6;

/// Kinds of entries: the tag's low four bits.
const VOID: u8 = 0;
const ROUTED: u8 = 1;
const CONFIRMED: u8 = 2;
const FINISHED: u8 = 3;
const MOVED: u8 = 4;
const TAKEN_BACK: u8 = 5;
const SNAPSHOT_PUBLISHED: u8 = 6;
const REMOVED: u8 = 7;
const RESTARTED: u8 = 8;
const CAPACITY: u8 = 9;
const ALIVE: u8 = 10;
const VM_GONE: u8 = 11;
const REOPENED: u8 = 12;
const FAILED: u8 = 13;

fn checksum(body: &[u8]) -> [u8; 4] {
    let [a, b, c, d, ..] = xxh64(body, SEED).to_le_bytes();
    [a, b, c, d]
}

fn capacity(entry: &Entry) -> usize {
    let blocks = if let Entry::Routed(routed) = entry {
        routed.new_blocks.len().min(MAX_NEW_BLOCKS)
    } else {
        0
    };
    blocks.saturating_mul(8).saturating_add(72)
}

fn tag(entry: &Entry) -> u8 {
    let with = |kind: u8, address: &SocketAddr| kind | (Form::of(*address) as u8) << FORM_SHIFT;
    let flag = |set: bool| if set { FLAG } else { 0 };
    match entry {
        Entry::Void => VOID,
        Entry::Routed(routed) => with(ROUTED, &routed.endpoint) | flag(routed.known.is_some()),
        Entry::Confirmed { .. } => CONFIRMED,
        Entry::Finished {
            answered,
            succeeded,
            ..
        } => FINISHED | flag(*answered) | if *succeeded { SECOND_FLAG } else { 0 },
        Entry::Moved { to, record, .. } => with(MOVED, to) | flag(*record),
        Entry::TakenBack { .. } => TAKEN_BACK,
        Entry::SnapshotPublished { .. } => SNAPSHOT_PUBLISHED,
        Entry::Removed { endpoint, .. } => with(REMOVED, endpoint),
        Entry::Restarted { endpoint, .. } => with(RESTARTED, endpoint),
        Entry::Failed { endpoint, .. } => with(FAILED, endpoint),
        Entry::Capacity { endpoint, .. } => with(CAPACITY, endpoint),
        Entry::Alive { .. } => ALIVE,
        Entry::VmGone { .. } => VM_GONE,
        Entry::Reopened(reopened) => with(REOPENED, &reopened.endpoint),
    }
}

fn write_fields(out: &mut Vec<u8>, entry: &Entry) {
    match entry {
        Entry::Void => {}
        Entry::Routed(routed) => write_routed(out, routed),
        Entry::Confirmed { pool, lease }
        | Entry::Finished { pool, lease, .. }
        | Entry::TakenBack { pool, lease } => {
            put_u64(out, pool.0);
            put_u64(out, lease.0.0);
        }
        Entry::Moved {
            pool,
            lease,
            to,
            sent,
            ..
        } => {
            put_u64(out, pool.0);
            put_u64(out, lease.0.0);
            address::write(out, *to);
            put_u64(out, sent.as_nanos());
        }
        Entry::SnapshotPublished { pool } => put_u64(out, pool.0),
        Entry::Removed { pool, endpoint }
        | Entry::Restarted { pool, endpoint }
        | Entry::Failed { pool, endpoint } => {
            put_u64(out, pool.0);
            address::write(out, *endpoint);
        }
        Entry::Capacity {
            pool,
            endpoint,
            blocks,
        } => {
            put_u64(out, pool.0);
            address::write(out, *endpoint);
            out.extend_from_slice(&blocks.to_le_bytes());
        }
        Entry::Alive { vm, at } => {
            out.extend_from_slice(&vm.0.to_le_bytes());
            put_u64(out, at.as_nanos());
        }
        Entry::VmGone { vm } => out.extend_from_slice(&vm.0.to_le_bytes()),
        Entry::Reopened(reopened) => write_reopened(out, reopened),
    }
}

fn write_routed(out: &mut Vec<u8>, routed: &Routed) {
    put_u64(out, routed.pool.0);
    out.extend_from_slice(&routed.vm.0.to_le_bytes());
    address::write(out, routed.endpoint);
    put_u64(out, routed.sent.as_nanos());
    put_weight(out, routed.weight);
    if let Some(known) = routed.known {
        out.extend_from_slice(&known.blocks.get().to_le_bytes());
        put_u64(out, known.last.0);
    }
    for block in routed.new_blocks.iter().take(MAX_NEW_BLOCKS) {
        put_u64(out, block.0);
    }
}

fn write_reopened(out: &mut Vec<u8>, reopened: &Reopened) {
    put_u64(out, reopened.pool.0);
    out.extend_from_slice(&reopened.vm.0.to_le_bytes());
    put_u64(out, reopened.lease.0.0);
    address::write(out, reopened.endpoint);
    put_u64(out, reopened.sent.as_nanos());
    put_weight(out, reopened.weight);
}

fn put_u64(out: &mut Vec<u8>, value: u64) {
    out.extend_from_slice(&value.to_le_bytes());
}

fn put_weight(out: &mut Vec<u8>, weight: Weight) {
    let [a, b, c, _] = weight.tokens().to_le_bytes();
    out.extend_from_slice(&[a, b, c]);
}

fn read_fields(reader: &mut Reader<'_>, tag: u8) -> Option<Entry> {
    let form = Form::from_bits(tag >> FORM_SHIFT);
    let flag = tag & FLAG != 0;
    Some(match tag & 0x0F {
        VOID => Entry::Void,
        ROUTED => Entry::Routed(read_routed(reader, form?, flag)?),
        CONFIRMED => Entry::Confirmed {
            pool: pool(reader)?,
            lease: lease(reader)?,
        },
        FINISHED => Entry::Finished {
            pool: pool(reader)?,
            lease: lease(reader)?,
            answered: flag,
            succeeded: tag & SECOND_FLAG != 0,
        },
        MOVED => Entry::Moved {
            pool: pool(reader)?,
            lease: lease(reader)?,
            to: address::read(reader, form?)?,
            sent: timestamp(reader)?,
            record: flag,
        },
        TAKEN_BACK => Entry::TakenBack {
            pool: pool(reader)?,
            lease: lease(reader)?,
        },
        SNAPSHOT_PUBLISHED => Entry::SnapshotPublished {
            pool: pool(reader)?,
        },
        REMOVED => Entry::Removed {
            pool: pool(reader)?,
            endpoint: address::read(reader, form?)?,
        },
        RESTARTED => Entry::Restarted {
            pool: pool(reader)?,
            endpoint: address::read(reader, form?)?,
        },
        FAILED => Entry::Failed {
            pool: pool(reader)?,
            endpoint: address::read(reader, form?)?,
        },
        CAPACITY => Entry::Capacity {
            pool: pool(reader)?,
            endpoint: address::read(reader, form?)?,
            blocks: reader.u32()?,
        },
        ALIVE => Entry::Alive {
            vm: VmId(reader.u32()?),
            at: timestamp(reader)?,
        },
        VM_GONE => Entry::VmGone {
            vm: VmId(reader.u32()?),
        },
        REOPENED => Entry::Reopened(read_reopened(reader, form?)?),
        _ => return None,
    })
}

fn read_routed(reader: &mut Reader<'_>, form: Form, has_known: bool) -> Option<Routed> {
    let pool = pool(reader)?;
    let vm = VmId(reader.u32()?);
    let endpoint = address::read(reader, form)?;
    let sent = timestamp(reader)?;
    let weight = weight(reader)?;
    let known = if has_known {
        Some(Known {
            blocks: NonZeroU16::new(reader.u16()?)?,
            last: BlockHash(reader.u64()?),
        })
    } else {
        None
    };
    let count = reader.remaining() / 8;
    if count > MAX_NEW_BLOCKS {
        return None;
    }
    let mut new_blocks = Vec::with_capacity(count);
    for _ in 0..count {
        new_blocks.push(BlockHash(reader.u64()?));
    }
    Some(Routed {
        pool,
        vm,
        endpoint,
        sent,
        weight,
        known,
        new_blocks,
    })
}

fn read_reopened(reader: &mut Reader<'_>, form: Form) -> Option<Reopened> {
    Some(Reopened {
        pool: pool(reader)?,
        vm: VmId(reader.u32()?),
        lease: lease(reader)?,
        endpoint: address::read(reader, form)?,
        sent: timestamp(reader)?,
        weight: weight(reader)?,
    })
}

fn pool(reader: &mut Reader<'_>) -> Option<PoolKey> {
    reader.u64().map(PoolKey)
}

fn lease(reader: &mut Reader<'_>) -> Option<LeaseId> {
    reader.u64().map(|number| LeaseId(Sequence(number)))
}

fn timestamp(reader: &mut Reader<'_>) -> Option<Timestamp> {
    reader.u64().map(Timestamp::from_nanos)
}

fn weight(reader: &mut Reader<'_>) -> Option<Weight> {
    let [a, b, c] = reader.array()?;
    Some(Weight::from_tokens(u32::from_le_bytes([a, b, c, 0])))
}

#[cfg(test)]
mod tests;
