#!/usr/bin/env bash
# Runs every fuzz target of the body readers, RUNS times each (a million unless set), one after the other, from the
# bodies of captured requests. Needs a nightly toolchain; installs cargo-fuzz under target/ if it is missing.
set -euo pipefail
cd "$(dirname "$0")/.."

export PATH="$PWD/target/fuzz-tools/bin:$PATH"
command -v cargo-fuzz >/dev/null ||
  cargo +nightly install --quiet --root target/fuzz-tools cargo-fuzz

seeds=target/fuzz-seeds
mkdir -p "$seeds"
for request in wasm-test/vectors/vllm/*/*.request; do
  # The body: what follows the first blank line.
  sed '1,/^\r\{0,1\}$/d' "$request" >"$seeds/$(basename "$request" .request)"
done

for target in ${1:-$(cargo +nightly fuzz list)}; do
  echo "== $target"
  mkdir -p "fuzz/corpus/$target"
  cargo +nightly fuzz run --release "$target" "fuzz/corpus/$target" "$seeds" -- -runs="${RUNS:-1000000}" -max_len=4096
done
