#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs a few of vLLM's, AITER's and FlashInfer's own tests over quern: one case each of some of their files. The whole of them is
# run by tests/clients/*_tests.py. Sources are in UPSTREAM, else in build/upstream, where tools/setup.sh --upstream puts vLLM's and
# SGLang's; checkouts of AITER and FlashInfer are taken there too, if they are there.
set -euo pipefail
build=${QUERN_BUILD_DIR:?} source=${QUERN_SOURCE_DIR:?}
python=${ENGINES_PYTHON:-$source/build/engines/bin/python}
sources=${UPSTREAM:-$source/build/upstream}

skip() {
  echo "skipped: $1"
  exit 77
}

grep -q '^QUERN_SANITIZE:STRING=.\+' "$build/CMakeCache.txt" && skip "plain Python cannot load a sanitizer's build"
[ -e "$build/quern_ffi.so" ] || skip "this build has no Python package: tools/setup.sh fetches TVM-FFI's headers"
[ -x "$python" ] || skip "there is no $python; tools/setup.sh --engines makes it"
[ -d "$sources" ] || skip "there is no $sources; tools/setup.sh --upstream makes it"
missing=$("$python" -c '
import importlib.util as u
print(*[n for n in ("torch", "vllm", "sglang", "tvm_ffi", "pytest", "pandas", "scipy") if not u.find_spec(n)])')
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

# NAME FILE...: a case of each test in these files of NAME's.
run() {
  [ -d "$sources/$1" ] || { echo "left out: there is no $sources/$1"; return 0; }
  (cd "$tmp" && "$python" "$source/tests/clients/$1_tests.py" "$sources/$1" "${@:2}" --most 1 --seconds 10)
}

run aiter test_kvcache.py test_mha_fp8.py
run flashinfer utils/test_quantization.py
run vllm kernels/core/test_pos_encoding.py kernels/attention/test_rocm_aiter_mla_head_padding.py kernels/attention/test_rocm_aiter_mla_decode.py
