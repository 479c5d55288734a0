#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Goes from `make install` to the first report on a kernel: the commands of docs/simulator.md, "The first report", run
# as they stand there, in less than a minute. Then tries the page's pytest fixture: a test of a wrong kernel fails, one
# of a right kernel passes.
set -euo pipefail

skip() {
    echo "skipped: $1"
    exit 77
}

fail() {
    echo "$1" >&2
    exit 1
}

source=$QUERN_SOURCE_DIR python=${TRITON_PYTHON:-$PYTHON}
[ -e "$QUERN_BUILD_DIR/quern-sim-links/libamdhip64.so" ] || skip "this build has no simulated GPU"
grep -q '^QUERN_SANITIZE:STRING=.\+' "$QUERN_BUILD_DIR/CMakeCache.txt" && skip "a plain program cannot load a sanitizer's build"
command -v clang++-22 > /dev/null || skip "no clang++-22"
HOME=$(mktemp -d)
trap 'rm -rf "$HOME"' EXIT
export HOME

# ---- the fixture, with what the build has

export QUERN=$QUERN_BUILD_DIR/quern CLANG=clang-22
cp "$source"/examples/pytest_quernsim/* "$HOME" 2> /dev/null || true # without __pycache__
run_pytest() {
    (cd "$HOME" && "$PYTHON" -m pytest -q -p no:cacheprovider "$@" > "$HOME/log" 2>&1)
}
run_pytest || fail "$(cat "$HOME/log")"
grep -q '^2 passed, 1 skipped' "$HOME/log" || fail "$(cat "$HOME/log")"
if SHOW=1 run_pytest; then
    fail "a test whose kernel has faults passed: $(cat "$HOME/log")"
fi
grep -q '^ERROR test_reverse.py::test_that_fails' "$HOME/log" || fail "$(cat "$HOME/log")"
grep -q 'kernel reverse: race on LDS: ' "$HOME/log" || fail "$(cat "$HOME/log")"
grep -q "  $HOME/reverse.c:[0-9]*: ds_read_b32" "$HOME/log" || fail "$(cat "$HOME/log")"

# ---- the commands

"$python" -c 'import importlib.util as u, sys; sys.exit(not u.find_spec("triton"))' || skip "$python has no triton"
mapfile -t commands < <(sed -n '/^## The first report/,/^## /{s/^    \$ //p}' "$source/docs/simulator.md")
[ ${#commands[@]} -ge 3 ] && [ ${#commands[@]} -lt 6 ] || fail "other than three to five commands: ${commands[*]}"
cd "$HOME"
cp -r "$source/examples" "$source/tools" .
PATH=$(dirname "$(command -v "$python")"):$PATH # its python3
make() { # everything is built, so only the rest of `make install` runs
    [ "$1" = install ] || fail "make $1?"
    cmake --install "$QUERN_BUILD_DIR" --prefix "${2#PREFIX=}" > "$HOME/log"
}
pip() { # $python has it
    [ "$*" = "install triton" ] || fail "pip $*?"
}

start=$EPOCHREALTIME status=0
for command in "${commands[@]}"; do
    [ $status = 0 ] || fail "$(cat "$HOME/text")"
    eval "$command" 2> "$HOME/text" || status=$?
done
took=$(((${EPOCHREALTIME/./} - ${start/./}) / 1000))
[ $status = 1 ] || fail "exit status $status: $(cat "$HOME/text")"
grep -q 'kernel _Z6rotatePi: race on LDS' "$HOME/text" || fail "$(cat "$HOME/text")"
grep -q "(.*examples/race.hip:9)" "$HOME/text" || fail "no source line: $(cat "$HOME/text")"
[ $took -lt 60000 ] || fail "it took $took ms"
echo "${#commands[@]} commands, $took ms, of which pip's download would be more"
