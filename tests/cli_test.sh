#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Tests the quern command as a user runs it, by pytest over tests/cli/.
set -euo pipefail
export QUERN_CACHE_DIR=${QUERN_CACHE_DIR:-$QUERN_BUILD_DIR/test-cache}
exec "$PYTHON" -m pytest -q -p no:cacheprovider "$QUERN_SOURCE_DIR/tests/cli"
