#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds the libFuzzer targets and runs each for FUZZ_SECONDS (default 60) from a small corpus made here.
#   tools/fuzz.sh [TARGET…]   default: every tests/*_fuzz.c
# An input that fails is kept in build/fuzz/findings/ and makes the script fail.
set -euo pipefail
cd "$(dirname "$0")/.."
build=build/fuzz
seconds=${FUZZ_SECONDS:-60}

cmake --preset fuzz -B $build > $build.configure.log 2>&1 || { cat $build.configure.log; exit 1; }
targets=("$@")
[ $# -gt 0 ] || for source in tests/*_fuzz.c; do targets+=("$(basename "$source" .c)"); done
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
for target in "${targets[@]}"; do # code objects of whatever has been built
  case $target in
    object_fuzz|kernel_fuzz) cp build/*/images/*.co $seeds/"$target"/ 2>/dev/null || true ;;
    lines_fuzz) # two bytes that choose strings and address, then a table of lines
      for object in build/*/testdata/*.dwarf?.co; do
        llvm-objcopy-22 --dump-section .debug_line=$build/lines.bin "$object" /dev/null 2>/dev/null || continue
        { printf '\377\000'; cat $build/lines.bin; } > $seeds/"$target"/"$(basename "$object")"
      done ;;
    code_fuzz) # four bytes that choose the launch, then a piece of a kernel
      for object in build/*/images/*gfx942.co; do
        llvm-objcopy-22 -O binary --only-section=.text "$object" $build/code.bin 2>/dev/null || continue
        for piece in 0 1 2 3 4 5 6 7; do
          { printf '\100\374\077\040'; dd if=$build/code.bin bs=256 skip=$piece count=1 status=none; } \
            > $seeds/"$target"/"$(basename "$object")".$piece
        done
      done ;;
  esac
done

# fuzz TARGET: one target, its findings, its figures
fuzz() {
  local target=$1
  if $build/"$target" -max_total_time="$seconds" -max_len=65536 -timeout=10 -rss_limit_mb=2048 -verbosity=0 \
      -print_final_stats=1 -artifact_prefix=$build/findings/"$target"- \
      $build/corpus/"$target" $seeds/"$target" > $build/"$target".log 2>&1; then
    echo "fuzz: $target for $seconds s: $(grep -E 'number_of_executed_units' $build/"$target".log)"
  else
    tail -30 $build/"$target".log
    return 1
  fi
}
export -f fuzz
export build seconds seeds
printf '%s\n' "${targets[@]}" | xargs -P "${JOBS:-2}" -I '{}' bash -c 'fuzz {}'
