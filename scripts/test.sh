#!/usr/bin/env bash
# The whole test suite, real Envoy included, from a clean clone: scripts, formatting, lints and documentation for both
# targets, unit tests on both, then property, simulator, demo and Envoy tests. Stops at the first failure.
set -euo pipefail

readonly WASM=wasm32-wasip1
readonly WASMTIME="wasmtime==50.0.1" # PyPI; Node's own WASI ends the unit tests with a segmentation fault

root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
cd "$root"

die() {
  printf 'test.sh: %s\n' "$*" >&2
  exit 1
}

# Names the missing command $1 and the Debian package $2 that holds it.
require() {
  command -v "$1" >/dev/null || die "$1 is needed. Install it: apt-get install $2"
}

stage() {
  local name="$1" start=$SECONDS
  shift
  printf '\n=== %s\n    %s\n' "$name" "$*"
  "$@" || die "failed: $name"
  printf '=== %s: ok, %d s\n' "$name" $((SECONDS - start))
}

# The module's unit tests where usize has 32 bits, as in Envoy.
wasm_unit_tests() {
  local python="target/wasi-venv/bin/python"
  if ! "$python" -c 'import wasmtime' 2>/dev/null; then
    python3 -m venv --clear target/wasi-venv || die "python3 has no venv. Install it: apt-get install python3-venv"
    "$python" -m pip install --quiet --disable-pip-version-check --only-binary :all: "$WASMTIME" ||
      die "pip could not install $WASMTIME"
  fi
  CARGO_TARGET_WASM32_WASIP1_RUNNER="$python scripts/wasi-runner.py" \
    cargo test --package inline-epp --target "$WASM" --lib --locked
}

find_envoy() {
  ENVOY_PATH="$(scripts/envoy.sh)" && export ENVOY_PATH && printf '%s\n' "$ENVOY_PATH"
}

require rustup rustup
require cc "gcc libc6-dev"
require python3 "python3 python3-venv"
require curl curl
require node nodejs
require wrk wrk
require promtool prometheus
require shellcheck shellcheck
for tool in buildah docker-registry skopeo; do require "$tool" "$tool"; done
for component in clippy rustfmt; do
  rustup component list --installed | grep -q "^$component" || rustup component add "$component"
done
rustup target list --installed | grep -qx "$WASM" || rustup target add "$WASM"

stage "scripts" shellcheck scripts/*.sh .ci/run
stage "format" cargo fmt --all -- --check
stage "module" scripts/build.sh
stage "Envoy" find_envoy
stage "lints, native" cargo clippy --workspace --all-targets --locked -- -D warnings
stage "lints, wasm" cargo clippy --package inline-epp --target "$WASM" --locked -- -D warnings
stage "documentation, native" env RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --locked
stage "documentation, wasm" \
  env RUSTDOCFLAGS="-D warnings" cargo doc --package inline-epp --no-deps --target "$WASM" --locked
stage "unit tests, native" cargo test --package inline-epp --locked
stage "unit tests, wasm" wasm_unit_tests
# Two at a time: each starts an Envoy and many servers, and deadlines are wall-clock time.
stage "tests with simulator and Envoy" cargo test --package wasm-test --locked -- --test-threads=2

printf '\ntest.sh: everything passed in %d s\n' "$SECONDS"
