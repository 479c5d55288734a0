#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Makes of an installed Triton what clang needs to compile HIP programs without ROCm.
#   tools/rocm_tree.sh DIR [PYTHON]   then: clang++ -x hip --rocm-path=DIR --offload-arch=gfx942 …
# Triton's wheel has HIP's headers and the device libraries ocml and ockl. What is missing are the small libraries by
# which clang tells those two what it compiles for; each defines one or two constants and is made here.
set -euo pipefail
[ $# -ge 1 ] || { sed -n '3,6p' "$0" | cut -c3- >&2; exit 2; }
tree=$1 python=${2:-python3}
clang=$(command -v clang-22 || command -v clang-23 || command -v clang) || { echo "rocm_tree: no clang" >&2; exit 1; }
amd=$("$python" -c '
import importlib.util, pathlib
triton = importlib.util.find_spec("triton")
print(pathlib.Path(triton.origin).parent / "backends/amd" if triton else "")')
[ -e "$amd/include/hip/hip_version.h" ] || { echo "rocm_tree: $python has no triton: pip install triton" >&2; exit 1; }

bitcode=$tree/amdgcn/bitcode
mkdir -p "$bitcode" "$tree/share/hip"
ln -sfn "$amd/include" "$tree/include"
ln -sfn "$amd/lib/ocml.bc" "$amd/lib/ockl.bc" "$bitcode"
sed -n 's/^#define \(HIP_VERSION_[MP][A-Z]*\) \([0-9]*\)$/\1=\2/p' "$amd/include/hip/hip_version.h" > "$tree/share/hip/version"

source=$(mktemp -d)
trap 'rm -rf "$source"' EXIT
# constants LIBRARY NAME TYPE VALUE…: a library of constants, __oclc_NAME each
constants() {
    local file=$source/$1.ll
    shift
    while [ $# -gt 0 ]; do
        echo "@__oclc_$1 = linkonce_odr hidden local_unnamed_addr addrspace(4) constant $2 $3"
        shift 3
    done > "$file"
}
: > "$source/opencl.ll"
: > "$source/hip.ll"
for version in 90a=9010 942=9402 950=9500 1151=11501 1201=12001; do
    constants "oclc_isa_version_${version%=*}" ISA_version i32 "${version#*=}"
done
for version in 400 500 600; do constants oclc_abi_version_$version ABI_version i32 $version; done
for on in 0 1; do
    word=$([ $on = 1 ] && echo on || echo off)
    constants oclc_daz_opt_$word DAZ i8 $on
    constants oclc_unsafe_math_$word unsafe_math_opt i8 $on
    constants oclc_finite_only_$word finite_only_opt i8 $on
    constants oclc_correctly_rounded_sqrt_$word correctly_rounded_sqrt32 i8 $on
    constants oclc_wavefrontsize64_$word wavefrontsize64 i8 $on wavefrontsize_log2 i32 $((5 + on))
done
cd "$bitcode"
"$clang" --target=amdgcn-amd-amdhsa -nogpulib -w -emit-llvm -c "$source"/*.ll
