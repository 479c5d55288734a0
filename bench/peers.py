#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""quern beside PyTorch, in one process: the same matrix products, the two sides taking turns.

    python bench/peers.py                         the default table
    python bench/peers.py --m 1,16 --threads 1    some sizes, one thread
    python bench/peers.py --json result.json      the figures for programs as well
    QUERN_FORCE=gemm=gemm.cpu_avx2 ONEDNN_MAX_CPU_ISA=AVX2 ATEN_CPU_CAPABILITY=avx2 \\
        python bench/peers.py --torch bf16,f32 --peak    both sides as on a processor without AVX-512

quern multiplies FP8 activations (scales 1x128) by packed FP8 weights (128x128), or as --form says; PyTorch multiplies bf16 by bf16
with F.linear, or in f32 (--torch), and is then held to its faster one. Both write bf16 and go round --weights weight matrices, so that none is in a cache from the call
before. Quantising the activations is not timed: layers hand them over quantised. A ratio above 1 means that
quern is faster; `ratio` compares medians, `of best` each side's fastest run, which other programs on the machine
disturb less. --peak has 256-bit f32 FMAs take a turn as well, and tells which part of their speed quern reaches. Needs torch.
"""

import argparse
import ctypes
import itertools
import json
import pathlib
import shutil
import subprocess
import tempfile

import peer_common
from peer_common import DLTensor, Side, dl_tensor, numbers, take_turns, timer_of

N, K = 4096, 7168  # an expert of DeepSeek-V3: gate and up projections in one


class GemmArgs(ctypes.Structure):
    _fields_ = [("struct_size", ctypes.c_size_t)] + [
        (name, ctypes.POINTER(DLTensor)) for name in ("d", "a", "b", "c", "scale_a", "scale_b", "group_layout")] + [
        ("expected_m", ctypes.c_int64), ("b_is_packed", ctypes.c_int32), ("m_alignment", ctypes.c_int32),
        ("zero_padding", ctypes.c_int32)]


class Gemm(peer_common.Quern):
    """quern on the CPU."""

    def pack(self, torch, weight, scale):
        """Returns the weights in the order of the CPU's kernels, and their scales."""
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


class Product:
    """The arguments of qn_gemm; scales may be None."""

    def __init__(self, d, a, scale_a, b, scale_b, is_packed):
        self.tensors, self.is_packed = {"d": d, "a": a, "b": b, "scale_a": scale_a, "scale_b": scale_b}, is_packed

    def make(self, quern):
        pointers = {name: ctypes.pointer(quern.tensor(t)) for name, t in self.tensors.items() if t is not None}
        args = GemmArgs(struct_size=ctypes.sizeof(GemmArgs), b_is_packed=self.is_packed, **pointers)
        args.keep = pointers
        return args


# ---- the measurement

def quantize(torch, x, rows, columns):
    """Quantises x in blocks of rows x columns: codes and one f32 scale for each block."""
    m, k = x.shape
    padded = torch.nn.functional.pad(x.float(), (0, -k % columns, 0, -m % rows))
    blocks = padded.view(padded.shape[0] // rows, rows, padded.shape[1] // columns, columns)
    scale = blocks.abs().amax(dim=(1, 3)).clamp(min=1e-4) / 448
    codes = (blocks / scale[:, None, :, None]).view(padded.shape)[:m, :k]
    return codes.to(torch.float8_e4m3fn).contiguous(), scale.contiguous()


def difference(torch, x, y):
    """Returns DeepGEMM's measure: 0 for equal matrices, about relative error squared."""
    x, y = x.double(), y.double()
    return float(1 - 2 * (x * y).sum() / ((x * x).sum() + (y * y).sum()))


def weights_of(torch, quern, form, w):
    """Returns a weight matrix and its scales as quern takes them in this form."""
    if form == "bf16":
        return w, None
    codes, scale = quantize(torch, w, 128, 128)
    if form == "packed":
        return quern.pack(torch, codes, scale)
    return (codes if form == "nt" else codes.view(torch.uint8).t().contiguous().view(codes.dtype).t()), scale


def peak_side(options):
    """Returns a run of FMAs on as many threads, of 5 ms or so. `operations` is how many it does."""
    clang = next(filter(None, map(shutil.which, ("clang-22", "clang"))), None) or peer_common.fail("--peak needs clang")
    with tempfile.TemporaryDirectory() as folder:
        library = f"{folder}/fma_peak.so"
        subprocess.run([clang, "-std=c23", "-O2", "-mavx2", "-mfma", "-shared", "-fPIC", "-pthread", "-o", library,
                        str(pathlib.Path(__file__).with_name("fma_peak.c"))], check=True)
        peak = ctypes.CDLL(library).fma_peak
    peak.argtypes, peak.restype = [ctypes.c_int, ctypes.c_long], ctypes.c_double
    turns = 3_000_000
    side = Side("peak", lambda: peak(options.threads_here, turns), pause=0.02)  # PyTorch's threads spin for 10 ms
    side.operations = peak(options.threads_here, turns)
    return side


def peers_of(torch, options, x, weights):
    """Returns PyTorch in each dtype that was asked for."""
    def side(name, dtype):
        ours, turn = x.to(dtype), itertools.cycle([w.to(dtype) for w in weights])
        return Side(name, lambda: torch.nn.functional.linear(ours, next(turn)))
    return [side(name, {"bf16": torch.bfloat16, "f32": torch.float32}[name]) for name in options.torch]


def measure_m(torch, quern, options, m, weights, ours_weights):
    x = torch.randn(m, options.k, dtype=torch.bfloat16)
    codes, scale = (x, None) if options.form == "bf16" else quantize(torch, x, 1, 128)
    out = torch.empty(m, options.n, dtype=torch.bfloat16)
    products = [quern.prepare("qn_gemm", Product(out, codes, scale, *b, options.form == "packed")) for b in ours_weights]
    ours_turn = itertools.cycle(products)
    ours, peers = Side("quern", lambda: next(ours_turn)()), peers_of(torch, options, x, weights)
    peak = [peak_side(options)] if options.peak else []
    take_turns([ours, *peers, *peak], timer_of(torch, x.device), options)
    theirs = min(peers, key=lambda side: side.median)
    products[0]()
    row = {"m": m, "n": options.n, "k": options.k, "threads": options.threads_here, "runs": options.runs, "form": options.form}
    for name, side in (("quern", ours), ("torch", theirs)):
        row[f"{name}_ms"], row[f"{name}_best_ms"] = side.median / 1e6, side.best / 1e6
        row[f"{name}_gflops"] = 2 * m * options.n * options.k / side.median
    for side in peak:
        row["peak_gflops"], row["peak_best_gflops"] = side.operations / side.median, side.operations / side.best
        row["of_peak"] = row["quern_gflops"] / row["peak_gflops"]
        row["best_of_peak"] = 2 * m * options.n * options.k / ours.best / row["peak_best_gflops"]
    return row | {"ratio": theirs.median / ours.median, "best_ratio": theirs.best / ours.best,
                  "quern_weight_gb_s": options.n * options.k / ours.median,
                  "difference": difference(torch, out, torch.nn.functional.linear(x, weights[0])),
                  "kernel": quern.lib.qn_last_kernel().decode(), "torch": torch.__version__,
                  "torch_dtype": theirs.name}


def worker(options):
    """Runs all sizes with one number of threads, and prints JSON."""
    import torch
    torch.manual_seed(1)
    torch.set_num_threads(options.threads_here)
    quern = Gemm(torch, options.library)
    weights = [torch.randn(options.n, options.k, dtype=torch.bfloat16) for _ in range(options.weights)]
    ours_weights = [weights_of(torch, quern, options.form, w) for w in weights]
    rows = [measure_m(torch, quern, options, m, weights, ours_weights) for m in options.m]
    print(json.dumps({"versions": peer_common.versions_of(torch, torch.device("cpu")), "rows": rows}))


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--m", type=numbers, default=[1, 16, 64, 512], help="rows of activations, comma list")
    parser.add_argument("--n", type=int, default=N)
    parser.add_argument("--k", type=int, default=K)
    parser.add_argument("--form", choices=["packed", "nt", "nn", "bf16"], default="packed",
                        help="quern's weights: packed FP8, FP8 with k or with n contiguous, or bf16 like PyTorch's")
    parser.add_argument("--torch", type=lambda text: text.split(","), default=["bf16"],
                        help="what PyTorch multiplies in, comma list of bf16 and f32; the faster one counts")
    parser.add_argument("--peak", action="store_true", help="256-bit FMAs beside both; needs clang")
    parser.add_argument("--weights", type=int, default=8, help="weight matrices to go round")
    peer_common.add_options(parser)
    return parser.parse_args()


def print_table(result):
    rows = result["rows"]
    print(f"{result['processor']}; torch {rows[0]['torch']}; N={rows[0]['n']} K={rows[0]['k']}, medians of {rows[0]['runs']} runs")
    print(f"{'threads':>7} {'M':>5} {'quern ms':>9} {'torch ms':>9} {'quern GFLOP/s':>13} {'torch GFLOP/s':>13} {'ratio':>6}"
          f" {'of best':>7} {'difference':>10}  kernel")
    for r in rows:
        print(f"{r['threads']:7} {r['m']:5} {r['quern_ms']:9.3f} {r['torch_ms']:9.3f} {r['quern_gflops']:13.1f}"
              f" {r['torch_gflops']:13.1f} {r['ratio']:6.2f} {r['best_ratio']:7.2f} {r['difference']:10.1e}  {r['kernel']}, {r['torch_dtype']}"
              + (f"; {r['of_peak']:.0%} ({r['best_of_peak']:.0%}) of {r['peak_gflops']:.0f} GFLOP/s" if "of_peak" in r else ""))


def main():
    options = parse()
    if options.threads_here:
        worker(options)
        return
    peer_common.need("torch")
    peer_common.publish(peer_common.collect(options.threads), options.json, print_table)


if __name__ == "__main__":
    main()
