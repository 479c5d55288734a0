#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs isa_test.sh and isa16_test.sh in the build of sim/exec that every host runs: each instruction, with fewer random
# values.
set -euo pipefail
if ! QUERN_SIM=exec=baseline "$PYTHON" -c "import ctypes, sys; sys.exit(ctypes.CDLL(sys.argv[1]).hipInit(0))" \
  "$QUERN_BUILD_DIR/libquernsim.so"; then
  echo "skipped: libquernsim was built without it"
  exit 77
fi
export QUERN_SIM=exec=baseline QUERN_ISA_SHORT=1
exec bash "$QUERN_SOURCE_DIR/tests/isa_test.sh" -k test
