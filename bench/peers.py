#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""quern beside PyTorch, in one process: the same matrix products, the two sides taking turns.

    python bench/peers.py                         the default table
    python bench/peers.py --m 1,16 --threads 1    some sizes, one thread
    python bench/peers.py --json result.json      the figures for programs as well

quern multiplies FP8 activations (scales 1x128) by packed FP8 weights (128x128), or as --form says; PyTorch multiplies bf16 by bf16
with F.linear. Both write bf16 and go round --weights weight matrices, so that none is in a cache from the call
before. Quantising the activations is not timed: layers hand them over quantised. A ratio above 1 means that
quern is faster; `ratio` compares medians, `of best` each side's fastest run, which other programs on the machine
disturb less. Needs torch and numpy.
"""

import argparse
import ctypes
import json
import os
import pathlib
import platform
import statistics
import subprocess
import sys
import time

N, K = 4096, 7168  # an expert of DeepSeek-V3: gate and up projections in one


# ---- quern through ctypes: the structs of include/quern/gemm.h and dlpack.h

class DLTensor(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32),
                ("ndim", ctypes.c_int32), ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8),
                ("lanes", ctypes.c_uint16), ("shape", ctypes.POINTER(ctypes.c_int64)),
                ("strides", ctypes.POINTER(ctypes.c_int64)), ("byte_offset", ctypes.c_uint64)]


class GemmArgs(ctypes.Structure):
    _fields_ = [("struct_size", ctypes.c_size_t)] + [
        (name, ctypes.POINTER(DLTensor)) for name in ("d", "a", "b", "c", "scale_a", "scale_b", "group_layout")] + [
        ("expected_m", ctypes.c_int64), ("b_is_packed", ctypes.c_int32), ("m_alignment", ctypes.c_int32),
        ("zero_padding", ctypes.c_int32)]


CPU = 1  # kDLCPU
CODES = {"int32": (0, 32), "float32": (2, 32), "bfloat16": (4, 16), "float8_e4m3fn": (10, 8), "float8_e4m3fnuz": (11, 8)}


def dl_tensor(tensor):
    """A DLTensor over a torch tensor's memory; the tensor must outlive it."""
    code, bits = CODES[str(tensor.dtype).removeprefix("torch.")]
    shape = (ctypes.c_int64 * tensor.ndim)(*tensor.shape)
    strides = (ctypes.c_int64 * tensor.ndim)(*tensor.stride())
    out = DLTensor(tensor.data_ptr(), CPU, 0, tensor.ndim, code, bits, 1, shape, strides, 0)
    out.keep = (tensor, shape, strides)
    return out


def find_library(given):
    here = pathlib.Path(__file__).resolve().parent
    places = [given, os.environ.get("QUERN_LIBRARY"), here.parent / "build/release/libquern.so",
              here.parent.parent / "lib/libquern.so",
              *sorted(here.parent.parent.glob("lib/*/libquern.so")), "libquern.so"]
    for place in filter(None, places):
        try:
            return ctypes.CDLL(str(place))
        except OSError:
            continue
    sys.exit("peers.py: no libquern.so; build it (make) or name it with --library")


class Quern:
    """The library and a stream on its CPU device."""

    def __init__(self, library):
        self.lib = find_library(library)
        self.lib.qn_last_error.restype = ctypes.c_char_p
        self.lib.qn_last_kernel.restype = ctypes.c_char_p
        self.device, self.stream = ctypes.c_void_p(), ctypes.c_void_p()
        self.call("qn_device_open", ctypes.byref(self.device), b"cpu")
        self.call("qn_stream_create", ctypes.byref(self.stream), self.device)

    def call(self, name, *args):
        if getattr(self.lib, name)(*args) != 0:
            sys.exit(f"peers.py: {name}: {self.lib.qn_last_error().decode()}")

    def pack(self, torch, weight, scale):
        """The weights in the order of the CPU's kernels, and their scales."""
        b, scale_b = dl_tensor(weight), dl_tensor(scale)
        shape, dtype = (ctypes.c_int64 * 3)(), (ctypes.c_uint8 * 4)()
        self.call("qn_gemm_packed_shape", self.device, ctypes.byref(b), shape, dtype)
        # Cache-line aligned, like the tensors of a model file mapped into memory.
        room = torch.empty(shape[1] * shape[2] + 64, dtype=torch.uint8)
        start = -room.data_ptr() % 64
        packed = room[start:start + shape[1] * shape[2]].view(weight.dtype).view(1, shape[1], shape[2])
        packed_scale = torch.empty_like(scale)
        self.call("qn_gemm_pack", self.stream, ctypes.byref(dl_tensor(packed)), ctypes.byref(dl_tensor(packed_scale)),
                  ctypes.byref(b), ctypes.byref(scale_b))
        return packed, packed_scale

    def gemm(self, d, a, scale_a, b, scale_b, is_packed):
        """A function that runs the product; all that Python must prepare is prepared here."""
        tensors = [t if t is None else dl_tensor(t) for t in (d, a, b, scale_a, scale_b)]
        pointers = [t if t is None else ctypes.pointer(t) for t in tensors]
        args = GemmArgs(ctypes.sizeof(GemmArgs), pointers[0], pointers[1], pointers[2], None, pointers[3],
                        pointers[4], None, 0, is_packed, 0, 0)
        run, stream, at = self.lib.qn_gemm, self.stream, ctypes.byref(args)

        def product():
            if run(stream, at) != 0:
                sys.exit(f"peers.py: qn_gemm: {self.lib.qn_last_error().decode()}")
        product.keep = (tensors, pointers, args)
        return product


# ---- the measurement

def quantize(torch, x, rows, columns):
    """x in blocks of rows x columns: codes and one f32 scale a block."""
    m, k = x.shape
    padded = torch.nn.functional.pad(x.float(), (0, -k % columns, 0, -m % rows))
    blocks = padded.view(padded.shape[0] // rows, rows, padded.shape[1] // columns, columns)
    scale = blocks.abs().amax(dim=(1, 3)).clamp(min=1e-4) / 448
    codes = (blocks / scale[:, None, :, None]).view(padded.shape)[:m, :k]
    return codes.to(torch.float8_e4m3fn).contiguous(), scale.contiguous()


def difference(torch, x, y):
    """DeepGEMM's measure: 0 for equal matrices, about relative error squared."""
    x, y = x.double(), y.double()
    return float(1 - 2 * (x * y).sum() / ((x * x).sum() + (y * y).sum()))


def weights_of(torch, quern, form, w):
    """A weight matrix and its scales as quern takes them in this form."""
    if form == "bf16":
        return w, None
    codes, scale = quantize(torch, w, 128, 128)
    if form == "packed":
        return quern.pack(torch, codes, scale)
    return (codes if form == "nt" else codes.view(torch.uint8).t().contiguous().view(codes.dtype).t()), scale


def take_turns(sides, runs, pause):
    """Times of each side, one run of each after the other."""
    times = [[] for _ in sides]
    for i in range(runs + 2):
        for side, mine in zip(sides, times):
            time.sleep(pause)
            start = time.perf_counter_ns()
            side(i)
            mine.append(time.perf_counter_ns() - start)
    return [sorted(mine[2:]) for mine in times]  # the first runs touch memory for the first time


def worker(options):
    """All sizes with one number of threads; prints a JSON list."""
    import torch
    torch.manual_seed(1)
    torch.set_num_threads(options.threads_here)
    quern = Quern(options.library)
    weights = [torch.randn(options.n, options.k, dtype=torch.bfloat16) for _ in range(options.weights)]
    ours_weights = [weights_of(torch, quern, options.form, w) for w in weights]
    rows = []
    for m in options.m:
        x = torch.randn(m, options.k, dtype=torch.bfloat16)
        codes, scale = (x, None) if options.form == "bf16" else quantize(torch, x, 1, 128)
        out = torch.empty(m, options.n, dtype=torch.bfloat16)
        ours = [quern.gemm(out, codes, scale, *b, options.form == "packed") for b in ours_weights]
        sides = (lambda i: ours[i % len(ours)](), lambda i: torch.nn.functional.linear(x, weights[i % len(weights)]))
        times = take_turns(sides, options.runs, options.pause)
        ours[0]()
        medians = [statistics.median(t) / 1e6 for t in times]
        rows.append({"m": m, "n": options.n, "k": options.k, "threads": options.threads_here, "runs": options.runs,
                     "form": options.form,
                     "quern_ms": medians[0], "torch_ms": medians[1], "quern_best_ms": times[0][0] / 1e6,
                     "torch_best_ms": times[1][0] / 1e6, "ratio": medians[1] / medians[0], "best_ratio": times[1][0] / times[0][0],
                     "quern_gflops": 2e-6 * m * options.n * options.k / medians[0],
                     "torch_gflops": 2e-6 * m * options.n * options.k / medians[1],
                     "quern_weight_gb_s": options.n * options.k / medians[0] / 1e6,
                     "difference": difference(torch, out, torch.nn.functional.linear(x, weights[0])),
                     "kernel": quern.lib.qn_last_kernel().decode(), "torch": torch.__version__})
    print(json.dumps(rows))


def processor():
    try:
        text = pathlib.Path("/proc/cpuinfo").read_text()
    except OSError:
        return platform.processor()
    names = [line.split(":", 1)[1].strip() for line in text.splitlines() if line.startswith(("model name", "model\t"))]
    return " model ".join(reversed(names[:2]))


def numbers(text):
    return [int(word) for word in text.split(",")]


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--m", type=numbers, default=[1, 16, 64, 512], help="rows of activations, comma list")
    parser.add_argument("--n", type=int, default=N)
    parser.add_argument("--k", type=int, default=K)
    parser.add_argument("--form", choices=["packed", "nt", "nn", "bf16"], default="packed",
                        help="quern's weights: packed FP8, FP8 with k or with n contiguous, or bf16 like PyTorch's")
    parser.add_argument("--threads", type=numbers, default=[1, 2], help="numbers of threads, comma list")
    parser.add_argument("--runs", type=int, default=20, help="timed runs of each side")
    parser.add_argument("--weights", type=int, default=8, help="weight matrices to go round")
    parser.add_argument("--pause", type=float, default=0.002,
                        help="seconds between runs: so long that the other side's threads have stopped spinning, so short "
                             "that they need no waking from deep sleep, as between the layers of a model")
    parser.add_argument("--json", help="also write the figures to this file (- for standard output alone)")
    parser.add_argument("--library", help="libquern.so")
    parser.add_argument("--threads-here", type=int, help=argparse.SUPPRESS)
    return parser.parse_args()


def of_child(threads, **environment):
    """What this script prints last, JSON, in a process of its own with so many threads on both sides."""
    child = subprocess.run([sys.executable, *sys.argv, "--threads-here", str(threads)],
                           env=dict(os.environ, QUERN_NUM_THREADS=str(threads), OMP_NUM_THREADS=str(threads), **environment),
                           stdout=subprocess.PIPE, text=True)
    if child.returncode != 0:
        sys.exit(child.returncode)
    return json.loads(child.stdout.splitlines()[-1])


def main():
    options = parse()
    try:
        import torch  # noqa: F401
        import numpy  # noqa: F401
    except ImportError as error:
        sys.exit(f"peers.py: {error.name} is missing in {sys.executable}: pip install torch numpy")
    if options.threads_here:
        worker(options)
        return
    rows = []
    for threads in options.threads:  # a process each: both libraries make their threads once
        rows += of_child(threads)
    result = {"processor": processor(), "command": " ".join(["python", "bench/peers.py", *sys.argv[1:]]), "rows": rows}
    if options.json == "-":
        print(json.dumps(result, indent=1))
        return
    print(f"{result['processor']}; torch {rows[0]['torch']}; N={options.n} K={options.k}, medians of {options.runs} runs")
    print(f"{'threads':>7} {'M':>5} {'quern ms':>9} {'torch ms':>9} {'quern GF/s':>11} {'torch GF/s':>11} {'ratio':>6}"
          f" {'of best':>7} {'difference':>10}  kernel")
    for r in rows:
        print(f"{r['threads']:7} {r['m']:5} {r['quern_ms']:9.3f} {r['torch_ms']:9.3f} {r['quern_gflops']:11.1f}"
              f" {r['torch_gflops']:11.1f} {r['ratio']:6.2f} {r['best_ratio']:7.2f} {r['difference']:10.1e}  {r['kernel']}")
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
