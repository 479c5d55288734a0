#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Counts how many vector instructions attention's matrix kernel executes beside each matrix instruction, in tiles
# without masks. The counts are differences of two lengths, so that a workgroup's beginning and end do not count.
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
# chip, type of k and v, most vector instructions beside one of the matrix core
while read -r chip type most; do
    if ! ls "$QUERN_BUILD_DIR"/images/attention_128_bf16."$chip".co > /dev/null 2>&1; then
        echo "$chip: no image in this build"
        continue
    fi
    for tokens in 512 1024; do
        "$quern" profile --arch "$chip" --kernel qk_attention_tile --json "$out/$chip.$type.$tokens.json" -- \
            "$out/once" "sim:$chip" "$type" $tokens $tokens 1 1 128 > "$out/text" || { cat "$out/text"; exit 1; }
    done
    "$PYTHON" - "$chip" "$type" "$most" "$out/$chip.$type.512.json" "$out/$chip.$type.1024.json" <<'PYTHON_END'
import json, sys

chip, kind, most = sys.argv[1], sys.argv[2], float(sys.argv[3])
def per_wave(path):
    (kernel,) = json.load(open(path))["kernels"]
    c = kernel["counters"]
    matrix = c["SQ_INSTS_MFMA"] if "SQ_INSTS_MFMA" in c else c["insts_wmma"]
    assert kernel["scratch_bytes"] == 0
    return matrix / c["SQ_WAVES"], (c["SQ_INSTS_VALU"] - matrix) / c["SQ_WAVES"]
short, long = per_wave(sys.argv[4]), per_wave(sys.argv[5])
matrix, vector = long[0] - short[0], long[1] - short[1]
# 512 more keys, 32 queries (MFMA) or 16 (WMMA) a wave: two products of 128 x 512 x 32 (16)
expected = 2 * 512 // 32 * 128 // 8 if chip.startswith("gfx9") else 2 * 512 // 16 * 128 // 16
print(f"{chip} {kind}: {vector:.0f} or {vector / matrix:.2f} vector instructions beside each of {matrix:.0f} of the matrix core, at most {most:g}")
assert matrix == expected, (matrix, expected)
assert vector / matrix <= most
PYTHON_END
done <<'END'
gfx942 bf16 4
gfx1151 bf16 5
gfx1201 bf16 5
gfx942 e4m3fnuz 4.5
gfx942 e4m3fn 8
gfx942 e5m2 6
gfx950 e4m3fn 4.5
gfx1151 e4m3fn 9
gfx1151 e5m2 7
gfx1201 e4m3fn 4.5
END
