#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Tests quern.patch on models of transformers and diffusers, with random weights and nothing downloaded; the work is in
# tests/clients. The tests run with TORCH_PYTHON, else with the tests' own Python if that has the packages.
set -euo pipefail
build=${QUERN_BUILD_DIR:?} tests=${QUERN_SOURCE_DIR:?}/tests/clients
python=${TORCH_PYTHON:-$PYTHON}

skip() {
  echo "skipped: $1"
  exit 77
}

grep -q '^QUERN_SANITIZE:STRING=.\+' "$build/CMakeCache.txt" && skip "plain Python cannot load a sanitizer's build"
[ -e "$build/quern_ffi.so" ] || skip "this build has no Python package: tools/setup.sh fetches TVM-FFI's headers"
missing=$("$python" -c '
import importlib.util as u
print(*[n for n in ("torch", "transformers", "diffusers", "tvm_ffi", "pytest") if not u.find_spec(n)])')
[ -z "$missing" ] || skip "$python has no $missing; tools/setup.sh --third-party installs them"
tmp=$(mktemp -d)
# Bytecode is kept beside the build, as tools/setup.sh makes none for PyTorch, and each process would compile it anew.
unset PYTHONDONTWRITEBYTECODE
export PYTHONPYCACHEPREFIX=$build/test-pycache
trap 'rm -rf "$tmp" "$PYTHONPYCACHEPREFIX$tmp"' EXIT
cmake --install "$build" --component python --prefix "$tmp/stage" --strip > "$tmp/log"
cp -r "$QUERN_SOURCE_DIR/python/quern" "$tmp/stage/"
export PYTHONPATH=$tmp/stage OMP_NUM_THREADS=1 HF_HUB_OFFLINE=1 TORCHINDUCTOR_CACHE_DIR=$tmp/inductor
QUERN_SIM=check=all "$python" -m pytest -q -p no:cacheprovider "$tests"/*_test.py
