#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What bounds quern's main kernels on the modelled MI300X: the profile of one launch of each, for docs/profiles.md.

    python bench/sim_profiles.py --library build/release/libquernsim.so.0 --json bench/results/sim_profiles.json
    python bench/sim_profiles.py --library ... --only MLA,norm       some of the kernels, by words of their problems

Times are modelled (docs/clock.md), of a sample of the workgroups and with the board's limit of power. Each launch reads tensors
that no launch read before, after one that warms the instruction caches. Of an op with several launches the longest counts. Needs
the quern package and numpy.
"""

import argparse
import concurrent.futures
import ctypes
import json
import multiprocessing
import os
import pathlib
import sys
import tempfile

TOP = pathlib.Path(__file__).resolve().parent.parent
sys.path[:0] = [str(TOP / "bench"), str(TOP / "sim/clock/calibration")]
import sim_peers  # noqa: E402

DEVICE = "sim:gfx942"
TO_DEVICE = 1  # hipMemcpyHostToDevice
OPTIONS = "arch=gfx942;clock=sample"


def profile(clock, make, file):
    """Returns the kernels of the profile of `make()()`, called the second time. A process can profile one call: the file adds to
    what it has."""
    def configure(text):
        if clock.hip.lib.quernsim_configure(text.encode()):
            raise SystemExit(f"the simulated GPU refuses {text}")

    make()()
    clock.hip.call("hipDeviceSynchronize")
    run = make()
    configure(f"{OPTIONS};profile={file}")
    run()
    clock.hip.call("hipDeviceSynchronize")
    configure(OPTIONS)
    return json.loads(file.read_text(encoding="utf-8"))["kernels"]


# ---- what is launched

class Calls:
    """Makes the calls: each method returns a function that makes tensors and returns a function that launches once."""

    def __init__(self, hip):
        import quern
        self.quern, self.hip = quern, hip

    def new(self, *shape, dtype="bf16"):
        return self.quern.empty(shape, dtype, DEVICE)

    def fp8(self, m, n, k):
        def make():
            a, d, b = self.new(m, k, dtype="e4m3fnuz"), self.new(m, n), self.new(1, n, k, dtype="e4m3fnuz")
            scale_a = sim_peers.Turned(self.new(k // 128, m, dtype="f32"))
            scale_b = self.new(n // 128, k // 128, dtype="f32")
            return lambda: self.quern.gemm(a, b, scale_a=scale_a, scale_b=scale_b, packed=True, out=d)
        return make

    def bf16(self, m, n, k):
        def make():
            a, b, d = self.new(m, k), self.new(n, k), self.new(m, n)
            return lambda: self.quern.gemm(a, b, out=d)
        return make

    def attention(self, heads, keys):
        def make():
            q, k, v, out = (self.new(1, keys, heads, 128) for _ in range(4))
            return lambda: self.quern.attention(q, k, v, out=out)
        return make

    def paged(self, heads, kv_heads, dim, requests, keys, page):
        """Returns the plan of a token for each request, and its pages."""
        plan = self.quern.attention_plan(heads, kv_heads, dim, qo_indptr=list(range(requests + 1)),
                                         kv_indptr=[keys // page * i for i in range(requests + 1)],
                                         kv_last_page_len=[page] * requests, page_size=page)
        count = requests * keys // page
        pages, numbers = self.new(count, dtype="i32"), (ctypes.c_int32 * count)(*range(count))
        self.hip.call("hipMemcpy", ctypes.c_void_p(pages.data_ptr()), numbers, ctypes.c_size_t(4 * count), TO_DEVICE)
        return plan, pages, count

    def decode(self, requests, keys):
        def make():
            plan, pages, count = self.paged(32, 8, 128, requests, keys, 16)
            q, out, k, v = self.new(requests, 32, 128), self.new(requests, 32, 128), *(self.new(count, 16, 8, 128) for _ in "kv")
            return lambda: self.quern.attention(q, k, v, plan=plan, kv_indices=pages, out=out)
        return make

    def mla(self, requests, keys):
        def make():
            plan, pages, count = self.paged(16, 1, 512, requests, keys, 64)
            q, out, cache = self.new(requests, 16, 576), self.new(requests, 16, 512), self.new(count, 64, 576)
            return lambda: self.quern.mla_decode(q[:, :, :512], q[:, :, 512:], cache[:, :, :512], cache[:, :, 512:], plan=plan,
                                                 kv_indices=pages, sm_scale=192**-0.5, out=out)
        return make

    def rmsnorm(self, rows, width):
        def make():
            x, weight, out = self.new(rows, width), self.new(width), self.new(rows, width)
            return lambda: self.quern.rmsnorm(x, weight, out=out)
        return make


# problem, and the call's name and sizes
CASES = [
    ("FP8 product, 4096 × 4608 × 7168", "fp8", (4096, 4608, 7168)),
    ("FP8 product, 64 × 4608 × 7168", "fp8", (64, 4608, 7168)),
    ("bf16 product, 4096 × 4096 × 4096", "bf16", (4096, 4096, 4096)),
    ("attention, 24 heads of 128, 4608 keys", "attention", (24, 4608)),
    ("decode, 64 requests of 4096 keys, 32 heads on 8", "decode", (64, 4096)),
    ("MLA decode, 64 requests of 4096 keys, 16 heads", "mla", (64, 4096)),
    ("RMSNorm, 16384 × 7168", "rmsnorm", (16384, 7168)),
]


# ---- what a profile says

def facts_of(kernel):
    clock, counters = kernel["clock"], kernel["counters"]
    simd = {name: cycles for name, cycles in clock["simd_cycles"].items() if cycles}
    total, matrix, reads = sum(simd.values()), counters.get("SQ_INSTS_MFMA", 0), counters.get("SQ_LDS_IDX_ACTIVE", 0)
    return {
        "kernel": kernel["name"], "workgroups": kernel["workgroups"], "us": clock["ns"] / 1e3,
        "unlimited_us": clock["unlimited_ns"] / 1e3, "mhz": clock["mhz"], "watts": clock["watts"],
        "vgprs": kernel["vgprs"], "agprs": kernel["agprs"], "lds_bytes": kernel["lds_bytes"], "scratch_bytes": kernel["scratch_bytes"],
        "matrix_busy": clock["matrix_cycles"] / total, "waves": clock["wave_cycles"] / total,
        "valu_per_mfma": (counters["SQ_INSTS_VALU"] - matrix) / matrix if matrix else None,
        "lds_conflicts": counters.get("SQ_LDS_BANK_CONFLICT", 0) / reads if reads else None,
        "gb_per_s": clock["memory"]["hbm_lines"] * 128 * clock["workgroups"] / clock["workgroups_run"] / clock["ns"],
        "cycles": {name: cycles / total for name, cycles in sorted(simd.items(), key=lambda item: -item[1])},
    }


def measure(library, case):
    """Returns the facts of a case's longest kernel. Each case has a process of its own."""
    problem, name, sizes = case
    os.environ["QUERN_SIM"], os.environ["QUERN_SIM_LIBRARY"] = OPTIONS, library
    clock = sim_peers.Clock(library)
    with tempfile.TemporaryDirectory() as folder:
        kernels = profile(clock, getattr(Calls(clock.hip), name)(*sizes), pathlib.Path(folder, "profile.json"))
    return {"problem": problem} | facts_of(max(kernels, key=lambda k: k["clock"]["ns"]))


def read_options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", required=True, help="the simulated GPU, libquernsim.so.0")
    parser.add_argument("--only", default="", help="a comma list of words of the problems' names")
    parser.add_argument("--json", type=pathlib.Path, help="write the figures to this file")
    return parser.parse_args()


def main():
    options = read_options()
    rows, chosen = [], [case for case in CASES if any(word in case[0] for word in options.only.split(","))]
    with concurrent.futures.ProcessPoolExecutor(1, multiprocessing.get_context("spawn"), max_tasks_per_child=1) as pool:
        for case in chosen:
            rows.append(pool.submit(measure, options.library, case).result())
            print(json.dumps(rows[-1], ensure_ascii=False), flush=True)
    if options.json:
        command = f"python bench/sim_profiles.py --library {options.library} --json {options.json}"
        report = {"benchmark": "sim_profiles", "command": command, "rows": rows}
        options.json.write_text(json.dumps(report, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
