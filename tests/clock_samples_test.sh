#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Modelled times of samples beside those of all workgroups (clock_samples_test.py).
set -euo pipefail
exec "$PYTHON" "$QUERN_SOURCE_DIR/tests/clock_samples_test.py" "$QUERN_BUILD_DIR/quern"
