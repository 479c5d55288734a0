#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The other half of isa_test.sh, so that both can run at one time: 16-bit instructions and conversions.
set -euo pipefail
exec bash "$QUERN_SOURCE_DIR/tests/isa_test.sh" -k "halves_test or conversions_test or scaled_test"
