#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# HIP C++ programs that clang compiles here run unchanged on the simulated GPU: quern sim -- PROGRAM.
set -euo pipefail
[ -e "$QUERN_BUILD_DIR/quern-sim-links/libamdhip64.so" ] || exit 77
grep -q '^QUERN_SANITIZE:STRING=.\+' "$QUERN_BUILD_DIR/CMakeCache.txt" && exit 77 # a plain program cannot load it
source=$QUERN_SOURCE_DIR/tests/hip quern=$QUERN_BUILD_DIR/quern
clang=$(command -v clang++-22 || command -v clang++-23 || command -v clang++) || exit 77
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT

# compile OUTPUT ARGUMENT...: a program or shared object for gfx942, linked as hipcc would.
compile() {
    local output=$1
    shift
    "$clang" -x hip --offload-arch="${arch:-gfx942}" -nogpuinc -nogpulib -std=c++17 -Wall -Wextra -Werror \
        -I "$source" "$@" -fuse-ld=lld --hip-link -no-hip-rt -L "$QUERN_BUILD_DIR/quern-sim-links" -lamdhip64 \
        -o "$out/$output"
}

fail() {
    echo "$1" >&2
    exit 1
}

# The page lists the calls that are not supported, and no others.
sed -n 's/^HIP_UNSUPPORTED(\(.*\))/\1/p' "$QUERN_SOURCE_DIR/sim/hip/unsupported.def" | sort > "$out/refused"
sed '1,/^## Calls that are not supported/d' "$QUERN_SOURCE_DIR/docs/hip.md" | grep -o '`hip[A-Za-z0-9_]*`' | tr -d '`' | sort > "$out/listed"
diff "$out/refused" "$out/listed" >&2 || fail "docs/hip.md and sim/hip/unsupported.def differ: < refused, > listed"

for flags in -O0 -O2 "-O1 --offload-compress"; do
    # shellcheck disable=SC2086 # several flags
    compile kernels $flags "$source/kernels.hip"
    "$quern" sim -- "$out/kernels"
    "$quern" sim --check all -- "$out/kernels"
done

# Generic targets run on the chips that they cover, and features choose among a bundle's entries.
arch=gfx9-4-generic compile generic -O1 --offload-compress "$source/kernels.hip"
"$quern" sim --arch gfx942 -- "$out/generic"
arch=gfx9-4-generic compile generic_race -O1 "$source/race.hip"
"$quern" sim --arch gfx950 --check none -- "$out/generic_race"
"$quern" sim --arch gfx90a -- "$out/generic" > "$out/text" 2>&1 && fail "gfx9-4-generic ran on gfx90a"
grep -q "none of the offload bundle's .* is for gfx90a:sramecc+:xnack-" "$out/text" || fail "no report: $(cat "$out/text")"
arch=gfx942:xnack+ compile features -O1 --offload-arch=gfx942:xnack- "$source/kernels.hip"
"$quern" sim --arch gfx942 -- "$out/features"
arch=gfx942:xnack+ compile features -O1 "$source/kernels.hip"
"$quern" sim --arch gfx942 -- "$out/features" > "$out/text" 2>&1 && fail "code for xnack+ ran without it"

# A program linked with the file of the system library's name, and with nothing of ours.
sed -n 's/^HIP_FUNCTION(\(.*\))/void \1(void) {}/p' "$QUERN_SOURCE_DIR/sim/hip/functions.def" |
    "$clang" -x c -shared -fPIC -fuse-ld=lld -Wl,-soname,libamdhip64.so.7 -w -o "$out/libamdhip64.so" -
compile kernels -O1 "$source/kernels.hip" -L "$out"
readelf -d "$out/kernels" | grep 'NEEDED.*libamdhip64.so.7' > /dev/null || fail "not linked as a system's program"
"$quern" sim -- "$out/kernels"

compile shared.so -shared -fPIC "$source/units_c.hip"
compile units "$source/units_a.hip" "$source/units_b.hip"
"$quern" sim --devices 2 -- "$out/units" "$out/shared.so"

compile runtime -O2 "$source/runtime.hip"
"$quern" sim --devices 2 -- "$out/runtime" 2> "$out/text" || fail "$(cat "$out/text")"
[ "$(grep -c '^quernsim: kernel .* is a use after free: 0 bytes into .* registered host range' "$out/text")" = 2 ] ||
  fail "other than a load and a store were reported: $(cat "$out/text")"

compile module -O1 "$source/module.hip"
"$clang" -x hip --offload-arch=gfx942 -nogpuinc -nogpulib --cuda-device-only -I "$source" -O2 -o "$out/module.co" "$source/module.hip"
"$quern" sim -- "$out/module" "$out/module.co"
"$quern" sim --arch gfx942 --devices 2 --check all -- "$PYTHON" "$source/python_hip.py" "$out/module.co"

arch=gfx90a compile wrong_arch "$source/wrong_arch.hip"
"$quern" sim --arch gfx942 -- "$out/wrong_arch" 2> "$out/text"
grep -q "none of the offload bundle's .* entries is for gfx942:sramecc+:xnack-" "$out/text" || fail "no report: $(cat "$out/text")"
[ "$(wc -l < "$out/text")" = 1 ] || fail "more than one report: $(cat "$out/text")"

compile fault -O1 "$source/fault.hip"
"$quern" sim -- "$out/fault" 2> "$out/text"
grep -q "0 bytes past the end of a 4000-byte allocation" "$out/text" || fail "no report: $(cat "$out/text")"

compile race -O1 "$source/race.hip"
"$quern" sim --check none -- "$out/race"
status=0
"$quern" sim --json "$out/json" -- "$out/race" 2> "$out/text" || status=$?
[ $status = 3 ] || fail "the race was not found: $(cat "$out/text")"
grep -q 'kernel .*rotate.*LDS' "$out/text" || fail "no report: $(cat "$out/text")"
tail -1 "$out/text" | grep -x 'quernsim: [0-9]* faults in 1 kernel' > /dev/null || fail "no sum: $(cat "$out/text")"
faults=$(tail -1 "$out/text" | tr -dc '0-9 ' | awk '{print $1}')
[ "$faults" = "$(wc -l < "$out/json")" ] || fail "$faults faults, but in JSON: $(cat "$out/json")"

# A program that ignores errors, and says that all is well.
for ((i = 0; i < 4; i++)); do
    "$quern" sim --error-exitcode 99 --json "$out/all" -- "$out/fault" 2> "$out/text$i" &
done
for ((i = 0; i < 4; i++)); do
    status=0
    wait -n || status=$?
    [ $status = 99 ] || fail "exit status $status in place of 99: $(cat "$out"/text?)"
done
"$quern" sim --error-exitcode 99 --check none -- "$out/kernels" 2> "$out/text" || fail "$(cat "$out/text")"
"${PYTHON:-python3}" - "$out/all" <<'END' || fail "processes that report at once: $(cat "$out/all")"
import json, sys
faults = [json.loads(line) for line in open(sys.argv[1])]
assert len(faults) == 4 == len({f["process"] for f in faults})
for f in faults:
    assert f["kind"] == "out-of-bounds" and f["count"] == 1 and f["workgroup"] == [3, 0, 0], f
    assert f["address"]["allocation"]["offset"] == f["address"]["allocation"]["size"] == 4000, f
END

# Loads past an array's end, in its last page, are always reported, and are faults unless an option lets them pass.
compile overread -O1 "$source/overread.hip"
status=0
"$quern" sim --error-exitcode 3 --json "$out/over" -- "$out/overread" 2> "$out/text" || status=$?
[ $status = 3 ] || fail "loads past the end passed: $status: $(cat "$out/text")"
grep -q '"kind": "out-of-bounds"' "$out/over" || fail "no fault: $(cat "$out/over")"
: > "$out/over"
for check in none all; do
    QUERN_SIM=overread=report "$quern" sim --check $check --error-exitcode 99 --json "$out/over" -- "$out/overread" 2> "$out/text" ||
        fail "loads past the end did not pass: $(cat "$out/text")"
    grep -q 'is out of bounds, in a page that is mapped: 0 bytes past the end of a 4000-byte allocation' "$out/text" ||
        fail "no report: $(cat "$out/text")"
    grep -q '^quernsim: [0-9]* fault' "$out/text" && fail "loads that pass were counted: $(cat "$out/text")"
done
grep -q '"kind": "over-read"' "$out/over" || fail "no over-read: $(cat "$out/over")"
grep -q '"kind": "out-of-bounds"' "$out/over" && fail "a fault: $(cat "$out/over")"
status=0
QUERN_SIM=overread=report "$quern" sim --error-exitcode 99 -- "$out/fault" 2> "$out/text" || status=$?
[ $status = 99 ] || fail "a store past the end passed: $(cat "$out/text")"

# Threads that report at one time write whole lines and whole reports, and lose none.
compile reports -O1 "$source/reports.hip"
"$quern" sim --devices 4 --json "$out/threads" -- "$out/reports" threads 2> "$out/text" || fail "$(cat "$out/text")"
grep -qx 'quernsim: 8 faults in 1 kernel' "$out/text" || fail "$(cat "$out/text")"
[ "$(grep -A2 '^quernsim: kernel _Z5shiftPii: ' "$out/text" | grep -c -e '^  at ' -e '; met 1024 times$')" = 16 ] ||
    fail "torn reports: $(cat "$out/text")"
"${PYTHON:-python3}" - "$out/threads" <<'END' || fail "threads that report at once: $(cat "$out/threads")"
import json, sys
faults = [json.loads(line) for line in open(sys.argv[1])]
assert len(faults) == 8 and {f["count"] for f in faults} == {1024}
assert sorted(f["address"]["allocation"]["device"] for f in faults) == [0, 0, 1, 1, 2, 2, 3, 3]
END
status=0
"$quern" sim --error-exitcode 77 -- "$out/reports" fork 2> "$out/text" || status=$?
[ $status = 77 ] && [ "$(grep -c '^quernsim: 2 faults' "$out/text")" = 1 ] || fail "fork: $status: $(cat "$out/text")"

# Copies for which a call waits are made at memcpy's speed.
compile speed -O2 "$source/speed.hip"
"$quern" sim -- "$out/speed" > "$out/text" || fail "$(cat "$out/text")"
[ "$(awk '$2 > 0' "$out/text" | wc -l)" = 8 ] || fail "other than eight figures: $(cat "$out/text")"

compile hostcall -O1 "$source/hostcall.hip"
"$quern" sim -- "$out/hostcall" | sort > "$out/got"
for ((i = 0; i < 300; i++)); do printf '%d, %x\n' -$i $((i * 16)); done | sort | cmp - "$out/got"
"$quern" sim -- "$out/hostcall" bad 2> "$out/text"
grep -q 'ask.*service 1.*accepted: 2 (printf), 3 (memory)' "$out/text" || fail "no report: $(cat "$out/text")"
