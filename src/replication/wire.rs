//! Little-endian fields in a sealed envelope: magic, version, payload, checksum.
//!
//! The checksum catches torn, cut or foreign values; it is no protection against somebody who
//! computes one, so a payload is decoded as hostile all the same.

use xxhash_rust::xxh64::xxh64;

/// What a value starts with, so that values of another kind or version are told apart.
#[derive(Clone, Copy, Debug)]
pub(super) struct Kind {
    /// Names the kind of value.
    pub(super) magic: [u8; 4],
    /// Changes with every change of the layout.
    pub(super) version: u8,
}

/// A new value of `kind` with room for `capacity` payload bytes.
pub(super) fn open(kind: Kind, capacity: usize) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(capacity.saturating_add(ENVELOPE_BYTES));
    bytes.extend_from_slice(&kind.magic);
    bytes.push(kind.version);
    bytes
}

/// Completes a value begun with [`open`].
pub(super) fn seal(mut bytes: Vec<u8>) -> Vec<u8> {
    let checksum = xxh64(&bytes, 0);
    bytes.extend_from_slice(&checksum.to_le_bytes());
    bytes
}

/// The payload of a sealed value of `kind`.
pub(super) fn unseal(bytes: &[u8], kind: Kind) -> Option<Reader<'_>> {
    let (body, checksum) = bytes.split_last_chunk()?;
    if xxh64(body, 0) != u64::from_le_bytes(*checksum) {
        return None;
    }
    let payload = body.strip_prefix(&kind.magic)?;
    payload.strip_prefix(&[kind.version]).map(Reader::new)
}

/// Magic, version and checksum.
const ENVELOPE_BYTES: usize = 4 + 1 + 8;

/// Takes fields off the front; `None` once a field does not fit in what is left.
#[derive(Debug)]
pub(super) struct Reader<'a> {
    bytes: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(super) const fn new(bytes: &'a [u8]) -> Self {
        Self { bytes }
    }

    pub(super) fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (field, rest) = self.bytes.split_first_chunk()?;
        self.bytes = rest;
        Some(*field)
    }

    pub(super) fn u8(&mut self) -> Option<u8> {
        self.array().map(u8::from_le_bytes)
    }

    pub(super) fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_le_bytes)
    }

    pub(super) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    pub(super) fn bytes(&mut self, length: usize) -> Option<&'a [u8]> {
        let (field, rest) = self.bytes.split_at_checked(length)?;
        self.bytes = rest;
        Some(field)
    }

    /// Bytes not taken yet.
    pub(super) const fn remaining(&self) -> usize {
        self.bytes.len()
    }
}
