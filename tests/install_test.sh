#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs into an empty folder, builds a small program against it out of tree with pkg-config and with CMake,
# runs both, runs the installed command, and uninstalls without a trace.
set -euo pipefail
build=${QUERN_BUILD_DIR:?} source=${QUERN_SOURCE_DIR:?}
grep -q '^QUERN_SANITIZE:STRING=.\+' "$build/CMakeCache.txt" && exit 77 # a plain program cannot load it
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
cp "$source/examples/hello.c" "$tmp/hello.c"
cc=$(sed -n 's/^CMAKE_C_COMPILER:[A-Z]*=//p' "$build/CMakeCache.txt")

cmake --install "$build" --prefix "$tmp/prefix" > "$tmp/log"
mv "$tmp/prefix" "$tmp/moved" # an installed tree can be moved
pc=$(dirname "$(find "$tmp/moved" -name quern.pc)")
lib=$(dirname "$pc")
flags=$(PKG_CONFIG_PATH=$pc pkg-config --cflags --libs quern)
# shellcheck disable=SC2086
"$cc" -std=c11 "$tmp/hello.c" $flags -Wl,-rpath,"$lib" -lm -o "$tmp/hello"
"$tmp/hello" cpu
# shellcheck disable=SC2086
"$cc" -std=c11 "$source/examples/quantize_linear.c" $flags -Wl,-rpath,"$lib" -o "$tmp/quantize_linear"
"$tmp/quantize_linear" cpu
# shellcheck disable=SC2086
"$cc" -std=c11 "$source/examples/aotriton_varlen.c" $flags -Wl,-rpath,"$lib" -lm -o "$tmp/aotriton_varlen"
"$tmp/aotriton_varlen" cpu

mkdir "$tmp/project"
cat > "$tmp/project/CMakeLists.txt" <<'CMAKE'
cmake_minimum_required(VERSION 3.25)
project(hello C)
find_package(quern 0.2 REQUIRED)
add_executable(hello ../hello.c)
target_link_libraries(hello quern::quern m)
CMAKE
cmake -S "$tmp/project" -B "$tmp/project/build" -DCMAKE_C_COMPILER="$cc" -DCMAKE_PREFIX_PATH="$tmp/moved" > "$tmp/log"
cmake --build "$tmp/project/build" > "$tmp/log"
"$tmp/project/build/hello" cpu

"$tmp/moved/bin/quern" --version
"$tmp/moved/bin/quern" devices | tee "$tmp/devices"
grep -q 'sim:gfx942' "$tmp/devices"
[ -e "$lib/quern/sim/libamdhip64.so.7" ]
[ -x "$lib/quern/sim/quern-decoder" ]
"$tmp/moved/bin/quern" sim --env | grep "\"folder\": \"$lib/quern/sim\"" > /dev/null
for file in man/man1/quern.1 quern/peers.py quern/peer_attention.py quern/peer_common.py quern/peer_rows.py bash-completion/completions/quern zsh/site-functions/_quern; do
  [ -s "$tmp/moved/share/$file" ] || { echo "not installed: share/$file"; exit 1; }
done
"$tmp/hello" sim:gfx942

mv "$tmp/moved" "$tmp/prefix"
"$source/tools/uninstall.sh" "$build" > "$tmp/log"
left=$(find "$tmp/prefix" ! -type d)
[ -z "$left" ] || { echo "left behind: $left"; exit 1; }
echo "1 passed, 0 failed"
