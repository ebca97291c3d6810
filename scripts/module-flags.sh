#!/usr/bin/env bash
# Prints the compiler flags of the module as cargo reads them in CARGO_ENCODED_RUSTFLAGS. Messages of panics in libraries
# name source files: without these flags by the path of this machine's cargo, and two machines build different bytes.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

cargo fetch --quiet --locked --target wasm32-wasip1 >&2 # the folders below are there after this

separator=""
for registry in "${CARGO_HOME:-$HOME/.cargo}"/registry/src/*/; do
  printf '%s--remap-path-prefix=%s=/crates/' "$separator" "$registry"
  separator=$'\x1f'
done
