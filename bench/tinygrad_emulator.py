#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The simulated GPU beside tinygrad's emulator in Python: the same code object, the same problem, one process.

    python bench/tinygrad_emulator.py --tinygrad CHECKOUT [--build build/release] [--n 128] [--json FILE]

CHECKOUT is a clone of github.com/tinygrad/tinygrad; docs/performance.md names the commit that was measured. The kernel,
bench/matmul_gpu.c, is compiled by clang for gfx950 and for gfx1201. Both sides run it once unmeasured, which decodes
(tinygrad: compiles) its instructions; then they take turns, and the medians count, of the wall clock and on one thread.
All bits of the results must be equal.
"""

import argparse
import array
import ctypes
import json
import os
import pathlib
import random
import statistics
import struct
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
CHIPS = {"gfx950": "cdna", "gfx1201": "rdna4"}  # and what tinygrad calls them
THREADS, TILE = 256, 16
ROUNDS = {"quern": 20, "tinygrad": 3}


def compile_kernel(chip, folder):
    path = pathlib.Path(folder) / f"matmul.{chip}.co"
    subprocess.run([os.environ.get("CC", "clang-22"), "-std=gnu23", "-O2", "--target=amdgcn-amd-amdhsa", f"-mcpu={chip}", "-nogpulib",
                    "-ffreestanding", "-mllvm", "-amdgpu-kernarg-preload-count=0", "-o", path,
                    HERE / "matmul_gpu.c"], check=True)
    return path.read_bytes()


# ---- the simulated GPU, through HIP


class Quern:
    def __init__(self, library):
        os.environ["QUERN_SIM"] = "arch=" + ",".join(CHIPS) + ";threads=1"
        self.hip = ctypes.CDLL(str(library))
        self.call("hipInit", 0)

    def call(self, name, *args):
        status = getattr(self.hip, name)(*args)
        if status != 0:
            raise SystemExit(f"{name}: error {status}")

    def load(self, chip, image, a, b, n):
        self.call("hipSetDevice", list(CHIPS).index(chip))
        self.module, self.kernel = ctypes.c_void_p(), ctypes.c_void_p()
        self.call("hipModuleLoadData", ctypes.byref(self.module), image)
        self.call("hipModuleGetFunction", ctypes.byref(self.kernel), self.module, b"matmul")
        self.n = n
        self.memory = []
        for data in (bytes(4 * n * n), a, b):
            at = ctypes.c_void_p()
            self.call("hipMalloc", ctypes.byref(at), ctypes.c_size_t(len(data)))
            self.call("hipMemcpy", at, data, ctypes.c_size_t(len(data)), 1)
            self.memory.append(at)

    def run(self):
        args = [*self.memory, ctypes.c_uint32(self.n)]
        pointers = (ctypes.c_void_p * 4)(*[ctypes.addressof(arg) for arg in args])
        groups = self.n // TILE
        start = time.perf_counter()
        self.call("hipModuleLaunchKernel", self.kernel, groups, groups, 1, THREADS, 1, 1, 0, None, pointers, None)
        self.call("hipDeviceSynchronize")
        return time.perf_counter() - start

    def result(self):
        out = ctypes.create_string_buffer(4 * self.n * self.n)
        self.call("hipMemcpy", out, self.memory[0], ctypes.c_size_t(len(out)), 2)
        return out.raw


# ---- tinygrad's emulator


def find_descriptor(image):
    """Returns the offset of matmul.kd in the image as loaded, and the image."""
    sections_at, = struct.unpack_from("<Q", image, 40)
    segments_at, = struct.unpack_from("<Q", image, 32)
    segment_count, = struct.unpack_from("<H", image, 56)
    section_count, = struct.unpack_from("<H", image, 60)
    segments = [struct.unpack_from("<IIQQQQQQ", image, segments_at + 56 * i) for i in range(segment_count)]
    loaded = bytearray(max(s[3] + s[6] for s in segments if s[0] == 1))
    for kind, _, offset, address, _, in_file, _, _ in segments:
        if kind == 1:  # PT_LOAD
            loaded[address:address + in_file] = image[offset:offset + in_file]
    sections = [struct.unpack_from("<IIQQQQIIQQ", image, sections_at + 64 * i) for i in range(section_count)]
    for section in sections:
        if section[1] != 11:  # SHT_DYNSYM
            continue
        names = sections[section[6]][4]
        for at in range(section[4], section[4] + section[5], 24):
            name, _, _, _, value, _ = struct.unpack_from("<IBBHQQ", image, at)
            if image[names + name:].startswith(b"matmul.kd\0"):
                return value, loaded
    raise SystemExit("matmul.kd is not in the object")


class Tinygrad:
    def __init__(self, checkout):
        sys.path.insert(0, str(checkout))
        from test.mockgpu.amd import emu  # of the checkout
        self.emulator = emu

    def load(self, chip, image, a, b, n):
        at, loaded = find_descriptor(image)
        self.arch, self.n = CHIPS[chip], n
        lds, scratch = struct.unpack_from("<II", loaded, at)
        entry, = struct.unpack_from("<q", loaded, at + 16)
        rsrc2, = struct.unpack_from("<I", loaded, at + 52)
        properties, preload = struct.unpack_from("<HH", loaded, at + 56)
        if properties & 0x7f != 8 or preload:
            raise SystemExit(f"the kernel wants more than its arguments' address: {properties:#x}, {preload:#x}")
        self.code = ctypes.create_string_buffer(bytes(loaded), len(loaded) + 256)
        self.entry = ctypes.addressof(self.code) + at + entry
        self.size, self.scratch = len(loaded), scratch
        self.rsrc2 = rsrc2 | (lds + 511) // 512 << 15  # LDS is the loader's to fill in
        self.memory = [ctypes.create_string_buffer(data, len(data)) for data in (bytes(4 * n * n), a, b)]
        self.args = ctypes.create_string_buffer(
            struct.pack("<QQQI", *[ctypes.addressof(m) for m in self.memory], n), 64)

    def run(self):
        groups = self.n // TILE
        start = time.perf_counter()
        self.emulator.run_asm(self.entry, self.size, groups, groups, 1, THREADS, 1, 1, ctypes.addressof(self.args),
                              self.rsrc2, self.scratch, self.arch)
        return time.perf_counter() - start

    def result(self):
        return self.memory[0].raw


# ---- the comparison


def compare(chip, sides, image, n):
    numbers = random.Random(1)
    a, b = (array.array("f", [numbers.uniform(-1, 1) for _ in range(n * n)]).tobytes() for _ in range(2))
    first, times = {}, {name: [] for name in sides}
    for name, side in sides.items():
        side.load(chip, image, a, b, n)
        first[name] = side.run()
    for i in range(max(ROUNDS.values())):
        for name, side in sides.items():
            if i < ROUNDS[name]:
                times[name].append(side.run())
    results = {name: side.result() for name, side in sides.items()}
    if results["quern"] != results["tinygrad"]:
        raise SystemExit(f"{chip}: the results differ")
    median = {name: statistics.median(t) for name, t in times.items()}
    return {"quern_ms": 1e3 * median["quern"], "tinygrad_ms": 1e3 * median["tinygrad"],
            "ratio": median["tinygrad"] / median["quern"], "quern_first_ms": 1e3 * first["quern"],
            "tinygrad_first_ms": 1e3 * first["tinygrad"]}


def commit_of(checkout):
    done = subprocess.run(["git", "-C", checkout, "rev-parse", "HEAD"], capture_output=True, text=True)
    return done.stdout.strip() or "unknown"


def main():
    parser = argparse.ArgumentParser(description="the simulated GPU beside tinygrad's emulator")
    parser.add_argument("--tinygrad", required=True, type=pathlib.Path, help="a checkout of tinygrad")
    parser.add_argument("--commit", help="the checkout's commit, if git cannot say it")
    parser.add_argument("--build", default=HERE.parent / "build" / "release", type=pathlib.Path,
                        help="the folder with libquernsim.so")
    parser.add_argument("--n", default=128, type=int, help="rows of the matrices, a multiple of 16 (default: 128)")
    parser.add_argument("--json", type=pathlib.Path, help="where to write the figures")
    options = parser.parse_args()
    if options.n < TILE or options.n % TILE:
        parser.error(f"--n {options.n}: a multiple of {TILE}")
    sides = {"quern": Quern(options.build / "libquernsim.so"), "tinygrad": Tinygrad(options.tinygrad)}
    report = {"commit": options.commit or commit_of(options.tinygrad), "n": options.n}
    with tempfile.TemporaryDirectory() as folder:
        for chip in CHIPS:
            r = report[chip] = compare(chip, sides, compile_kernel(chip, folder), options.n)
            print(f"{chip}: quern {r['quern_ms']:.2f} ms, tinygrad {r['tinygrad_ms']:.0f} ms, ratio {r['ratio']:.0f}; "
                  f"first runs {r['quern_first_ms']:.1f} and {r['tinygrad_first_ms']:.0f} ms; the same bits")
    if options.json:
        options.json.write_text(json.dumps(report, indent=2) + "\n")


if __name__ == "__main__":
    main()
