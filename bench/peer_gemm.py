#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""quern's GEMM beside cuBLASLt's, by PyTorch, on an NVIDIA GPU: kernels' own times, the sides taking turns.

    python bench/peer_gemm.py                            FP8 with block scales, DeepGEMM's dense shapes
    python bench/peer_gemm.py --kind bf16                bf16, shapes of a diffusion model and squares
    python bench/peer_gemm.py --kind flux                bf16, FLUX's linear layers with what follows each
    python bench/peer_gemm.py --kind bf16 --layout nn,tn,tt     a and b stored otherwise than as [m, k] and [n, k]
    python bench/peer_gemm.py --kind bf16 --heads 128 --layout nt,nn --shapes 4096x128x512      MLA's absorbed products
    python bench/peer_gemm.py --kind fp8 --shapes 64x2112x7168,4096x4096x7168
    python bench/peer_gemm.py --kernels gemm.fp8_wgmma_64x64,gemm.any      quern's kernels forced, one process each
    python bench/peer_gemm.py --json result.json         the figures for programs as well

A shape is m x n x k, and what follows the product: +bias, +gelu (bias and GELU) or +gate (bias, gate and residual). Before
each call the L2 cache is flushed; a call's time is that of its kernels in the profiler's trace, the median of the runs, as
DeepGEMM's tests take it. A kernel that starts while the one before it still runs counts from that one's end; `span` is the
time from the flush's end to the call's. A layout's first letter is a's, n
for [m, k] and t for [k, m]; its second one is b's, t for [n, k] and n for [k, n]. With --heads, a is [m, heads, k] and d
[m, heads, n]: PyTorch's side is einsum. FP8's sides: quern with scale_a as the copy engine takes it (m contiguous); quern with
scale_a by rows; the copy of scale_a from rows to columns alone; cuBLASLt with the same block scales; cuBLASLt with one scale;
what follows is PyTorch's on both. bf16's: quern; PyTorch's linear and what follows step by step; the same by torch.compile
(--compile); the linear layer alone. Needs torch.
"""

import argparse
import ctypes
import json
import os
import statistics
import subprocess
import sys

import peer_common
from peer_common import DLTensor

NK = ((2112, 7168), (24576, 1536), (32768, 512), (7168, 16384), (4096, 7168), (7168, 2048))
SHAPES = {"fp8": [(m, n, k, "") for m in (4096, 128, 64) for n, k in NK],
          "bf16": [(4608, 12288, 3072, ""), (4608, 9216, 3072, ""), (4608, 3072, 12288, ""), (4096, 4096, 4096, ""),
                   (8192, 8192, 8192, ""), (4096, 4096, 7168, ""), (128, 4096, 7168, ""), (64, 4096, 7168, ""),
                   (64, 7168, 2048, "")],
          "flux": [(4096, 9216, 3072, "bias"), (4096, 3072, 3072, "gate"), (4096, 12288, 3072, "gelu"),
                   (4096, 3072, 12288, "gate"), (4608, 9216, 3072, "bias"), (4608, 12288, 3072, "gelu"),
                   (4608, 3072, 15360, "gate"), (512, 12288, 3072, "gelu"), (512, 3072, 12288, "gate")]}
FLUSH_BYTES, FLUSH_US = 8_000_000_000, 100  # cuBLASLt clears a few bytes at times, in less


class GemmArgs(ctypes.Structure):
    """include/quern/gemm.h."""
    _fields_ = [("struct_size", ctypes.c_size_t)] + [
        (name, ctypes.POINTER(DLTensor)) for name in ("d", "a", "b", "c", "scale_a", "scale_b", "group_layout")] + [
        ("expected_m", ctypes.c_int64), ("b_is_packed", ctypes.c_int32), ("m_alignment", ctypes.c_int32),
        ("zero_padding", ctypes.c_int32), ("bias", ctypes.POINTER(DLTensor)), ("gate", ctypes.POINTER(DLTensor)),
        ("activation", ctypes.c_int32), ("scale_d", ctypes.POINTER(DLTensor)), ("given_scale_d", ctypes.POINTER(DLTensor)),
        ("scale_d_eps", ctypes.c_float)]


class Gemm:
    """The arguments of qn_gemm on torch tensors."""

    def __init__(self, activation=0, expected_m=0, **tensors):
        self.activation, self.expected_m, self.tensors = activation, expected_m, tensors

    def make(self, quern):
        pointers = {name: ctypes.pointer(quern.tensor(t)) for name, t in self.tensors.items()}
        args = GemmArgs(struct_size=ctypes.sizeof(GemmArgs), activation=self.activation, expected_m=self.expected_m, **pointers)
        args.keep = pointers
        return args


# ---- problems

def quantize(torch, x, rows):
    """Returns e4m3fn codes and the f32 scales of blocks of `rows` x 128. Both dimensions are multiples of these."""
    m, k = x.shape
    blocks = x.view(m // rows, rows, k // 128, 128)
    scale = blocks.abs().amax((1, 3)).clamp(1e-4) / 448
    return (blocks / scale[:, None, :, None]).view(m, k).to(torch.float8_e4m3fn), scale


def pad(torch, x, rows):
    return torch.nn.functional.pad(x, (0, 0, 0, -x.shape[0] % rows))


def across(scale):
    """Returns the scales with m contiguous."""
    return scale.t().contiguous().t()


class End:
    """What follows a product: quern's arguments for it, and PyTorch's steps."""

    def __init__(self, torch, name, m, n):
        def some(*shape):
            return torch.randn(*shape, device="cuda").bfloat16()
        self.torch, self.name, self.arguments = torch, name, {}
        if name:
            self.arguments["bias"] = some(n)
        if name == "gate":
            self.arguments.update(gate=some(n), c=some(m, n))
        self.activation = int(name == "gelu")

    def after(self, y):
        """The steps behind the bias, in y's type."""
        if self.name == "gelu":
            return self.torch.nn.functional.gelu(y, approximate="tanh")
        return self.arguments["c"] + self.arguments["gate"] * y if self.name == "gate" else y

    def steps(self, y):
        return self.after(y + self.arguments["bias"]) if self.name else y


def stored(x, is_across):
    return x.mT.contiguous().mT if is_across else x


def heads_sides(torch, quern, layout, heads, m, n, k):
    a = torch.randn(m, heads, k, device="cuda").bfloat16()
    b = stored((torch.randn(heads, n, k, device="cuda") / k ** 0.5).bfloat16(), layout[1] == "n")
    d, count = torch.empty(m, heads, n, dtype=torch.bfloat16, device="cuda"), torch.full((heads,), m, dtype=torch.int32, device="cuda")
    product = Gemm(d=d.transpose(0, 1), a=a.transpose(0, 1), b=b, group_layout=count, expected_m=m)
    return d, torch.einsum("mhk,hnk->mhn", a.float(), b.float()), {
        "quern": quern.prepare("qn_gemm_grouped_masked", product), "torch": lambda: torch.einsum("mhk,hnk->mhn", a, b)}


def fp8_sides(torch, quern, end, m, n, k):
    x, w = torch.randn(m, k, device="cuda"), torch.randn(n, k, device="cuda")
    a, scale_a = quantize(torch, x, 1)
    b, scale_b = quantize(torch, pad(torch, w, 128), 128)
    b, d, columns, one = b[:n].contiguous(), torch.empty(m, n, dtype=torch.bfloat16, device="cuda"), across(scale_a), torch.ones((), device="cuda")
    turned = torch.empty_like(scale_a.t().contiguous())
    wide = torch.zeros(scale_b.shape[0], -(-(k // 128) // 4) * 4, device="cuda")[:, :k // 128].copy_(scale_b)
    want = ((a.float().view(m, -1, 128) * scale_a[:, :, None]).view(m, k) @
            (b.float().view(n, -1, 128) * scale_b.repeat_interleave(128, 0)[:n, :, None]).view(n, k).t())

    def by(scale):
        return quern.prepare("qn_gemm", Gemm(end.activation, d=d, a=a, b=b, scale_a=scale, scale_b=scale_b, **end.arguments))
    return d, end.steps(want), {
        "quern": by(columns), "quern, rows": by(scale_a), "turn": lambda: turned.copy_(scale_a.t()),
        "block": lambda: end.steps(torch._scaled_mm(a, b.t(), columns, wide.t(), out_dtype=torch.bfloat16)),
        "one scale": lambda: end.steps(torch._scaled_mm(a, b.t(), one, one, out_dtype=torch.bfloat16))}


def bf16_sides(torch, quern, end, layout, m, n, k):
    a = stored(torch.randn(m, k, device="cuda").bfloat16(), layout[0] == "t")
    b = stored((torch.randn(n, k, device="cuda") / k ** 0.5).bfloat16(), layout[1] == "n")
    d, bias = torch.empty(m, n, dtype=torch.bfloat16, device="cuda"), end.arguments.get("bias")

    def linear(x, w):
        return torch.nn.functional.linear(x, w, bias)

    def layer(x, w):
        return end.after(linear(x, w))
    compiled = torch.compile(layer, dynamic=False)
    sides = {"quern": quern.prepare("qn_gemm", Gemm(end.activation, d=d, a=a, b=b, **end.arguments)),
             "torch": lambda: layer(a, b)}
    if end.name in ("gelu", "gate"):
        sides.update({"compiled": lambda: compiled(a, b), "linear": lambda: linear(a, b)})
    return d, end.steps(a.float() @ b.float().t()), sides


# ---- times

def traced(torch, sides, runs):
    """Returns each side's kernels' times and spans in microseconds, of `runs` rounds in which the sides take turns."""
    from torch.profiler import ProfilerActivity, profile
    flush = torch.empty(FLUSH_BYTES // 4, dtype=torch.int32, device="cuda")
    names = list(sides)
    with profile(activities=[ProfilerActivity.CUDA]) as found:
        for _ in range(runs):
            for name in names:
                flush.zero_()
                sides[name]()
        flush.zero_()
        torch.cuda.synchronize()
    events = sorted((e for e in found.events() if e.device_type == torch.autograd.DeviceType.CUDA),
                    key=lambda e: e.time_range.start)
    calls, was_flush, ended, flushed = [], False, 0.0, 0.0
    for event in events:
        start, end = event.time_range.start, event.time_range.end
        is_flush = end - start > FLUSH_US and ("FillFunctor" in event.name or "emset" in event.name)
        if is_flush and not was_flush:  # which may take several kernels
            calls.append([0.0, 0.0])
        elif not is_flush:
            calls[-1][0] += end - max(start, ended)
            calls[-1][1] = end - flushed
        was_flush, ended = is_flush, max(ended, end)
        flushed = ended if is_flush else flushed
    if len(calls) != runs * len(names) + 1:
        peer_common.fail(f"{len(calls)} flushes in the trace, not {runs * len(names) + 1}")
    return [{name: statistics.median(call[what] for call in calls[i:-1:len(names)]) for i, name in enumerate(names)}
            for what in range(2)]


def sides_of(torch, quern, options, shape, layout):
    m, n, k, end = shape
    if options.kind == "fp8":
        return fp8_sides(torch, quern, End(torch, end, m, n), m, n, k)
    if options.heads > 1:
        return heads_sides(torch, quern, layout, options.heads, m, n, k)
    return bf16_sides(torch, quern, End(torch, end, m, n), layout, m, n, k)


def measure(torch, quern, options, shape, layout):
    m, n, k, end = shape
    d, want, sides = sides_of(torch, quern, options, shape, layout)
    if not options.compile:
        sides.pop("compiled", None)
    refused = {}
    for name, run in list(sides.items()):
        try:
            run()
        except RuntimeError as error:
            refused[name] = str(error).splitlines()[0][:200]
            del sides[name]
    sides["quern"]()
    kernel = quern.lib.qn_last_kernel().decode()
    torch.cuda.synchronize()
    error = (d.float() - want).norm().item() / want.norm().item()
    us, span = traced(torch, sides, options.runs)
    work = 2 * options.heads * m * n * k
    return {"m": m, "n": n, "k": k, "heads": options.heads, "layout": layout, "end": end, "kind": options.kind, "kernel": kernel,
            "error": error, "us": us, "span": span, "refused": refused,
            "tflops": {name: work / time / 1e6 for name, time in us.items() if name != "turn"}}


def worker(options):
    import torch
    torch.manual_seed(1)
    torch.backends.cuda.matmul.allow_tf32 = False
    quern = peer_common.Quern(torch, options.library, "cuda:0")
    rows = []
    for layout in options.layout:
        for shape in options.shapes:
            rows.append(measure(torch, quern, options, shape, layout))
            torch.cuda.empty_cache()
    print(json.dumps({"versions": peer_common.versions_of(torch, torch.device("cuda:0")), "rows": rows}))


# ---- the script's frame

def shapes(text):
    def shape(word):
        size, _, end = word.partition("+")
        if end not in ("", "bias", "gelu", "gate") or size.count("x") != 2:
            raise argparse.ArgumentTypeError(f"found {word}, accepted: MxNxK, MxNxK+bias, +gelu, +gate")
        return *(int(x) for x in size.split("x")), end
    return [shape(word) for word in text.split(",")]


def layouts(text):
    found = text.split(",")
    if wrong := [word for word in found if word not in ("nt", "nn", "tn", "tt")]:
        raise argparse.ArgumentTypeError(f"found {wrong[0]}, accepted: nt, nn, tn, tt")
    return found


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kind", choices=("fp8", "bf16", "flux"), default="fp8")
    parser.add_argument("--shapes", type=shapes, help="m x n x k, perhaps +bias, +gelu or +gate; comma list")
    parser.add_argument("--compile", action="store_true", help="bf16, +gelu and +gate: also by torch.compile")
    parser.add_argument("--layout", type=layouts, default=["nt"], help="nt, nn, tn, tt; comma list; FP8 takes nt")
    parser.add_argument("--heads", type=int, default=1, help="bf16: products of so many heads, whose rows take turns in a and d")
    parser.add_argument("--kernels", help="comma list of quern's kernels, forced; default: quern's choice")
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--library", help="libquern.so")
    parser.add_argument("--json", action="append", default=[], help="also write the figures to this file")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.kind == "fp8" and (options.layout != ["nt"] or options.heads != 1):
        parser.error("--kind fp8: found --layout or --heads, accepted: nt and 1")
    if options.heads > 1 and any(layout[0] == "t" for layout in options.layout):
        parser.error("--heads: found a --layout with a as [k, m], accepted: nt, nn")
    options.shapes = options.shapes or SHAPES[options.kind]
    return options


def print_table(result):
    print(f"{result['versions'].get('device')}; torch {result['versions']['torch']}; us, medians, L2 flushed")
    for r in result["rows"]:
        times = "  ".join(f"{name} {time:.2f}" for name, time in r["us"].items())
        heads = f"{r['heads']} x " if r["heads"] > 1 else ""
        print(f"{r['layout']} {heads}{r['m']:5} {r['n']:6} {r['k']:6} {r['end']:4}  {times}  ({r['tflops']['quern']:.0f} TFLOP/s, error {r['error']:.1e}) {r['kernel']}"
              + "".join(f"\n  {name}: {why}" for name, why in r["refused"].items()), flush=True)


def main():
    options = parse()
    if options.worker:
        worker(options)
        return
    peer_common.need("torch")
    kernels, rows, versions = (options.kernels or "").split(","), [], {}
    for kernel in kernels:
        force = {"QUERN_FORCE": f"gemm={kernel}"} if kernel else {}
        child = subprocess.run([sys.executable, *sys.argv, "--worker"], env=dict(os.environ, **force), stdout=subprocess.PIPE,
                               text=True)
        if child.returncode != 0:
            sys.exit(child.returncode)
        found = json.loads(child.stdout.splitlines()[-1])
        versions, rows = found["versions"], rows + found["rows"]
    result = {"command": " ".join(["python", "bench/peer_gemm.py", *sys.argv[1:]]), "versions": versions, "rows": rows}
    peer_common.publish(result, options.json, print_table)


if __name__ == "__main__":
    main()
