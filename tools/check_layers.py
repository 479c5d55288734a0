#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that the arrows between the rooms go one way (docs/design.md).

    check_layers.py                      reads every #include of every C file that git tracks
    check_layers.py --objects BUILD NM   reads what symbols the objects of a build take from each other

Both are compared with the table below. The first also refuses words for targets of device code outside gpu/. Headers of
the system and of third parties are free. A header of the tree belongs to the room that it lies in, a symbol to the room
whose source defines it.
"""

import argparse
import pathlib
import re
import subprocess
import sys

# room -> rooms whose headers it may include
ALLOWED = {
    "include": {"include"},
    "gpu": {"gpu"},
    "runtime": {"runtime", "include"},
    "ops": {"ops", "ops_abi", "runtime", "include"},
    "ops_abi": {"ops_abi"},  # what host and device share
    "ops_gpu": {"gpu", "ops_gpu", "ops_abi"},
    "check": {"check", "ops", "runtime", "include"},
    "probe": {"probe", "ops_abi", "runtime", "include"},
    "compat": {"compat", "runtime", "include"},
    "cli": {"cli", "include"},
    "python": {"python", "include"},
    "bench": {"bench", "include"},
    "examples": {"examples", "include"},
    "tests": {"tests", "include"},
    "sim": {"sim"},
    "release": set(),  # nothing of the tree: a library's missing symbols
}
# Fuzzers and tests reach inside the room that they test.
TEST_EXTRA = {"tests": {"sim", "cli", "runtime", "check", "ops"}, "bench": {"sim"}}
# Between these a public function counts as its own room's.
INNER = {"runtime", "ops", "check", "probe"}
# Only these files may know a driver's types.
DRIVER_WORDS = {("runtime/device/hip.c", "runtime/device/hip_api.h"): r"\bhip[A-Z]\w*_t\b"}

# What differs between targets of device code has names in gpu/, and is spelled nowhere else.
TARGET_WORDS = re.compile(r"\b__(?:gfx\w+|GFX\w+|amdgcn\w*|AMDGCN\w*|AMDGPU\w*|NVPTX|CUDA_ARCH)__\b|\b__builtin_amdgcn_\w+|\b__nvvm_\w+")
TARGET_BLIND = {"ops", "ops_abi", "ops_gpu", "check", "probe", "runtime", "compat", "cli", "python"}
# In the simulator sim/isa/ alone looks at a mnemonic's text: others read the record sim_inst.traits, and may print the name.
MNEMONIC = re.compile(r"(?:->|\.)mnemonic\b|\b(?:str\w+|sscanf|mem\w+)\s*\([^;]*mnemonic\w*\s*\(|=\s*sim_mnemonic"
                      r"|mnemonic\w*\([^;]*\)\s*\[|\*\s*sim_mnemonic")


def may_read_mnemonics(path):
    is_test = re.search(r"_(?:test|testing|fixture)\.[ch]$", path)
    return not path.startswith("sim/") or path.startswith("sim/isa/") or bool(is_test)


def room_of(path):
    if path.startswith(("ops/", "probe/")) and re.search(r"_gpu\.[ch]$", path):
        return "ops_gpu"
    if path.startswith(("ops/", "probe/")) and path.endswith(("_abi.h", "_abi.def")):
        return "ops_abi"
    if path.startswith("ops/") and re.search(r"_(check|case|grid)\.[ch]$", path):
        return "check"  # a family's part of it
    return path.split("/")[0]


def resolve(path, name, files):
    """Returns the tracked file that #include "name" in path means, or None if it is not ours."""
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


def include_errors():
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
            allowed = allowed | {"gpu", "check"}  # what kernels compute in registers runs on the host as well
        if path.endswith("_test.c"):
            allowed = allowed | {"tests"}  # what tests of several rooms share
        text = pathlib.Path(path).read_text()
        for name in re.findall(r'^\s*#\s*include\s*["<]([^">]+)[">]', text, re.M):
            target = resolve(path, name, files)
            if target and room_of(target) not in allowed:
                errors.append(f"{path}: includes {target}: {room} may include {', '.join(sorted(allowed))}")
        if not may_read_mnemonics(path) and (found := MNEMONIC.search(text)):
            line = text.count("\n", 0, found.start()) + 1
            errors.append(f"{path}:{line}: a mnemonic's text outside sim/isa: sim_inst.traits says what an instruction is")
        if room in ("runtime", "ops", "compat", "cli"):
            for owners, word in DRIVER_WORDS.items():
                if path not in owners and (found := re.search(word, text)):
                    errors.append(f"{path}: {found.group(0)}: a driver's type outside its backend")
        if room in TARGET_BLIND and not path.endswith("_test.c"):  # which may hold a kernel's text
            errors += [f"{path}:{number}: {found.group(0)}: what a target is and has is said in gpu/ alone"
                       for number, line in enumerate(text.splitlines(), 1) if (found := TARGET_WORDS.search(line))]
    return errors


def room_of_object(path):
    """Returns the room of an object by its source, with which CMake's path of the object ends, or None if it is in no
    room."""
    source = re.sub(r"^.*?\.dir/", "", path).removesuffix(".o")
    if source == "images/images.c":
        return "runtime"  # the build's own, for runtime/image/
    if source.endswith("_test.c") or not pathlib.Path(source).exists():  # of a source that was moved
        return None
    return room_of(source)


def read_symbols(build, nm):
    """Returns, of each object of a room, its path, its room, the symbols that it defines and those that it takes."""
    rooms = {str(path): room_of_object(str(path.relative_to(build))) for path in sorted(pathlib.Path(build).rglob("*.o"))}
    objects = {path: (path, room, set(), set()) for path, room in rooms.items() if room in ALLOWED}
    if not any(room == "runtime" for _, room, _, _ in objects.values()):
        sys.exit(f"{build}: no objects of the runtime: no build of this tree, or not built yet")
    listed = subprocess.run([nm, "-A", "-P", "-g", *objects], capture_output=True, text=True, check=True).stdout
    for line in listed.splitlines():
        path, name, kind = re.match(r"(.*\.o): (\S+) (\S)", line).groups()
        objects[path][3 if kind in "Uw" else 2].add(name)
    return list(objects.values())


def may_take(room, owner, name):
    """Returns whether objects of a room may take a symbol that another room's source defines."""
    if name.startswith("qn_") and room not in INNER:
        owner = "include"
    return owner in ALLOWED[room] | TEST_EXTRA.get(room, set())


def symbol_errors(build, nm):
    objects = read_symbols(build, nm)
    owners = {}  # symbol -> rooms that define it: several programs have a main
    for _, room, defined, _ in objects:
        for name in defined:
            owners.setdefault(name, set()).add(room)
    return [f"{path}: takes {name} of {' and '.join(sorted(owners[name]))}: {room} may take from {', '.join(sorted(ALLOWED[room]))}"
            for path, room, _, taken in objects for name in sorted(taken & owners.keys())
            if not any(may_take(room, owner, name) for owner in owners[name])]


def main():
    parser = argparse.ArgumentParser(description="Checks that the arrows between the rooms go one way.")
    parser.add_argument("--objects", nargs=2, metavar=("BUILD", "NM"), help="the symbols of this build's objects, read by NM")
    given = parser.parse_args()
    errors = symbol_errors(*given.objects) if given.objects else include_errors()
    print("\n".join(errors))
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
