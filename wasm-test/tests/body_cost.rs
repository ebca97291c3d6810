//! What reading a body costs, in instructions of the built code: `examples/body_cost.rs` with a
//! clock that counts them, so that a busy machine changes nothing.

use wasm_test::artifact;
use wasmtime::{Caller, Config, Engine, Extern, Linker, Memory, Module, Store};

/// The program's output, and the one argument it gets.
#[derive(Default)]
struct World {
    output: Vec<u8>,
}

const ARGUMENTS: &[u8] = b"body_cost\x001\0";

fn memory(caller: &mut Caller<'_, World>) -> Memory {
    let memory = caller.get_export("memory").and_then(Extern::into_memory);
    memory.expect("a memory")
}

fn write(caller: &mut Caller<'_, World>, at: u32, bytes: &[u8]) {
    let memory = memory(caller);
    memory
        .write(caller, at as usize, bytes)
        .expect("inside the memory");
}

fn read(caller: &mut Caller<'_, World>, at: u32, len: u32) -> Vec<u8> {
    let mut bytes = vec![0; len as usize];
    let memory = memory(caller);
    memory
        .read(caller, at as usize, &mut bytes)
        .expect("inside the memory");
    bytes
}

fn word(caller: &mut Caller<'_, World>, at: u32) -> u32 {
    let bytes = read(caller, at, 4);
    u32::from_le_bytes(bytes.try_into().expect("four bytes"))
}

fn define(linker: &mut Linker<World>) -> wasmtime::Result<()> {
    const WASI: &str = "wasi_snapshot_preview1";
    linker.func_wrap(
        WASI,
        "clock_time_get",
        |mut caller: Caller<'_, World>, _: u32, _: u64, at: u32| {
            let used = u64::MAX - caller.get_fuel().expect("fuel is on");
            write(&mut caller, at, &used.to_le_bytes());
            0
        },
    )?;
    linker.func_wrap(
        WASI,
        "args_sizes_get",
        |mut caller: Caller<'_, World>, count: u32, bytes: u32| {
            write(&mut caller, count, &2_u32.to_le_bytes());
            write(&mut caller, bytes, &(ARGUMENTS.len() as u32).to_le_bytes());
            0
        },
    )?;
    linker.func_wrap(
        WASI,
        "args_get",
        |mut caller: Caller<'_, World>, pointers: u32, bytes: u32| {
            write(&mut caller, bytes, ARGUMENTS);
            let second = bytes + "body_cost\0".len() as u32;
            write(&mut caller, pointers, &bytes.to_le_bytes());
            write(&mut caller, pointers + 4, &second.to_le_bytes());
            0
        },
    )?;
    linker.func_wrap(
        WASI,
        "fd_write",
        |mut caller: Caller<'_, World>, _: u32, pieces: u32, count: u32, written: u32| {
            let mut total = 0;
            for piece in (0..count).map(|piece| pieces + 8 * piece) {
                let (at, len) = (word(&mut caller, piece), word(&mut caller, piece + 4));
                let bytes = read(&mut caller, at, len);
                caller.data_mut().output.extend(bytes);
                total += len;
            }
            write(&mut caller, written, &total.to_le_bytes());
            0
        },
    )?;
    Ok(())
}

/// What the program prints.
fn run() -> String {
    let path = artifact::example("body_cost").expect("a program");
    let mut config = Config::new();
    config.consume_fuel(true);
    let engine = Engine::new(&config).expect("an engine");
    let module = Module::from_file(&engine, path).expect("a module");
    let mut linker = Linker::new(&engine);
    define(&mut linker).expect("defined once");
    let mut store = Store::new(&engine, World::default());
    store.set_fuel(u64::MAX).expect("fuel is on");
    // What the module would ask of Envoy is not asked here.
    linker
        .define_unknown_imports_as_default_values(&mut store, &module)
        .expect("numbers");
    let instance = linker
        .instantiate(&mut store, &module)
        .expect("an instance");
    let start = instance.get_typed_func::<(), ()>(&mut store, "_start");
    start
        .expect("a program")
        .call(&mut store, ())
        .expect("it ends");
    String::from_utf8(store.into_data().output).expect("text")
}

#[test]
fn reading_a_chat_costs_a_few_times_what_passing_over_it_does_and_grows_in_a_line() {
    let output = run();
    let rows: Vec<Vec<&str>> = output
        .lines()
        .skip(2)
        .map(|line| line.trim_matches('|').split('|').map(str::trim).collect())
        .collect();
    assert_eq!(rows.len(), 21, "{output}");
    for row in rows {
        let number = |at: usize| row[at].parse::<f64>().expect("a number");
        let (times, linear) = (number(2), number(3));
        if row[1] == "1024 KiB" {
            assert!(times <= 4.0, "{output}");
        }
        assert!((0.8..1.25).contains(&linear), "{output}");
    }
}
