#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Tests the Python package as a wheel installs it, made of this build; the work is in tests/python. Tests of PyTorch run
# with TORCH_PYTHON, a Python that has PyTorch, else with the tests' own Python if that has it.
set -euo pipefail
build=${QUERN_BUILD_DIR:?} tests=${QUERN_SOURCE_DIR:?}/tests/python

skip() {
  echo "skipped: $1"
  exit 77
}

grep -q '^QUERN_SANITIZE:STRING=.\+' "$build/CMakeCache.txt" && skip "plain Python cannot load a sanitizer's build"
[ -e "$build/quern_ffi.so" ] || skip "this build has no Python package: tools/setup.sh fetches TVM-FFI's headers"
"$PYTHON" -c 'import tvm_ffi' 2> /dev/null || skip "$PYTHON has no tvm_ffi; tools/setup.sh installs it"
tmp=$(mktemp -d)
# Bytecode is kept beside the build, as tools/setup.sh makes none for PyTorch, and each process would compile it anew.
unset PYTHONDONTWRITEBYTECODE
export PYTHONPYCACHEPREFIX=$build/test-pycache
trap 'rm -rf "$tmp" "$PYTHONPYCACHEPREFIX$tmp"' EXIT
cmake --install "$build" --component python --prefix "$tmp/stage" --strip > "$tmp/log"
cp -r "$QUERN_SOURCE_DIR/python/quern" "$tmp/stage/"
export PYTHONPATH=$tmp/stage OMP_NUM_THREADS=1 # PyTorch's threads would spin against ours
"$PYTHON" -m pytest -q -p no:cacheprovider "$tests"/*_test.py

# TORCH_PYTHON may lack packages of the tests' own Python; it gets those few from there, and no others.
if [ -n "${TORCH_PYTHON:-}" ]; then
  mkdir "$tmp/borrowed"
  packages=$("$PYTHON" -c 'import sysconfig; print(sysconfig.get_paths()["platlib"])')
  for name in tvm_ffi pytest _pytest pluggy iniconfig packaging pygments py.py typing_extensions.py; do
    "$TORCH_PYTHON" -c "import importlib.util as u, sys; sys.exit(not u.find_spec('${name%.py}'))" ||
      ln -s "$packages/$name" "$tmp/borrowed/$name"
  done
  # tvm_ffi finds its library by the record of its installation, so that record must be of this package.
  [ ! -e "$tmp/borrowed/tvm_ffi" ] || ln -s "$packages"/apache_tvm_ffi-*.dist-info "$tmp/borrowed/"
  PYTHONPATH=$PYTHONPATH:$tmp/borrowed "$TORCH_PYTHON" -m pytest -q -p no:cacheprovider "$tests"/torch*_test.py
fi
