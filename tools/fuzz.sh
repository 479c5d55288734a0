#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds the libFuzzer targets and runs each for FUZZ_SECONDS (default 60) from a small corpus made here.
#   tools/fuzz.sh [TARGET…]   default: every tests/fuzz/*_fuzz.c
# FUZZ_SEED=N: what libFuzzer's choices depend on; unset, each run looks elsewhere.
# An input that fails is kept in build/fuzz/findings/ and makes the script fail, which then prints what repeats it.
set -euo pipefail
cd "$(dirname "$0")/.."
build=build/fuzz
seconds=${FUZZ_SECONDS:-60}
seed=${FUZZ_SEED:-0} # 0: libFuzzer takes one of its own
[[ $seed =~ ^[0-9]+$ ]] || { echo "fuzz: FUZZ_SEED is $seed; accepted: a number"; exit 1; }

cmake --preset fuzz -B $build > $build.configure.log 2>&1 || { cat $build.configure.log; exit 1; }
targets=("$@")
[ $# -gt 0 ] || for source in tests/fuzz/*_fuzz.c; do targets+=("$(basename "$source" .c)"); done
cmake --build $build -j "${JOBS:-2}" --target "${targets[@]}" > $build.build.log 2>&1 ||
  { tail -40 $build.build.log; exit 1; }

# Seeds: valid headers and near misses; code objects that clang makes; what the corpus has grown to.
seeds=$build/seeds
rm -rf $seeds
mkdir -p $seeds/safetensors_fuzz $seeds/npy_fuzz $build/findings
for target in "${targets[@]}"; do mkdir -p $seeds/"$target" $build/corpus/"$target"; done
python3 - $seeds <<'PY'
import json, struct, sys
entry = lambda dtype, shape, begin, end: {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}
seeds = {
    "empty": ({}, 0),
    "metadata": ({"__metadata__": {"format": "pt"}, "a": entry("F32", [2, 3], 0, 24)}, 24),
    "scalar": ({"s": entry("BF16", [], 0, 2), "z": entry("I64", [0, 4], 2, 2)}, 2),
    "fp8": ({"w": entry("F8_E4M3", [4, 4], 4, 20), "w_scale_inv": entry("F32", [1, 1], 0, 4)}, 20),
    "packed": ({"f": entry("F4", [4, 4], 0, 8), "g": entry("F6_E2M3", [4], 8, 11)}, 11),
    "overlap": ({"a": entry("U8", [4], 0, 4), "b": entry("U8", [4], 2, 6)}, 6),
    "hole": ({"a": entry("U8", [4], 0, 4), "b": entry("U8", [4], 6, 10)}, 10),
    "huge": ({"a": entry("F64", [1 << 40, 1 << 40], 0, 8)}, 8),
}
for name, (header, size) in seeds.items():
    text = json.dumps(header).encode()
    open(f"{sys.argv[1]}/safetensors_fuzz/{name}", "wb").write(struct.pack("<Q", len(text)) + text + bytes(size))
arrays = ["{'descr': '<f4', 'fortran_order': False, 'shape': (1, 2), }", "{'shape': (2, 2), 'descr': '|V2', 'fortran_order': False}",
          "{'descr': '<f2', 'fortran_order': True, 'shape': (4, 1)}"]
for i, header in enumerate(arrays):
    text = header.encode()
    open(f"{sys.argv[1]}/npy_fuzz/{i}", "wb").write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text + bytes(8))
PY
# Code objects of whatever has been built, as they are, as bundles and as compressed bundles.
object_seeds() {
  local object name
  for object in build/*/testdata/kernels.*.co build/*/images/gemm_any*.co build/*/images/quantize*.co; do
    [ -e "$object" ] || continue
    name=$(basename "$object" .co)
    cp "$object" $seeds/object_fuzz/"$name"
    case $name in
      *O3*)
        local arch=gfx942
        [[ $name =~ gfx[0-9a-f]+ ]] && arch=${BASH_REMATCH[0]}
        for way in "" -compress; do
          clang-offload-bundler-22 -type=o $way -input=/dev/null -input="$object" -output=$seeds/object_fuzz/"$name$way.hipfb" \
            -targets=host-x86_64-unknown-linux-gnu,hipv4-amdgcn-amd-amdhsa--"$arch" 2>/dev/null || true
        done ;;
    esac
  done
  for object in $seeds/object_fuzz/*; do printf '\1\0\77\20\0\1' >> "$object"; done # the launch
}
for target in "${targets[@]}"; do
  case $target in
    kernel_fuzz) cp build/*/images/*.co $seeds/kernel_fuzz/ 2>/dev/null || true ;;
    object_fuzz) object_seeds ;;
    hip_fuzz) # calls of every kind, by one thread or two
      python3 - $seeds/hip_fuzz <<'PY'
import random, sys
random.seed(1)
for n in range(32):
    open(f"{sys.argv[1]}/made.{n}", "wb").write(bytes([n % 4 == 3]) + random.randbytes(400))
PY
      ;;
    gradients_fuzz) # whole problems, of which small changes are then tried
      python3 - $seeds/gradients_fuzz <<'PY'
import random, sys
random.seed(1)
for n in range(64):
    open(f"{sys.argv[1]}/made.{n}", "wb").write(random.randbytes(64))
PY
      ;;
    tune_fuzz)
      printf '%s\n' 'quern tune 1' '# all' 'gemm gfx942 units=304 n=4096 a=bf16 packed=no -> gemm.any # 9 us' \
        'norm sm_90 h=1..128 kind=rms rows=65.. -> norm.gpu_rms' 'quantize x86-64 -> quantize.cpu' > $seeds/tune_fuzz/lines ;;
    lines_fuzz) # two bytes that choose strings and address, then a table of lines
      for object in build/*/testdata/*.dwarf?.co; do
        llvm-objcopy-22 --dump-section .debug_line=$build/lines.bin "$object" /dev/null 2>/dev/null || continue
        { printf '\377\000'; cat $build/lines.bin; } > $seeds/"$target"/"$(basename "$object")"
      done ;;
    code_fuzz) # eight bytes that choose the launch, then a piece of a kernel; records of random words
      python3 - $seeds/code_fuzz <<'PY'
import random, sys
random.seed(1)
for chip in range(7):
    for n in range(16):
        flags = 1 | random.choice([0, 2]) | random.choice([0, 16]) | random.choice([4, 8, 0]) | random.choice([0, 0, 32]) | random.choice([0, 64]) | random.choice([0, 128])
        header = bytes([chip, flags, 63, 64, 0xf0, random.choice([31, 63, 130]), 60, 63])
        open(f"{sys.argv[1]}/made.{chip}.{n}", "wb").write(header + random.randbytes(16 * 64))
PY
      for object in build/*/testdata/kernels*.co; do
        llvm-objcopy-22 -O binary --only-section=.text "$object" $build/code.bin 2>/dev/null || continue
        chip=1
        case $object in *gfx90a*) chip=0 ;; *gfx950*) chip=2 ;; *gfx1151*) chip=3 ;; *gfx1201*) chip=4 ;; esac
        for piece in 0 2 4 6 8 10; do
          { printf '%b' "\\00$chip\\022\\077\\100\\360\\077\\070\\077"; dd if=$build/code.bin bs=256 skip=$piece count=2 status=none; } \
            > $seeds/code_fuzz/"$(basename "$object")".$piece
        done
      done ;;
  esac
done

# fuzz TARGET: one target, its findings, its figures
fuzz() {
  local target=$1 mask=0 findings=$build/findings sizes=(-max_len=65536) started=$SECONDS
  [[ $target = object_fuzz || $target = hip_fuzz ]] && mask=2 # what the simulated GPU reports
  # What is made of an input's bytes one by one needs a few hundred, and all of them at once.
  grep -qE 'fuzz_tensors.h|fuzz_input.h|hip_graph_calls.h' tests/fuzz/"$target".c && sizes=(-max_len=512 -len_control=0)
  if $build/"$target" -max_total_time="$seconds" -seed="$seed" "${sizes[@]}" -timeout=60 -rss_limit_mb=2048 -verbosity=0 \
      -close_fd_mask="$mask" -print_final_stats=1 -artifact_prefix=$findings/"$target"- \
      $build/corpus/"$target" $seeds/"$target" > $build/"$target".log 2>&1; then
    echo "fuzz: $target for $seconds s: $(grep -E 'number_of_executed_units' $build/"$target".log)"
  else
    tail -30 $build/"$target".log
    echo "fuzz: $target failed after $((SECONDS - started)) s, FUZZ_SEED=$seed; to repeat it:"
    sed -n "s|.*Test unit written to |  UBSAN_OPTIONS=print_stacktrace=1 $build/$target |p" $build/"$target".log
    return 1
  fi
}
export -f fuzz
export build seconds seed seeds
printf '%s\n' "${targets[@]}" | xargs -P "${JOBS:-2}" -I '{}' bash -c 'fuzz {}'
