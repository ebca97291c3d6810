//! The checkpoint: what the index holds, in pieces that a VM takes over one by one.
//!
//! Shared data knows no delete, so chunks are stored under numbers from 0 on and each round through
//! the index overwrites those of the one before; a chunk says itself what it is a part of. The table
//! of contents, written with each chunk, says how far the round is.
//!
//! A chunk, within the envelope: pool, round, next entry (u64 each), part (u32), address behind a byte
//! for its form, then block and parent (u64 each) for each block. At most 256 KiB: larger values
//! would stall all workers while they are copied. A million entries are 62 chunks.
//!
//! The contents, within the envelope: pool, round, next entry (u64 each), chunks of this round and of
//! the one before (u32 each), then for each endpoint its address, its parts (u32) and the entry that
//! emptied it (u64, 0 for none).

mod loader;
mod writer;

use core::net::SocketAddr;

use super::wire::{Kind, open, seal, unseal};
use super::{PoolKey, Sequence, address};
use crate::prefix::BlockHash;

pub use self::loader::Loader;
pub use self::writer::CheckpointWriter;

/// Blocks of one chunk.
pub const MAX_BLOCKS: usize = 16_000;

/// Bytes of an encoded chunk.
pub const MAX_CHUNK_BYTES: usize = 256 << 10;

/// Endpoints that the contents tell of.
pub const MAX_ENDPOINTS: usize = u16::MAX as usize;

/// Confirmed blocks of one endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chunk {
    /// Whose endpoint.
    pub pool: PoolKey,
    /// The round it was made in.
    pub epoch: u64,
    /// The first entry it knows nothing of.
    pub next: Sequence,
    /// Which part of the endpoint's blocks, from 0: the youngest first.
    pub part: u32,
    /// The endpoint.
    pub endpoint: SocketAddr,
    /// Each block and the one before it, the block used last first. At most [`MAX_BLOCKS`]: the
    /// encoding leaves out what is more.
    pub blocks: Vec<(BlockHash, BlockHash)>,
}

/// What the chunks are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Contents {
    /// The pool.
    pub pool: PoolKey,
    /// The round that goes on.
    pub epoch: u64,
    /// The first entry not applied when this was written.
    pub next: Sequence,
    /// How many chunks of this round are written: numbers 0 to that.
    pub written: u32,
    /// How many the round before had. Those not overwritten yet are still its.
    pub previous: u32,
    /// The endpoints.
    pub endpoints: Vec<ListedEndpoint>,
}

/// An endpoint in the contents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListedEndpoint {
    /// The endpoint.
    pub address: SocketAddr,
    /// Its chunks of this round, as far as they are written.
    pub parts: u32,
    /// The entry that last dropped all its blocks: chunks that do not know it are stale.
    pub emptied: Option<Sequence>,
}

/// Encodes `chunk`.
pub fn encode_chunk(chunk: &Chunk) -> Vec<u8> {
    let blocks = chunk.blocks.len().min(MAX_BLOCKS);
    let mut out = open(CHUNK, blocks.saturating_mul(BLOCK_BYTES).saturating_add(64));
    put_u64(&mut out, chunk.pool.0);
    put_u64(&mut out, chunk.epoch);
    put_u64(&mut out, chunk.next.0);
    out.extend_from_slice(&chunk.part.to_le_bytes());
    address::write_tagged(&mut out, chunk.endpoint);
    for (block, parent) in chunk.blocks.iter().take(blocks) {
        put_u64(&mut out, block.0);
        put_u64(&mut out, parent.0);
    }
    seal(out)
}

/// Decodes what [`encode_chunk`] wrote, and nothing else. Allocates in proportion to `bytes`.
pub fn decode_chunk(bytes: &[u8]) -> Option<Chunk> {
    let mut reader = unseal(bytes, CHUNK)?;
    let pool = PoolKey(reader.u64()?);
    let epoch = reader.u64()?;
    let next = Sequence(reader.u64()?);
    let part = reader.u32()?;
    let endpoint = address::read_tagged(&mut reader)?;
    let count = reader.remaining() / BLOCK_BYTES;
    if count > MAX_BLOCKS {
        return None;
    }
    let mut blocks = Vec::with_capacity(count);
    for _ in 0..count {
        blocks.push((BlockHash(reader.u64()?), BlockHash(reader.u64()?)));
    }
    (reader.remaining() == 0).then_some(Chunk {
        pool,
        epoch,
        next,
        part,
        endpoint,
        blocks,
    })
}

/// Encodes `contents`; endpoints beyond [`MAX_ENDPOINTS`] are left out.
pub fn encode_contents(contents: &Contents) -> Vec<u8> {
    let endpoints = contents.endpoints.len().min(MAX_ENDPOINTS);
    let mut out = open(CONTENTS, endpoints.saturating_mul(40).saturating_add(32));
    put_u64(&mut out, contents.pool.0);
    put_u64(&mut out, contents.epoch);
    put_u64(&mut out, contents.next.0);
    out.extend_from_slice(&contents.written.to_le_bytes());
    out.extend_from_slice(&contents.previous.to_le_bytes());
    for endpoint in contents.endpoints.iter().take(endpoints) {
        address::write_tagged(&mut out, endpoint.address);
        out.extend_from_slice(&endpoint.parts.to_le_bytes());
        put_u64(&mut out, endpoint.emptied.map_or(0, |emptied| emptied.0));
    }
    seal(out)
}

/// Decodes what [`encode_contents`] wrote, and nothing else. Allocates in proportion to `bytes`.
pub fn decode_contents(bytes: &[u8]) -> Option<Contents> {
    let mut reader = unseal(bytes, CONTENTS)?;
    let mut contents = Contents {
        pool: PoolKey(reader.u64()?),
        epoch: reader.u64()?,
        next: Sequence(reader.u64()?),
        written: reader.u32()?,
        previous: reader.u32()?,
        endpoints: Vec::new(),
    };
    while reader.remaining() > 0 {
        if contents.endpoints.len() >= MAX_ENDPOINTS {
            return None;
        }
        contents.endpoints.push(ListedEndpoint {
            address: address::read_tagged(&mut reader)?,
            parts: reader.u32()?,
            emptied: Some(Sequence(reader.u64()?)).filter(|emptied| emptied.0 > 0),
        });
    }
    Some(contents)
}

const CHUNK: Kind = Kind {
    magic: *b"EPPC",
    version: 1,
};
const CONTENTS: Kind = Kind {
    magic: *b"EPPT",
    version: 1,
};

const BLOCK_BYTES: usize = 16;

fn put_u64(out: &mut Vec<u8>, value: u64) {
    out.extend_from_slice(&value.to_le_bytes());
}

#[cfg(test)]
mod tests;
