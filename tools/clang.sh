#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Prints the path of the clang that builds quern: the first of version 22 or later among clang-22 to clang-25 and clang in
# PATH, then ROCm's own, in ROCM_PATH, HIP_PATH, /opt/rocm, /opt/rocm-* (the newest first) and where Fedora puts it.
# Without one it says which there are, and exits with status 1.
set -euo pipefail
oldest=22

shopt -s nullglob
mapfile -t versions < <(printf '%s\n' /opt/rocm-*/ | sort -rV)
candidates=()
for name in clang-22 clang-23 clang-24 clang-25 clang; do
  path=$(type -P "$name" || true)
  [[ $path == /* ]] && candidates+=("$path") # a relative folder in PATH would make it depend on where one stands
done
for folder in "${ROCM_PATH:-}" "${HIP_PATH:-}" /opt/rocm "${versions[@]%/}" /usr/lib64/rocm; do
  [ -n "$folder" ] && candidates+=("$folder/llvm/bin/clang")
done

found=""
for path in "${candidates[@]}"; do
  [ -x "$path" ] || continue
  version=$("$path" --version 2> /dev/null | sed -n 's/.*clang version \([0-9][0-9.]*\).*/\1/p' | head -1 || true)
  if [ -n "$version" ] && [ "${version%%.*}" -ge $oldest ]; then
    echo "$path"
    exit 0
  fi
  found+="${found:+, }$path (${version:-not clang})"
done
echo "quern needs clang $oldest or later; found in PATH and ROCm's folders: ${found:-none}" >&2
exit 1
