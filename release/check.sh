#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Checks an installed tree that a release is made of: which symbols and libraries its files ask of the system.
#   release/check.sh PREFIX
set -euo pipefail
export LC_ALL=C
prefix=${1:?}
newest=2.28
allowed=" libc.so.6 libm.so.6 libpthread.so.0 libdl.so.2 librt.so.1 ld-linux-x86-64.so.2 libquern.so.0 libpthreadpool.so.0 "
status=0
defined=$(find "$prefix" -type f -name '*.so*' -exec readelf -W --dyn-syms {} + | awk '$7 ~ /^[0-9]+$/ && $8 ~ /^[a-z]/ { sub(/@.*/, "", $8); print $8 }' | sort -u)
while IFS= read -r file; do
  head -c 4 "$file" | grep ELF > /dev/null || continue
  name=${file#"$prefix"/}
  version=$(readelf -W --dyn-syms "$file" | grep -o 'GLIBC_[0-9.]*' | sort -Vu | tail -n 1)
  if [ "$(printf '%s\n' "GLIBC_$newest" "$version" | sort -V | tail -n 1)" != "GLIBC_$newest" ]; then
    echo "release: $name needs $version; at most GLIBC_$newest" >&2
    status=1
  fi
  # A shared library may lack a symbol when it is linked: one that no listed glibc has bears no version.
  lacks=$(readelf -W --dyn-syms "$file" | awk '$7 == "UND" && $5 == "GLOBAL" && $8 !~ /@/ { print $8 }' | sort -u | comm -23 - <(echo "$defined"))
  [ -z "$lacks" ] || { echo "release: $name needs $lacks, which neither glibc $newest nor the release has" >&2; status=1; }
  for library in $(readelf -d "$file" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p'); do
    [[ $allowed == *" $library "* ]] || { echo "release: $name needs $library" >&2; status=1; }
  done
done < <(find "$prefix" -type f)
exit $status
