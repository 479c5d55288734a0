#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Opens the page of quern profile --html in a browser without a screen, and compares what it shows with the profile.
set -euo pipefail
[ -e "$QUERN_BUILD_DIR/quern-sim-links/libamdhip64.so" ] || exit 77
grep -q '^QUERN_SANITIZE:STRING=.\+' "$QUERN_BUILD_DIR/CMakeCache.txt" && exit 77 # a plain program cannot load it
clang=$(command -v clang++-22 || command -v clang++-23 || command -v clang++) || exit 77
browser=$(command -v chromium-headless-shell || command -v chromium || command -v google-chrome) ||
    { echo "page_test: no Chromium; tools/setup.sh --third-party installs one" >&2; exit 77; }
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT

# Names that would be markup if they were written as they stand.
strange="$out/a<b>&\"c.hip"
cp "$QUERN_SOURCE_DIR/tests/hip/listed.hip" "$strange"
"$clang" -x hip --offload-arch=gfx942 -nogpuinc -nogpulib -std=c++17 -O2 -g -I "$QUERN_SOURCE_DIR/tests/hip" "$strange" \
    -fuse-ld=lld --hip-link -no-hip-rt -L "$QUERN_BUILD_DIR/quern-sim-links" -lamdhip64 -o "$out/listed"
"$QUERN_BUILD_DIR/quern" profile --clock full --html "$out/page.html" --json "$out/profile.json" -- \
    "$out/listed" "<script>console.error('not escaped')</script>" > "$out/text"
"$PYTHON" "$QUERN_SOURCE_DIR/tests/page_test.py" "$browser" "$out"
