#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Copies quern's licence, and those of what a release holds of others (release/linked.txt), into a folder.
#   release/licenses.sh FOLDER
set -euo pipefail
cd "$(dirname "$0")/.."
folder=${1:?}
mkdir -p "$folder"
install -m 644 LICENSE NEWS.md "$folder"
grep -v '^#' release/linked.txt | while read -r package _; do
  install -m 644 "/usr/share/doc/$package/copyright" "$folder/$package.copyright"
done
