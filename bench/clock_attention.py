#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""quern's attention beside AITER's code objects for an MI300X and an MI355X, both on the simulator's clock (docs/clock.md).

    git clone --filter=blob:none --no-checkout https://github.com/ROCm/aiter CLONE
    python bench/clock_attention.py --aiter CLONE                      every case
    python bench/clock_attention.py --aiter CLONE --only flux --json result.json
    python bench/clock_attention.py --aiter CLONE --prepare FOLDER     writes AITER's code objects there: FOLDER is then as good
    python bench/clock_attention.py --aiter FOLDER --jobs 60           as CLONE, on a machine of more cores

Times are modelled, with the board's power limit and without it; nothing is measured. Each side of a case runs once in a
process of its own, in bf16, on the same modelled chip; with "fp8" in a case's name keys and values are of the chip's e4m3, and
beside quern's kernel stands the one that takes every kind of FP8, attention.gpu_tile_*. AITER's forward kernels of an MI300X round weights to nearest even
(rtne), to nearest with ties away from zero (rtna) or cut them (rtz); quern's round as rtna does, since weights are not
negative. On an MI355X both round to nearest even, by an instruction. AITER has no code object for heads of 64: what is
published is of a kernel that it compiles. Published times are of the very code objects, on silicon; TFLOP/s count no work
that a causal mask leaves out. tools/report.py makes the table of docs/performance_modelled.md from the JSON.
"""

import argparse
import concurrent.futures
import ctypes
import json
import math
import os
import pathlib
import subprocess
import sys
import tempfile
from types import SimpleNamespace

import peer_attention
import peer_common

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "sim/clock/calibration"))
import hip  # noqa: E402
import kernels  # noqa: E402
import objects  # noqa: E402

ROUNDINGS = "rtne", "rtna", "rtz"
FP8 = {"gfx942": "float8_e4m3fnuz", "gfx950": "float8_e4m3fn"}
# name: chip, batch, heads, tokens, head_dim, v's head_dim, causal, published TFLOP/s by side
CASES = {name: SimpleNamespace(name=name, chip=chip, batch=batch, heads=heads, tokens=tokens, qk=qk, vo=vo, causal=causal,
                               cache=FP8[chip] if "fp8" in name else "bfloat16", published=published)
         for name, chip, batch, heads, tokens, qk, vo, causal, published in (
    ("flux", "gfx942", 1, 24, 4608, 128, 128, False, {}),
    ("16384", "gfx942", 2, 24, 16384, 128, 128, False, {"rtne": 449, "rtna": 478, "rtz": 522}),
    ("131072", "gfx942", 1, 16, 131072, 128, 128, False, {"rtne": 523, "rtna": 545, "rtz": 587}),
    ("causal-4096", "gfx942", 16, 16, 4096, 128, 128, True, {"rtna": 409}),
    ("causal", "gfx942", 16, 16, 16384, 128, 128, True, {"rtna": 494}),
    ("causal-64", "gfx942", 16, 16, 16384, 64, 64, True, {"compiled": 355}),
    ("full-64", "gfx942", 2, 24, 16384, 64, 64, False, {}),
    ("mla", "gfx942", 1, 24, 4096, 192, 128, False, {}),
    ("full-256", "gfx942", 1, 24, 4096, 256, 256, False, {}),
    ("fp8", "gfx942", 1, 24, 4096, 128, 128, False, {}),
    ("fp8-64", "gfx942", 1, 24, 4096, 64, 64, False, {}),
    ("mi355x", "gfx950", 1, 16, 20480, 128, 128, False, {}),
    ("mi355x-fp8", "gfx950", 1, 24, 4096, 128, 128, False, {}),
)}


def operations_of(case):
    return 2 * case.batch * case.heads * case.tokens**2 * (case.qk + case.vo) / (2 if case.causal else 1)


# ---- one side, in a process of its own

def aiter_object(clone, case, rounding):
    """Returns the code object and the name of its kernel."""
    name = f"fwd_hd128_bf16{'_causal' if case.causal else ''}"
    if case.chip == "gfx942":
        return objects.load(clone, "gfx942", "fmha", f"{name}_{rounding}")
    image = objects.show(clone, case.chip, f"fmha_v3_fwd/{name}.co")
    return image, objects.table(clone, case.chip, "fmha")[name]["knl_name"]


def run_aiter(options, case, rounding):
    api = hip.Hip(str(pathlib.Path(options.library).with_name("libquernsim.so.0")))
    kernel = api.kernel(*aiter_object(options.aiter, case, rounding))
    row = SimpleNamespace(family="fmha", shape=(case.batch, case.heads, case.tokens), is_causal=case.causal)
    api.launch(kernel, kernels.grid_of(row), kernels.threads_of(row), kernels.block_of(row, api.buffer))


class Library:
    """libquern with a stream on a simulated chip."""

    def __init__(self, path, chip):
        self.lib = ctypes.CDLL(path)
        self.lib.qn_last_error.restype = self.lib.qn_last_kernel.restype = ctypes.c_char_p
        self.lib.qn_device_id.restype = peer_common.DLDevice
        self.device, self.stream = ctypes.c_void_p(), ctypes.c_void_p()
        self.call("qn_device_open", ctypes.byref(self.device), f"sim:{chip}".encode())
        self.call("qn_stream_create", ctypes.byref(self.stream), self.device)

    def call(self, name, *arguments):
        if getattr(self.lib, name)(*arguments):
            raise SystemExit(f"{name}: {self.lib.qn_last_error().decode()}")

    def tensor(self, shape, byte, dtype="bfloat16"):
        """Returns a new tensor, every byte of which is `byte`."""
        code, bits = peer_common.CODES[dtype]
        size = math.prod(shape) * bits // 8
        data, dims = ctypes.c_void_p(), (ctypes.c_int64 * len(shape))(*shape)
        self.call("qn_malloc", self.device, ctypes.byref(data), ctypes.c_int64(size))
        on = self.lib.qn_device_id(self.device)
        out = peer_common.DLTensor(data.value, on.type, on.id, len(shape), code, bits, 1, dims, None, 0)
        host = ctypes.create_string_buffer(bytes([byte]) * size, size)
        of_host = peer_common.DLTensor(ctypes.addressof(host), peer_common.CPU, 0, len(shape), code, bits, 1, dims, None, 0)
        self.call("qn_copy", self.stream, ctypes.byref(out), ctypes.byref(of_host))
        out.keep = dims
        return out


def run_quern(options, case):
    quern = Library(options.library, case.chip)
    shape = case.batch, case.tokens, case.heads
    tensors = {"o": quern.tensor((*shape, case.vo), kernels.ZERO)}
    for name, dim, dtype in (("q", case.qk, "bfloat16"), ("k", case.qk, case.cache), ("v", case.vo, case.cache)):
        tensors[name] = quern.tensor((*shape, dim), kernels.SMALL, dtype)
    args = peer_attention.AttentionArgs(struct_size=ctypes.sizeof(peer_attention.AttentionArgs), layout=peer_attention.NHD,
                                        is_causal=case.causal, **{name: ctypes.pointer(t) for name, t in tensors.items()})
    quern.call("qn_attention", quern.stream, ctypes.byref(args))
    quern.call("qn_stream_sync", quern.stream)
    print(quern.lib.qn_last_kernel().decode())


# ---- all sides

def model(options, case, side):
    """Returns what the clock says of a side of a case."""
    with tempfile.TemporaryDirectory() as folder:
        profile = pathlib.Path(folder) / "profile.json"
        env = dict(os.environ, QUERN_SIM=f"arch={case.chip};clock=sample;profile={profile}")
        if side == "tile":
            env["QUERN_FORCE"] = f"attention=attention.gpu_tile_{case.qk}_bf16_fp8"
        done = subprocess.run([sys.executable, __file__, "--library", options.library, "--aiter", options.aiter, "--one",
                               case.name, side], env=env, capture_output=True, text=True)
        if done.returncode:
            raise SystemExit(f"{case.name}, {side}: {done.stderr.strip()}")
        (kernel,) = json.loads(profile.read_text())["kernels"]
    clock = kernel["clock"]
    return {**{k: v for k, v in vars(case).items() if k != "published"}, "side": side,
            "kernel": done.stdout.strip() or kernel["name"], "us": clock["ns"] / 1e3,
            "us_without_limit": clock["unlimited_ns"] / 1e3, "mhz": clock["mhz"],
            "tflops": round(operations_of(case) / clock["ns"] / 1e3, 1),
            "published_tflops": case.published.get(side), "part_run": clock["part_run"], "spread": clock["spread"]}


def sides_of(case):
    if case.cache != "bfloat16":
        return "quern", "tile"
    if not case.qk == case.vo == 128:
        return ("quern",)
    return ("quern", *ROUNDINGS) if case.chip == "gfx942" else ("quern", "rtne")


def command_of(name, options):
    """Returns the command that writes what this one writes; AITER's code objects are the same out of a clone and a folder."""
    only = "".join(f" --only {case}" for case in options.only or ())
    aiter = " --aiter CLONE" if options.aiter else ""
    return f"python bench/{name}.py{aiter}{only} --json bench/results/{options.json.name}"


def add_options(parser, cases=None):
    """Adds the options of both benchmarks beside AITER's code objects."""
    parser.add_argument("--aiter", help="a clone of github.com/ROCm/aiter, or a folder that --prepare filled")
    parser.add_argument("--library", default=str(ROOT / "build/release/libquern.so"))
    parser.add_argument("--only", choices=cases, action="append", help="this case; again for others")
    parser.add_argument("--jobs", type=int, default=1, help="processes (default: %(default)s)")
    parser.add_argument("--prepare", metavar="FOLDER", help="write AITER's code objects there and stop")
    parser.add_argument("--json", type=pathlib.Path, help="write the figures to this file")
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)


def check_options(parser, options):
    if options.jobs < 1:
        parser.error(f"--jobs: found {options.jobs}, accepted: 1 and more")
    if options.prepare and not options.aiter:
        parser.error("--prepare: found no --aiter, of which it writes code objects")
    if options.prepare and options.json:
        parser.error("--prepare: found --json beside it, for which there are no figures")


def modelled(options, tasks, work, size):
    """Yields what work(task) returns for each task, in order; with several processes the largest tasks begin first."""
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        begun = {task: pool.submit(work, task) for task in sorted(tasks, key=size, reverse=True)}
        try:
            yield from (begun[task].result() for task in tasks)
        finally:
            pool.shutdown(cancel_futures=True)


def prepare(options):
    with objects.exporting(options.prepare):
        for name in options.only or CASES:
            for side in set(sides_of(CASES[name])) & set(ROUNDINGS):
                aiter_object(options.aiter, CASES[name], side)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_options(parser, CASES)
    options = parser.parse_args()
    check_options(parser, options)
    if not options.aiter:
        parser.error("--aiter: found none, accepted: a clone of github.com/ROCm/aiter")
    if options.one:
        name, side = options.one
        return run_aiter(options, CASES[name], side) if side in ROUNDINGS else run_quern(options, CASES[name])
    if options.prepare:
        return prepare(options)
    report = {"benchmark": "clock_attention", "times": "modelled", "aiter": objects.COMMIT, "results": []}
    if options.json:
        report["command"] = command_of("clock_attention", options)
    print(f"{'case':12} {'side':6} {'us':>10} {'no limit':>10} {'TFLOP/s':>8} {'published':>9}")
    tasks = [(name, side) for name in options.only or CASES for side in sides_of(CASES[name])]
    for r in modelled(options, tasks, lambda task: model(options, CASES[task[0]], task[1]),
                      lambda task: operations_of(CASES[task[0]])):
        report["results"].append(r)
        print(f"{r['name']:12} {r['side']:6} {r['us']:10.1f} {r['us_without_limit']:10.1f} {r['tflops']:8.1f} "
              f"{r['published_tflops'] or '':>9}", flush=True)
        if options.json:
            options.json.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
