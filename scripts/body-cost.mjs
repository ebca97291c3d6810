// Runs examples/body_cost.rs, built for wasm32-wasip1, in V8. The host calls that the module would make are not made here.
import { readFile } from "node:fs/promises";
import { WASI } from "node:wasi";

const wasi = new WASI({ version: "preview1" });
const path = "target/wasm32-wasip1/release/examples/body_cost.wasm";
const module = await WebAssembly.compile(await readFile(path));
const env = new Proxy({}, { get: () => () => 0 });
const instance = await WebAssembly.instantiate(module, { ...wasi.getImportObject(), env });
// Node starts nothing that also looks like a reactor, which proxy-wasm modules are.
const { _initialize, ...exports } = instance.exports;
wasi.start({ exports });
