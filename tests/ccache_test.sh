#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds through ccache: a second build takes sources and kernels from it, kernels are those of a build without it, and a changed file
# that #embed reads is seen. A changed kernel rebuilds its images alone.
set -euo pipefail
build=${QUERN_BUILD_DIR:?} source=${QUERN_SOURCE_DIR:?}
grep -q '^QUERN_SANITIZE:STRING=.\+' "$build/CMakeCache.txt" && { echo "skipped: a sanitizer's build compiles few kernels"; exit 77; }
command -v ccache > /dev/null || { echo "skipped: no ccache"; exit 77; }
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
export CCACHE_DIR=$tmp/cache

fail() {
  echo "ccache: $1"
  exit 1
}

mkdir "$tmp/tree"
git -C "$source" ls-files -z --cached --others --exclude-standard | (cd "$source" && xargs -0 -I{} sh -c '[ ! -e "$1" ] || printf "%s\0" "$1"' _ {}) |
  tar -C "$source" --null -T - -c | tar -C "$tmp/tree" -x
cmake -G Ninja -S "$tmp/tree" -B "$tmp/build" -DQUERN_TARGETS='gfx942;sm_80' -DQUERN_TESTS=OFF -DQUERN_SIM=OFF \
  -DQUERN_DLPACK_INCLUDE="${QUERN_DLPACK_INCLUDE:?}" > "$tmp/log" || { cat "$tmp/log"; fail "no configuration"; }
cd "$tmp/build"
page=CMakeFiles/quern_command.dir/cli/page/page.c.o
images=(images/scales.gfx942.co images/packbits.sm_80.co)
page_command=$(ninja -t commands -s "$page")

compile() { # two kernels, and a source that embeds files, without what ninja would build before it
  rm -f "${images[@]}" "$page"
  mkdir -p "${page%/*}"
  ninja "${images[@]}" > "$tmp/log" || { cat "$tmp/log"; fail "no images"; }
  eval "$page_command"
}

hits() {
  ccache --print-stats | awk '$1 == "direct_cache_hit" { print $2 }'
}

compile
[ "$(hits)" = 0 ] || fail "an empty cache has $(hits) files"
for image in "${images[@]}"; do
  cmp "$image" "$build/$image" || fail "$image is not what clang makes alone"
done
compile
[ "$(hits)" = 3 ] || fail "the second build takes $(hits) of 3 files from the cache"
echo '.changed-since-it-was-kept { color: red; }' >> "$tmp/tree/cli/page/page.css"
compile
grep -q changed-since-it-was-kept "$page" || fail "what #embed reads may be old"

# By what an image's dependency file names, ninja knows what rebuilds it.
kernel=$source/ops/norm/norm_any_gpu.c
rebuilt=$(grep -lF "$kernel" "$build"/images/*.co.d) || fail "no image depends on $kernel"
others=$(grep -v '/norm_any\.[a-z0-9_-]*\.co\.d$' <<< "$rebuilt" || true)
[ -z "$others" ] || fail "$kernel rebuilds $others"
echo "7 passed, 0 failed"
