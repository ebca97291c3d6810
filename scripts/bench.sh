#!/usr/bin/env bash
# Measures inline-epp and its peers: bench.sh [quality|calibration|all], --help lists the options. Installs what is missing
# (the wasm target, Envoy) and builds first. Results (JSON), drawings (SVG) and report.md go to target/bench.
set -euo pipefail

root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
cd "$root"
target="${CARGO_TARGET_DIR:-target}"

if ! command -v cc >/dev/null; then
  echo "bench.sh: cc is needed to link the benchmark. Install it: apt-get install gcc libc6-dev" >&2
  exit 1
fi

scripts/build.sh >&2
ENVOY_PATH="$(scripts/envoy.sh)"
export ENVOY_PATH
cargo build --locked --profile measure --package wasm-test --bin bench >&2

exec "$target/measure/bench" "${@:-all}"
