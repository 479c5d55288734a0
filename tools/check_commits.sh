#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Commit messages: "area: do this", at most 72 characters, no full stop, second line blank.
set -uo pipefail
bad=0
while read -r id; do
  subject=$(git log -1 --format=%s "$id")
  second=$(git log -1 --format=%B "$id" | sed -n 2p)
  if ! [[ $subject =~ ^[a-z][a-z0-9_/,.\ -]*:\ [^\ ].*[^.]$ ]] || [ ${#subject} -gt 72 ] || [ -n "$second" ]; then
    echo "$id: $subject"
    bad=1
  fi
done < <(git log --no-merges --format=%h)
exit $bad
