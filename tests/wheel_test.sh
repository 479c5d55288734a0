#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Checks the wheel that pip makes of a build, as docs/python.md says: its content, its size, what it needs of the
# system. Then installs it into an environment of its own, uses it there, and uninstalls it without a trace. Nothing is
# fetched.
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
grep -q '^build quern_python:' "$build/build.ninja" || skip "this build has no Python package: tools/setup.sh fetches TVM-FFI's headers"
"$PYTHON" -c 'import scikit_build_core, tvm_ffi' 2> /dev/null || skip "$PYTHON has no scikit_build_core; tools/setup.sh installs it"
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

# A copy of the tree, in which build/release is this build with no more than `make` builds.
rm -rf "$build/quern_ffi.so" "$build/hip-names"
cmake --build "$build" --target product > "$tmp/log" || { cat "$tmp/log"; fail "product does not build"; }
mkdir -p "$tmp/tree/build"
tar -C "$source" --exclude=./build --exclude=./.git --exclude=./.venv -c . | tar -C "$tmp/tree" -x
ln -s "$build" "$tmp/tree/build/release"
recipe=$(grep '^pip wheel ' "$source/docs/python.md")
[ "$(wc -l <<< "$recipe")" = 1 ] || fail "docs/python.md has not one line that begins with 'pip wheel': $recipe"
(
  cd "$tmp/tree"
  # Packages of the tests' own Python need not be fetched. (pip takes a false PIP_NO_BUILD_ISOLATION for "no
  # isolation".)
  PATH=$(dirname "$PYTHON"):$PATH
  export PIP_NO_INDEX=1 PIP_NO_BUILD_ISOLATION=0 PIP_QUIET=1
  bash -euc "$recipe"
  ! bash -euc "${recipe//build\/release/nothing}" > "$tmp/log" 2>&1 || fail "QUERN_BUILT may be no build"
  tr -s '[:space:]' ' ' < "$tmp/log" | grep "which is no build of quern" > /dev/null || { cat "$tmp/log"; fail "QUERN_BUILT that is no build is not refused"; }
)
wheel=$(echo "$tmp"/tree/quern-*.whl)
size=$(stat -c %s "$wheel")
[ "$size" -le "$limit" ] || fail "has $size bytes; at most $limit"

"$PYTHON" -m zipfile -l "$wheel" | awk '{print $1}' > "$tmp/names"
native=quern/_native lib=quern/_native/lib
for name in quern/{__init__.py,py.typed,__main__.py,torch/__init__.py,compat/flashinfer/__init__.py,plugins/{vllm,sglang}/__init__.py} quern_engines/__init__.py \
  "$native"/{quern_ffi.so,bin/quern,share/quern/peer_attention.py,share/quern/peer_common.py} "$lib"/{libquern.so.0,libquernsim.so.0,libpthreadpool.so.0} \
  "$lib"/quern/sim/{quern-decoder,{libamdhip64,libhiprtc}.so{,.6,.7}}; do
  grep -qx "$name" "$tmp/names" || fail "has no $name"
done
data=$(basename "$wheel" | cut -d- -f1,2).data/data/share
for name in "$data"/{man/man1/quern.1,bash-completion/completions/quern,zsh/site-functions/_quern}; do
  grep -qx "$name" "$tmp/names" || fail "has no $name"
done
extra=$(grep -E '\.(c|o|a|h|pyc)$|/tests?/|__pycache__' "$tmp/names" || true)
[ -z "$extra" ] || fail "holds what nobody needs: $extra"

# pip takes no wheel for another machine, whatever is in it.
for machine in aarch64 ppc64le; do
  foreign=$tmp/$(basename "$wheel" | sed "s/x86_64/$machine/")
  [ "$(basename "$foreign")" != "$(basename "$wheel")" ] || fail "is not tagged for x86_64"
  cp "$wheel" "$foreign"
  status=0
  "$PYTHON" -m pip install --no-index --no-deps --target "$tmp/foreign" "$foreign" > "$tmp/log" 2>&1 || status=$?
  [ $status = 1 ] && grep -q "is not a supported wheel on this platform" "$tmp/log" || fail "for $machine: pip's exit status is $status"
done

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
share=$tmp/venv/share
diff "$source/docs/quern.1" "$share/man/man1/quern.1"
[ ! -x /usr/bin/man ] || [ "$(PATH=$tmp/venv/bin:$PATH man -w quern)" = "$share/man/man1/quern.1" ] || fail "man does not find its page"
diff "$source/cli/completion/_quern" "$share/zsh/site-functions/_quern"
completed=$(PATH=$tmp/venv/bin:$PATH bash -euc '. "$1"; COMP_WORDS=(quern check --device cp) COMP_CWORD=3; _quern; echo "${COMPREPLY[*]}"' \
  bash "$share/bash-completion/completions/quern")
[ "$completed" = cpu ] || fail "bash completes --device cp to '$completed'"
[ "$("$tmp/venv/bin/quern" --version)" = "$("$python" -m quern --version)" ] || fail "its two commands differ"
"$python" - << 'PYTHON'
import numpy as np, quern, sys
assert quern.__file__.startswith(sys.prefix), quern.__file__
x, weight = np.full((2, 64), 3, np.float32), np.ones(64, np.float32)
want = quern.rmsnorm(x, weight)
assert np.allclose(want, 1)
import ctypes, pathlib
for name in ("libhiprtc.so", "libhiprtc.so.6", "libhiprtc.so.7"):  # each leads to the simulator's own hiprtc
    hiprtc, major, minor = ctypes.CDLL(str(pathlib.Path(quern.__file__).parent / "_native/lib/quern/sim" / name)), ctypes.c_int(), ctypes.c_int()
    assert hiprtc.hiprtcVersion(ctypes.byref(major), ctypes.byref(minor)) == 0 and major.value == 7, (name, major, minor)
simulated = [spec for spec in quern.devices() if spec.startswith("sim:")]
assert "sim:gfx942" in simulated
for spec in simulated:  # an image of each target, run as machine code
    got = quern.rmsnorm(quern.to(x, spec), quern.to(weight, spec))
    assert np.allclose(quern.numpy(got), want) and ".gpu" in quern.last_kernel(), spec
PYTHON
"$python" - << 'PYTHON' # engines' entry points, which are off
import importlib.metadata, sys
for group in ("vllm.general_plugins", "sglang.srt.plugins", "sglang.multimodal_gen.plugins"):
    point, = importlib.metadata.entry_points(group=group, name="quern")
    before = set(sys.modules)
    point.load()()
    assert set(sys.modules) - before <= {"quern_engines"}, set(sys.modules) - before
PYTHON
"$tmp/venv/bin/quern" check --quick --device cpu norm > "$tmp/log" || { cat "$tmp/log"; fail "quern check fails"; }

"$python" -m pip uninstall -q -y quern
left=$(find "$tmp/venv" -name '*quern*')
[ -z "$left" ] || fail "left behind: $left"
echo "1 passed, 0 failed: $size bytes"
