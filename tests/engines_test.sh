#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Tests quern inside the serving engines' own code, on tensors of the CPU: vLLM's and SGLang's classes with quern's plugins and
# stand-ins, where the platform says that it is a GPU. The work is in tests/clients/in_vllm and in_sglang. The engines' Python is
# ENGINES_PYTHON, else the one that tools/setup.sh --engines makes.
set -euo pipefail
build=${QUERN_BUILD_DIR:?} source=${QUERN_SOURCE_DIR:?}
python=${ENGINES_PYTHON:-$source/build/engines/bin/python}

skip() {
  echo "skipped: $1"
  exit 77
}

grep -q '^QUERN_SANITIZE:STRING=.\+' "$build/CMakeCache.txt" && skip "plain Python cannot load a sanitizer's build"
[ -e "$build/quern_ffi.so" ] || skip "this build has no Python package: tools/setup.sh fetches TVM-FFI's headers"
[ -x "$python" ] || skip "there is no $python; tools/setup.sh --engines makes it"
missing=$("$python" -c '
import importlib.util as u
print(*[n for n in ("torch", "vllm", "sglang", "tvm_ffi", "pytest") if not u.find_spec(n)])')
[ -z "$missing" ] || skip "$python has no $missing; tools/setup.sh --engines installs them"
tmp=$(mktemp -d)
unset PYTHONDONTWRITEBYTECODE
export PYTHONPYCACHEPREFIX=$build/test-pycache
trap 'rm -rf "$tmp" "$PYTHONPYCACHEPREFIX$tmp"' EXIT
cmake --install "$build" --component python --prefix "$tmp/stage" --strip > "$tmp/log"
cp -r "$source/python/quern" "$source/python/quern_engines" "$tmp/stage/"

"$python" "$source/tests/clients/upstream/record.py" "$source/pyproject.toml" "$tmp/stage"

export OMP_NUM_THREADS=1 HF_HUB_OFFLINE=1 PYTHONPATH=$tmp/stage:$source/tests/python:$source/tests/clients
export HOME=$tmp # where engines keep caches
for tests in in_vllm in_sglang in_sglang/with_aiter; do # SGLang reads its switches when it is imported
  SGLANG_USE_AITER=$([ $tests = in_sglang/with_aiter ] && echo 1 || echo 0) \
    "$python" -m pytest -q -p no:cacheprovider "$@" "$source/tests/clients/$tests"/*_test.py
done
