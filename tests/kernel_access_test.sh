#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Checks that the row ops' kernels access memory by 16 bytes and use no scratch; the work is in kernel_access_test.py.
set -euo pipefail
exec "$PYTHON" -m pytest -q -p no:cacheprovider "$QUERN_SOURCE_DIR/tests/kernel_access_test.py"
