//! Runs an example of the module's package in wasmtime: a program with arguments, an output and a clock.

use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use wasmtime::{AsContextMut, Caller, Config, Engine, Extern, Linker, Module, OptLevel, Store};

const WASI: &str = "wasi_snapshot_preview1";

/// What the program's clock shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clock {
    /// Nanoseconds.
    Time,
    /// Executed instructions, one as a nanosecond: the same for every run of the same program.
    Instructions,
}

/// A compiled program, which can be run again and again.
pub struct Program {
    engine: Engine,
    module: Module,
    clock: Clock,
}

impl Program {
    /// Compiles `wasm`.
    ///
    /// # Panics
    /// When it is no WebAssembly.
    pub fn new(wasm: &[u8], clock: Clock) -> Self {
        let mut config = Config::new();
        if clock == Clock::Instructions {
            // Instructions are counted as written, so nobody need spend time on making them faster.
            config
                .consume_fuel(true)
                .cranelift_opt_level(OptLevel::None);
        }
        let engine = Engine::new(&config).expect("a valid configuration");
        let module = Module::new(&engine, wasm).expect("wasm");
        Self {
            engine,
            module,
            clock,
        }
    }

    /// Runs it and returns what it printed.
    ///
    /// # Panics
    /// When it is no program, or traps.
    pub fn run(&self, arguments: &[&str]) -> String {
        let mut linker: Linker<()> = Linker::new(&self.engine);
        add_clock(&mut linker, self.clock);
        let printed = add_output(&mut linker);
        add_arguments(&mut linker, arguments);
        let mut store = Store::new(&self.engine, ());
        if self.clock == Clock::Instructions {
            store.set_fuel(u64::MAX).expect("fuel is on");
        }
        // What the module would ask of Envoy is not asked here.
        linker
            .define_unknown_imports_as_default_values(&mut store, &self.module)
            .expect("plain imports");
        let instance = linker.instantiate(&mut store, &self.module);
        let instance = instance.expect("an instance");
        let main = instance.get_typed_func::<(), ()>(&mut store, "_start");
        let ended = main.expect("a program").call(&mut store, ());
        let printed = printed.lock().expect("one thread").clone();
        let printed = String::from_utf8(printed).expect("UTF-8");
        assert!(ended.is_ok(), "{ended:?}\n{printed}");
        printed
    }
}

impl fmt::Debug for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Program")
            .field("clock", &self.clock)
            .finish_non_exhaustive()
    }
}

fn add_clock(linker: &mut Linker<()>, clock: Clock) {
    let start = Instant::now();
    let read = move |mut caller: Caller<'_, ()>, _: u32, _: u64, result: u32| -> u32 {
        let nanos = match clock {
            Clock::Time => start.elapsed().as_nanos() as u64,
            Clock::Instructions => u64::MAX - caller.get_fuel().expect("fuel is on"),
        };
        write(&mut caller, result, &nanos.to_le_bytes());
        0
    };
    linker
        .func_wrap(WASI, "clock_time_get", read)
        .expect("once");
}

fn add_output(linker: &mut Linker<()>) -> Arc<Mutex<Vec<u8>>> {
    let printed = Arc::new(Mutex::new(Vec::new()));
    let sink = Arc::clone(&printed);
    let print =
        move |mut caller: Caller<'_, ()>, _: u32, list: u32, count: u32, result: u32| -> u32 {
            let mut written = 0;
            for at in 0..count {
                let address = word(&mut caller, list + 8 * at);
                let length = word(&mut caller, list + 8 * at + 4);
                let mut bytes = vec![0; length as usize];
                memory(&mut caller)
                    .read(&mut caller, address as usize, &mut bytes)
                    .expect("in range");
                sink.lock().expect("one thread").extend(bytes);
                written += length;
            }
            write(&mut caller, result, &written.to_le_bytes());
            0
        };
    linker.func_wrap(WASI, "fd_write", print).expect("once");
    printed
}

fn add_arguments(linker: &mut Linker<()>, arguments: &[&str]) {
    let all = std::iter::once(&"program").chain(arguments);
    let all: Vec<Vec<u8>> = all.map(|one| [one.as_bytes(), b"\0"].concat()).collect();
    let (count, bytes) = (all.len() as u32, all.concat().len() as u32);
    let sizes = move |mut caller: Caller<'_, ()>, to_count: u32, to_bytes: u32| -> u32 {
        write(&mut caller, to_count, &count.to_le_bytes());
        write(&mut caller, to_bytes, &bytes.to_le_bytes());
        0
    };
    linker
        .func_wrap(WASI, "args_sizes_get", sizes)
        .expect("once");
    let get = move |mut caller: Caller<'_, ()>, mut list: u32, mut text: u32| -> u32 {
        for argument in &all {
            write(&mut caller, list, &text.to_le_bytes());
            write(&mut caller, text, argument);
            list += 4;
            text += argument.len() as u32;
        }
        0
    };
    linker.func_wrap(WASI, "args_get", get).expect("once");
}

/// The little-endian `u32` at `address` of the guest's memory.
fn word(caller: &mut Caller<'_, ()>, address: u32) -> u32 {
    let mut bytes = [0; 4];
    memory(caller)
        .read(caller, address as usize, &mut bytes)
        .expect("in range");
    u32::from_le_bytes(bytes)
}

fn write(caller: &mut Caller<'_, ()>, address: u32, bytes: &[u8]) {
    memory(caller)
        .write(caller.as_context_mut(), address as usize, bytes)
        .expect("in range");
}

fn memory(caller: &mut Caller<'_, ()>) -> wasmtime::Memory {
    let memory = caller.get_export("memory").and_then(Extern::into_memory);
    memory.expect("a memory")
}
