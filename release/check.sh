#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Checks an installed tree that a release is made of: which symbols and libraries its files ask of the system.
#   release/check.sh PREFIX
set -euo pipefail
prefix=${1:?}
newest=2.28
allowed=" libc.so.6 libm.so.6 libpthread.so.0 libdl.so.2 librt.so.1 ld-linux-x86-64.so.2 libquern.so.0 libpthreadpool.so.0 "
status=0
while IFS= read -r file; do
  head -c 4 "$file" | grep -q ELF || continue
  name=${file#"$prefix"/}
  version=$(readelf -W --dyn-syms "$file" | grep -o 'GLIBC_[0-9.]*' | sort -Vu | tail -n 1)
  if [ "$(printf '%s\n' "GLIBC_$newest" "$version" | sort -V | tail -n 1)" != "GLIBC_$newest" ]; then
    echo "release: $name needs $version; at most GLIBC_$newest" >&2
    status=1
  fi
  for library in $(readelf -d "$file" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p'); do
    [[ $allowed == *" $library "* ]] || { echo "release: $name needs $library" >&2; status=1; }
  done
done < <(find "$prefix" -type f)
exit $status
