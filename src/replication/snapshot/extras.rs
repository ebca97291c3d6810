//! What plugins asked for: the end of an endpoint's part of a snapshot.

use crate::datalayer::metrics::EndpointMetrics;
use crate::datalayer::{AdapterState, Adapters, Signals};
use crate::replication::wire::Reader;

/// One bit for each.
const _: () = assert!(Signals::MAX == 8);
/// The server does not say how many adapters it can have loaded.
const NO_LIMIT: u32 = u32::MAX;

pub(super) fn write(out: &mut Vec<u8>, metrics: &EndpointMetrics) {
    let signals = || metrics.signals.iter().zip(0..);
    out.push(signals().fold(0_u8, |bits, (signal, bit)| {
        bits | u8::from(signal.is_some()) << bit
    }));
    for (signal, _) in signals() {
        if let Some(signal) = signal {
            out.extend_from_slice(&signal.to_bits().to_le_bytes());
        }
    }
    if let Some(adapters) = &metrics.adapters {
        write_waiting(out, adapters);
    }
}

/// The type bounds places below `u16::MAX`.
fn write_waiting(out: &mut Vec<u8>, adapters: &Adapters) {
    out.extend_from_slice(&adapters.most().unwrap_or(NO_LIMIT).to_le_bytes());
    let names = adapters.iter().zip(0_u16..);
    let waits = |name: &str| adapters.state(name) == Some(AdapterState::Waiting);
    let places: Vec<u16> = names
        .filter(|(name, _)| waits(name))
        .map(|(_, place)| place)
        .collect();
    let count = u16::try_from(places.len()).unwrap_or(u16::MAX);
    out.extend_from_slice(&count.to_le_bytes());
    for place in places {
        out.extend_from_slice(&place.to_le_bytes());
    }
}

/// The signals, and `adapters` with what else is known of them.
pub(super) fn read(
    reader: &mut Reader<'_>,
    adapters: Option<Adapters>,
) -> Option<(Signals, Option<Adapters>)> {
    let present = reader.u8()?;
    let mut signals = Signals::default();
    for place in 0..Signals::MAX {
        if present & 1_u8.checked_shl(u32::try_from(place).ok()?)? != 0 {
            let value = f64::from_bits(reader.u64()?);
            signals.set(place, value);
            // Another value would be read than was written.
            signals.get(place)?;
        }
    }
    match adapters {
        None => Some((signals, None)),
        Some(adapters) => Some((signals, Some(read_waiting(reader, &adapters)?))),
    }
}

fn read_waiting(reader: &mut Reader<'_>, listed: &Adapters) -> Option<Adapters> {
    let most = reader.u32()?;
    let mut waiting = Vec::new();
    for _ in 0..reader.u16()? {
        let place = usize::from(reader.u16()?);
        let is_next = waiting.last().is_none_or(|last| *last < place);
        if !is_next || place >= listed.iter().len() {
            return None;
        }
        waiting.push(place);
    }
    let mut adapters = Adapters::default();
    if most != NO_LIMIT {
        adapters.allow(most);
    }
    for (place, name) in listed.iter().enumerate() {
        if waiting.binary_search(&place).is_ok() {
            adapters.insert_waiting(name);
        } else {
            adapters.insert(name);
        }
    }
    Some(adapters)
}
