//! The host's calls, every status a value.
//!
//! The SDK's wrappers panic on a status they do not expect, and a panic is an outage of the VM, so
//! this file declares the imports it needs itself. The SDK keeps its dispatcher, its allocator and
//! `dispatch_http_call`, which reports every status the host returns for it and must register its
//! token with the dispatcher.

#![expect(unsafe_code, reason = "the host's functions are foreign")]

use core::time::Duration;

use crate::time::Timestamp;

/// A call the host did not carry out, by its proxy-wasm status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct HostError(u32);

impl HostError {
    /// Somebody else wrote the value since it was read.
    pub(super) const CAS_MISMATCH: Self = Self(8);
}

pub(super) type HostResult<T> = Result<T, HostError>;

#[derive(Clone, Copy, Debug)]
pub(super) enum HeaderMap {
    Request = 0,
    Response = 2,
    HttpCallResponse = 6,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Buffer {
    RequestBody = 0,
    ResponseBody = 1,
    HttpCallResponseBody = 4,
    PluginConfiguration = 7,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum MetricKind {
    Counter = 0,
    Gauge = 1,
    Histogram = 2,
}

/// A metric the host keeps.
#[derive(Clone, Copy, Debug)]
pub(super) struct MetricId(u32);

mod import {
    #[link(wasm_import_module = "env")]
    unsafe extern "C" {
        pub(super) fn proxy_log(level: u32, text: *const u8, len: usize) -> u32;
        pub(super) fn proxy_get_header_map_pairs(
            map: u32,
            data: *mut *mut u8,
            len: *mut usize,
        ) -> u32;
        pub(super) fn proxy_get_header_map_value(
            map: u32,
            key: *const u8,
            key_len: usize,
            data: *mut *mut u8,
            len: *mut usize,
        ) -> u32;
        pub(super) fn proxy_replace_header_map_value(
            map: u32,
            key: *const u8,
            key_len: usize,
            value: *const u8,
            value_len: usize,
        ) -> u32;
        pub(super) fn proxy_remove_header_map_value(
            map: u32,
            key: *const u8,
            key_len: usize,
        ) -> u32;
        pub(super) fn proxy_get_buffer_bytes(
            buffer: u32,
            start: usize,
            max: usize,
            data: *mut *mut u8,
            len: *mut usize,
        ) -> u32;
        pub(super) fn proxy_set_buffer_bytes(
            buffer: u32,
            start: usize,
            size: usize,
            data: *const u8,
            len: usize,
        ) -> u32;
        pub(super) fn proxy_get_property(
            path: *const u8,
            path_len: usize,
            data: *mut *mut u8,
            len: *mut usize,
        ) -> u32;
        pub(super) fn proxy_get_shared_data(
            key: *const u8,
            key_len: usize,
            data: *mut *mut u8,
            len: *mut usize,
            cas: *mut u32,
        ) -> u32;
        pub(super) fn proxy_set_shared_data(
            key: *const u8,
            key_len: usize,
            value: *const u8,
            value_len: usize,
            cas: u32,
        ) -> u32;
        pub(super) fn proxy_define_metric(
            kind: u32,
            name: *const u8,
            name_len: usize,
            id: *mut u32,
        ) -> u32;
        pub(super) fn proxy_increment_metric(id: u32, offset: i64) -> u32;
        pub(super) fn proxy_record_metric(id: u32, value: u64) -> u32;
        pub(super) fn proxy_set_tick_period_milliseconds(period: u32) -> u32;
        pub(super) fn proxy_set_effective_context(context: u32) -> u32;
        pub(super) fn proxy_continue_stream(stream: u32) -> u32;
        pub(super) fn proxy_send_local_response(
            status: u32,
            details: *const u8,
            details_len: usize,
            body: *const u8,
            body_len: usize,
            headers: *const u8,
            headers_len: usize,
            grpc_status: i32,
        ) -> u32;
    }

    #[link(wasm_import_module = "wasi_snapshot_preview1")]
    unsafe extern "C" {
        pub(super) fn clock_time_get(clock: u32, precision: u64, time: *mut u64) -> u32;
    }
}

/// WASI's `CLOCK_MONOTONIC`.
const MONOTONIC: u32 = 1;

fn checked(status: u32) -> HostResult<()> {
    if status == 0 {
        Ok(())
    } else {
        Err(HostError(status))
    }
}

/// Runs a call that returns bytes the host allocated in our memory.
fn returned_bytes(call: impl FnOnce(*mut *mut u8, *mut usize) -> u32) -> HostResult<Vec<u8>> {
    let mut data: *mut u8 = core::ptr::null_mut();
    let mut len: usize = 0;
    checked(call(&raw mut data, &raw mut len))?;
    if data.is_null() {
        return Ok(Vec::new());
    }
    // SAFETY: the host obtained `data` from the SDK's `proxy_on_memory_allocate`, a boxed slice of
    // `len` bytes that it filled and hands over.
    let bytes = unsafe { Box::from_raw(core::ptr::slice_from_raw_parts_mut(data, len)) };
    Ok(bytes.into_vec())
}

/// The process's monotonic clock. A host that denies it answers the same time for ever.
pub(super) fn now() -> Timestamp {
    let mut nanos = 0;
    // SAFETY: `nanos` outlives the call.
    let status = unsafe { import::clock_time_get(MONOTONIC, 1, &raw mut nanos) };
    Timestamp::from_nanos(if status == 0 { nanos } else { 0 })
}

/// Writes a line to Envoy's log, at a proxy-wasm level.
pub(super) fn log(level: u32, text: &str) {
    // SAFETY: the host reads `text` during the call only.
    let status = unsafe { import::proxy_log(level, text.as_ptr(), text.len()) };
    // A line that cannot be logged has nowhere to be reported.
    let _ = checked(status);
}

/// All headers of `map`, in the host's encoding; see [`pairs`].
pub(super) fn header_pairs(map: HeaderMap) -> HostResult<Vec<u8>> {
    // SAFETY: the pointers outlive the call.
    returned_bytes(|data, len| unsafe { import::proxy_get_header_map_pairs(map as u32, data, len) })
}

/// Reads the host's encoding of a header map: the count, each name's and value's length, then each
/// name and value followed by a zero byte. What does not fit ends the list.
pub(super) fn pairs(encoded: &[u8]) -> Vec<(&[u8], &[u8])> {
    /// Bytes of the two lengths of a pair.
    const LENGTHS: usize = 8;
    let Some((count, rest)) = take_u32(encoded) else {
        return Vec::new();
    };
    let count = usize::try_from(count)
        .unwrap_or(usize::MAX)
        .min(rest.len() / LENGTHS);
    let Some((mut lengths, mut data)) = rest.split_at_checked(count.saturating_mul(LENGTHS)) else {
        return Vec::new();
    };
    let mut found = Vec::with_capacity(count);
    while let Some((name_len, rest)) = take_u32(lengths)
        && let Some((value_len, rest)) = take_u32(rest)
        && let Some((name, after)) = take_string(data, name_len)
        && let Some((value, after)) = take_string(after, value_len)
    {
        found.push((name, value));
        lengths = rest;
        data = after;
    }
    found
}

fn take_u32(bytes: &[u8]) -> Option<(u32, &[u8])> {
    let (number, rest) = bytes.split_first_chunk::<4>()?;
    Some((u32::from_le_bytes(*number), rest))
}

fn take_string(bytes: &[u8], len: u32) -> Option<(&[u8], &[u8])> {
    let (string, rest) = bytes.split_at_checked(usize::try_from(len).ok()?)?;
    Some((string, rest.get(1..)?))
}

/// One header's value.
pub(super) fn header(map: HeaderMap, name: &str) -> HostResult<Vec<u8>> {
    // SAFETY: the host reads `name` during the call only; the pointers outlive it.
    returned_bytes(|data, len| unsafe {
        import::proxy_get_header_map_value(map as u32, name.as_ptr(), name.len(), data, len)
    })
}

/// Sets a header to one value.
pub(super) fn set_header(map: HeaderMap, name: &str, value: &[u8]) -> HostResult<()> {
    // SAFETY: the host reads both strings during the call only.
    checked(unsafe {
        import::proxy_replace_header_map_value(
            map as u32,
            name.as_ptr(),
            name.len(),
            value.as_ptr(),
            value.len(),
        )
    })
}

/// Removes a header.
pub(super) fn remove_header(map: HeaderMap, name: &str) -> HostResult<()> {
    // SAFETY: the host reads `name` during the call only.
    checked(unsafe { import::proxy_remove_header_map_value(map as u32, name.as_ptr(), name.len()) })
}

/// The first `max` bytes of a buffer.
pub(super) fn buffer(buffer: Buffer, max: usize) -> HostResult<Vec<u8>> {
    buffer_part(buffer, 0, max)
}

/// Bytes of a buffer from `start` on, at most `max`.
pub(super) fn buffer_part(buffer: Buffer, start: usize, max: usize) -> HostResult<Vec<u8>> {
    // SAFETY: the pointers outlive the call.
    returned_bytes(|data, len| unsafe {
        import::proxy_get_buffer_bytes(buffer as u32, start, max, data, len)
    })
}

/// Puts `bytes` in the place of the first `size` bytes of a buffer.
pub(super) fn replace_start(buffer: Buffer, size: usize, bytes: &[u8]) -> HostResult<()> {
    // SAFETY: the host reads `bytes` during the call only.
    checked(unsafe {
        import::proxy_set_buffer_bytes(buffer as u32, 0, size, bytes.as_ptr(), bytes.len())
    })
}

/// Adds `bytes` behind all of a buffer.
pub(super) fn append(buffer: Buffer, bytes: &[u8]) -> HostResult<()> {
    // SAFETY: the host reads `bytes` during the call only.
    checked(unsafe {
        import::proxy_set_buffer_bytes(buffer as u32, usize::MAX, 0, bytes.as_ptr(), bytes.len())
    })
}

/// A property of the stream; `path` separates its segments by zero bytes.
pub(super) fn property(path: &str) -> HostResult<Vec<u8>> {
    // SAFETY: the host reads `path` during the call only; the pointers outlive it.
    returned_bytes(|data, len| unsafe {
        import::proxy_get_property(path.as_ptr(), path.len(), data, len)
    })
}

/// A shared value and the token to replace it with.
pub(super) fn shared_data(key: &str) -> HostResult<(Vec<u8>, u32)> {
    let mut cas = 0;
    // SAFETY: the host reads `key` during the call only; the pointers outlive it.
    let value = returned_bytes(|data, len| unsafe {
        import::proxy_get_shared_data(key.as_ptr(), key.len(), data, len, &raw mut cas)
    })?;
    Ok((value, cas))
}

/// Stores a shared value; with a `cas` other than 0 only if nobody else did since it was read. A
/// key that does not exist is created whatever `cas` says.
pub(super) fn set_shared_data(key: &str, value: &[u8], cas: u32) -> HostResult<()> {
    // SAFETY: the host reads both strings during the call only.
    checked(unsafe {
        import::proxy_set_shared_data(key.as_ptr(), key.len(), value.as_ptr(), value.len(), cas)
    })
}

/// Makes a metric known. The host never forgets one.
pub(super) fn define_metric(kind: MetricKind, name: &str) -> HostResult<MetricId> {
    let mut id = 0;
    // SAFETY: the host reads `name` during the call only; `id` outlives it.
    checked(unsafe {
        import::proxy_define_metric(kind as u32, name.as_ptr(), name.len(), &raw mut id)
    })?;
    Ok(MetricId(id))
}

/// Adds to a counter (more than 0) or a gauge.
pub(super) fn increment_metric(id: MetricId, by: i64) -> HostResult<()> {
    // SAFETY: takes and returns numbers.
    checked(unsafe { import::proxy_increment_metric(id.0, by) })
}

/// Sets a gauge, or takes a histogram's sample.
pub(super) fn record_metric(id: MetricId, value: u64) -> HostResult<()> {
    // SAFETY: takes and returns numbers.
    checked(unsafe { import::proxy_record_metric(id.0, value) })
}

/// Has `on_tick` called every `period`, in whole milliseconds and at least one.
pub(super) fn set_tick_period(period: Duration) -> HostResult<()> {
    let millis = u32::try_from(period.as_millis()).unwrap_or(u32::MAX).max(1);
    // SAFETY: takes and returns numbers.
    checked(unsafe { import::proxy_set_tick_period_milliseconds(millis) })
}

/// Makes `context` the one that host calls are about, until the callback ends.
pub(super) fn set_effective_context(context: u32) -> HostResult<()> {
    // SAFETY: takes and returns numbers.
    checked(unsafe { import::proxy_set_effective_context(context) })
}

/// Lets the effective context's request go on, once the present callback is over.
pub(super) fn continue_request() -> HostResult<()> {
    const HTTP_REQUEST: u32 = 0;
    // SAFETY: takes and returns numbers.
    checked(unsafe { import::proxy_continue_stream(HTTP_REQUEST) })
}

/// Answers the request with a JSON text.
pub(super) fn send_local_response(status: u16, body: &str) -> HostResult<()> {
    const DETAILS: &str = "inline_epp";
    /// One pair in the host's encoding.
    const HEADERS: &[u8] = b"\x01\0\0\0\x0c\0\0\0\x10\0\0\0content-type\0application/json\0";
    const NO_GRPC_STATUS: i32 = -1;
    // SAFETY: the host reads all strings during the call only.
    checked(unsafe {
        import::proxy_send_local_response(
            u32::from(status),
            DETAILS.as_ptr(),
            DETAILS.len(),
            body.as_ptr(),
            body.len(),
            HEADERS.as_ptr(),
            HEADERS.len(),
            NO_GRPC_STATUS,
        )
    })
}
