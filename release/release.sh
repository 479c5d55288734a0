#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Makes a release of the commit that is checked out, into a folder:
#   release/release.sh BUILD FOLDER [TARGETS [SIM_EXEC]]     TARGETS: for which GPUs kernels are compiled; SIM_EXEC: as QUERN_SIM_EXEC of
#                                                            cmake/sim.cmake; else all
# a wheel, a tarball, a .deb and an .rpm for x86-64 with glibc 2.28 or later, an SPDX bill of materials, and SHA256SUMS. Nothing
# of the day or the folder stands in them. Debian 12's packages are linked in (tools/setup.sh --release).
set -euo pipefail
top=$(cd "$(dirname "$0")/.." && pwd)
build=$(realpath -m "${1:?}") folder=$(realpath -m "${2:?}") targets=${3-all} sim_exec=${4-all}
tools=$top/build/release-tools
python=$tools/bin/python
cd "$top"

fail() {
  echo "release: $1" >&2
  exit 1
}

changes=$(git status --porcelain)
[ -z "$changes" ] || fail "the tree has changes that no commit holds:"$'\n'"$changes"
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
export SOURCE_DATE_EPOCH TZ=UTC LC_ALL=C
umask 022
version=$(sed -n 's/^project(quern VERSION \([0-9.]*\).*/\1/p' CMakeLists.txt)
mkdir -p "$build"
work=$(mktemp -d) # rpmbuild takes no blanks in paths
trap 'rm -rf "$work"' EXIT

echo "release: quern $version of $(git rev-parse --short HEAD), kernels for $targets"
release/sysroot.sh "$python" "$build/sysroot"

# configure LIBDIR: builds everything for a tree whose libraries stand there. Only the command knows the name.
configure() {
  cmake -G Ninja -S "$top" -B "$build" -DCMAKE_BUILD_TYPE=Release -DQUERN_SYSROOT="$build/sysroot" -DQUERN_TARGETS="$targets" \
    -DQUERN_SIM_EXEC="$sim_exec" -DQUERN_TESTS=OFF -DQUERN_CCACHE=OFF -DCMAKE_INSTALL_LIBDIR="$1" -DCMAKE_BUILD_WITH_INSTALL_RPATH=ON \
    -DCMAKE_C_FLAGS="-g \"-ffile-prefix-map=$build=build\" \"-ffile-prefix-map=$top=.\"" > "$work/log" 2>&1 || { cat "$work/log" >&2; exit 1; }
  cmake --build "$build" --target product --target quern_python
}

# stage LIBDIR PREFIX: installs into an empty folder, with the licences of what is linked in.
stage() {
  configure "$1"
  cmake --install "$build" --prefix "$2" --strip > "$work/log" || { cat "$work/log" >&2; exit 1; }
  release/licenses.sh "$2/share/doc/quern"
  find "$2" -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +
}

# What programs that were linked with the last release need must still be there (docs/releases.md).
check_abi() {
  abidiff --no-added-syms --headers-dir2 include/quern release/libquern.abi "$build/libquern.so.0" || fail "libquern's ABI is not what release/libquern.abi says"
}

make_wheel() {
  PATH=$tools/bin:$PATH "$python" -m pip wheel -q . --no-deps --no-build-isolation --no-index -w "$work/wheel" \
    -Ccmake.define.QUERN_BUILT="$build" -Cbuild-dir="$work/wheel-build"
  "$python" -m wheel tags --remove --platform-tag manylinux_2_28_x86_64 "$work"/wheel/*.whl > "$work/log"
  "$python" -m auditwheel show "$work"/wheel/*.whl > "$work/audit"
  grep -q 'manylinux_2_\(1[0-9]\|2[0-8]\)_x86_64' "$work/audit" || { cat "$work/audit" >&2; fail "auditwheel finds no tag of manylinux_2_28 or older"; }
  cp "$work"/wheel/*.whl "$folder"
}

make_tarball() {
  local name=quern-$version-linux-x86_64
  mv "$work/stage" "$work/$name"
  tar --sort=name --format=ustar --owner=0 --group=0 --numeric-owner --mtime="@$SOURCE_DATE_EPOCH" -C "$work" -c "$name" |
    gzip -9 -n > "$folder/$name.tar.gz"
}

make_deb() {
  local root=$work/deb
  mkdir -p "$root/DEBIAN"
  sed "s/@VERSION@/$version/; s/@SIZE@/$(du -k -s --apparent-size "$root/usr" | cut -f1)/" release/deb.control > "$root/DEBIAN/control"
  printf 'activate-noawait ldconfig\n' > "$root/DEBIAN/triggers"
  dpkg-deb --root-owner-group -Zxz -b "$root" "$folder/quern_${version}_amd64.deb" > "$work/log"
}

make_rpm() {
  rpmbuild -bb --quiet --target x86_64 --define "_topdir $work/rpmbuild" --define "root $work/rpm" --define "version $version" \
    --define '_buildhost localhost' --define 'use_source_date_epoch_as_buildtime 1' --define 'clamp_mtime_to_source_date_epoch 1' \
    --define '_build_id_links none' release/quern.spec > "$work/log" 2>&1 || { cat "$work/log" >&2; exit 1; }
  cp "$work"/rpmbuild/RPMS/x86_64/*.rpm "$folder"
}

rm -rf "$folder"
mkdir -p "$folder"
stage lib "$work/stage"
release/check.sh "$work/stage"
check_abi
make_wheel
make_tarball
stage lib/x86_64-linux-gnu "$work/deb/usr"
make_deb
stage lib64 "$work/rpm/usr"
make_rpm
python3 release/sbom.py --version "$version" --folder "$folder" --epoch "$SOURCE_DATE_EPOCH" > "$work/sbom"
mv "$work/sbom" "$folder/quern-$version.spdx.json"
(cd "$folder" && sha256sum -- * > "$work/sums")
mv "$work/sums" "$folder/SHA256SUMS"
echo "release: $folder holds"
(cd "$folder" && du -b -- *)
