#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Tests the arithmetic behind make clock-report; the work is in clock_calibration_test.py.
set -euo pipefail
exec "$PYTHON" -m pytest -q -p no:cacheprovider "$QUERN_SOURCE_DIR/tests/clock_calibration_test.py"
