#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The recipes of docs/hip.md for ctest and Catch2, as they stand there: right programs pass, and one whose kernel does
# wrong fails, though it says that all is well.
set -euo pipefail
[ -e "$QUERN_BUILD_DIR/quern-sim-links/libamdhip64.so" ] || exit 77
grep -q '^QUERN_SANITIZE:STRING=.\+' "$QUERN_BUILD_DIR/CMakeCache.txt" && exit 77 # a plain program cannot load it
clang=$(command -v clang++-22 || command -v clang++-23 || command -v clang++) || exit 77
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
export PATH=$QUERN_BUILD_DIR:$PATH # of quern

fail() {
    echo "$1" >&2
    exit 1
}

# recipe NUMBER: that block of CMake of the page.
recipe() {
    awk -v wanted="$1" '/^```cmake$/ {n++; inside = 1; next} /^```$/ {inside = 0} inside && n == wanted' "$QUERN_SOURCE_DIR/docs/hip.md"
}

# project FOLDER PROGRAM LINE...: a project of one program, with these lines behind.
project() {
    local folder=$out/$1 program=$2
    mkdir "$folder"
    shift 2
    {
        echo 'cmake_minimum_required(VERSION 3.25)'
        echo 'project(recipes CXX)'
        echo 'enable_testing()'
        echo "add_executable($program test.cpp)"
        echo "target_compile_options($program PRIVATE -x hip --offload-arch=gfx942 -nogpuinc -nogpulib -std=c++17)"
        echo "target_include_directories($program PRIVATE $QUERN_SOURCE_DIR/tests/hip)"
        echo "target_link_options($program PRIVATE -fuse-ld=lld --hip-link -no-hip-rt -L$QUERN_BUILD_DIR/quern-sim-links)"
        echo "target_link_libraries($program PRIVATE amdhip64)"
        printf '%s\n' "$@"
    } > "$folder/CMakeLists.txt"
}

# build FOLDER
build() {
    cmake -G Ninja -S "$out/$1" -B "$out/$1/build" -DCMAKE_CXX_COMPILER="$clang" > "$out/log" 2>&1 &&
        cmake --build "$out/$1/build" > "$out/log" 2>&1 || fail "$1: $(cat "$out/log")"
}

project right my_test "$(recipe 1)"
project wrong my_test "$(recipe 1)"
sed 's/<int>(1000)/<int>(1001)/; s/== ILLEGAL_ADDRESS/== 0/' "$QUERN_SOURCE_DIR/tests/hip/fault.hip" > "$out/right/test.cpp"
cp "$QUERN_SOURCE_DIR/tests/hip/fault.hip" "$out/wrong/test.cpp"
for name in right wrong; do
    build $name
done
ctest --test-dir "$out/right/build" > "$out/log" || fail "$(cat "$out/log")"
grep -q '100% tests passed.* out of 1$' "$out/log" || fail "not one test: $(cat "$out/log")"
"$out/wrong/build/my_test" > "$out/log" 2>&1 && fail "a program ran without a GPU"
ctest --test-dir "$out/wrong/build" --output-on-failure > "$out/log" 2>&1 && fail "a kernel that did wrong passed"
grep -q '0 bytes past the end of a 4000-byte allocation' "$out/log" || fail "no report: $(cat "$out/log")"

[ -n "${CATCH2:-}" ] || {
    echo "CATCH2 names no folder: Catch2's recipe was not run"
    exit 0
}
project catch my_tests "include($CATCH2/Catch.cmake)" "include_directories($CATCH2)" \
    "add_library(catch $CATCH2/catch_amalgamated.cpp)" "target_link_libraries(my_tests PRIVATE catch)" "$(recipe 2)"
cat > "$out/catch/test.cpp" << 'END'
#define main program
#include "fault.hip"
#undef main
#undef CHECK
#include <catch_amalgamated.hpp>
TEST_CASE("right") {
    int *d = device_array<int>(1001);
    fill<<<4, 256>>>(d, 1000);
    CHECK(hipDeviceSynchronize() == 0);
}
TEST_CASE("wrong") {
    CHECK(program() == 0); // it expects the error
}
END
build catch
ctest --test-dir "$out/catch/build" -N > "$out/log"
grep -q 'Total Tests: 2' "$out/log" || fail "not two tests: $(cat "$out/log")"
ctest --test-dir "$out/catch/build" -R right > "$out/log" || fail "$(cat "$out/log")"
ctest --test-dir "$out/catch/build" -R wrong > "$out/log" 2>&1 && fail "a kernel that did wrong passed in Catch2"
exit 0
