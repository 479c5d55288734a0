#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that the arrows between the rooms go one way (docs/design.md).

Reads every #include of every C file that git tracks and compares it with the table below. Headers of the
system and of third parties are free; headers of the tree are named by the room that they lie in.
"""

import pathlib
import re
import subprocess
import sys

# room -> rooms whose headers it may include
ALLOWED = {
    "include": {"include"},
    "gpu": {"gpu"},
    "runtime": {"runtime", "include"},
    "ops": {"ops", "ops_gpu", "runtime", "include"},
    "ops_gpu": {"gpu", "ops_gpu"},
    "compat": {"compat", "runtime", "include"},
    "cli": {"cli", "include"},
    "python": {"python", "include"},
    "bench": {"bench", "include"},
    "examples": {"include"},
    "tests": {"tests", "include"},
    "sim": {"sim"},
}
# Fuzzers and tests reach inside the room that they test.
TEST_EXTRA = {"tests": {"sim", "cli", "runtime", "ops"}, "bench": {"sim"}}
# Only these files may know a driver's types.
DRIVER_WORDS = {("runtime/device/hip.c", "runtime/device/hip_api.h"): r"\bhip[A-Z]\w*_t\b"}


def room_of(path):
    if path.startswith("ops/") and re.search(r"_gpu\.[ch]$", path):
        return "ops_gpu"
    return path.split("/")[0]


def resolve(path, name, files):
    """The tracked file that #include "name" in path means, or None if it is not ours."""
    here = pathlib.PurePosixPath(path).parent
    for base in (here, pathlib.PurePosixPath("include"), pathlib.PurePosixPath("gpu"),
                 pathlib.PurePosixPath("runtime"), pathlib.PurePosixPath(".")):
        parts = []
        for part in (base / name).parts:
            if part == "..":
                parts = parts[:-1]
            elif part != ".":
                parts.append(part)
        if "/".join(parts) in files:
            return "/".join(parts)
    return None


def main():
    listed = subprocess.run(["git", "ls-files"], capture_output=True, text=True, check=True).stdout.split()
    files = set(listed)
    errors = []
    for path in listed:
        if not path.endswith((".c", ".h")):
            continue
        room = room_of(path)
        allowed = ALLOWED.get(room)
        if allowed is None:
            errors.append(f"{path}: no such room: {room}")
            continue
        allowed = allowed | TEST_EXTRA.get(room, set())
        if room == "ops" and path.endswith("_test.c"):
            allowed = allowed | {"gpu"}  # what kernels compute in registers runs on the host as well
        if path.endswith("_test.c"):
            allowed = allowed | {"tests"}  # what tests of several rooms share
        text = pathlib.Path(path).read_text()
        for name in re.findall(r'^\s*#\s*include\s*["<]([^">]+)[">]', text, re.M):
            target = resolve(path, name, files)
            if target and room_of(target) not in allowed:
                errors.append(f"{path}: includes {target}: {room} may include {', '.join(sorted(allowed))}")
        if room in ("runtime", "ops", "compat", "cli"):
            for owners, word in DRIVER_WORDS.items():
                if path not in owners and (found := re.search(word, text)):
                    errors.append(f"{path}: {found.group(0)}: a driver's type outside its backend")
    print("\n".join(errors))
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
