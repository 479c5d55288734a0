#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Compares quern profile of a HIP program with several threads, on two devices, with counts that follow from the
# program's source.
set -euo pipefail
[ -e "$QUERN_BUILD_DIR/quern-sim-links/libamdhip64.so" ] || exit 77
grep -q '^QUERN_SANITIZE:STRING=.\+' "$QUERN_BUILD_DIR/CMakeCache.txt" && exit 77 # a plain program cannot load it
clang=$(command -v clang++-22 || command -v clang++-23 || command -v clang++) || exit 77
quern=$QUERN_BUILD_DIR/quern
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT

for arch in gfx942 gfx1201; do
    "$clang" -x hip --offload-arch=$arch -nogpuinc -nogpulib -std=c++17 -Wall -Wextra -Werror -O2 \
        -I "$QUERN_SOURCE_DIR/tests/hip" "$QUERN_SOURCE_DIR/tests/hip/count.hip" -fuse-ld=lld --hip-link -no-hip-rt \
        -L "$QUERN_BUILD_DIR/quern-sim-links" -lamdhip64 -o "$out/count"
    "$quern" profile --arch $arch --devices 2 --json "$out/$arch.json" --svg "$out/$arch.svg" -- "$out/count" > "$out/text"
    "$PYTHON" - "$out/$arch.json" "$arch" <<'END'
import json, sys

N, BLOCK, LAUNCHES, THREADS = 1 << 14, 256, 5, 2
kernels = json.load(open(sys.argv[1]))["kernels"]
assert sorted(k["device"] for k in kernels) == [0, 1], kernels
for k in kernels:
    c, times = k["counters"], LAUNCHES * THREADS
    lanes = 64 if sys.argv[2] == "gfx942" else 32
    loads, stores = ("VMEM_RD", "VMEM_WR") if lanes == 64 else ("TEX_LOAD", "TEX_STORE")
    waves = N // lanes * times
    assert k["name"] == "_Z5twicePi" and k["launches"] == times and k["workgroups"] == N // BLOCK * times
    assert k["block"] == [BLOCK, 1, 1] and k["wave_size"] == lanes and c["SQ_WAVES"] == waves
    assert c["SQ_INSTS_" + loads] == c["SQ_INSTS_" + stores] == waves
    assert c["memory_load_bytes"] == c["memory_store_bytes"] == 4 * N * times
    assert c["launch_store_bytes"] == c["group_store_bytes"] == 4 * N * times  # no line is shared
    assert 4 * N * times < c["launch_load_bytes"] <= (4 * N + 512) * times     # arguments as well
    assert c["memory_touched_bytes"] == c["memory_line_bytes"] == 8 * N * times
    assert k["derived"]["VALUUtilization"] == k["derived"]["coalescing_percent"] == 100
    assert k["derived"]["lds_conflicts_per_cycle"] is None and k["occupancy"]["limit"] == "wave slots"
END
done

# With a trace, and under all checks, the counts are equal.
QUERN_SIM="check=all;trace=*twice*:*;trace_file=$out/trace" \
    "$quern" profile --arch gfx1201 --devices 2 --json "$out/again.json" -- "$out/count" > "$out/text"
counters() {
    "$PYTHON" -c 'import json, sys; print([k["counters"] for k in json.load(open(sys.argv[1]))["kernels"]])' "$1"
}
[ "$(counters "$out/again.json")" = "$(counters "$out/gfx1201.json")" ]
[ "$(grep -c ': s_endpgm$' "$out/trace")" = $((2 * 2 * 5 * 16384 / 32)) ]

status=0
"$quern" profile --arch gfx1201 -- "$out/count" abort > "$out/text" 2> "$out/errors" || status=$?
[ $status = 134 ] && grep -q 'was killed by signal 6 (Aborted)' "$out/errors"

# At modelled time a profile has every instruction of a kernel, those that never ran as well, and with -g its lines.
"$clang" -x hip --offload-arch=gfx942 -nogpuinc -nogpulib -std=c++17 -Wall -Wextra -Werror -O2 -g \
    -I "$QUERN_SOURCE_DIR/tests/hip" "$QUERN_SOURCE_DIR/tests/hip/listed.hip" -fuse-ld=lld --hip-link -no-hip-rt \
    -L "$QUERN_BUILD_DIR/quern-sim-links" -lamdhip64 -o "$out/listed"
"$quern" profile --clock full --json "$out/listed.json" -- "$out/listed" > "$out/text"
"$PYTHON" - "$out/listed.json" "$QUERN_SOURCE_DIR/tests/hip/listed.hip" "$out/text" <<'END'
import json, re, sys

WAVES, TURNS = 16, 5
(kernel,) = json.load(open(sys.argv[1]))["kernels"]
lines = {i + 1: text for i, text in enumerate(open(sys.argv[2]))}
(loop,), (never,), (end,) = ([i for i, t in lines.items() if mark in t] for mark in ("// loop", "// never", "// end"))
clock, listed = kernel["clock"], kernel["clock"]["instructions"]
entry = [i for i in listed if i["offset"] == kernel["entry"]]
assert entry and entry[0]["issues"] == WAVES
for one, next_one in zip(listed, listed[1:]):
    if "function" not in one and "function" not in next_one:
        assert next_one["offset"] - one["offset"] in (4, 8, 12), (one, next_one)  # none is left out
by_line = {line: [i for i in listed if i.get("source", {}).get("line") == line] for line in lines}
(atomic,) = [i for i in by_line[loop] if "atomic" in i["text"]]
assert atomic["issues"] == WAVES * TURNS
assert by_line[never] and all(i["issues"] == 0 and not i["simd_cycles"] for i in by_line[never])
(last,) = [i for i in by_line[end] if i["text"].startswith("s_endpgm")]
assert last["issues"] == WAVES
for line in clock["lines"]:
    sums = {}
    for i in listed:
        if i.get("source") == {"file": line["file"], "line": line["line"]}:
            for name, cycles in i["simd_cycles"].items():
                sums[name] = sums.get(name, 0) + cycles
    assert sums == line["simd_cycles"] != {}
totals = [sum(line["simd_cycles"].values()) for line in clock["lines"]]
assert totals == sorted(totals, reverse=True) and clock["lines"][0]["line"] == loop
assert re.search(rf"^  source lines +\d.* %  \w+ +\S*listed.hip:{loop}$", open(sys.argv[3]).read(), re.M)
END
