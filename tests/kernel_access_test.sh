#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Holds the row ops' kernels to 16-byte accesses and no scratch; the work is in kernel_access_test.py.
set -euo pipefail
exec "$PYTHON" -m pytest -q -p no:cacheprovider "$QUERN_SOURCE_DIR/tests/kernel_access_test.py"
