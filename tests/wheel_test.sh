#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The wheel that pip makes, of this build: what it holds, how large it is, what it needs of the system; installed into an
# environment of its own, used from there, uninstalled without a trace. Nothing is fetched.
set -euo pipefail
build=${QUERN_BUILD_DIR:?} source=${QUERN_SOURCE_DIR:?}
limit=$((15 * 1000 * 1000)) # bytes

skip() {
  echo "skipped: $1"
  exit 77
}

fail() {
  echo "wheel: $1"
  exit 1
}

grep -q '^QUERN_SANITIZE:STRING=.\+' "$build/CMakeCache.txt" && skip "plain Python cannot load a sanitizer's build"
[ -e "$build/quern_ffi.so" ] || skip "this build has no Python package: tools/setup.sh fetches TVM-FFI's headers"
"$PYTHON" -c 'import scikit_build_core, tvm_ffi' 2> /dev/null || skip "$PYTHON has no scikit_build_core; tools/setup.sh installs it"
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

"$PYTHON" -m pip wheel -q --no-deps --no-build-isolation --no-index -w "$tmp" "$source" \
  -Ccmake.define.QUERN_BUILT="$build" -Cbuild-dir="$tmp/build"
wheel=$(echo "$tmp"/quern-*.whl)
size=$(stat -c %s "$wheel")
[ "$size" -le "$limit" ] || fail "has $size bytes; at most $limit"

"$PYTHON" -m zipfile -l "$wheel" | awk '{print $1}' > "$tmp/names"
native=quern/_native lib=quern/_native/lib
for name in quern/{__init__.py,py.typed,__main__.py,torch/__init__.py,compat/flashinfer/__init__.py} \
  "$native"/{quern_ffi.so,bin/quern,share/quern/peer_attention.py,share/quern/peer_common.py} "$lib"/{libquern.so.0,libquernsim.so.0,libpthreadpool.so.0} \
  "$lib"/quern/sim/{quern-decoder,libamdhip64.so,libamdhip64.so.6,libamdhip64.so.7}; do
  grep -qx "$name" "$tmp/names" || fail "has no $name"
done
extra=$(grep -E '\.(c|o|a|h|pyc)$|/tests?/|__pycache__' "$tmp/names" || true)
[ -z "$extra" ] || fail "holds what nobody needs: $extra"

# The environment finds what quern depends on in the tests' own, so that pip sees it without fetching.
"$PYTHON" -m venv "$tmp/venv"
python=$tmp/venv/bin/python
packages=$("$PYTHON" -c 'import sysconfig; print(sysconfig.get_paths()["platlib"])')
site=$("$python" -c 'import sysconfig; print(sysconfig.get_paths()["platlib"])')
echo "$packages" > "$site/borrowed.pth"
"$python" -m pip install -q --no-index "$wheel"

needed=$(find "$site/$native" -type f \( -name '*.so*' -o -name 'quern*' \) -exec ldd {} + |
  awk '/=>/ {print $1, $3}' | grep -v "$site" | awk '{print $1}' | sort -u)
for library in $needed; do
  case $library in
    libc.so.6 | libm.so.6 | libdl.so.2 | libpthread.so.0 | librt.so.1) ;;
    libtvm_ffi.so) ;; # its Python package is loaded first
    *) fail "needs the system's $library" ;;
  esac
done

cd "$tmp"
[ "$("$tmp/venv/bin/quern" --version)" = "$("$python" -m quern --version)" ] || fail "its two commands differ"
"$python" - << 'PYTHON'
import numpy as np, quern, sys
assert quern.__file__.startswith(sys.prefix), quern.__file__
x, weight = np.full((2, 64), 3, np.float32), np.ones(64, np.float32)
want = quern.rmsnorm(x, weight)
assert np.allclose(want, 1)
simulated = [spec for spec in quern.devices() if spec.startswith("sim:")]
assert "sim:gfx942" in simulated
for spec in simulated:  # an image of each target, run as machine code
    got = quern.rmsnorm(quern.to(x, spec), quern.to(weight, spec))
    assert np.allclose(quern.numpy(got), want) and ".gpu" in quern.last_kernel(), spec
PYTHON
"$tmp/venv/bin/quern" check --quick --device cpu norm > "$tmp/log" || { cat "$tmp/log"; fail "quern check fails"; }

"$python" -m pip uninstall -q -y quern
left=$(find "$tmp/venv" -name '*quern*')
[ -z "$left" ] || fail "left behind: $left"
echo "1 passed, 0 failed: $size bytes"
