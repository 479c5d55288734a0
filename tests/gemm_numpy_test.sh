#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Compares the GEMM functions with NumPy in float64 and ml_dtypes; the work is in gemm_numpy_test.py.
set -euo pipefail
grep -q '^QUERN_SANITIZE:STRING=.\+' "$QUERN_BUILD_DIR/CMakeCache.txt" && exit 77 # plain Python cannot load it
exec "$PYTHON" -m pytest -q -p no:cacheprovider "$QUERN_SOURCE_DIR/tests/gemm_numpy_test.py"
