# SPDX-License-Identifier: Apache-2.0
"""How tests compile and run the programs of examples/, and spoil the checkpoints that these read."""

import os
import pathlib
import re
import subprocess

BUILD, SOURCE = (pathlib.Path(os.environ[name]) for name in ("QUERN_BUILD_DIR", "QUERN_SOURCE_DIR"))


def compiled(name, folder):
    """Compiles examples/NAME.c into a folder, by the compiler of the build."""
    cache = (BUILD / "CMakeCache.txt").read_text()
    compiler = re.search("^CMAKE_C_COMPILER:[A-Z]*=(.*)", cache, re.M)[1]
    headers = re.search("^QUERN_DLPACK_INCLUDE:[A-Z]*=(.*)", cache, re.M)[1]
    subprocess.run([compiler, "-std=c11", "-O2", "-Wall", "-Wextra", "-Werror", f"-I{SOURCE}/include", f"-I{headers}",
                    SOURCE / f"examples/{name}.c", f"-L{BUILD}", "-lquern", "-ljansson", "-lm", f"-Wl,-rpath,{BUILD}", "-o", folder / name],
                   check=True)
    return folder / name


def run(program, *arguments):
    return subprocess.run([program, *map(str, arguments)], capture_output=True, text=True, timeout=300)


def edit(folder, old, new, name="config.json"):
    path = folder / name
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def cut(folder, size):
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:size])
