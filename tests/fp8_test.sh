#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Compares ops/shared/fp8.h with ml_dtypes on every value; the work is in fp8_test.py.
set -euo pipefail
exec "$PYTHON" -m pytest -q -p no:cacheprovider "$QUERN_SOURCE_DIR/tests/fp8_test.py"
