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
disturb less. Needs torch.
"""

import argparse
import ctypes
import itertools
import json

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


def measure_m(torch, quern, options, m, weights, ours_weights):
    x = torch.randn(m, options.k, dtype=torch.bfloat16)
    codes, scale = (x, None) if options.form == "bf16" else quantize(torch, x, 1, 128)
    out = torch.empty(m, options.n, dtype=torch.bfloat16)
    products = [quern.prepare("qn_gemm", Product(out, codes, scale, *b, options.form == "packed")) for b in ours_weights]
    ours_turn, torch_turn = itertools.cycle(products), itertools.cycle(weights)
    ours = Side("quern", lambda: next(ours_turn)())
    theirs = Side("torch", lambda: torch.nn.functional.linear(x, next(torch_turn)))
    take_turns([ours, theirs], timer_of(torch, x.device), options)
    products[0]()
    row = {"m": m, "n": options.n, "k": options.k, "threads": options.threads_here, "runs": options.runs, "form": options.form}
    for side in (ours, theirs):
        row[f"{side.name}_ms"], row[f"{side.name}_best_ms"] = side.median / 1e6, side.best / 1e6
        row[f"{side.name}_gflops"] = 2 * m * options.n * options.k / side.median
    return row | {"ratio": theirs.median / ours.median, "best_ratio": theirs.best / ours.best,
                  "quern_weight_gb_s": options.n * options.k / ours.median,
                  "difference": difference(torch, out, torch.nn.functional.linear(x, weights[0])),
                  "kernel": quern.lib.qn_last_kernel().decode(), "torch": torch.__version__}


def worker(options):
    """All sizes with one number of threads; prints JSON."""
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
              f" {r['torch_gflops']:13.1f} {r['ratio']:6.2f} {r['best_ratio']:7.2f} {r['difference']:10.1e}  {r['kernel']}")


def main():
    options = parse()
    if options.threads_here:
        worker(options)
        return
    peer_common.need("torch")
    peer_common.publish(peer_common.collect(options.threads), options.json, print_table)


if __name__ == "__main__":
    main()
