#!/usr/bin/env bash
# Prints the compiler flags of the module as cargo reads them in CARGO_ENCODED_RUSTFLAGS. Messages of panics in libraries
# name source files: without these flags by the path of this machine's cargo, and two machines build different bytes. Vector
# instructions halve the time to read a body; the V8 of every Envoy that is supported has them.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

cargo fetch --quiet --locked --target wasm32-wasip1 >&2 # the folders below are there after this

printf -- '-Ctarget-feature=+simd128'
for registry in "${CARGO_HOME:-$HOME/.cargo}"/registry/src/*/; do
  printf '\x1f--remap-path-prefix=%s=/crates/' "$registry"
done
