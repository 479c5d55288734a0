#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The part of isa_test.sh that takes longest, beside it: 16-bit instructions.
set -euo pipefail
exec bash "$QUERN_SOURCE_DIR/tests/isa_test.sh" -k halves_test
