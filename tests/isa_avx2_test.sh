#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs isa_test.sh and isa16_test.sh in the build of sim/exec for processors with AVX2 alone: each instruction, with fewer
# random values. Where this build is the best one, isa_test.sh itself runs in it.
set -euo pipefail

skip() {
    echo "skipped: $1"
    exit 77
}

has() {
    QUERN_SIM=exec=$1 "$PYTHON" -c "import ctypes, sys; sys.exit(ctypes.CDLL(sys.argv[1]).hipInit(0))" \
        "$QUERN_BUILD_DIR/libquernsim.so"
}

has avx2 || skip "there is no build for AVX2 that runs here"
has avx512 || skip "the build for AVX2 is the best one here, in which isa_test.sh runs"
export QUERN_SIM=exec=avx2 QUERN_ISA_SHORT=1
exec bash "$QUERN_SOURCE_DIR/tests/isa_test.sh" -k test
