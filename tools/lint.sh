#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Checks that need no build: layers, formatting, file headers, tables of measurements, names in the manual, commit messages. Exit 1 if any fails.
set -uo pipefail
cd "$(dirname "$0")/.."
failed=0

check() { # check NAME COMMAND…: prints what the command prints if it fails
  local name=$1 output
  shift
  if output=$("$@" 2>&1); then
    echo "lint: $name: ok"
  else
    echo "lint: $name: failed"
    printf '%s\n' "$output" | head -20 | sed 's/^/  /'
    failed=1
  fi
}

# Every C file and script says its licence on line 1 (scripts: line 2) and what it is for below.
headers() {
  local bad=0 file
  while read -r file; do
    head -2 "$file" | grep 'SPDX-License-Identifier: Apache-2.0' > /dev/null || { echo "$file: no SPDX tag"; bad=1; }
  done < <(git ls-files '*.c' '*.h' '*.def' '*.sh' '*.py' '*.cmake' CMakeLists.txt Makefile)
  return $bad
}

format() {
  local clang_format
  clang_format=$(command -v clang-format-22 || command -v clang-format) || { echo "clang-format is not installed"; return 1; }
  git ls-files '*.c' '*.h' | xargs "$clang_format" --dry-run -Werror
}

# The formatter leaves comments alone: their lines end at column 100 as well.
comment_width() {
  ! LC_ALL=C.UTF-8 git grep -nP '^(?=.{101})(.*//|\s*/\*|\s*\* )' -- '*.c' '*.h'
}

# No machine's own paths, nothing left open, no binary without its source.
leftovers() {
  local bad=0
  git grep -nE '\b(TODO|FIXME|XXX|HACK)\b' -- '*.c' '*.h' '*.py' '*.sh' '*.cmake' CMakeLists.txt ':!tools/lint.sh' && bad=1
  git grep -nE '(^|[^a-z])/(home|work|root)/[a-z]' -- . ':!tools/lint.sh' && bad=1
  git ls-files | grep -E '\.(co|o|so|a|hsaco|bin)$' && bad=1
  return $bad
}

# A grep that ends at its first match kills the command before it, which pipefail then takes for a failure, now and then.
quiet_pipes() {
  ! git grep -nE '[^|]\| *grep -[a-zA-Z]*q' -- '*.sh' .ci/run
}

check layers python3 tools/check_layers.py
check headers headers
check format format
check comments comment_width
check leftovers leftovers
check pipes quiet_pipes
check tables python3 tools/report.py --check
check manual python3 tools/check_docs.py
check commits bash tools/check_commits.sh
exit $failed
