#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs kernels that Triton compiles for AMD GPUs on the simulated GPU; the work is in triton_test.py. It needs a Python
# that has triton and numpy: TRITON_PYTHON, else the tests' own, after tools/setup.sh --third-party.
set -euo pipefail
python=${TRITON_PYTHON:-$PYTHON}
library=$QUERN_BUILD_DIR/quern-sim-links/libamdhip64.so test=$QUERN_SOURCE_DIR/tests/triton_test.py

skip() {
    echo "skipped: $1"
    exit 77
}

[ -e "$library" ] || skip "this build has no simulated GPU"
grep -q '^QUERN_SANITIZE:STRING=.\+' "$QUERN_BUILD_DIR/CMakeCache.txt" && skip "plain Python cannot load a sanitizer's build"
"$python" -c 'import numpy, triton.backends.amd' 2> /dev/null || skip "$python has no triton; TRITON_PYTHON may name one that has"
TRITON_CACHE_DIR=$(mktemp -d)
trap 'rm -rf "$TRITON_CACHE_DIR"' EXIT
export TRITON_CACHE_DIR TRITON_DEFAULT_FP_FUSION=1
unset TRITON_LIBHIP_PATH
"$QUERN_BUILD_DIR/quern" sim --check all -- "$python" "$test"
# The other way to the simulated GPU, one that needs no LD_LIBRARY_PATH.
TRITON_LIBHIP_PATH=$library QUERN_SIM=check=all "$python" "$test" -k matmul_f16 gfx942 gfx1201
TRITON_LIBHIP_PATH=$library QUERN_SIM=check=all "$python" "$test" -k vector_add gfx942 gfx1201
if "$python" -c 'import torch' 2> /dev/null; then # the peer of bench/peer_rows.py
    TRITON_INTERPRET=1 "$python" "$QUERN_SOURCE_DIR/bench/triton_rows.py"
fi
