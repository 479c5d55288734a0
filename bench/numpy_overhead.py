#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a call costs beside the kernel's work, and how long a fresh process takes to its first result.

    python bench/numpy_overhead.py                     of the installed package, NumPy arrays, on the CPU
    python bench/numpy_overhead.py --runs 41 --json overhead.json

A fresh process imports NumPy and quern and runs one RMSNorm; its time is the interpreter's whole life, from its start to
its end, and beside it stands that of one that only imports NumPy. Processes take turns. Calls are of RMSNorm on one row of
64, whose work takes some 10 ns; the best of five averages counts.
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import time

FIRST = """import numpy, quern
quern.rmsnorm(numpy.ones((4, 256), numpy.float32), numpy.ones(256, numpy.float32), 1e-6)"""


def life_of(code):
    start = time.perf_counter()
    subprocess.run([sys.executable, "-c", code], check=True)
    return time.perf_counter() - start


def measure_processes(runs):
    codes = {"first_result": FIRST, "import_numpy": "import numpy"}
    times = {name: [] for name in codes}
    for _ in range(runs):
        for name, code in codes.items():
            times[name].append(life_of(code))
    return {name: {"median_s": statistics.median(t), "best_s": min(t), "first_s": t[0]} for name, t in times.items()}


def nanoseconds_of(call, calls=4000):
    best = float("inf")
    for _ in range(5):
        start = time.perf_counter_ns()
        for _ in range(calls):
            call()
        best = min(best, (time.perf_counter_ns() - start) / calls)
    return best


def measure_calls():
    import ml_dtypes
    import numpy
    import quern
    calls = {}
    for dtype in (numpy.float32, ml_dtypes.bfloat16):
        x, weight, out = numpy.ones((1, 64), dtype), numpy.ones(64, dtype), numpy.empty((1, 64), dtype)
        calls[f"numpy {dtype.__name__}, out given"] = nanoseconds_of(lambda: quern.rmsnorm(x, weight, 1e-6, out=out))
        calls[f"numpy {dtype.__name__}, new out"] = nanoseconds_of(lambda: quern.rmsnorm(x, weight, 1e-6))
    return calls


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=21, help="fresh processes of each kind (default: 21)")
    parser.add_argument("--json", type=pathlib.Path, metavar="FILE", help="also write the figures to this file")
    options = parser.parse_args()
    result = {"command": " ".join(["python", "bench/numpy_overhead.py", *sys.argv[1:]]), "python": sys.version.split()[0],
              "runs": options.runs, "processes": measure_processes(options.runs), "call_ns": measure_calls()}
    for name, t in result["processes"].items():
        print(f"{name:32} median {t['median_s']:.3f} s, best {t['best_s']:.3f}, first {t['first_s']:.3f}")
    for name, ns in result["call_ns"].items():
        print(f"{name:32} {ns / 1000:.2f} us")
    if options.json:
        options.json.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
