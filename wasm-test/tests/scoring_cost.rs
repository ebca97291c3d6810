//! What scoring costs where the module runs: in wasm, beside hashing a prompt.

use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use wasm_test::{artifact, repository};
use wasmtime::{Caller, Engine, Extern, Linker, Module, Store};

const WASI: &str = "wasi_snapshot_preview1";

/// Hashing 17 KB takes 1.6 µs in V8, and scoring may take 10 µs.
const BUDGET: f64 = 10.0 / 1.6;

/// The little-endian `u32` at `address` of the guest's memory.
fn word(caller: &mut Caller<'_, ()>, address: u32) -> u32 {
    let mut bytes = [0; 4];
    memory(caller)
        .read(caller, address as usize, &mut bytes)
        .expect("in range");
    u32::from_le_bytes(bytes)
}

fn memory(caller: &mut Caller<'_, ()>) -> wasmtime::Memory {
    let memory = caller.get_export("memory").and_then(Extern::into_memory);
    memory.expect("a memory")
}

/// Runs the program with a clock and an output, which is all it asks for; returns what it printed.
fn run(wasm: &[u8]) -> String {
    let engine = Engine::default();
    let module = Module::new(&engine, wasm).expect("wasm");
    let mut linker: Linker<()> = Linker::new(&engine);
    let start = Instant::now();
    let clock = move |mut caller: Caller<'_, ()>, _: u32, _: u64, result: u32| -> u32 {
        let nanos = start.elapsed().as_nanos() as u64;
        memory(&mut caller)
            .write(&mut caller, result as usize, &nanos.to_le_bytes())
            .expect("in range");
        0
    };
    linker
        .func_wrap(WASI, "clock_time_get", clock)
        .expect("once");
    let printed = Arc::new(Mutex::new(Vec::new()));
    let sink = Arc::clone(&printed);
    let write =
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
            memory(&mut caller)
                .write(&mut caller, result as usize, &written.to_le_bytes())
                .expect("in range");
            0
        };
    linker.func_wrap(WASI, "fd_write", write).expect("once");
    let mut store = Store::new(&engine, ());
    linker
        .define_unknown_imports_as_default_values(&mut store, &module)
        .expect("plain imports");
    let instance = linker
        .instantiate(&mut store, &module)
        .expect("an instance");
    let main = instance.get_typed_func::<(), ()>(&mut store, "_start");
    let ended = main.expect("a program").call(&mut store, ());
    let printed = printed.lock().expect("one thread").clone();
    let printed = String::from_utf8(printed).expect("UTF-8");
    assert!(ended.is_ok(), "{ended:?}\n{printed}");
    printed
}

/// How many times the cost of the hash a decision's is, by what the program printed.
fn ratio(printed: &str) -> f64 {
    let mut words = printed.split_whitespace();
    let found = words.find(|word| *word == "ratio").and(words.next());
    let ratio = found.and_then(|ratio| ratio.parse().ok());
    ratio.unwrap_or_else(|| panic!("no ratio in {printed:?}"))
}

#[test]
fn eight_scorers_of_64_endpoints_cost_a_few_hashes_of_a_prompt() {
    let program = artifact::example("scoring_cost").expect("built");
    let printed = run(&std::fs::read(program).expect("readable"));
    let ratio = ratio(&printed);
    assert!(ratio < BUDGET, "{ratio} times the hash, {BUDGET} allowed");
    println!("wasmtime: {printed}");
}

#[test]
fn so_they_do_in_the_engine_that_envoy_uses() {
    artifact::example("scoring_cost").expect("built");
    let output = Command::new("node")
        .args(["--no-warnings", "--no-liftoff"])
        .args(["scripts/in-v8.mjs", "scoring_cost"])
        .current_dir(repository::root())
        .output()
        .expect("node is needed: apt-get install nodejs");
    assert!(output.status.success(), "{output:?}");
    let printed = String::from_utf8_lossy(&output.stdout);
    let ratio = ratio(&printed);
    assert!(ratio < BUDGET, "{ratio} times the hash, {BUDGET} allowed");
    println!("V8: {printed}");
}
