#!/usr/bin/env bash
# Builds the module Envoy loads and prints its path, size and SHA-256.
set -euo pipefail

readonly TARGET=wasm32-wasip1

root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
cd "$root"

die() {
  printf 'build.sh: %s\n' "$*" >&2
  exit 1
}

command -v rustup >/dev/null ||
  die "rustup is needed for the pinned Rust toolchain. Install it: apt-get install rustup"
rustup target list --installed | grep -qx "$TARGET" || rustup target add "$TARGET" >&2

CARGO_ENCODED_RUSTFLAGS="$(scripts/module-flags.sh)"
export CARGO_ENCODED_RUSTFLAGS
cargo build --release --locked --target "$TARGET" --package inline-epp >&2

module="${CARGO_TARGET_DIR:-target}/$TARGET/release/inline_epp.wasm"
[[ "$module" == /* ]] || module="$root/$module"
[[ -f "$module" ]] || die "cargo built no $module"

if command -v sha256sum >/dev/null; then
  digest="$(sha256sum "$module")"
else
  digest="$(shasum -a 256 "$module")"
fi
printf 'path    %s\nsize    %s bytes\nsha256  %s\n' "$module" "$(wc -c <"$module" | tr -d ' ')" "${digest%% *}"
