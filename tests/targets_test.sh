#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Checks that facts of targets that stand in two places agree: lanes of a wave, FP8 kinds and how matrix cores take f16, in
# gpu/'s headers and in runtime/device/targets.def, by which the host chooses kernels; the target that a plain make builds for a card.
set -euo pipefail
build=${QUERN_BUILD_DIR:?} source=${QUERN_SOURCE_DIR:?}
cc=$(sed -n 's/^CMAKE_C_COMPILER:[A-Z]*=//p' "$build/CMakeCache.txt")
passed=0 failed=0

# check NAME WAVE LINE: LINE is the target's in targets.def.
check() {
  local machine="--target=amdgcn-amd-amdhsa -mcpu=$1" usual=QD_E4M3FN fnuz=0 ocp=0 flushes=1
  case $1 in sm_*) machine="--target=nvptx64-nvidia-cuda -march=$1 --cuda-feature=+ptx80" ;; esac
  case $3 in *MFMA_FP8_FNUZ*) usual=QD_E4M3FNUZ fnuz=1 ;; *MFMA_FP8_OCP* | *WMMA_GFX12*) ocp=1 ;; esac
  case $3 in *"QNI_F(TILE_F16)"*) flushes=0 ;; esac
  # shellcheck disable=SC2086 # several words
  "$cc" -x c -std=gnu23 $machine -ffreestanding -nogpulib -Wall -Werror -fsyntax-only -I"$source/gpu" - <<EOF
#include "fp8.h"
#include "gpu.h"
#include "mma.h"
#ifndef QD_HAS_FP8_FNUZ
#define QD_HAS_FP8_FNUZ 0
#endif
#ifndef QD_HAS_FP8_OCP
#define QD_HAS_FP8_OCP 0
#endif
static_assert(QD_WAVE == $2, "wave size of $1");
static_assert((int)QD_FP8_USUAL == (int)$usual, "usual FP8 kind of $1");
static_assert(QD_MMA_FLUSHES_F16 == $flushes, "f16's subnormals on $1");
static_assert(QD_HAS_FP8_FNUZ == $fnuz && QD_HAS_FP8_OCP == $ocp, "FP8 kinds of $1");
EOF
}

while read -r line; do
  name=$(cut -d'"' -f2 <<<"$line") wave=$(cut -d, -f3 <<<"$line")
  if check "$name" "$wave" "$line"; then passed=$((passed + 1)); else failed=$((failed + 1)); fi
done < <(grep '^QN_TARGET' "$source/runtime/device/targets.def")

# read_targets COMMANDS [-DNAME=VALUE…]: what cmake/targets.cmake says, then what the commands print.
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
read_targets() {
  { echo 'cmake_minimum_required(VERSION 3.25)'; echo "include($source/cmake/targets.cmake)"; echo "$1"; } > "$tmp/read.cmake"
  (cd "$tmp" && cmake "${@:2}" -P read.cmake 2>&1)
}

# The target that a plain make builds for a card of each number.
for card in 90010=gfx90a 90402=gfx942 90500=gfx950 110501=gfx1151 110000=gfx11-generic 120001=gfx1201 120000=gfx12-generic 90006=; do
  found=$(read_targets "quern_target_of(${card%=*} found)
message(\"found=\${found}.\")" | tail -1)
  if [ "$found" = "found=${card#*=}." ]; then passed=$((passed + 1)); else echo "card ${card%=*}: $found" && failed=$((failed + 1)); fi
done

# A word that is no target is refused by name.
if refused=$(read_targets "" -DQUERN_TARGETS=gfx1) || [[ $refused != *"gfx1; accepted: all"* ]]; then
  echo "QUERN_TARGETS=gfx1: $refused" && failed=$((failed + 1))
fi
echo "$passed passed, $failed failed"
[ "$passed" -gt 0 ] && [ "$failed" = 0 ]
