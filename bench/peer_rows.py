#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""quern's row ops beside PyTorch's, in one process: the same problem, the sides taking turns.

    python bench/peer_rows.py                              norms, activations and RoPE, on the CPU with 1 and 2 threads
    python bench/peer_rows.py --ops rmsnorm --rows 64      one op, few rows
    python bench/peer_rows.py --device cuda:0              on a GPU, timed with its events
    python bench/peer_rows.py --json result.json           the figures for programs as well

Sides: quern; a copy of as many bytes (quern's own: on the CPU past the caches, on a GPU the device's); PyTorch as it is
("eager"); torch.compile (which writes Triton on a GPU); FlashInfer where it is installed. All on bf16. Bytes read and
written count on every side. `of copy` compares medians; `best` figures take each side's fastest run, which other
programs on the machine disturb less. Needs torch.
"""

import argparse
import ctypes
import importlib.util
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time

import peers

EPS = 1e-6


class Side:
    """One way to run an op; None where it cannot."""

    def __init__(self, name, run):
        self.name, self.run, self.times = name, run, []


# ---- the ops: tensors, what quern calls, what PyTorch computes, FlashInfer's name

def make_rmsnorm(torch, x, weight, **_):
    out = torch.empty_like(x)
    return {"bytes": 4 * x.numel() + 2 * weight.numel(), "call": ("qn_rmsnorm", out, x, weight, EPS), "out": out,
            "eager": lambda: torch.nn.functional.rms_norm(x, (x.shape[1],), weight, EPS),
            "flashinfer": lambda f: f.rmsnorm(x, weight, EPS, out=out)}


def make_fused_add(torch, x, weight, residual, **_):
    def plain(x, residual):
        total = x.float() + residual.float()
        norm = total * torch.rsqrt(total.square().mean(-1, keepdim=True) + EPS)
        residual.copy_(total)
        x.copy_(norm * weight.float())
        return x
    ours, other = x.clone(), x.clone()
    return {"bytes": 8 * x.numel() + 2 * weight.numel(), "out": ours, "in_place": True,
            "call": ("qn_fused_add_rmsnorm", ours, residual.clone(), weight, EPS),
            "eager": lambda: plain(other, residual), "compile": (plain, (x.clone(), residual.clone())),
            "flashinfer": lambda f: f.fused_add_rmsnorm(other, residual, weight, EPS)}


def make_layernorm(torch, x, weight, **_):
    out, beta = torch.empty_like(x), torch.randn_like(weight)
    return {"bytes": 4 * x.numel() + 4 * weight.numel(), "call": ("qn_layernorm", out, x, weight, beta, EPS), "out": out,
            "eager": lambda: torch.nn.functional.layer_norm(x, (x.shape[1],), weight, beta, EPS)}


def make_rmsnorm_quant(torch, x, weight, **_):
    out = torch.empty(x.shape, dtype=torch.float8_e4m3fn, device=x.device)
    scale = torch.full((1,), 0.02, device=x.device)

    def plain():
        norm = torch.nn.functional.rms_norm(x.float(), (x.shape[1],), weight.float(), EPS)
        return (norm / scale).clamp(-448, 448).to(torch.float8_e4m3fn)
    return {"bytes": 3 * x.numel() + 2 * weight.numel() + 4, "call": ("qn_rmsnorm_quant", out, x, weight, scale, EPS),
            "out": out, "eager": plain}


def make_silu_and_mul(torch, x, **_):
    pairs, out = torch.cat((x, x.flip(1)), 1), torch.empty_like(x)
    h = x.shape[1]
    return {"bytes": 6 * x.numel(), "call": ("qn_silu_and_mul", out, pairs), "out": out,
            "eager": lambda: torch.nn.functional.silu(pairs[:, :h]) * pairs[:, h:],
            "flashinfer": lambda f: f.silu_and_mul(pairs, out=out)}


def make_rope(torch, x, **_):
    """In place, pairs half a head apart, a quarter as many heads of k; PyTorch makes new tensors, and the angles once."""
    n, heads = x.shape[0], x.shape[1] // 128
    q, k = x.clone().view(n, heads, 128), x[:, :x.shape[1] // 4].clone().view(n, -1, 128)
    pos = torch.arange(n, dtype=torch.int32, device=x.device)
    turns = pos[:, None].double() * 10000.0 ** (-torch.arange(64, device=x.device).double() / 64)
    cos, sin = turns.cos().float()[:, None], turns.sin().float()[:, None]

    def turn(t):
        a, b = t.float().chunk(2, -1)
        return torch.cat((a * cos - b * sin, b * cos + a * sin), -1).to(t.dtype)
    return {"bytes": 4 * (q.numel() + k.numel()) + 4 * n, "in_place": True,
            "call": ("qn_apply_rope_pos_ids", q, k, q, k, pos, None), "eager": lambda: (turn(q), turn(k))}


OPS = {"rmsnorm": make_rmsnorm, "fused_add_rmsnorm": make_fused_add, "layernorm": make_layernorm,
       "rmsnorm_quant": make_rmsnorm_quant, "silu_and_mul": make_silu_and_mul,
       "rope": make_rope}

# Rows and their width on the CPU, where the command says nothing and they are not 4096 x 7168.
USUAL = {"silu_and_mul": (2048, 14336), "rope": (4096, 4096)}


# ---- quern on any device

class Rows(peers.Quern):
    """The library with a stream on the device that PyTorch uses: on a GPU, PyTorch's own stream."""

    def __init__(self, torch, library, device):
        super().__init__(library)
        self.id = (peers.CPU, 0)
        if device.type == "cpu":
            return
        self.id = (10 if torch.version.hip else 2, device.index or 0)  # kDLROCM, kDLCUDA
        spec = f"{'hip' if torch.version.hip else 'cuda'}:{self.id[1]}"
        torch.zeros(1, device=device)  # PyTorch's context, which quern shares
        self.call("qn_device_open", ctypes.byref(self.device), spec.encode())
        native = ctypes.c_void_p(torch.cuda.current_stream(device).cuda_stream)
        self.call("qn_stream_wrap", ctypes.byref(self.stream), self.device, native)

    def tensor(self, tensor):
        out = peers.dl_tensor(tensor)
        out.device_type, out.device_id = self.id
        return out

    def prepare(self, name, *operands):
        """A function that makes the call; what Python must prepare is prepared here."""
        keep = [o if o is None else ctypes.c_float(o) if isinstance(o, float) else self.tensor(o) for o in operands]
        args = [o if o is None or isinstance(o, ctypes.c_float) else ctypes.byref(o) for o in keep]
        run, stream = getattr(self.lib, name), self.stream

        def call():
            if run(stream, *args) != 0:
                sys.exit(f"peer_rows.py: {name}: {self.lib.qn_last_error().decode()}")
        call.keep = keep
        return call


# ---- the measurement

def timer_of(torch, device):
    """A function that gives the nanoseconds of a call."""
    if device.type == "cpu":
        def measure(run):
            start = time.perf_counter_ns()
            run()
            return time.perf_counter_ns() - start
        return measure
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))

    def measure(run):
        start.record()
        run()
        end.record()
        end.synchronize()
        return start.elapsed_time(end) * 1e6
    return measure


def sides_of(torch, quern, made, options):
    # A copy reads and writes each byte, so half as many bytes make the same traffic.
    room = [torch.ones(made["bytes"] // 8, dtype=torch.float32, device=options.device) for _ in range(2)]
    sides = [Side("quern", quern.prepare(*made["call"])), Side("copy", quern.prepare("qn_copy", *room)),
             Side("eager", made["eager"])]
    if not options.no_compile:
        function, args = made.get("compile", (made["eager"], ()))
        compiled = torch.compile(function, dynamic=False)
        sides.append(Side("compile", lambda: compiled(*args)))
    if "flashinfer" in made and torch.device(options.device).type == "cuda" and importlib.util.find_spec("flashinfer"):
        import flashinfer
        sides.append(Side("flashinfer", lambda: made["flashinfer"](flashinfer)))
    return sides


def difference(torch, made):
    """How far quern's result is from PyTorch's, as a part of the norm; in place: not compared."""
    if made.get("in_place"):
        return None
    ours, theirs = made["out"].float(), made["eager"]().float()
    return float((ours - theirs).norm() / theirs.norm())


def shape_of(name, options):
    usual = (16384, 8192) if options.device != "cpu" else USUAL.get(name, (4096, 7168))
    return options.rows or usual[0], options.dim or usual[1]


def measure_op(torch, quern, name, options):
    device = torch.device(options.device)
    rows, dim = shape_of(name, options)
    x, residual = (torch.randn(rows, dim, dtype=torch.bfloat16, device=device) for _ in range(2))
    made = OPS[name](torch, x=x, residual=residual, weight=torch.randn(dim, dtype=torch.bfloat16, device=device))
    sides, measure = sides_of(torch, quern, made, options), timer_of(torch, device)
    for i in range(options.runs + 3):
        for side in sides:
            time.sleep(options.pause)
            ns = measure(side.run)
            if i >= 3:  # the first runs compile and touch memory for the first time
                side.times.append(ns)
    sides[0].run()
    kernel = quern.lib.qn_last_kernel().decode()
    row = {"op": name, "rows": rows, "dim": dim, "dtype": "bf16", "device": options.device,
           "threads": options.threads_here if device.type == "cpu" else None, "runs": options.runs, "bytes": made["bytes"],
           "kernel": kernel, "torch": torch.__version__, "difference": difference(torch, made)}
    for side in sides:
        row[f"{side.name}_ns"] = int(statistics.median(side.times))
        row[f"{side.name}_best_ns"] = int(min(side.times))
    return row


def worker(options):
    import torch
    torch.manual_seed(1)
    if torch.device(options.device).type == "cpu":
        torch.set_num_threads(options.threads_here)
    quern = Rows(torch, options.library, torch.device(options.device))
    with torch.no_grad():
        print(json.dumps([measure_op(torch, quern, name, options) for name in options.ops]))


def print_table(rows):
    sides = ["quern", "copy", "eager", "compile", "flashinfer"]
    print(f"{'op':18} {'shape':14} {'threads':>7}" + "".join(f"{s + ' GB/s':>16}" for s in sides) + f" {'of copy':>8}  (medians; fastest)")
    for r in rows:
        def speed(s):
            if f"{s}_ns" not in r:
                return "-"
            return f"{r['bytes'] / r[f'{s}_ns']:.1f}; {r['bytes'] / r[f'{s}_best_ns']:.1f}"
        shape = f"{r['rows']} x {r['dim']}"
        print(f"{r['op']:18} {shape:14} {r['threads'] or '-':>7}" + "".join(f"{speed(s):>16}" for s in sides) +
              f" {r['copy_ns'] / r['quern_ns']:8.2f}")


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ops", type=lambda text: text.split(","), default=list(OPS), help="comma list of: " + ", ".join(OPS))
    parser.add_argument("--device", default="cpu", help="as PyTorch names it")
    parser.add_argument("--rows", type=int, help="default: 4096 on the CPU (silu_and_mul: 2048), 16384 on GPUs")
    parser.add_argument("--dim", type=int, help="default: 7168 on the CPU (silu_and_mul: 14336, rope: 4096, which is 32 heads), 8192 on GPUs")
    parser.add_argument("--threads", type=peers.numbers, default=[1, 2], help="numbers of CPU threads, comma list")
    parser.add_argument("--runs", type=int, default=21, help="timed runs of each side")
    parser.add_argument("--pause", type=float, default=0.002, help="seconds between runs, as in peers.py")
    parser.add_argument("--no-compile", action="store_true", help="leave torch.compile out")
    parser.add_argument("--json", help="also write the figures to this file (- for standard output alone)")
    parser.add_argument("--library", help="libquern.so")
    parser.add_argument("--threads-here", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    unknown = set(options.ops) - set(OPS)
    if unknown:
        parser.error(f"--ops: unknown {', '.join(sorted(unknown))}; accepted: {', '.join(OPS)}")
    return options


def main():
    options = parse()
    if options.threads_here:
        worker(options)
        return
    if importlib.util.find_spec("torch") is None:
        sys.exit(f"peer_rows.py: torch is missing in {sys.executable}: pip install torch")
    rows = []
    for threads in options.threads if options.device == "cpu" else [1]:  # a process each: threads are made once
        child = subprocess.run([sys.executable, __file__, *sys.argv[1:], "--threads-here", str(threads)],
                               env=dict(os.environ, QUERN_NUM_THREADS=str(threads), OMP_NUM_THREADS=str(threads),
                                        OMP_WAIT_POLICY="passive"),  # else PyTorch's threads spin into the others' turns
                               stdout=subprocess.PIPE, text=True)
        if child.returncode != 0:
            sys.exit(child.returncode)
        rows += json.loads(child.stdout.splitlines()[-1])
    result = {"processor": peers.processor(), "command": " ".join(["python", "bench/peer_rows.py", *sys.argv[1:]]), "rows": rows}
    if options.json == "-":
        print(json.dumps(result, indent=1))
        return
    print(f"{result['processor']}; torch {rows[0]['torch']}; bf16, {options.runs} runs")
    print_table(rows)
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
