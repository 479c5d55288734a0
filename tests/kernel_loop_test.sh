#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Checks that the built kernels' code keeps what their headers promise; the work is in kernel_loop_test.py.
set -euo pipefail
exec "$PYTHON" -m pytest -q -p no:cacheprovider "$QUERN_SOURCE_DIR/tests/kernel_loop_test.py"
