#!/usr/bin/env bash
# Builds the module, packs it as an OCI image that Istio's agent reads, and prints the manifest's digest and the size. No
# container engine is needed. The same commit and source URL give the same digest on every machine.
#
#   --form image|artifact   one gzipped layer with plugin.wasm (default), or the Wasm image specification's artifact
#   --source URL            the label org.opencontainers.image.source; default: the https remote `origin`, if there is one
#   --push REGISTRY/NAME:TAG   pushes it, with the credentials of `skopeo login`
#   --plain-http            that registry has no TLS
#   --sbom                  writes a CycloneDX list of what the module is built from; installs cargo-cyclonedx under target/
#
# In target/oci: the image layout `image`, plugin.wasm for scripts/Containerfile, and inline-epp.cdx.json.
set -euo pipefail

readonly CYCLONEDX=0.5.9

root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
cd "$root"

die() {
  printf 'oci.sh: %s\n' "$*" >&2
  exit 1
}

form=image push="" tls=true sbom=false
source="$(git remote get-url origin 2>/dev/null | sed -n 's|^https://\([^@/]*@\)\{0,1\}|https://|p')" || true
while (($# > 0)); do
  case "$1" in
    --form | --source | --push)
      (($# > 1)) || die "$1 needs a value"
      declare "${1#--}=$2"
      shift
      ;;
    --plain-http) tls=false ;;
    --sbom) sbom=true ;;
    *) die "unknown argument $1; the head of the script lists them" ;;
  esac
  shift
done
if [[ -n "$push" ]]; then
  command -v skopeo >/dev/null || die "skopeo is needed to push. Install it: apt-get install skopeo"
fi

revision="$(git rev-parse HEAD)" || die "the labels need the commit, so a git checkout"
[[ -z "$(git status --porcelain --untracked-files=no)" ]] || revision+="-dirty"
created="$(TZ=UTC0 git log -1 --format=%cd --date=format-local:%Y-%m-%dT%H:%M:%SZ)"

built="$(scripts/build.sh)"
module="$(sed -n 's/^path  *//p' <<<"$built")"
mkdir -p target/oci
cp "$module" target/oci/plugin.wasm

packed="$(cargo run --quiet --locked --package wasm-test --bin oci-image -- --module target/oci/plugin.wasm \
  --output target/oci/image --tag inline-epp --form "$form" --revision "$revision" --created "$created" \
  ${source:+--source "$source"})"
printf '%s\n%s\n' "$built" "$packed"

if $sbom; then
  tool=target/oci-tools/bin/cargo-cyclonedx
  [[ -x "$tool" ]] || cargo install --quiet --locked --debug --root target/oci-tools "cargo-cyclonedx@$CYCLONEDX" >&2
  # With the time given, it leaves out the random serial number: the same commit gives the same file.
  SOURCE_DATE_EPOCH="$(git log -1 --format=%ct)" "$tool" cyclonedx --quiet --format json --spec-version 1.5 \
    --target wasm32-wasip1 --no-build-deps --override-filename inline-epp.cdx >&2
  rm -f wasm-test/inline-epp.cdx.json # it describes every member of the workspace
  sed "s|$root|/inline-epp|g" inline-epp.cdx.json >target/oci/inline-epp.cdx.json
  rm inline-epp.cdx.json
  printf 'sbom    target/oci/inline-epp.cdx.json\n'
fi

if [[ -n "$push" ]]; then
  digest="$(sed -n 's/^digest  *//p' <<<"$packed")"
  skopeo copy --quiet --preserve-digests --dest-tls-verify="$tls" oci:target/oci/image:inline-epp "docker://$push"
  stored="sha256:$(skopeo inspect --raw --tls-verify="$tls" "docker://$push" | sha256sum | cut -d' ' -f1)"
  [[ "$stored" == "$digest" ]] || die "the registry stored $stored instead of $digest"
  printf 'pushed  %s@%s\n' "$push" "$digest"
fi
