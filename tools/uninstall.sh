#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Removes what the last `make install` from this build folder installed.
#   tools/uninstall.sh BUILD [DESTDIR]
set -euo pipefail
build=${1:?usage: tools/uninstall.sh BUILD [DESTDIR]}
destdir=${2:-}
manifest=$build/install_manifest.txt
[ -f "$manifest" ] || { echo "uninstall: $manifest is missing: nothing was installed from $build" >&2; exit 1; }
while IFS= read -r file || [ -n "$file" ]; do
  # The manifest's paths have DESTDIR already where it was set at install time.
  [ -n "$destdir" ] && [[ $file != "$destdir"* ]] && file=$destdir$file
  if [ -e "$file" ] || [ -L "$file" ]; then
    rm -f "$file"
    echo "removed $file"
  fi
done < "$manifest"
# Folders that are ours alone.
for dir in $(sed -n 's|\(.*/\(include\|share\|lib[^/]*/cmake\|lib[^/]*\)/quern\)/.*|\1|p' "$manifest" | sort -u); do
  find "$destdir$dir" -depth -type d -empty -delete 2>/dev/null || true
done
rm -f "$manifest"
