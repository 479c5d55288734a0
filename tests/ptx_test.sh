#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The PTX images. A shuffle between lanes of a row names the whole wave (gpu/gpu.h: QD_ROW_PARTNER). And as NVIDIA's
# assembler takes them, where it is installed (ptxas in PATH; else skipped): it takes each, it serializes no matrix products
# (its warnings C75..), and kernels spill at most 64 bytes.
set -euo pipefail
build=${QUERN_BUILD_DIR:?}
for image in "$build"/images/*.sm_*.co; do
  [ -e "$image" ] || continue
  narrow=$(grep -E 'shfl\.sync\.bfly' "$image" | grep -vE ',-1;$' | head -1) || true
  [ -z "$narrow" ] || { echo "$image: $narrow names some lanes, not -1, the wave"; exit 1; }
done
command -v ptxas > /dev/null || { echo "no ptxas"; exit 77; }
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
passed=0 failed=0

# bound FILE: puts the directives of a remark "// quern: KERNEL DIRECTIVES" into the kernel's head, as runtime/image/ptx.c does.
bound() {
  awk '/^\/\/ quern: / { name = $3; sub(/^\/\/ quern: [^ ]+ /, ""); directives[name] = $0; next }
       /\.entry / { match($0, /\.entry [a-zA-Z0-9_]+/); entry = substr($0, RSTART + 7, RLENGTH - 7) }
       { print }
       /^\)/ && entry != "" { print directives[entry]; entry = "" }' "$1"
}

for image in "$build"/images/*{wgmma,attention_async}*.sm_90a.co; do
  [ -e "$image" ] || continue
  bound "$image" > "$tmp/image.ptx"
  said=$(ptxas -arch=sm_90a -v "$tmp/image.ptx" -o "$tmp/image.cubin" 2>&1) || { echo "$image: $said"; failed=$((failed + 1)); continue; }
  spilled=$(sed -n 's/.* \([0-9]*\) bytes spill stores.*/\1/p' <<<"$said" | sort -n | tail -1)
  if [[ $said == *C75* ]] || [ "${spilled:-0}" -gt 64 ]; then
    echo "$image: spills ${spilled:-0} bytes; $(grep -o 'C75.*' <<<"$said" || true)" && failed=$((failed + 1))
  else
    passed=$((passed + 1))
  fi
done
echo "$passed passed, $failed failed"
[ "$failed" = 0 ] || exit 1
[ "$passed" -gt 0 ] || exit 77
