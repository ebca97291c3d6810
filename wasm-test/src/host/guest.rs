//! What one VM may ask of Envoy, call by call, and what Envoy answers.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use super::Thread;
use super::http::{HttpState, Reply};
use super::world::{Level, World};

/// Name and value of a header.
pub(super) type Pair = (Vec<u8>, Vec<u8>);

/// Why a call was not carried out, by its proxy-wasm number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Status {
    NotFound = 1,
    BadArgument = 2,
    InvalidMemoryAccess = 6,
    CasMismatch = 8,
    InternalFailure = 10,
    Unimplemented = 12,
}

/// One VM as its host sees it.
#[derive(Debug)]
pub(super) struct Guest {
    pub(super) thread: Thread,
    pub(super) world: Rc<RefCell<World>>,
    pub(super) roots: BTreeMap<u32, Root>,
    /// Streams by their context's id, until they are deleted.
    pub(super) streams: BTreeMap<u32, HttpState>,
    /// The ended HTTP call whose callback is running: headers and body.
    pub(super) call_answer: Option<(Vec<Pair>, Vec<u8>)>,
    /// The configuration whose `on_configure` is running.
    pub(super) configuration: Option<Vec<u8>>,
    /// The context whose callback is running.
    pub(super) current: u32,
    /// The context the callback asked to act as.
    pub(super) effective: Option<u32>,
    next_context: u32,
    metrics: super::metrics::Handles,
}

/// A root context.
#[derive(Debug)]
pub(super) struct Root {
    /// Its configuration was replaced; it lives until its streams had time to end.
    pub(super) draining: bool,
    pub(super) tick: Option<Tick>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Tick {
    pub(super) period: Duration,
    pub(super) next: Duration,
}

type Answer<T = ()> = Result<T, Status>;

/// proxy-wasm's numbers of header maps and buffers.
mod number {
    pub(super) const REQUEST_HEADERS: u32 = 0;
    pub(super) const REQUEST_TRAILERS: u32 = 1;
    pub(super) const RESPONSE_HEADERS: u32 = 2;
    pub(super) const CALL_HEADERS: u32 = 6;
    pub(super) const REQUEST_BODY: u32 = 0;
    pub(super) const RESPONSE_BODY: u32 = 1;
    pub(super) const CALL_BODY: u32 = 4;
    pub(super) const PLUGIN_CONFIGURATION: u32 = 7;
}

impl Guest {
    pub(super) fn new(thread: Thread, world: &Rc<RefCell<World>>) -> Self {
        Self {
            thread,
            world: Rc::clone(world),
            roots: BTreeMap::new(),
            streams: BTreeMap::new(),
            call_answer: None,
            configuration: None,
            current: 0,
            effective: None,
            next_context: 1,
            metrics: super::metrics::Handles::default(),
        }
    }

    pub(super) fn new_context_id(&mut self) -> u32 {
        let id = self.next_context;
        self.next_context += 1;
        id
    }

    /// The context calls act on.
    fn acting(&self) -> u32 {
        self.effective.unwrap_or(self.current)
    }

    fn stream(&mut self) -> Answer<&mut HttpState> {
        let id = self.acting();
        self.streams.get_mut(&id).ok_or(Status::BadArgument)
    }

    /// The root context behind the context calls act on.
    fn root(&self) -> u32 {
        let id = self.acting();
        self.streams.get(&id).map_or(id, |stream| stream.root)
    }
}

/// Header maps.
impl Guest {
    /// A map that can be read now.
    fn map(&mut self, map: u32) -> Answer<&[Pair]> {
        if map == number::CALL_HEADERS {
            let answer = self.call_answer.as_ref().ok_or(Status::BadArgument)?;
            return Ok(&answer.0);
        }
        self.map_mut(map).map(|pairs| pairs.as_slice())
    }

    fn map_mut(&mut self, map: u32) -> Answer<&mut Vec<Pair>> {
        let stream = self.stream()?;
        let map = match map {
            number::REQUEST_HEADERS => &mut stream.request_headers,
            number::REQUEST_TRAILERS => &mut stream.request_trailers,
            number::RESPONSE_HEADERS => &mut stream.response_headers,
            _ => return Err(Status::Unimplemented),
        };
        map.shown().ok_or(Status::BadArgument)
    }

    pub(super) fn header_pairs(&mut self, map: u32) -> Answer<Vec<Pair>> {
        self.map(map).map(<[Pair]>::to_vec)
    }

    /// Of a repeated header, the first value.
    pub(super) fn header(&mut self, map: u32, name: &[u8]) -> Answer<Vec<u8>> {
        let mut pairs = self.map(map)?.iter();
        let found = pairs.find(|(key, _)| key == name);
        found
            .map(|(_, value)| value.clone())
            .ok_or(Status::NotFound)
    }

    pub(super) fn replace_header(&mut self, map: u32, name: Vec<u8>, value: Vec<u8>) -> Answer {
        let pairs = self.map_mut(map)?;
        pairs.retain(|(key, _)| *key != name);
        pairs.push((name, value));
        Ok(())
    }

    pub(super) fn add_header(&mut self, map: u32, name: Vec<u8>, value: Vec<u8>) -> Answer {
        self.map_mut(map)?.push((name, value));
        Ok(())
    }

    pub(super) fn remove_header(&mut self, map: u32, name: &[u8]) -> Answer {
        self.map_mut(map)?.retain(|(key, _)| key != name);
        Ok(())
    }
}

/// Buffers and properties.
impl Guest {
    fn whole_buffer(&mut self, buffer: u32) -> Answer<&[u8]> {
        match buffer {
            number::REQUEST_BODY => Ok(self.stream()?.request_body.shown()),
            number::RESPONSE_BODY => Ok(&self.stream()?.response_body),
            number::CALL_BODY => {
                let answer = self.call_answer.as_ref().ok_or(Status::NotFound)?;
                Ok(&answer.1)
            }
            number::PLUGIN_CONFIGURATION => self.configuration.as_deref().ok_or(Status::NotFound),
            _ => Err(Status::Unimplemented),
        }
    }

    pub(super) fn buffer(&mut self, buffer: u32, start: usize, max: usize) -> Answer<Vec<u8>> {
        let bytes = self.whole_buffer(buffer)?;
        let end = start.saturating_add(max).min(bytes.len());
        Ok(bytes.get(start..end).unwrap_or_default().to_vec())
    }

    /// As Envoy: bytes are put in the place of the buffer's start, or behind its end.
    pub(super) fn set_buffer(
        &mut self,
        buffer: u32,
        start: usize,
        size: usize,
        bytes: &[u8],
    ) -> Answer {
        if buffer != number::REQUEST_BODY {
            return Err(Status::Unimplemented);
        }
        let body = self.stream()?.request_body.shown_mut();
        let place = match start {
            0 => 0..size.min(body.len()),
            _ if start >= body.len() => body.len()..body.len(),
            _ => return Err(Status::BadArgument),
        };
        body.splice(place, bytes.iter().copied());
        Ok(())
    }

    /// `path` separates its segments by zero bytes.
    pub(super) fn property(&mut self, path: &str) -> Answer<Vec<u8>> {
        let name = path.trim_end_matches('\0').replace('\0', ".");
        match name.as_str() {
            "plugin_name" | "plugin_root_id" | "plugin_vm_id" => Ok(super::PLUGIN.into()),
            _ => {
                let version = name.strip_prefix("xds.node.user_agent_build_version.version.");
                if let Some(part) = version {
                    return self.version(part);
                }
                let stream = self.stream().map_err(|_| Status::NotFound)?;
                stream
                    .properties
                    .get(&name)
                    .cloned()
                    .ok_or(Status::NotFound)
            }
        }
    }
}

impl Guest {
    /// A part of the version Envoy would give itself.
    fn version(&self, part: &str) -> Answer<Vec<u8>> {
        let parts = ["major_number", "minor_number", "patch"];
        let place = parts.iter().position(|name| *name == part);
        let version = self.world.borrow().version.ok_or(Status::NotFound)?;
        let number = version[place.ok_or(Status::NotFound)?];
        Ok(number.to_le_bytes().to_vec())
    }
}

/// Clocks, logs, shared data and metrics: the same for all VMs.
impl Guest {
    pub(super) fn monotonic_clock(&self) -> u64 {
        self.world.borrow().now.as_nanos() as u64
    }

    pub(super) fn wall_clock(&self) -> u64 {
        let world = self.world.borrow();
        (world.epoch + world.now).as_nanos() as u64
    }

    pub(super) fn log(&mut self, level: u32, text: String) {
        let level = match level {
            0 => Level::Trace,
            1 => Level::Debug,
            2 => Level::Info,
            3 => Level::Warn,
            4 => Level::Error,
            _ => Level::Critical,
        };
        self.world.borrow_mut().log(self.thread, level, text);
    }

    /// What a panicking module writes.
    pub(super) fn standard_output(&mut self, text: &str) {
        for line in text.lines().filter(|line| !line.is_empty()) {
            self.log(5, line.to_owned());
        }
    }

    pub(super) fn shared_data(&mut self, key: &str) -> Answer<(Vec<u8>, u32)> {
        self.world.borrow().shared.get(key).ok_or(Status::NotFound)
    }

    pub(super) fn set_shared_data(&mut self, key: String, value: Vec<u8>, cas: u32) -> Answer {
        let written = self.world.borrow_mut().shared.set(key, value, cas);
        if written {
            Ok(())
        } else {
            Err(Status::CasMismatch)
        }
    }

    pub(super) fn define_metric(&mut self, kind: u32, name: String) -> Answer<u32> {
        let metrics = &mut self.world.borrow_mut().metrics;
        self.metrics
            .define(metrics, kind, name)
            .ok_or(Status::BadArgument)
    }

    pub(super) fn increment_metric(&mut self, id: u32, by: i64) -> Answer {
        let metrics = &mut self.world.borrow_mut().metrics;
        self.metrics.increment(metrics, id, by)
    }

    pub(super) fn record_metric(&mut self, id: u32, value: u64) -> Answer {
        let metrics = &mut self.world.borrow_mut().metrics;
        self.metrics.record(metrics, id, value)
    }
}

/// Contexts, streams and calls.
impl Guest {
    /// 0 turns ticks off.
    pub(super) fn set_tick_period(&mut self, milliseconds: u32) {
        let period = Duration::from_millis(milliseconds.into());
        let next = self.world.borrow().now + period;
        let id = self.root();
        if let Some(root) = self.roots.get_mut(&id) {
            root.tick = (milliseconds > 0).then_some(Tick { period, next });
        }
    }

    pub(super) fn set_effective_context(&mut self, context: u32) -> Answer {
        if self.roots.contains_key(&context) || self.streams.contains_key(&context) {
            self.effective = Some(context);
            return Ok(());
        }
        Err(Status::BadArgument)
    }

    /// Takes effect when the callback is over, but the headers are gone at once.
    pub(super) fn continue_stream(&mut self, direction: u32) -> Answer {
        /// proxy-wasm's number of the request.
        const REQUEST: u32 = 0;
        if direction != REQUEST {
            return Err(Status::Unimplemented);
        }
        let stream = self.stream()?;
        stream.resumed = true;
        stream.request_headers.hide();
        Ok(())
    }

    /// Takes effect when the callback is over.
    pub(super) fn local_reply(
        &mut self,
        status: u16,
        details: String,
        body: Vec<u8>,
        headers: Vec<Pair>,
    ) -> Answer {
        self.stream()?.reply = Some(Reply {
            status,
            details,
            body,
            headers,
        });
        Ok(())
    }

    pub(super) fn http_call(
        &mut self,
        cluster: String,
        headers: Vec<Pair>,
        body: Vec<u8>,
        timeout: u32,
    ) -> Answer<u32> {
        let root = self.root();
        let timeout = Duration::from_millis(timeout.into());
        let mut world = self.world.borrow_mut();
        let now = world.now;
        let call = super::calls::Request {
            cluster,
            headers,
            body,
        };
        world.calls.start(self.thread, root, call, now, timeout)
    }
}
