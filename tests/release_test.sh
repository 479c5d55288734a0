#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Makes a release of this tree, with no GPU's kernels and the simulator of this processor alone, in two folders, and compares the bytes;
# then uses each of its files as a person would: the tarball from another folder, the .deb unpacked, the wheel in an environment of its
# own.
set -euo pipefail
build=${QUERN_BUILD_DIR:?} source=${QUERN_SOURCE_DIR:?}

fail() {
  echo "release: $1"
  exit 1
}

grep -q '^QUERN_SANITIZE:STRING=.\+' "$build/CMakeCache.txt" && { echo "skipped: a release has no sanitizers"; exit 77; }
[ -e "$source/build/release-tools/complete" ] || { echo "skipped: tools/setup.sh --release was not run"; exit 77; }
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

# A commit of the tree as it is, in two clones.
git clone -q "$source" "$tmp/a"
git -C "$source" ls-files -z --cached --others --exclude-standard | (cd "$source" && xargs -0 -I{} sh -c '[ ! -e "$1" ] || printf "%s\0" "$1"' _ {}) |
  tar -C "$source" --null -T - -c | tar -C "$tmp/a" -x
git -C "$tmp/a" add -A
git -C "$tmp/a" -c user.name=test -c user.email=test@localhost commit -q --allow-empty -m 'the tree as it is'
git clone -q "$tmp/a" "$tmp/folder of another length"
for clone in "$tmp/a" "$tmp/folder of another length"; do
  mkdir -p "$clone/build"
  ln -s "$source/build/deps" "$source/build/release-tools" "$clone/build"
  "$clone/release/release.sh" "$clone/build/dist" "$clone/build/releases" "" native > "$tmp/log" 2>&1 || { tail -n 40 "$tmp/log"; fail "no release"; }
done
one=$tmp/a/build/releases
diff -r "$one" "$tmp/folder of another length/build/releases" || fail "two releases of one commit differ"
! grep -lF "$source" "$build"/images/*.co || fail "images that name the folder in which they were compiled"
(cd "$one" && sha256sum --quiet -c SHA256SUMS) || fail "SHA256SUMS is wrong"

echo changed >> "$tmp/a/README.md"
! "$tmp/a/release/release.sh" "$tmp/a/build/dist" "$tmp/nothing" "" 2> "$tmp/log" || fail "a tree with changes is released"
grep -q 'README.md' "$tmp/log" && [ ! -e "$tmp/nothing" ] || fail "a tree with changes is not refused by name"

mkdir "$tmp/moved" "$tmp/deb"
tar -C "$tmp/moved" -xzf "$one"/*.tar.gz
dpkg-deb -x "$one"/*.deb "$tmp/deb"
for prefix in "$tmp"/moved/* "$tmp/deb/usr"; do
  grep -q 'sim:gfx942' <<< "$("$prefix/bin/quern" devices)" || fail "$prefix: no simulated GPU"
  "$prefix/bin/quern" check --quick --device cpu norm > "$tmp/log" || { cat "$tmp/log"; fail "$prefix: quern check"; }
done
grep -q 'GLIBC_2.28' <<< "$(rpm -qp --requires "$one"/*.rpm)" || fail "the rpm does not ask for glibc 2.28"
diff <(rpm -qlp "$one"/*.rpm | grep '^/usr/include') <(cd "$tmp/deb" && find usr/include/quern | sed 's,^,/,' | sort) || fail "the rpm's headers"
"$PYTHON" - "$one" << 'PYTHON'
import json, pathlib, sys
folder = pathlib.Path(sys.argv[1])
document = json.loads(next(folder.glob("*.spdx.json")).read_text())
assert document["spdxVersion"] == "SPDX-2.3"
assert {f["fileName"] for f in document["files"]} == {f"./{p.name}" for p in folder.iterdir() if p.suffix not in (".json", "") }
assert {"libzstd-dev", "llvm-22-dev"} <= {p["name"] for p in document["packages"]}
PYTHON

packages=$("$PYTHON" -c 'import sysconfig; print(sysconfig.get_paths()["platlib"])')
"$PYTHON" -m venv "$tmp/venv"
site=$("$tmp/venv/bin/python" -c 'import sysconfig; print(sysconfig.get_paths()["platlib"])')
echo "$packages" > "$site/borrowed.pth" # what quern depends on need not be fetched
"$tmp/venv/bin/python" -m pip install -q --no-index "$one"/*.whl
"$tmp/venv/bin/python" -c 'import numpy as np, quern; assert np.allclose(quern.rmsnorm(np.ones((2, 64), np.float32), np.ones(64, np.float32)), 1)'
echo "2 passed, 0 failed"
