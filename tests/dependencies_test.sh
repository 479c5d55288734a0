#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A build whose dependencies are missing names all of them at once, by their packages, and says how to install them.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
compiler=$(sed -n 's/^CMAKE_C_COMPILER:[A-Z]*=//p' "$QUERN_BUILD_DIR/CMakeCache.txt")

# expect_missing CMAKE-ARGUMENTS... -- PACKAGE...
expect_missing() {
  local arguments=()
  while [ "$1" != -- ]; do arguments+=("$1"); shift; done
  shift
  rm -rf "$work/build"
  if cmake -G Ninja -S "$QUERN_SOURCE_DIR" -B "$work/build" -DCMAKE_C_COMPILER="$compiler" "${arguments[@]}" > "$work/log" 2>&1; then
    echo "configured without $*"; exit 1
  fi
  tr -s ' \n' ' ' < "$work/log" > "$work/text"
  for word in "$@" tools/setup.sh; do
    grep -qF -- "$word" "$work/text" || { echo "no word of $word:"; cat "$work/log"; exit 1; }
  done
}

export PKG_CONFIG_LIBDIR=$work/none PKG_CONFIG_PATH=
expect_missing -DCMAKE_FIND_USE_CMAKE_SYSTEM_PATH=OFF -DCMAKE_FIND_USE_SYSTEM_ENVIRONMENT_PATH=OFF \
  -DCMAKE_IGNORE_PATH="$(dirname "$(realpath "$compiler")")" -DCMAKE_MAKE_PROGRAM="$(command -v ninja)" -DPKG_CONFIG_EXECUTABLE="$(command -v pkg-config)" -- \
  libjansson-dev libpthreadpool-dev libxxhash-dev llvm-22-dev libmsgpack-dev zlib1g-dev libzstd-dev " zstd" libcmocka-dev
unset PKG_CONFIG_LIBDIR
library=$(sed -n 's/^QUERN_PTHREADPOOL:[A-Z]*=//p' "$QUERN_BUILD_DIR/CMakeCache.txt")
folder=$(dirname "$library")
expect_missing -DCMAKE_IGNORE_PATH="$folder;${folder#/usr}" -- libpthreadpool-dev

# expect_refusal WORD CMAKE-ARGUMENT...: configuring fails and says WORD.
expect_refusal() {
  local word=$1
  shift
  rm -rf "$work/build"
  ! cmake -G Ninja -S "$QUERN_SOURCE_DIR" -B "$work/build" "$@" > "$work/log" 2>&1 || { echo "configured with $*"; exit 1; }
  tr -s ' \n' ' ' < "$work/log" | grep -F -- "$word" > /dev/null || { echo "no word of $word:"; cat "$work/log"; exit 1; }
}

expect_refusal "quern needs an x86-64 processor: its kernels for the CPU and its simulated GPU are written for that; this is aarch64" \
  -DCMAKE_SYSTEM_NAME=Linux -DCMAKE_SYSTEM_PROCESSOR=aarch64
if gcc=$(command -v gcc); then
  expect_refusal "quern needs clang 22 or later; found GNU" -DCMAKE_C_COMPILER="$gcc"
fi

llvm_config=$(sed -n 's/^LLVM_CONFIG:[A-Z]*=//p' "$QUERN_BUILD_DIR/CMakeCache.txt")
[ -n "$llvm_config" ] || exit 0
config=(-DCMAKE_C_COMPILER="$compiler" -DQUERN_TARGETS= -DQUERN_TESTS=OFF -DLLVM_CONFIG="$work/llvm-config")
script() { printf '#!/bin/sh\n%s\n' "$1" > "$work/llvm-config"; chmod +x "$work/llvm-config"; }
script 'echo 21.1.8'
expect_refusal "the simulated GPU needs LLVM 22 or later; $work/llvm-config is of 21.1.8" "${config[@]}"

# Without LLVM's archives the decoder is linked with its shared library.
"$llvm_config" --link-shared --libs > /dev/null 2>&1 || { echo "no shared library of LLVM here"; exit 0; }
script "[ \"\$1\" != --link-static ] && exec $llvm_config \"\$@\""
rm -rf "$work/build"
cmake -G Ninja -S "$QUERN_SOURCE_DIR" -B "$work/build" "${config[@]}" > "$work/log" 2>&1 || { cat "$work/log"; exit 1; }
cmake --build "$work/build" --target quern_decoder > "$work/log" 2>&1 || { cat "$work/log"; exit 1; }
ldd "$work/build/quern-decoder" > "$work/libraries"
grep -q 'libLLVM.*=> /' "$work/libraries" || { echo "quern-decoder is not linked with LLVM's shared library"; exit 1; }
