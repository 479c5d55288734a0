#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Checks row ops on an MI300X of one compute unit, where workgroups that go from row to row do so with few rows: each loads a row
# while it computes the one before, and LDS has room for the sums of two. Every check of the simulator is on.
set -euo pipefail
[ -e "$QUERN_BUILD_DIR/libquernsim.so" ] || exit 77
grep -q '^QUERN_SANITIZE:STRING=.\+' "$QUERN_BUILD_DIR/CMakeCache.txt" && exit 77 # a plain program cannot load it
ls "$QUERN_BUILD_DIR"/images/norm.gfx942.co > /dev/null 2>&1 || exit 77           # no image in this build
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
export QUERN_NO_JIT=1 # only images that ship are tested

printf 'base gfx942\nnum_xccs 1\ncompute_units 1\n' > "$out/chip"
for op in norm activation; do
    QUERN_SIM="check=all;chip=$out/chip" "$QUERN_BUILD_DIR/quern" check --quick "$op" --device sim:gfx942 | tee "$out/$op"
done
# The kernels in question did run.
for kernel in norm.gpu_layer activation.gpu_ahead; do
    cat "$out"/norm "$out"/activation | awk -v kernel="$kernel" '$1 == kernel && $3 > 0 { found = 1 } END { exit !found }'
done
# Rows of several waves, which take LDS in turns: a wave may be a row behind another.
QUERN_SIM="check=all;chip=$out/chip" "$QUERN_BUILD_DIR/quern" bench layernorm --rows 24 --dim 4096 --device sim:gfx942
