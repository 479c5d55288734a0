#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs HIP C++ programs with HIP's own headers and device libraries, as hipcc compiles them, unchanged on every
# simulated chip under every check. Headers and libraries come from Triton's wheel (tools/setup.sh --third-party);
# TRITON_PYTHON may name a Python that has the wheel.
set -euo pipefail

skip() {
    echo "skipped: $1"
    exit 77
}

fail() {
    echo "$1" >&2
    exit 1
}

source=$QUERN_SOURCE_DIR/tests/rocm links=$QUERN_BUILD_DIR/quern-sim-links quern=$QUERN_BUILD_DIR/quern
python=${TRITON_PYTHON:-$PYTHON}
all=gfx90a,gfx942,gfx950,gfx1151,gfx1201
[ -e "$links/libamdhip64.so" ] || skip "this build has no simulated GPU"
grep -q '^QUERN_SANITIZE:STRING=.\+' "$QUERN_BUILD_DIR/CMakeCache.txt" && skip "a plain program cannot load a sanitizer's build"
"$python" -c 'import importlib.util as u, sys; sys.exit(not u.find_spec("triton"))' || skip "$python has no triton"
clang=$(command -v clang++-22 || command -v clang++-23 || command -v clang++) || skip "no clang"
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
"$QUERN_SOURCE_DIR/tools/rocm_tree.sh" "$out/rocm" "$python"

# compile OUTPUT ARCHS ARGUMENT...
compile() {
    local output=$1 archs=$2
    shift 2
    # shellcheck disable=SC2046,SC2086 # several options
    "$clang" -x hip $(printf ' --offload-arch=%s' ${archs//,/ }) --rocm-path="$out/rocm" -std=c++17 -O2 -Wall -Wextra \
        -Werror -fuse-ld=lld -L "$links" -o "$out/$output" "$@"
}

# program NAME: compiles it for all chips into one program.
program() {
    compile "$1" $all --hip-link -no-hip-rt -lamdhip64 "$source/$1.hip"
}

# run PROGRAM ARGUMENT...: on a device of each chip; the program goes through them.
run() {
    "$quern" sim --arch $all --check all -- "$out/$1" "${@:2}"
}

export ROCM_PATH=$out/rocm # for hiprtc
programs="saxpy reduction matmul streams dynamic_lds symbols atomics warp device_malloc cooperative managed graphs hiprtc module printf"
declare -A compilers
at=0
for name in $programs; do # two at a time
    program "$name" &
    compilers[$name]=$!
    [ $((at++ % 2)) = 0 ] || wait $!
done
for name in $programs; do
    wait "${compilers[$name]}" || fail "$name: does not compile"
done
for name in saxpy reduction matmul streams dynamic_lds symbols atomics warp device_malloc cooperative managed graphs hiprtc; do
    run $name || fail "$name failed"
done

# Waves of 64 lanes on RDNA.
compile warp64 gfx1151,gfx1201 -mwavefrontsize64 --hip-link -no-hip-rt -lamdhip64 "$source/warp.hip"
"$quern" sim --arch gfx1151,gfx1201 --check all -- "$out/warp64" 64

# Calls that end in _spt.
compile per_thread gfx942 -fgpu-default-stream=per-thread --hip-link -no-hip-rt -lamdhip64 "$source/saxpy.hip"
nm -D --undefined-only "$out/per_thread" | grep hipLaunchKernel_spt > /dev/null || fail "per_thread: not as it should be"
"$quern" sim --arch gfx942 --check all -- "$out/per_thread"

# The module API: an object of each chip, a bundle of all, a compressed one.
files=()
for arch in ${all//,/ }; do
    compile $arch.co $arch --cuda-device-only --no-gpu-bundle-output "$source/module.hip"
    files+=("$out/$arch.co")
done
compile bundle.co $all --cuda-device-only --gpu-bundle-output "$source/module.hip"
compile compressed.co $all --cuda-device-only --gpu-bundle-output --offload-compress "$source/module.hip"
[ "$(head -c 4 "$out/compressed.co")" = CCOB ] || fail "not compressed"
# A compressed bundle as clang 18 wrote it: version 1 of the header, which does not tell the file's size.
"$python" -c '
import struct, sys
data = open(sys.argv[1], "rb").read()
version, method, file_bytes, out_bytes = struct.unpack_from("<HHQQ", data, 4)
assert version == 3 and file_bytes == len(data), version
open(sys.argv[2], "wb").write(b"CCOB" + struct.pack("<HHIQ", 1, method, out_bytes, 0) + data[32:])
' "$out/compressed.co" "$out/first.co"
loaded=$(run module "${files[@]}" "$out/bundle.co" "$out/compressed.co" "$out/first.co" 2> "$out/text") || fail "$(cat "$out/text")"
[ "$loaded" = 20 ] || fail "$loaded of the 20 pairs of file and device were loaded"

# want_print: what printf.hip prints on the five devices, in any order.
want_print() {
    for ((device = 0; device < 5; device++)); do
        echo 'only lane 2'
        echo 'lane 0:  0.00|ab    |000000|a|-5000000000|4000000000|%|   0|abc|0x1234'
        echo 'lane 1:  1.50|ab    |00004d|b|-5000000001|4000000000|%|   -1|abc|0x1234'
        echo 'lane 2:  3.00|ab    |00009a|c|-5000000002|4000000000|%|    -2|abc|0x1234'
        seq -f 'item %g of 250' 0 249
    done | sort
}
compile printf_buffered $all -mprintf-kind=buffered --hip-link -no-hip-rt -lamdhip64 "$source/printf.hip"
for name in printf printf_buffered; do
    run $name | sort > "$out/text"
    want_print | cmp - "$out/text"
done
run printf assert 2> "$out/text" || fail "$(cat "$out/text")"
[ "$(grep -c "Device-side assertion .x\[threadIdx.x\] == 7' failed" "$out/text")" = 10 ] || fail "$(cat "$out/text")"
[ "$(grep -c 'the kernel trapped: s_trap 2' "$out/text")" = 10 ] || fail "$(cat "$out/text")"
