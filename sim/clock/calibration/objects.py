# SPDX-License-Identifier: Apache-2.0
"""Code objects of AITER, out of a clone of github.com/ROCm/aiter, bare or not, of which nothing is checked out; or out of a
folder that exporting() filled from one."""

import contextlib
import csv
import functools
import io
import pathlib
import subprocess

COMMIT = "e4048607a535ace3a2b51ded31b1c8c2d45c0879"
# family -> folder under hsa/ARCH/, table that names its kernels, folder of the objects
FOLDERS = {
    "fp8": ("fp8gemm_blockscale", "fp8gemm_bf16_blockscale.csv", "fp8gemm_blockscale"),
    "int8": ("i8gemm", "i8gemm_bf16_perTokenI8.csv", "i8gemm"),
    "bf16": ("bf16gemm", "bf16gemm_fp32bf16.csv", "bf16gemm"),
    "fmha": ("fmha_v3_fwd", "fmha_fwd.csv", "fmha_v3_fwd/MI300"),
}


exported = None  # exporting()'s folder


def place(folder, arch, path):
    return pathlib.Path(folder) / COMMIT / "hsa" / arch / path


@contextlib.contextmanager
def exporting(folder):
    """Within it, what show() returns is written to a folder, which then takes the clone's place."""
    global exported
    exported = folder
    table.cache_clear()
    yield
    exported = None


def show(clone, arch, path):
    data = read(clone, arch, path)
    if exported:
        to = place(exported, arch, path)
        to.parent.mkdir(parents=True, exist_ok=True)
        to.write_bytes(data)
    return data


def read(clone, arch, path):
    """Returns a file's bytes."""
    if pathlib.Path(clone, COMMIT).is_dir():
        if not place(clone, arch, path).exists():
            raise SystemExit(f"{clone}: has no hsa/{arch}/{path}; --prepare writes what the cases need that it is given")
        return place(clone, arch, path).read_bytes()
    done = subprocess.run(["git", "-C", clone, "show", f"{COMMIT}:hsa/{arch}/{path}"], capture_output=True)
    if done.returncode:
        raise SystemExit(f"{clone}: no hsa/{arch}/{path} at {COMMIT[:10]}: {done.stderr.decode().strip()}")
    return done.stdout


@functools.cache
def table(clone, arch, family):
    folder, name, _ = FOLDERS[family]
    rows = csv.DictReader(io.StringIO(show(clone, arch, f"{folder}/{name}").decode()))
    return {r["co_name"].removesuffix(".co"): r for r in rows}


def load(clone, arch, family, name):
    """Returns the code object and the name of its kernel."""
    if name not in table(clone, arch, family):
        raise SystemExit(f"{name}: not in AITER's table {FOLDERS[family][1]}")
    return show(clone, arch, f"{FOLDERS[family][2]}/{name}.co"), table(clone, arch, family)[name]["knl_name"]
