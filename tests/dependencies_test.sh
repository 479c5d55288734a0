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
  -DCMAKE_MAKE_PROGRAM="$(command -v ninja)" -DPKG_CONFIG_EXECUTABLE="$(command -v pkg-config)" -- \
  libjansson-dev libpthreadpool-dev libxxhash-dev llvm-22-dev libmsgpack-dev zlib1g-dev libzstd-dev " zstd" libcmocka-dev
unset PKG_CONFIG_LIBDIR
library=$(sed -n 's/^QUERN_PTHREADPOOL:[A-Z]*=//p' "$QUERN_BUILD_DIR/CMakeCache.txt")
folder=$(dirname "$library")
expect_missing -DCMAKE_IGNORE_PATH="$folder;${folder#/usr}" -- libpthreadpool-dev
