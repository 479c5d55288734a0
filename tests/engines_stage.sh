# SPDX-License-Identifier: Apache-2.0
# For engines_test.sh and upstream_test.sh, which source it: skips the test where something is missing; else puts the Python package, with
# the record by which engines find its plugins, into $tmp/stage, and sets the environment that it wants. Sets build, source, python, tmp.
build=${QUERN_BUILD_DIR:?} source=${QUERN_SOURCE_DIR:?}
python=${ENGINES_PYTHON:-$source/build/engines/bin/python} # the engines' Python: the one that tools/setup.sh --engines makes

skip() {
  echo "skipped: $1"
  exit 77
}

# MODULE...: what the engines' Python needs.
stage() {
  local missing
  grep -q '^QUERN_SANITIZE:STRING=.\+' "$build/CMakeCache.txt" && skip "plain Python cannot load a sanitizer's build"
  [ -e "$build/quern_ffi.so" ] || skip "this build has no Python package: tools/setup.sh fetches TVM-FFI's headers"
  [ -x "$python" ] || skip "there is no $python; tools/setup.sh --engines makes it"
  missing=$("$python" -c 'import importlib.util as u, sys; print(*[n for n in sys.argv[1:] if not u.find_spec(n)])' "$@")
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
}
