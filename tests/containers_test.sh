#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Container files: what they take from the tree is there; `docker run` in docs/containers.md has every option that quern doctor asks for. Where
# Buildah is, and QUERN_BASE_IMAGE names an image that it has, the CPU's image is built of this build's wheel, and checks itself.
set -euo pipefail
build=${QUERN_BUILD_DIR:?} source=${QUERN_SOURCE_DIR:?}
cd "$source"

fail() {
  echo "containers: $1"
  exit 1
}

"$PYTHON" - << 'PYTHON'
import json, pathlib, re
folder = pathlib.Path(".devcontainer")
settings = json.loads((folder / "devcontainer.json").read_text())
assert (folder / settings["build"]["dockerfile"]).is_file()
assert pathlib.Path(settings["postCreateCommand"].split()[0]).is_file()
for file in [*pathlib.Path("containers").glob("*.Containerfile"), folder / "Containerfile"]:
    text = file.read_text()
    words = {line.split()[0] for line in re.sub(r"\\\n", " ", re.sub(r"^\s*#.*\n", "", text, flags=re.M)).splitlines() if line}
    assert words <= {"ARG", "FROM", "RUN", "ENV", "USER", "WORKDIR", "CMD", "SHELL"}, (file, words)
    for line in re.findall(r"^#   docker build (.*)$", text, re.M):
        assert f"-f {file} " in line, line
page = pathlib.Path("docs/containers.md").read_text()
asked = set(re.findall(r"(--(?:device|group-add|shm-size|ulimit))", "".join(p.read_text() for p in pathlib.Path("cli/doctor").glob("*.c"))))
command = re.search(r"docker run -it.*?quern-rocm", page, re.S)[0]
assert len(asked) == 4 and all(option in command for option in asked), asked
PYTHON

if ! command -v buildah > /dev/null || [ -z "${QUERN_BASE_IMAGE:-}" ]; then
  echo "containers: 1 passed, 0 failed; no image built: that needs buildah, and QUERN_BASE_IMAGE"
  exit 0
fi
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
mkdir -p "$tmp/tree/build" "$tmp/wheels"
tar --exclude=./build --exclude=./.git --exclude=./.venv -c . | tar -C "$tmp/tree" -x
ln -s "$build" "$tmp/tree/build/release"
"$PYTHON" -m pip wheel -q --no-index --no-build-isolation --no-deps -Ccmake.define.QUERN_BUILT="$tmp/tree/build/release" -w "$tmp/wheels" "$tmp/tree"
buildah bud --pull-never --isolation chroot --build-arg BASE="$QUERN_BASE_IMAGE" -f containers/cpu.Containerfile -t quern-cpu-test "$tmp/wheels" \
  > "$tmp/log" 2>&1 || { tail -n 20 "$tmp/log"; fail "no image"; }
container=$(buildah from --pull-never quern-cpu-test)
trap 'buildah rm "$container" > /dev/null; buildah rmi quern-cpu-test > /dev/null; rm -rf "$tmp"' EXIT
run() { buildah run --isolation chroot "$container" -- "$@"; }
run quern check --quick --device cpu norm > "$tmp/log" || { tail -n 20 "$tmp/log"; fail "quern check fails there"; }
[ "$(run id -u)" = 1000 ] || fail "does not run as its own user"
run quern check --quick --device sim:gfx942 norm > "$tmp/log" || { tail -n 20 "$tmp/log"; fail "the simulated GPU fails there"; }
run python -c 'import quern; print(quern.devices())' | grep cpu > /dev/null || fail "Python does not import quern there"
echo "containers: 2 passed, 0 failed"
