#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The libraries export their API and nothing else, and need no library that docs/ do not name; in a user's
# program any other symbol could take the place of one of its own.
set -euo pipefail
build=${QUERN_BUILD_DIR:?}
grep -q '^QUERN_SANITIZE:STRING=.\+' "$build/CMakeCache.txt" && exit 77 # a sanitizer's functions come along
passed=0 failed=0

# check LIBRARY EXPORTS NEEDED: two extended regular expressions that match whole names
check() {
  local exports needed
  exports=$(nm -D --defined-only "$build/$1" | awk '{ print $NF }')
  needed=$(readelf -d "$build/$1" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p')
  [ -n "$exports" ] && [ -n "$needed" ] || { echo "$1: nm or readelf found nothing"; exit 1; }
  report "$1 exports" "$(grep -vxE "$2" <<< "$exports" || true)"
  report "$1 needs" "$(grep -vxE "$3" <<< "$needed" || true)"
}

report() { # report WHAT EXTRA…: passes if there is nothing extra
  if [ -z "$2" ]; then
    passed=$((passed + 1))
  else
    echo "$1 more than is documented:" $2
    failed=$((failed + 1))
  fi
}

libc='libc\.so\.6|libm\.so\.6|ld-linux-x86-64\.so\.2'
check libquern.so 'qn_[a-z0-9_]+' "$libc|libpthreadpool\.so\.0"
if [ -e "$build/libquernsim.so" ]; then
  check libquernsim.so '(__)?hip[A-Za-z0-9_]+|quernsim_(configure|evidence)' "$libc"
fi
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
