// Runs an example, built for wasm32-wasip1, in V8, the engine that Envoy runs the module in:
//
//   cargo build --release --target wasm32-wasip1 --example scoring_cost
//   node --no-warnings --no-liftoff scripts/in-v8.mjs scoring_cost
//
// Without --no-liftoff a loop that is entered once stays in the baseline compiler's code; in Envoy every callback is a
// call, so the optimising compiler's is what runs. The host calls that the module would make are not made here.
import { readFile } from "node:fs/promises";
import { WASI } from "node:wasi";

const args = process.argv.slice(2);
const [example] = args;
if (example === undefined) {
  console.error("usage: node scripts/in-v8.mjs EXAMPLE [ARGUMENT...], one of examples/*.rs");
  process.exit(2);
}
const wasi = new WASI({ version: "preview1", args });
const target = process.env.CARGO_TARGET_DIR ?? new URL("../target", import.meta.url).pathname;
const path = `${target}/wasm32-wasip1/release/examples/${example}.wasm`;
const module = await WebAssembly.compile(await readFile(path));
const env = new Proxy({}, { get: () => () => 0 });
const instance = await WebAssembly.instantiate(module, { ...wasi.getImportObject(), env });
// Node starts nothing that also looks like a reactor, which proxy-wasm modules are.
const { _initialize, ...exports } = instance.exports;
wasi.start({ exports });
