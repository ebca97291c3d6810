//! The WebAssembly engine: compiles a module, runs its exports, and turns its imports into calls of
//! [`Guest`]. Nothing else of the host knows which engine it is.

use std::collections::HashMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use wasmtime::{
    Caller, Config, Engine, Extern, Instance, InstancePre, Linker, Memory, Module, OptLevel,
    Result, Store, Val,
};

use super::guest::{Guest, Pair, Status};

/// A module ready to be instantiated.
#[derive(Clone)]
pub(super) struct Compiled(InstancePre<Guest>);

impl fmt::Debug for Compiled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Compiled")
    }
}

impl Compiled {
    /// The module at `path`, compiled once in a process. Others who want it wait meanwhile.
    ///
    /// # Panics
    /// When it is no module of this ABI: nothing can be tested then.
    pub(super) fn load(path: &Path) -> Self {
        static COMPILED: Mutex<Option<HashMap<PathBuf, Compiled>>> = Mutex::new(None);
        let mut compiled = COMPILED.lock().unwrap_or_else(PoisonError::into_inner);
        let known = compiled.get_or_insert_default();
        known
            .entry(path.to_owned())
            .or_insert_with(|| {
                compile(path).unwrap_or_else(|error| panic!("{}: {error:?}", path.display()))
            })
            .clone()
    }
}

fn compile(path: &Path) -> Result<Compiled> {
    let mut config = Config::new();
    // A test runs little of the module and waits for all of it to be compiled.
    config.cranelift_opt_level(OptLevel::None);
    let engine = Engine::new(&config)?;
    let module = Module::from_file(&engine, path)?;
    let mut linker = Linker::new(&engine);
    define_maps(&mut linker)?;
    define_buffers(&mut linker)?;
    define_shared_state(&mut linker)?;
    define_control(&mut linker)?;
    define_wasi(&mut linker)?;
    linker.define_unknown_imports_as_traps(&module)?;
    Ok(Compiled(linker.instantiate_pre(&module)?))
}

/// An instance of the module with its memory.
pub(super) struct Machine {
    store: Store<Guest>,
    instance: Instance,
}

impl fmt::Debug for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Machine").finish_non_exhaustive()
    }
}

/// The module trapped; why.
#[derive(Debug)]
pub(super) struct Trapped(pub(super) String);

impl Machine {
    pub(super) fn start(compiled: &Compiled, guest: Guest) -> Result<Self, Trapped> {
        let mut store = Store::new(compiled.0.module().engine(), guest);
        let instance = compiled.0.instantiate(&mut store);
        let instance = instance.map_err(|error| Trapped(format!("{error:?}")))?;
        let mut machine = Self { store, instance };
        machine.run("_initialize", &[])?;
        Ok(machine)
    }

    /// Runs the export `name`; `None` when there is none, 0 when it returns nothing.
    pub(super) fn run(&mut self, name: &str, arguments: &[u32]) -> Result<Option<u32>, Trapped> {
        let Some(export) = self.instance.get_func(&mut self.store, name) else {
            return Ok(None);
        };
        let arguments: Vec<Val> = arguments
            .iter()
            .map(|&one| Val::I32(one.cast_signed()))
            .collect();
        let mut results = vec![Val::I32(0); export.ty(&self.store).results().len()];
        let outcome = export.call(&mut self.store, &arguments, &mut results);
        outcome.map_err(|error| Trapped(format!("{error:?}")))?;
        let result = results.first().and_then(Val::i32);
        Ok(Some(result.map_or(0, i32::cast_unsigned)))
    }

    pub(super) fn guest(&self) -> &Guest {
        self.store.data()
    }

    /// Bytes of its memory, which never shrinks.
    pub(super) fn memory_bytes(&mut self) -> usize {
        let memory = self.instance.get_memory(&mut self.store, "memory");
        memory.map_or(0, |memory| memory.data_size(&self.store))
    }

    pub(super) fn guest_mut(&mut self) -> &mut Guest {
        self.store.data_mut()
    }
}

/// What an import answers.
type Answer = Result<(), Status>;

/// The state behind an import, and the memory its arguments point into.
struct Call<'a>(Caller<'a, Guest>);

impl Call<'_> {
    fn guest(&mut self) -> &mut Guest {
        self.0.data_mut()
    }

    fn memory(&mut self) -> Result<Memory, Status> {
        let memory = self.0.get_export("memory").and_then(Extern::into_memory);
        memory.ok_or(Status::InvalidMemoryAccess)
    }

    fn bytes(&mut self, at: u32, len: u32) -> Result<Vec<u8>, Status> {
        let memory = self.memory()?;
        let (start, len) = (at as usize, len as usize);
        let bytes = memory
            .data(&self.0)
            .get(start..)
            .and_then(|rest| rest.get(..len));
        bytes.map(<[u8]>::to_vec).ok_or(Status::InvalidMemoryAccess)
    }

    fn text(&mut self, at: u32, len: u32) -> Result<String, Status> {
        Ok(String::from_utf8_lossy(&self.bytes(at, len)?).into_owned())
    }

    fn pairs(&mut self, at: u32, len: u32) -> Result<Vec<Pair>, Status> {
        decode_pairs(&self.bytes(at, len)?).ok_or(Status::BadArgument)
    }

    fn put(&mut self, at: u32, bytes: &[u8]) -> Answer {
        let memory = self.memory()?;
        let written = memory.write(&mut self.0, at as usize, bytes);
        written.map_err(|_| Status::InvalidMemoryAccess)
    }

    fn put_u32(&mut self, at: u32, value: u32) -> Answer {
        self.put(at, &value.to_le_bytes())
    }

    /// Hands `bytes` over in memory the module allocates. Of nothing there is no memory.
    fn give(&mut self, bytes: &[u8], data: u32, len: u32) -> Answer {
        let mut address = 0;
        if !bytes.is_empty() {
            let allocate = self.0.get_export("proxy_on_memory_allocate");
            let allocate = allocate
                .and_then(Extern::into_func)
                .ok_or(Status::InvalidMemoryAccess)?;
            let mut result = [Val::I32(0)];
            let size = Val::I32((bytes.len() as u32).cast_signed());
            let allocated = allocate.call(&mut self.0, &[size], &mut result);
            allocated.map_err(|_| Status::InvalidMemoryAccess)?;
            address = result[0].i32().map_or(0, i32::cast_unsigned);
            self.put(address, bytes)?;
        }
        self.put_u32(data, address)?;
        self.put_u32(len, bytes.len() as u32)
    }
}

fn decode_pairs(encoded: &[u8]) -> Option<Vec<Pair>> {
    if encoded.is_empty() {
        return Some(Vec::new());
    }
    let number = |at: usize| {
        let bytes = encoded.get(at..)?.first_chunk::<4>()?;
        Some(u32::from_le_bytes(*bytes) as usize)
    };
    let count = number(0)?;
    let mut data = encoded.get(4 + count * 8..)?;
    let mut pairs = Vec::new();
    for index in 0..count {
        let mut take = |len: usize| {
            let (string, rest) = data.split_at_checked(len)?;
            data = rest.get(1..)?;
            Some(string.to_vec())
        };
        let name = take(number(4 + index * 8)?)?;
        pairs.push((name, take(number(8 + index * 8)?)?));
    }
    Some(pairs)
}

fn encode_pairs(pairs: &[Pair]) -> Vec<u8> {
    let mut out = (pairs.len() as u32).to_le_bytes().to_vec();
    for (name, value) in pairs {
        out.extend((name.len() as u32).to_le_bytes());
        out.extend((value.len() as u32).to_le_bytes());
    }
    for string in pairs.iter().flat_map(|(name, value)| [name, value]) {
        out.extend(string);
        out.push(0);
    }
    out
}

fn answer(mut call: Call<'_>, body: impl FnOnce(&mut Call<'_>) -> Answer) -> u32 {
    body(&mut call).map_or_else(|status| status as u32, |()| 0)
}

/// Defines an import of the module `env` that answers with a status.
macro_rules! import {
    ($linker:ident, $name:literal, |$call:ident $(, $argument:ident: $kind:ty)*| $body:expr) => {
        $linker.func_wrap("env", $name, |caller: Caller<'_, Guest> $(, $argument: $kind)*| -> u32 {
            answer(Call(caller), |$call| $body)
        })?;
    };
}

fn define_maps(linker: &mut Linker<Guest>) -> Result<()> {
    import!(
        linker,
        "proxy_get_header_map_pairs",
        |call, map: u32, data: u32, len: u32| {
            let pairs = call.guest().header_pairs(map)?;
            let encoded = if pairs.is_empty() {
                Vec::new()
            } else {
                encode_pairs(&pairs)
            };
            call.give(&encoded, data, len)
        }
    );
    import!(
        linker,
        "proxy_get_header_map_value",
        |call, map: u32, name: u32, name_len: u32, data: u32, len: u32| {
            let name = call.bytes(name, name_len)?;
            let value = call.guest().header(map, &name)?;
            call.give(&value, data, len)
        }
    );
    import!(
        linker,
        "proxy_replace_header_map_value",
        |call, map: u32, name: u32, name_len: u32, value: u32, value_len: u32| {
            let (name, value) = (call.bytes(name, name_len)?, call.bytes(value, value_len)?);
            call.guest().replace_header(map, name, value)
        }
    );
    import!(
        linker,
        "proxy_add_header_map_value",
        |call, map: u32, name: u32, name_len: u32, value: u32, value_len: u32| {
            let (name, value) = (call.bytes(name, name_len)?, call.bytes(value, value_len)?);
            call.guest().add_header(map, name, value)
        }
    );
    import!(
        linker,
        "proxy_remove_header_map_value",
        |call, map: u32, name: u32, name_len: u32| {
            let name = call.bytes(name, name_len)?;
            call.guest().remove_header(map, &name)
        }
    );
    Ok(())
}

fn define_buffers(linker: &mut Linker<Guest>) -> Result<()> {
    import!(
        linker,
        "proxy_get_buffer_bytes",
        |call, buffer: u32, start: u32, max: u32, data: u32, len: u32| {
            let bytes = call.guest().buffer(buffer, start as usize, max as usize)?;
            // Of nothing, Envoy writes nothing.
            if bytes.is_empty() {
                Ok(())
            } else {
                call.give(&bytes, data, len)
            }
        }
    );
    import!(
        linker,
        "proxy_set_buffer_bytes",
        |call, buffer: u32, start: u32, size: u32, data: u32, len: u32| {
            let bytes = call.bytes(data, len)?;
            call.guest()
                .set_buffer(buffer, start as usize, size as usize, &bytes)
        }
    );
    import!(
        linker,
        "proxy_get_property",
        |call, path: u32, path_len: u32, data: u32, len: u32| {
            let path = call.text(path, path_len)?;
            let value = call.guest().property(&path)?;
            call.give(&value, data, len)
        }
    );
    Ok(())
}

fn define_shared_state(linker: &mut Linker<Guest>) -> Result<()> {
    import!(
        linker,
        "proxy_log",
        |call, level: u32, text: u32, len: u32| {
            let text = call.text(text, len)?;
            call.guest().log(level, text);
            Ok(())
        }
    );
    import!(
        linker,
        "proxy_get_shared_data",
        |call, key: u32, key_len: u32, data: u32, len: u32, cas: u32| {
            let key = call.text(key, key_len)?;
            let (value, token) = call.guest().shared_data(&key)?;
            call.give(&value, data, len)?;
            call.put_u32(cas, token)
        }
    );
    import!(
        linker,
        "proxy_set_shared_data",
        |call, key: u32, key_len: u32, value: u32, value_len: u32, cas: u32| {
            let (key, value) = (call.text(key, key_len)?, call.bytes(value, value_len)?);
            call.guest().set_shared_data(key, value, cas)
        }
    );
    import!(
        linker,
        "proxy_define_metric",
        |call, kind: u32, name: u32, len: u32, id: u32| {
            let name = call.text(name, len)?;
            let defined = call.guest().define_metric(kind, name)?;
            call.put_u32(id, defined)
        }
    );
    import!(
        linker,
        "proxy_increment_metric",
        |call, id: u32, by: i64| { call.guest().increment_metric(id, by) }
    );
    import!(
        linker,
        "proxy_record_metric",
        |call, id: u32, value: u64| { call.guest().record_metric(id, value) }
    );
    import!(
        linker,
        "proxy_get_current_time_nanoseconds",
        |call, time: u32| {
            let now = call.guest().wall_clock();
            call.put(time, &now.to_le_bytes())
        }
    );
    Ok(())
}

fn define_control(linker: &mut Linker<Guest>) -> Result<()> {
    import!(
        linker,
        "proxy_set_tick_period_milliseconds",
        |call, period: u32| {
            call.guest().set_tick_period(period);
            Ok(())
        }
    );
    import!(
        linker,
        "proxy_set_effective_context",
        |call, context: u32| { call.guest().set_effective_context(context) }
    );
    import!(linker, "proxy_continue_stream", |call, stream: u32| {
        call.guest().continue_stream(stream)
    });
    import!(
        linker,
        "proxy_send_local_response",
        |call,
         status: u32,
         details: u32,
         details_len: u32,
         body: u32,
         body_len: u32,
         headers: u32,
         headers_len: u32,
         _grpc: u32| {
            let details = call.text(details, details_len)?;
            let body = call.bytes(body, body_len)?;
            let headers = call.pairs(headers, headers_len)?;
            call.guest()
                .local_reply(status as u16, details, body, headers)
        }
    );
    import!(
        linker,
        "proxy_http_call",
        |call,
         cluster: u32,
         cluster_len: u32,
         headers: u32,
         headers_len: u32,
         body: u32,
         body_len: u32,
         _trailers: u32,
         _trailers_len: u32,
         timeout: u32,
         token: u32| {
            let cluster = call.text(cluster, cluster_len)?;
            let headers = call.pairs(headers, headers_len)?;
            let body = call.bytes(body, body_len)?;
            let sent = call.guest().http_call(cluster, headers, body, timeout)?;
            call.put_u32(token, sent)
        }
    );
    Ok(())
}

fn define_wasi(linker: &mut Linker<Guest>) -> Result<()> {
    /// WASI's "all is well" and "invalid argument".
    const SUCCESS: u32 = 0;
    const INVALID: u32 = 28;
    const WASI: &str = "wasi_snapshot_preview1";
    let put = |caller: Caller<'_, Guest>, at: u32, bytes: &[u8]| {
        Call(caller).put(at, bytes).map_or(INVALID, |()| SUCCESS)
    };
    linker.func_wrap(
        WASI,
        "clock_time_get",
        move |caller: Caller<'_, Guest>, clock: u32, _: u64, time: u32| {
            let now = match clock {
                0 => caller.data().wall_clock(),
                1 => caller.data().monotonic_clock(),
                _ => return INVALID,
            };
            put(caller, time, &now.to_le_bytes())
        },
    )?;
    linker.func_wrap(
        WASI,
        "environ_sizes_get",
        |caller: Caller<'_, Guest>, count: u32, size: u32| {
            let mut call = Call(caller);
            let written = call.put_u32(count, 0).and_then(|()| call.put_u32(size, 0));
            written.map_or(INVALID, |()| SUCCESS)
        },
    )?;
    linker.func_wrap(WASI, "environ_get", |_: u32, _: u32| SUCCESS)?;
    linker.func_wrap(WASI, "proc_exit", |code: u32| -> Result<()> {
        Err(wasmtime::Error::msg(format!(
            "the module ended itself with {code}"
        )))
    })?;
    linker.func_wrap(
        WASI,
        "fd_write",
        |caller: Caller<'_, Guest>, _fd: u32, vectors: u32, count: u32, written: u32| {
            let mut call = Call(caller);
            let text = written_text(&mut call, vectors, count).and_then(|text| {
                call.put_u32(written, text.len() as u32)?;
                call.guest()
                    .standard_output(&String::from_utf8_lossy(&text));
                Ok(())
            });
            text.map_or(INVALID, |()| SUCCESS)
        },
    )?;
    Ok(())
}

fn written_text(call: &mut Call<'_>, vectors: u32, count: u32) -> Result<Vec<u8>, Status> {
    let mut text = Vec::new();
    for vector in 0..count {
        let entry = call.bytes(vectors + vector * 8, 8)?;
        let number = |bytes: &[u8]| {
            bytes
                .first_chunk()
                .map_or(0, |four| u32::from_le_bytes(*four))
        };
        text.extend(call.bytes(number(&entry), number(&entry[4..]))?);
    }
    Ok(text)
}
