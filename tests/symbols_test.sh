#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Checks that the libraries export their whole API and nothing else, and need no library that docs/ do not name. Any
# other symbol could take the place of one of a user's program.
set -euo pipefail
build=${QUERN_BUILD_DIR:?} source=${QUERN_SOURCE_DIR:?}
grep -q '^QUERN_SANITIZE:STRING=.\+' "$build/CMakeCache.txt" && exit 77 # a sanitizer's functions come along
passed=0 failed=0

exports_of() { # names without versions, and without the versions' own symbols
  nm -D --defined-only "$build/$1" | awk '$2 != "A" { sub(/@.*/, "", $NF); print $NF }'
}

# check LIBRARY EXPORTS NEEDED: two extended regular expressions that match whole names
check() {
  local exports needed
  exports=$(exports_of "$1")
  needed=$(readelf -d "$build/$1" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p')
  [ -n "$exports" ] && [ -n "$needed" ] || { echo "$1: nm or readelf found nothing"; exit 1; }
  report "$1 exports more than is documented" "$(grep -vxE "$2" <<< "$exports" || true)"
  report "$1 needs more than is documented" "$(grep -vxE "$3" <<< "$needed" || true)"
}

report() { # report WHAT EXTRA…: passes if there is nothing extra
  if [ -z "$2" ]; then
    passed=$((passed + 1))
  else
    echo "$1:" $2
    failed=$((failed + 1))
  fi
}

libc='libc\.so\.6|libm\.so\.6|ld-linux-x86-64\.so\.2'
check libquern.so 'qn_[a-z0-9_]+' "$libc|libpthreadpool\.so\.0"
declared=$(cat "$source"/include/quern/*.h "$source"/include/quern/*/*.h | tr '\n' ' ' |
  grep -oE 'QN_API [^;(]*\(' | grep -oE 'qn_[a-z0-9_]+\($' | tr -d '(' | sort)
missing=$(comm -23 <(echo "$declared") <(exports_of libquern.so | sort))
unversioned=$(nm -D --defined-only "$build/libquern.so" | grep ' qn_' | grep -v '@@QUERN_0\.[0-9]*$' || true)
report "libquern.so exports symbols without a version" "$unversioned"
[ "$(wc -l <<< "$declared")" -gt 50 ] || { echo "found too few functions in the headers"; exit 1; }
report "libquern.so does not export what headers declare" "$missing"
if [ -e "$build/libquernsim.so" ]; then
  check libquernsim.so '(__)?hip[A-Za-z0-9_]+|quernsim_(chip|clock|configure|evidence)' "$libc"
fi
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
