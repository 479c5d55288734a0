#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds the site, without warnings, and looks at it in a browser without a screen.
set -euo pipefail
tools=$QUERN_SOURCE_DIR/build/site-tools
[ -e "$tools/complete" ] || { echo "site_test: tools/setup.sh --site was not called" >&2; exit 77; }
[ -e "$QUERN_BUILD_DIR/libquernsim.so.0" ] || exit 77
grep -q '^QUERN_SANITIZE:STRING=.\+' "$QUERN_BUILD_DIR/CMakeCache.txt" && exit 77 # the pages are the same, and the checks slow
browser=$(command -v chromium-headless-shell || command -v chromium || command -v google-chrome)
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
"$tools/bin/python" "$QUERN_SOURCE_DIR/site/build.py" --build "$QUERN_BUILD_DIR" --output "$out/site" --devices cpu,sim:gfx1201
"$tools/bin/python" "$QUERN_SOURCE_DIR/tests/site_test.py" "$browser" "$out/site"
