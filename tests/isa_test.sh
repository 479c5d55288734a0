#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Compares the results of the simulated GPUs' instructions with NumPy and ml_dtypes; the work is in isa/*_test.py.
# QUERN_ISA_LONG=1 tries many times more values, QUERN_ISA_SEED=N other ones.
set -euo pipefail

skip() {
    echo "skipped: $1"
    exit 77
}

[ -e "$QUERN_BUILD_DIR/libquernsim.so" ] || skip "this build has no simulated GPU"
grep -q '^QUERN_SANITIZE:STRING=.\+' "$QUERN_BUILD_DIR/CMakeCache.txt" && skip "plain Python cannot load a sanitizer's build"
[ $# -gt 0 ] || set -- -k "not halves_test and not conversions_test and not scaled_test" # isa16_test.sh runs these
exec "$PYTHON" -B -m pytest -q -p no:cacheprovider "$@" "$QUERN_SOURCE_DIR/tests/isa"
