#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Counts how many vector instructions attention's matrix kernels execute beside each matrix instruction, in tiles
# without masks, and that no cycle of LDS goes to conflicts. The counts are differences of two lengths, so that a
# workgroup's beginning and end do not count.
set -euo pipefail
[ -e "$QUERN_BUILD_DIR/libquernsim.so" ] || exit 77
grep -q '^QUERN_SANITIZE:STRING=.\+' "$QUERN_BUILD_DIR/CMakeCache.txt" && exit 77 # a plain program cannot load it
cc=$(command -v clang-22 || command -v clang || command -v cc) || exit 77
quern=$QUERN_BUILD_DIR/quern
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
export QUERN_NO_JIT=1 # only images that ship are tested

"$cc" -std=gnu2x -Wall -Wextra -Werror -I "$QUERN_SOURCE_DIR/include" -I "$QUERN_DLPACK_INCLUDE" \
    "$QUERN_SOURCE_DIR/tests/attention_once.c" \
    -L "$QUERN_BUILD_DIR" -lquern -Wl,-rpath,"$QUERN_BUILD_DIR" -o "$out/once"
# chip, type of k and v, head_dim, kernel, most vector instructions beside one of the matrix core
while read -r chip type dim kernel most; do
    if ! ls "$QUERN_BUILD_DIR"/images/attention_128_bf16."$chip".co > /dev/null 2>&1; then
        echo "$chip: no image in this build"
        continue
    fi
    suffix=$([ "$type" = bf16 ] || echo _fp8)
    export QUERN_FORCE="attention=attention.gpu_${kernel}_${dim}_bf16$suffix"
    for tokens in 512 1024; do
        "$quern" profile --arch "$chip" --kernel "qk_attention_$kernel" --json "$out/$chip.$type.$kernel.$dim.$tokens.json" -- \
            "$out/once" "sim:$chip" "$type" $tokens $tokens 1 1 "$dim" > "$out/text" || { cat "$out/text"; exit 1; }
    done
    "$PYTHON" - "$chip" "$type" "$kernel" "$dim" "$most" "$out/$chip.$type.$kernel.$dim".{512,1024}.json <<'PYTHON_END'
import json, sys

chip, kind, kernel, dim, most = *sys.argv[1:4], int(sys.argv[4]), float(sys.argv[5])
def per_wave(path):
    (kernel,) = json.load(open(path))["kernels"]
    c = kernel["counters"]
    matrix = c["SQ_INSTS_MFMA"] if "SQ_INSTS_MFMA" in c else c["insts_wmma"]
    assert kernel["scratch_bytes"] == 0
    block = "SQ" if "SQ_LDS_IDX_ACTIVE" in c else "SQC"
    counts = matrix, c["SQ_INSTS_VALU"] - matrix, c[f"{block}_LDS_IDX_ACTIVE"], c[f"{block}_LDS_BANK_CONFLICT"]
    return [count / c["SQ_WAVES"] for count in counts]
matrix, vector, lds, conflicts = (long - short for short, long in zip(per_wave(sys.argv[6]), per_wave(sys.argv[7])))
# 512 more keys, 32 queries (MFMA) or 16 (WMMA) a wave: two products of head_dim x 512 x 32 (16). If waves share rows, each
# multiplies q and k of the others' rows as well
depth = 16 if (chip, kernel) == ("gfx950", "mfma") else 8
slices = {"gfx1151": 4, "gfx1201": 2}.get(chip, 1) if dim == 256 else 1
product = 512 // 32 * dim // depth if chip.startswith("gfx9") else 512 // 16 * dim // 16
expected = (slices + 1) * product
print(f"{chip} {kind} {kernel}_{dim}: {vector:.0f} or {vector / matrix:.2f} vector instructions beside each of {matrix:.0f} of the matrix core, at most {most:g}; "
      f"{100 * conflicts / lds:.1f} % conflicts")
assert matrix == expected, (matrix, expected)
assert vector / matrix <= most
assert lds > 0 and conflicts == 0
PYTHON_END
done <<'END'
gfx942 bf16 64 mfma 7
gfx942 bf16 128 mfma 4
gfx942 bf16 256 mfma 3
gfx950 bf16 64 mfma 11
gfx950 bf16 128 mfma 6
gfx950 bf16 256 mfma 4
gfx942 bf16 64 tile 6
gfx942 bf16 128 tile 4
gfx942 bf16 256 tile 3
gfx950 bf16 64 tile 6
gfx950 bf16 128 tile 4
gfx950 bf16 256 tile 3
gfx1151 bf16 64 tile 9
gfx1151 bf16 128 tile 5
gfx1151 bf16 256 tile 8
gfx1201 bf16 64 tile 7
gfx1201 bf16 128 tile 5
gfx1201 bf16 256 tile 7
gfx942 e4m3fnuz 64 mfma 8
gfx942 e4m3fnuz 128 mfma 4.5
gfx950 e4m3fn 64 mfma 13
gfx950 e4m3fn 128 mfma 7.5
gfx942 e4m3fnuz 128 tile 4.5
gfx942 e4m3fn 128 tile 8
gfx942 e5m2 128 tile 6
gfx950 e4m3fn 128 tile 4.5
gfx1151 e4m3fn 128 tile 9
gfx1151 e5m2 128 tile 7
gfx1201 e4m3fn 128 tile 4.5
END
