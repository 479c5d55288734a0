#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Every public header compiles on its own, as C11 and as C++17, without a warning.
set -euo pipefail
build=${QUERN_BUILD_DIR:?} source=${QUERN_SOURCE_DIR:?}
cache() { sed -n "s/^$1:[A-Z]*=//p" "$build/CMakeCache.txt"; }
cc=$(cache CMAKE_C_COMPILER)
dlpack=$(cache QUERN_DLPACK_INCLUDE)
passed=0 failed=0

for header in "$source"/include/quern/*.h "$source"/include/quern/*/*.h; do
  for language in "c -std=c11" "c++ -std=c++17"; do
    # shellcheck disable=SC2086 # two words
    if printf '#include <%s>\n' "${header#"$source"/include/}" |
        "$cc" -x $language -pedantic -Wall -Wextra -Wstrict-prototypes -Werror -fsyntax-only \
          -I"$source/include" -isystem "$dlpack" -; then
      passed=$((passed + 1))
    else
      echo "${header##*/} does not stand alone as ${language#*=}"
      failed=$((failed + 1))
    fi
  done
done
echo "$passed passed, $failed failed"
[ "$passed" -gt 0 ] && [ "$failed" = 0 ]
