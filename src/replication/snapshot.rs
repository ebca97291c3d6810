//! The encoding of one pool's snapshot.
//!
//! Within the envelope (magic and version before, a checksum after): a byte that is 1 for Envoy's
//! host list and 0 otherwise, endpoint count (u16), then per endpoint a tag byte and the address (4:
//! 4 bytes and port; 6: 16 bytes, port, flow info, scope), condition and tier (a byte each), sources,
//! open requests, `waiting`, `running` and `engines` (u32 each), two bytes of flags, and the optional fields in the
//! order of theirs: eight of u64, floats by their bits; the adapters: their count (u16), then each
//! name's length (u16) and UTF-8 bytes, in ascending order; the models in the same way, before each a
//! byte that is 1 for an adapter and 0 otherwise. The next flag is that of a GPU fault, others are 0.
//! At the end of an endpoint stands what plugins asked for: a byte that says which signals follow, these
//! as floats by their bits, and where there are adapters, how many can be loaded (u32, all bits set when
//! that is unknown), and the places (u16 each, after their count, in ascending order) of those that wait.
//! Everything is little-endian and a snapshot has exactly one encoding.

use core::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

use super::wire::{Kind, Reader, open, seal, unseal};
use crate::datalayer::metrics::EndpointMetrics;
use crate::datalayer::snapshot::{EndpointSnapshot, PoolSnapshot};
use crate::datalayer::{Adapters, Condition, HostStatus, ModelList, Signals};
use crate::time::Timestamp;

/// Endpoints one snapshot can hold.
pub const MAX_ENDPOINTS: usize = u16::MAX as usize;

/// Encodes `snapshot`. Endpoints beyond [`MAX_ENDPOINTS`] are left out, and so are metrics that
/// break what [`EndpointMetrics`] promises: one bad value must not void the pool's snapshot.
pub fn encode(snapshot: &PoolSnapshot) -> Vec<u8> {
    let count = u16::try_from(snapshot.endpoints.len()).unwrap_or(u16::MAX);
    let mut out = open(KIND, usize::from(count).saturating_mul(MAX_ENDPOINT_BYTES));
    out.push(u8::from(snapshot.is_host_list));
    out.extend_from_slice(&count.to_le_bytes());
    for endpoint in snapshot.endpoints.iter().take(usize::from(count)) {
        write_endpoint(&mut out, endpoint);
    }
    seal(out)
}

/// Decodes what [`encode`] wrote. `None` for every other input: another kind, version or checksum,
/// missing or trailing bytes, a value out of its range. Allocates at most in proportion to `bytes`.
pub fn decode(bytes: &[u8]) -> Option<PoolSnapshot> {
    let mut reader = unseal(bytes, KIND)?;
    let is_host_list = match reader.u8()? {
        0 => false,
        1 => true,
        _ => return None,
    };
    let count = usize::from(reader.u16()?);
    if count.saturating_mul(MIN_ENDPOINT_BYTES) > reader.remaining() {
        return None;
    }
    let mut endpoints = Vec::with_capacity(count);
    for _ in 0..count {
        endpoints.push(read_endpoint(&mut reader)?);
    }
    (reader.remaining() == 0).then_some(PoolSnapshot {
        is_host_list,
        endpoints,
    })
}

const KIND: Kind = Kind {
    magic: *b"EPPS",
    version: 5,
};

const V4: u8 = 4;
const V6: u8 = 6;

/// Address tag, IPv4 address and port, host status, three counts, field bits, signal bits.
const MIN_ENDPOINT_BYTES: usize = 1 + 4 + 2 + STATUS_BYTES + 3 * 4 + 2 + 1;
/// The same with an IPv6 address and every optional field but names.
const MAX_ENDPOINT_BYTES: usize =
    1 + 16 + 2 + 4 + 4 + STATUS_BYTES + 3 * 4 + 2 + OPTIONAL_FIELDS * 8 + 1 + Signals::MAX * 8;
/// Condition, tier, sources, open requests.
const STATUS_BYTES: usize = 1 + 1 + 4 + 4;
const OPTIONAL_FIELDS: usize = 8;
/// Flags after those of the optional fields of u64.
const ADAPTERS: u16 = 1 << OPTIONAL_FIELDS;
const MODELS: u16 = ADAPTERS << 1;
const GPU_FAULT: u16 = MODELS << 1;
const ALL_FLAGS: u16 = (GPU_FAULT << 1) - 1;

fn write_endpoint(out: &mut Vec<u8>, endpoint: &EndpointSnapshot) {
    write_address(out, endpoint.address);
    let status = endpoint.status;
    out.extend_from_slice(&[status.condition.bits(), status.tier]);
    out.extend_from_slice(&status.sources.to_le_bytes());
    out.extend_from_slice(&status.active.to_le_bytes());
    let metrics = &endpoint.metrics;
    for count in [metrics.waiting, metrics.running, metrics.engines.max(1)] {
        out.extend_from_slice(&count.to_le_bytes());
    }
    let fields = optional_fields(endpoint);
    let present = fields.iter().zip(0..).fold(0_u16, |bits, (field, bit)| {
        bits | (u16::from(field.is_some()) << bit)
    });
    let (adapters, models) = (metrics.adapters.as_ref(), endpoint.models.as_ref());
    let flags = present
        | adapters.map_or(0, |_| ADAPTERS)
        | models.map_or(0, |_| MODELS)
        | if metrics.gpu_fault { GPU_FAULT } else { 0 };
    out.extend_from_slice(&flags.to_le_bytes());
    for field in fields.into_iter().flatten() {
        out.extend_from_slice(&field.to_le_bytes());
    }
    if let Some(adapters) = adapters {
        out.extend_from_slice(&short(adapters.iter().len()));
        adapters.iter().for_each(|name| write_name(out, name));
    }
    if let Some(models) = models {
        out.extend_from_slice(&short(models.iter().len()));
        for (name, is_adapter) in models.iter() {
            out.push(u8::from(is_adapter));
            write_name(out, name);
        }
    }
    extras::write(out, metrics);
}

fn write_name(out: &mut Vec<u8>, name: &str) {
    out.extend_from_slice(&short(name.len()));
    out.extend_from_slice(name.as_bytes());
}

/// A count or a length of names, which their types bound below `u16::MAX`.
fn short(length: usize) -> [u8; 2] {
    u16::try_from(length).unwrap_or(u16::MAX).to_le_bytes()
}

fn read_name<'a>(reader: &mut Reader<'a>) -> Option<&'a str> {
    let length = usize::from(reader.u16()?);
    core::str::from_utf8(reader.bytes(length)?).ok()
}

/// The names must be as many, as long and in such an order as [`Adapters`] keeps them.
fn read_adapters(reader: &mut Reader<'_>) -> Option<Adapters> {
    let count = usize::from(reader.u16()?);
    let mut adapters = Adapters::default();
    let mut last = "";
    for number in 1..=count {
        let name = read_name(reader)?;
        if name <= last {
            return None;
        }
        adapters.insert(name);
        if adapters.iter().len() != number {
            return None;
        }
        last = name;
    }
    Some(adapters)
}

/// As [`read_adapters`], for [`ModelList`].
fn read_models(reader: &mut Reader<'_>) -> Option<ModelList> {
    let count = usize::from(reader.u16()?);
    let mut models = ModelList::default();
    let mut last = "";
    for _ in 0..count {
        let is_adapter = match reader.u8()? {
            0 => false,
            1 => true,
            _ => return None,
        };
        let name = read_name(reader)?;
        if name <= last || !models.insert(name, is_adapter) {
            return None;
        }
        last = name;
    }
    Some(models)
}

fn optional_fields(endpoint: &EndpointSnapshot) -> [Option<u64>; OPTIONAL_FIELDS] {
    let metrics = &endpoint.metrics;
    [
        endpoint.scraped_at.map(Timestamp::as_nanos),
        metrics
            .kv_utilisation
            .filter(|value| is_fraction(*value))
            .map(f64::to_bits),
        metrics
            .gpu_utilisation
            .filter(|value| is_fraction(*value))
            .map(f64::to_bits),
        metrics.cache_tokens.filter(|value| is_capacity(*value)),
        metrics
            .process_start
            .filter(|value| is_start(*value))
            .map(f64::to_bits),
        metrics.prefix_hits,
        metrics.prefix_queries,
        metrics.progress,
    ]
}

fn read_endpoint(reader: &mut Reader<'_>) -> Option<EndpointSnapshot> {
    let address = read_address(reader)?;
    let status = read_status(reader)?;
    let (waiting, running, engines) = (reader.u32()?, reader.u32()?, reader.u32()?);
    let flags = reader.u16()?;
    if flags & !ALL_FLAGS != 0 {
        return None;
    }
    let mut fields = [None; OPTIONAL_FIELDS];
    for (field, bit) in fields.iter_mut().zip(0..) {
        if flags & (1 << bit) != 0 {
            *field = Some(reader.u64()?);
        }
    }
    let [
        scraped_at,
        kv,
        gpu,
        cache_tokens,
        start,
        prefix_hits,
        prefix_queries,
        progress,
    ] = fields;
    let adapters = if flags & ADAPTERS == 0 {
        None
    } else {
        Some(read_adapters(reader)?)
    };
    let models = if flags & MODELS == 0 {
        None
    } else {
        Some(read_models(reader)?)
    };
    let (signals, adapters) = extras::read(reader, adapters)?;
    let metrics = EndpointMetrics {
        waiting,
        running,
        kv_utilisation: kv.map(f64::from_bits),
        gpu_utilisation: gpu.map(f64::from_bits),
        engines,
        cache_tokens,
        process_start: start.map(f64::from_bits),
        prefix_hits,
        prefix_queries,
        progress,
        external_tokens: None,
        gpu_fault: flags & GPU_FAULT != 0,
        adapters,
        signals,
    };
    keeps_promises(&metrics).then_some(EndpointSnapshot {
        address,
        scraped_at: scraped_at.map(Timestamp::from_nanos),
        metrics,
        models,
        status,
    })
}

fn read_status(reader: &mut Reader<'_>) -> Option<HostStatus> {
    Some(HostStatus {
        condition: Condition::from_bits(reader.u8()?)?,
        tier: reader.u8()?,
        sources: reader.u32()?,
        active: reader.u32()?,
    })
}

fn keeps_promises(metrics: &EndpointMetrics) -> bool {
    metrics.engines >= 1
        && metrics.kv_utilisation.is_none_or(is_fraction)
        && metrics.gpu_utilisation.is_none_or(is_fraction)
        && metrics.cache_tokens.is_none_or(is_capacity)
        && metrics.process_start.is_none_or(is_start)
}

fn write_address(out: &mut Vec<u8>, address: SocketAddr) {
    match address {
        SocketAddr::V4(v4) => {
            out.push(V4);
            out.extend_from_slice(&v4.ip().octets());
            out.extend_from_slice(&v4.port().to_le_bytes());
        }
        SocketAddr::V6(v6) => {
            out.push(V6);
            out.extend_from_slice(&v6.ip().octets());
            out.extend_from_slice(&v6.port().to_le_bytes());
            out.extend_from_slice(&v6.flowinfo().to_le_bytes());
            out.extend_from_slice(&v6.scope_id().to_le_bytes());
        }
    }
}

fn read_address(reader: &mut Reader<'_>) -> Option<SocketAddr> {
    match reader.u8()? {
        V4 => {
            let ip = Ipv4Addr::from(reader.array::<4>()?);
            Some(SocketAddrV4::new(ip, reader.u16()?).into())
        }
        V6 => {
            let ip = Ipv6Addr::from(reader.array::<16>()?);
            let (port, flow_info, scope) = (reader.u16()?, reader.u32()?, reader.u32()?);
            Some(SocketAddrV6::new(ip, port, flow_info, scope).into())
        }
        _ => None,
    }
}

fn is_fraction(value: f64) -> bool {
    (0.0..=1.0).contains(&value)
}

const fn is_capacity(tokens: u64) -> bool {
    tokens > 0
}

fn is_start(seconds: f64) -> bool {
    seconds.is_finite() && seconds > 0.0
}

mod extras;
#[cfg(test)]
mod tests;
