#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs quern probe on the simulated chips, with their own numbers and with others; the work is in probe_test.py.
set -euo pipefail
[ -e "$QUERN_BUILD_DIR/quern-sim-links/libamdhip64.so" ] || exit 77
exec "$PYTHON" -m pytest -q -p no:cacheprovider "$QUERN_SOURCE_DIR/tests/probe_test.py"
