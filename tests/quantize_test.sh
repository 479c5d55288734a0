#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Compares qn_quantize_fp8 and qn_dequantize_fp8 with NumPy and ml_dtypes; the work is in quantize_test.py.
set -euo pipefail
grep -q '^QUERN_SANITIZE:STRING=.\+' "$QUERN_BUILD_DIR/CMakeCache.txt" && exit 77 # plain Python cannot load it
exec "$PYTHON" -m pytest -q -p no:cacheprovider "$QUERN_SOURCE_DIR/tests/quantize_test.py"
