#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# tools/setup.sh --check on systems that this machine is not: what it names there, in these systems' own names, and what it says where
# there is no clang. Their /etc/os-release is mounted over this system's, and programs that answer from a list stand for
# their package managers; docs/systems.md tells on which systems the real ones ran. tools/clang.sh chooses among clangs of several versions.
set -euo pipefail
source=${QUERN_SOURCE_DIR:?}
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
unshare=(unshare -m)
[ "$(id -u)" = 0 ] || unshare=(unshare -rm)
"${unshare[@]}" true 2> /dev/null || { echo "skipped: no mount namespaces here"; exit 77; }

fail() {
  echo "setup: $1"
  cat "$tmp/log"
  exit 1
}

script() { # script FILE: an executable of standard input's text
  { echo '#!/bin/bash'; cat; } > "$1"
  chmod +x "$1"
}

mkdir -p "$tmp/bin" "$tmp/tree" "$tmp/clangs"
cp -r "$source/tools" "$tmp/tree"
# Each package source is a file of "PACKAGE VERSION", in $LIST; nothing is installed.
script "$tmp/bin/apt-cache" << 'EOF'
if [ "$1" = policy ]; then
  version=$(sed -n "s/^$2 //p" "$LIST")
  printf '%s:\n  Installed: (none)\n  Candidate: %s\n' "$2" "${version:-(none)}"
else
  sed -n 's/^\(clang-[0-9]*\) .*/\1 - compiler/p' "$LIST"
fi
EOF
script "$tmp/bin/dnf" <<< 'sed -n "s/^${*: -1} //p" "$LIST"'
script "$tmp/bin/pacman" << 'EOF'
case $1 in
  -Si) sed -n "s/^$2 /Version         : /p" "$LIST" ;;
  -T) shift; printf '%s\n' "$@"; exit 127 ;;
esac
EOF
script "$tmp/bin/dpkg-query" <<< 'exit 1'
script "$tmp/bin/rpm" <<< 'exit 1'
script "$tmp/bin/apt-get" <<< 'echo "apt-get $*" >> "$CALLS"; exit 100'
clang() { script "$1" <<< "echo 'clang version $2'"; }

# on SYSTEM COMMAND...: runs it there, with the packages of standard input; output in log. Exit status 1 is expected.
on() {
  local status=0
  cat > "$tmp/list"
  printf '%s\n' "$1" > "$tmp/os-release"
  shift
  : > "$tmp/calls"
  PATH=$tmp/bin:$PATH LIST=$tmp/list CALLS=$tmp/calls "${unshare[@]}" sh -c 'mount --bind "$0" "$(realpath /etc/os-release)" && exec "$@"' \
    "$tmp/os-release" "$@" > "$tmp/log" 2>&1 || status=$?
  [ $status = 1 ] || fail "exit status $status"
  [ ! -s "$tmp/calls" ] || fail "--check called $(cat "$tmp/calls")"
}
setup() { on "$1" "$tmp/tree/tools/setup.sh" --check --build "${@:2}"; }
says() { for text; do grep -qF -- "$text" "$tmp/log" || fail "no word of '$text':"; done; }
is_silent_of() { for text; do ! grep -qF -- "$text" "$tmp/log" || fail "speaks of '$text':"; done; }

ubuntu='ID=ubuntu ID_LIKE=debian VERSION_CODENAME=jammy PRETTY_NAME="Ubuntu 22.04.5 LTS"'
# This machine has clangs of its own, which may not count.
for name in clang-22 clang-23 clang-24 clang-25 clang; do clang "$tmp/bin/$name" 15.0.7; done
setup "${ubuntu// /$'\n'}" <<< $'clang-14 1:14.0\nclang-15 1:15.0.7'
says "clang 22 or later" "have 15 at most" "--apt-llvm" "'jammy'" "ROCm 7.2" "wheel"
setup "${ubuntu// /$'\n'}" <<< $'clang-15 1:15.0.7\nclang-22 1:22.1.8\nclang-23 1:23.1.0\nlibmsgpack-dev 3.3.0'
says "missing packages: clang-22 lld-22 llvm-22-dev" " libmsgpack-dev " libpthreadpool-dev
is_silent_of clang-23 libmsgpack-c-dev
setup $'ID=debian\nVERSION_CODENAME=trixie' <<< $'clang-23 1:23.1.0\nlibmsgpack-dev 6\nlibmsgpack-c-dev 6'
says "clang-23 lld-23" libmsgpack-c-dev

setup $'ID=fedora\nVERSION_ID=44' <<< $'clang 22.1.8\nmsgpack-devel 3.1.0'
says "missing packages: clang lld llvm-devel llvm-static" " msgpack-devel " pthreadpool-devel
setup $'ID=fedora\nVERSION_ID=43' <<< $'clang 21.1.8\nclang22 22.1.8'
says "missing packages: clang22 lld22 llvm22-devel"
setup $'ID=fedora\nVERSION_ID=42' <<< 'clang 20.1.8'
says "have 20.1.8 at most" "from release 44"
is_silent_of --apt-llvm
rhel=$'ID="rocky"\nID_LIKE="rhel centos fedora"\nVERSION_ID="9.6"\nPRETTY_NAME="Rocky Linux 9.6"'
setup "$rhel" <<< 'clang 20.1.8'
says "Rocky Linux 9.6 (dnf) have 20.1.8 at most" "ROCm 7.2"
is_silent_of "release 44"
mkdir -p "$tmp/rocm/llvm/bin"
clang "$tmp/rocm/llvm/bin/clang" 22.0.0git
ROCM_PATH=$tmp/rocm setup "$rhel" <<< $'clang 20.1.8\nmsgpack-devel 3.1.0'
says "clang is $tmp/rocm/llvm/bin/clang" "missing packages: gcc-c++ libstdc++-static"
setup $'ID=arch' <<< 'clang 22.1.8-1'
says "missing packages: clang lld llvm compiler-rt gcc" msgpack-c
setup $'ID=endeavouros\nID_LIKE=arch' <<< 'clang 21.1.8-1'
says "have 21.1.8-1 at most"
setup $'ID=slackware\nPRETTY_NAME=Slackware' <<< ''
says "Slackware is none of the systems" "docs/systems.md"
setup $'ID=debian\nVERSION_CODENAME=sid' --apt-llvm <<< 'clang-21 1:21'
says "have 21 at most" # --check adds no package source
script "$tmp/bin/uname" <<< 'echo aarch64'
setup $'ID=debian' <<< ''
says "needs an x86-64 processor; this is aarch64"

# explain_absent: packages that no source has.
on "$rhel" bash -c '. "$0/tools/packages.sh"; read_system; explain_absent zstd pthreadpool-devel jansson-devel' "$source" <<< 'zstd 1.5'
says "Rocky Linux 9.6 (dnf) have no pthreadpool-devel jansson-devel" "CRB and EPEL" "cmake -S pthreadpool"

# The first clang of a good version: by name, then by folder, then ROCm's; what is too old is told.
choose() { env PATH="$tmp/clangs:/usr/bin:/bin" "${@:2}" bash "$1" > "$tmp/log" 2>&1; }
tool=$source/tools/clang.sh
clang "$tmp/clangs/clang" 23.1.0
for name in clang-22 clang-23 clang-24 clang-25; do clang "$tmp/clangs/$name" 21.1.8; done
choose "$tool" || fail "no clang chosen"
says "$tmp/clangs/clang"
clang "$tmp/clangs/clang-24" "24.1.0"
choose "$tool" || fail "no clang chosen"
says "$tmp/clangs/clang-24"
clang "$tmp/clangs/clang" 14.0.6
clang "$tmp/clangs/clang-24" 9.0.1
script "$tmp/clangs/clang-23" <<< 'echo no compiler; exit 1'
! choose "$tool" ROCM_PATH="$tmp/none" || fail "an old clang is chosen"
says "$tmp/clangs/clang (14.0.6)" "$tmp/clangs/clang-23 (not clang)" "needs clang 22 or later"
choose "$tool" HIP_PATH="$tmp/rocm" || fail "ROCm's clang is not taken"
says "$tmp/rocm/llvm/bin/clang"
echo "setup: 1 passed, 0 failed"
