#!/usr/bin/env bash
# Plays conversations through Envoy's round robin and through inline-epp and prints the difference. Installs what is
# missing (the wasm target, Envoy) and builds first. Arguments go to the demo: --help lists them, --serve keeps
# everything running.
set -euo pipefail

root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
target="${CARGO_TARGET_DIR:-target}"
[[ "$target" == /* ]] || target="$root/$target"

if ! command -v cc >/dev/null; then
  echo "demo.sh: cc is needed to link the demo. Install it: apt-get install gcc libc6-dev" >&2
  exit 1
fi

"$root/scripts/build.sh" >&2
ENVOY_PATH="$("$root/scripts/envoy.sh")"
export ENVOY_PATH
# The pinned toolchain is the one of the repository's folder; the demo itself runs where the caller is, for its --json.
(cd "$root" && cargo build --locked --profile demo --package wasm-test --bin demo) >&2

exec "$target/demo/demo" "$@"
