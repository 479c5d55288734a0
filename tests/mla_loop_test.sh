#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Counts what gfx942's MLA kernels execute for each tile of keys: matrix instructions, and other vector instructions beside
# each of them; no cycle of LDS may go to conflicts, no lane use scratch. The counts are differences of two lengths, so that a
# workgroup's beginning and end do not count.
set -euo pipefail
[ -e "$QUERN_BUILD_DIR/libquernsim.so" ] || exit 77
grep -q '^QUERN_SANITIZE:STRING=.\+' "$QUERN_BUILD_DIR/CMakeCache.txt" && exit 77 # a plain program cannot load it
ls "$QUERN_BUILD_DIR"/images/mla_few_bf16.gfx942.co > /dev/null 2>&1 || exit 77   # no image in this build
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
export QUERN_NO_JIT=1 # only images that ship are tested

# kernel, entry, heads, cache, most vector instructions beside one of the matrix core
while read -r kernel entry heads cache most; do
    export QUERN_FORCE="mla=mla.gpu_$kernel"
    for keys in 512 1024; do
        "$QUERN_BUILD_DIR/quern" profile --arch gfx942 --kernel "$entry" --json "$out/$kernel.$keys.json" -- \
            "$PYTHON" "$QUERN_SOURCE_DIR/bench/clock_decode.py" --library "$QUERN_BUILD_DIR/libquern.so" \
            --one "mla-1x${keys}x$heads-$cache@all" quern > "$out/text" || { cat "$out/text"; exit 1; }
    done
    "$PYTHON" - "$kernel" "$heads" "$most" "$out/$kernel".{512,1024}.json <<'PYTHON_END'
import json, sys

name, heads, most = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
def counts(path):
    (kernel,) = json.load(open(path))["kernels"]
    c = kernel["counters"]
    assert kernel["scratch_bytes"] == 0
    return c["SQ_INSTS_MFMA"], c["SQ_INSTS_VALU"] - c["SQ_INSTS_MFMA"], c["SQ_LDS_IDX_ACTIVE"], c["SQ_LDS_BANK_CONFLICT"]
matrix, vector, lds, conflicts = (long - short for short, long in zip(counts(sys.argv[4]), counts(sys.argv[5])))
# 512 keys by 16 rows: 576 of k for scores, by 16 at once or 32 codes, and 512 columns of values
blocks = 512 // 16 * heads // 16
expected = blocks * (576 // (32 if name == "many_fp8" else 16) + 512 // 16)
print(f"{name}: {vector / matrix:.2f} vector instructions beside each of {matrix} of the matrix core, at most {most:g}; "
      f"{conflicts} of {lds} LDS cycles are conflicts")
assert matrix == expected, (matrix, expected)
assert vector / matrix <= most
assert lds > 0 and conflicts == 0
PYTHON_END
done <<'END'
few_bf16 qk_mla_few 16 bf16 4
few_bf16_fp8 qk_mla_few 16 fp8 8
many_bf16 qk_mla_many 128 bf16 3.5
many_bf16_fp8 qk_mla_many 128 fp8 4
many_fp8 qk_mla_many 128 fp8-q8 6
END
