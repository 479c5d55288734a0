#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What gpu/'s headers say of each target is what runtime/device/targets.def says, by which the host chooses kernels: lanes of a
# wave, FP8 kinds.
set -euo pipefail
build=${QUERN_BUILD_DIR:?} source=${QUERN_SOURCE_DIR:?}
cc=$(sed -n 's/^CMAKE_C_COMPILER:[A-Z]*=//p' "$build/CMakeCache.txt")
passed=0 failed=0

# check NAME WAVE LINE: LINE is the target's in targets.def.
check() {
  local machine="--target=amdgcn-amd-amdhsa -mcpu=$1" usual=QD_E4M3FN fnuz=0 ocp=0
  case $1 in sm_*) machine="--target=nvptx64-nvidia-cuda -march=$1 --cuda-feature=+ptx80" ;; esac
  case $3 in *MFMA_FP8_FNUZ*) usual=QD_E4M3FNUZ fnuz=1 ;; *MFMA_FP8_OCP* | *WMMA_GFX12*) ocp=1 ;; esac
  # shellcheck disable=SC2086 # several words
  "$cc" -x c -std=gnu23 $machine -ffreestanding -nogpulib -Wall -Werror -fsyntax-only -I"$source/gpu" - <<EOF
#include "fp8.h"
#include "gpu.h"
#ifndef QD_HAS_FP8_FNUZ
#define QD_HAS_FP8_FNUZ 0
#endif
#ifndef QD_HAS_FP8_OCP
#define QD_HAS_FP8_OCP 0
#endif
static_assert(QD_WAVE == $2, "wave size of $1");
static_assert((int)QD_FP8_USUAL == (int)$usual, "usual FP8 kind of $1");
static_assert(QD_HAS_FP8_FNUZ == $fnuz && QD_HAS_FP8_OCP == $ocp, "FP8 kinds of $1");
EOF
}

while read -r line; do
  name=$(cut -d'"' -f2 <<<"$line") wave=$(cut -d, -f3 <<<"$line")
  if check "$name" "$wave" "$line"; then passed=$((passed + 1)); else failed=$((failed + 1)); fi
done < <(grep '^QN_TARGET' "$source/runtime/device/targets.def")
echo "$passed passed, $failed failed"
[ "$passed" -gt 0 ] && [ "$failed" = 0 ]
