#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Grouped products of FP8 on the modelled MI300X, experts of DeepSeek's sizes, beside the dense product of as many rows.

    python bench/sim_groups.py --library build/release/libquernsim.so.0 --json bench/results/sim_groups.json
    python bench/sim_groups.py --library ... --experts 32 --shapes 7168x2048 --jobs 8

Each product has --rows rows in all, dealt to the experts alike (`even`) or so that expert i gets about 1 / (i + 1) of the first one's
(`skewed`). Layouts: `ends`, groups one below the other at multiples of 128 rows, and `masked`, a slab for each. The dense product
has the same rows and one expert's weights, so that its time leaves out what reading the other experts' takes: `read` is that of
reading the weights of all that have rows at the modelled 4.2 TB/s. `share` is the longer of both over the grouped product's time.
Times are modelled (docs/clock.md), with the board's limit of power; each launch reads tensors that no launch read before. Needs
the quern package and numpy.
"""

import argparse
import concurrent.futures
import itertools
import json
import multiprocessing
import os
import pathlib
import sys

TOP = pathlib.Path(__file__).resolve().parent.parent
sys.path[:0] = [str(TOP / "bench"), str(TOP / "sim/clock/calibration")]
import sim_peers  # noqa: E402
from peer_common import numbers  # noqa: E402

DEVICE, BYTES_PER_NS, TO_DEVICE = "sim:gfx942", 4200, 1


def deal(rows, experts, how):
    """Returns how many of `rows` rows each expert gets."""
    shares = [1 / (1 if how == "even" else i + 1) for i in range(experts)]
    ends = [round(rows * sum(shares[:i + 1]) / sum(shares)) for i in range(experts)]
    return [end - begin for begin, end in zip([0, *ends], ends)]


def up(count):
    return -(-count // 128) * 128


def words(quern, clock, values):
    """Returns an i32 tensor of the device."""
    import numpy
    tensor, data = quern.empty((len(values),), "i32", DEVICE), numpy.array(values, numpy.int32)
    clock.hip.call("hipMemcpy", sim_peers.ctypes.c_void_p(tensor.data_ptr()), sim_peers.ctypes.c_void_p(data.ctypes.data),
                   sim_peers.ctypes.c_size_t(data.nbytes), TO_DEVICE)
    return tensor


def turned(quern, *shape):
    """Returns scales of a, [.., m, blocks], with m contiguous."""
    from quern._tensor import empty_strided_like
    *slabs, m, blocks = shape
    like = quern.empty((1,), "f32", DEVICE)
    return empty_strided_like(like, shape, [m * blocks] * len(slabs) + [1, m])


def product_of(quern, clock, layout, dealt, n, k):
    """Returns a function that makes a product's tensors and returns a function that launches it. The first product, which warms the
    instruction caches, has the first expert's rows alone."""
    def new(shape, dtype):
        return quern.empty(shape, dtype, DEVICE)

    turns = itertools.count()

    def make():
        is_first = next(turns) == 0
        counts = [dealt[0]] + [0] * (len(dealt) - 1) if is_first else dealt
        weights, scale_b = new((len(counts), n, k), "e4m3fnuz"), new((len(counts), n // 128, k // 128), "f32")
        if layout == "masked":
            slab = up(max(dealt))
            a, scale_a = new((len(counts), slab, k), "e4m3fnuz"), turned(quern, len(counts), slab, k // 128)
            d, layouts = new((len(counts), slab, n), "bf16"), words(quern, clock, counts)
            return lambda: quern.gemm_grouped_masked(a, weights, layouts, scale_a=scale_a, scale_b=scale_b, packed=True, out=d,
                                                     expected_m=-(-sum(dealt) // len(dealt)))
        begins = [0, *itertools.accumulate(up(c) for c in dealt)]
        ends = [dealt[0]] * len(dealt) if is_first else [b + c for b, c in zip(begins, dealt)]
        a, scale_a = new((begins[-1], k), "e4m3fnuz"), turned(quern, begins[-1], k // 128)
        d, layouts = new((begins[-1], n), "bf16"), words(quern, clock, ends)
        return lambda: quern.gemm_grouped_contiguous(a, weights, layouts, scale_a=scale_a, scale_b=scale_b, packed=True, by_ends=True,
                                                     out=d)

    return make


def run(library, task):
    """Returns the nanoseconds of a task: (layout, how rows are dealt, experts, rows, n, k); of `dense`, as one expert."""
    layout, how, experts, rows, n, k = task
    clock, quern, _ = sim_peers.side_of(library, "gfx942", None, None)
    if layout == "dense":
        def make():
            a, b, d = (quern.empty(*form, DEVICE) for form in (((rows, k), "e4m3fnuz"), ((1, n, k), "e4m3fnuz"), ((rows, n), "bf16")))
            scale_a, scale_b = turned(quern, rows, k // 128), quern.empty((n // 128, k // 128), "f32", DEVICE)
            return lambda: quern.gemm(a, b, scale_a=scale_a, scale_b=scale_b, packed=True, out=d)
    else:
        make = product_of(quern, clock, layout, deal(rows, experts, how), n, k)
    return clock.measure(make, 0)["ns"]


def row_of(task, ns, dense_ns):
    layout, how, experts, rows, n, k = task
    counts = deal(rows, experts, how)
    read_ns = round(sum(c > 0 for c in counts) * n * k / BYTES_PER_NS)
    return {"layout": layout, "dealt": how, "experts": experts, "rows": rows, "most": max(counts), "n": n, "k": k, "ns": ns,
            "dense_ns": dense_ns, "read_ns": read_ns, "share": round(max(dense_ns, read_ns) / ns, 3)}


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", required=True, help="libquernsim.so.0")
    parser.add_argument("--experts", type=numbers, default=[32, 256], help="comma list (default: 32,256)")
    parser.add_argument("--shapes", default="4096x7168,7168x2048", help="comma list of NxK (default: %(default)s)")
    parser.add_argument("--rows", type=numbers, default=[8192], help="comma list of rows in all (default: 8192)")
    parser.add_argument("--jobs", type=int, default=1, help="processes (default: %(default)s)")
    parser.add_argument("--json", help="also write the figures to this file")
    options = parser.parse_args()
    if options.jobs < 1:
        parser.error(f"--jobs: found {options.jobs}, accepted: 1 and more")
    return options


def main():
    options = parse()
    os.environ.setdefault("QUERN_SIM", "arch=gfx942;clock=sample")
    os.environ["QUERN_SIM_LIBRARY"] = options.library
    shapes = [tuple(map(int, shape.split("x"))) for shape in options.shapes.split(",")]
    tasks = [(layout, how, experts, rows, *shape) for experts, shape, rows, how, layout in
             itertools.product(options.experts, shapes, options.rows, ("even", "skewed"), ("ends", "masked"))]
    dense = [("dense", "even", 1, rows, *shape) for shape, rows in itertools.product(shapes, options.rows)]
    with concurrent.futures.ProcessPoolExecutor(options.jobs, multiprocessing.get_context("spawn"), max_tasks_per_child=1) as pool:
        times = {task: pool.submit(run, options.library, task) for task in [*tasks, *dense]}
        rows = [row_of(task, times[task].result(), times[("dense", "even", 1, *task[3:])].result()) for task in tasks]
    for r in rows:
        print(f"{r['experts']} experts, {r['rows']} rows {r['dealt']} (most {r['most']}), {r['n']}x{r['k']}, {r['layout']}: "
              f"{r['ns'] / 1e3:.1f} us, dense {r['dense_ns'] / 1e3:.1f}, read {r['read_ns'] / 1e3:.1f}, share {r['share']:.2f}")
    if options.json:
        report = {"benchmark": "sim_groups", "command": " ".join(["python bench/sim_groups.py", *sys.argv[1:]]), "rows": rows}
        pathlib.Path(options.json).write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
