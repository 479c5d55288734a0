#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""quern's row ops beside PyTorch's, in one process: the same problem, the sides taking turns.

    python bench/peer_rows.py                              norms, activations and RoPE, on the CPU with 1 and 2 threads
    python bench/peer_rows.py --ops rmsnorm --rows 64      one op, few rows
    python bench/peer_rows.py --device cuda:0              on a GPU, timed with its events
    python bench/peer_rows.py --device cuda:0 --rows 64 --dim 7168 --graph     few rows, replayed in a CUDA graph
    python bench/peer_rows.py --device cuda:0 --ops rope_cache,append          RoPE and cache writes
    python bench/peer_rows.py --json result.json           the figures for programs as well

Sides: quern; a copy of as many bytes (quern's own: on the CPU past the caches, on a GPU the device's); PyTorch as it is
("eager"); torch.compile (which writes Triton on a GPU); Triton by hand (bench/triton_rows.py) and FlashInfer, on a GPU where
they are installed. All on bf16. Bytes read and
written count on every side. `of copy` compares medians; `best` figures take each side's fastest run, which other
programs on the machine disturb less. Needs torch.
"""

import argparse
import ctypes
import importlib.metadata
import importlib.util
import json
import pathlib
import statistics
import subprocess
import sys
import time

import peers

EPS = 1e-6
GRAPH_CALLS = 20


class Side:
    """One way to run an op; None where it cannot."""

    def __init__(self, name, run):
        self.name, self.run, self.times = name, run, []


# ---- the ops: tensors, what quern calls, what PyTorch computes, FlashInfer's name

def make_rmsnorm(torch, x, weight, **_):
    out, theirs = torch.empty_like(x), torch.empty_like(x)
    return {"bytes": 4 * x.numel() + 2 * weight.numel(), "call": ("qn_rmsnorm", out, x, weight, EPS), "out": out,
            "eager": lambda: torch.nn.functional.rms_norm(x, (x.shape[1],), weight, EPS),
            "triton": lambda t: t.rmsnorm(theirs, x, weight, EPS),
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
            "triton": lambda t: t.fused_add_rmsnorm(other, residual, weight, EPS),
            "flashinfer": lambda f: f.fused_add_rmsnorm(other, residual, weight, EPS)}


def make_layernorm(torch, x, weight, **_):
    # f32 weights, which are all that FlashInfer's takes; PyTorch's wants x's dtype
    out, beta, gamma = torch.empty_like(x), torch.randn_like(weight), weight.float()
    wide = beta.float()
    return {"bytes": 4 * x.numel() + 8 * weight.numel(), "call": ("qn_layernorm", out, x, gamma, wide, EPS), "out": out,
            "eager": lambda: torch.nn.functional.layer_norm(x, (x.shape[1],), weight, beta, EPS),
            "flashinfer": lambda f: f.layernorm(x, gamma, wide, EPS)}


def make_rmsnorm_quant(torch, x, weight, **_):
    out = torch.empty(x.shape, dtype=torch.float8_e4m3fn, device=x.device)
    scale = torch.full((1,), 0.02, device=x.device)

    def plain():
        norm = torch.nn.functional.rms_norm(x.float(), (x.shape[1],), weight.float(), EPS)
        return (norm / scale).clamp(-448, 448).to(torch.float8_e4m3fn)
    return {"bytes": 3 * x.numel() + 2 * weight.numel() + 4, "call": ("qn_rmsnorm_quant", out, x, weight, scale, EPS),
            "out": out, "eager": plain, "flashinfer": lambda f: f.rmsnorm_quant(out, x, weight, scale, EPS)}


def make_silu_and_mul(torch, x, **_):
    pairs, out, theirs = torch.cat((x, x.flip(1)), 1), torch.empty_like(x), torch.empty_like(x)
    h = x.shape[1]
    return {"bytes": 6 * x.numel(), "call": ("qn_silu_and_mul", out, pairs), "out": out,
            "eager": lambda: torch.nn.functional.silu(pairs[:, :h]) * pairs[:, h:],
            "triton": lambda t: t.silu_and_mul(theirs, pairs),
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


def make_token_quant(torch, x, weight, **_):
    out, scale = torch.empty(x.shape, dtype=torch.float8_e4m3fn, device=x.device), torch.empty(x.shape[0], device=x.device)

    def plain():
        norm = torch.nn.functional.rms_norm(x.float(), (x.shape[1],), weight.float(), EPS)
        return (norm / (norm.abs().amax(1, keepdim=True) / 448)).to(torch.float8_e4m3fn)
    return {"bytes": 3 * x.numel() + 2 * weight.numel() + 4 * x.shape[0], "out": out, "eager": plain,
            "call": ("qn_rmsnorm_dynamic_quant", out, scale, x, None, weight, EPS, 1e-10)}


def make_group_quant(torch, x, weight, **_):
    n, h = x.shape
    out, scale = torch.empty(x.shape, dtype=torch.float8_e4m3fn, device=x.device), torch.empty(n, h // 128, device=x.device)

    def plain():
        norm = torch.nn.functional.rms_norm(x.float(), (h,), weight.float(), EPS).view(n, h // 128, 128)
        return (norm / (norm.abs().amax(2, keepdim=True) / 448)).to(torch.float8_e4m3fn).view(n, h)
    return {"bytes": 3 * x.numel() + 2 * weight.numel() + 4 * scale.numel(), "out": out, "eager": plain,
            "call": ("qn_rmsnorm_dynamic_quant", out, scale, x, None, weight, EPS, 1e-10)}


# ---- rotation and cache writes: tokens x heads x 128, the bar's shapes

def heads_of(torch, options):
    n, q_heads, k_heads = options.tokens
    q, k = (torch.randn(n, heads, 128, dtype=torch.bfloat16, device=options.device) for heads in (q_heads, k_heads))
    return q, k, torch.arange(n, dtype=torch.int32, device=options.device)


def turned(torch, t, c, s):
    a, b = t.float().chunk(2, -1)
    return torch.cat((a * c - b * s, b * c + a * s), -1).to(t.dtype)


def make_rope_pos_ids(torch, options, **_):
    q, k, positions = heads_of(torch, options)
    outs = torch.empty_like(q), torch.empty_like(k)
    frequency = 1e4 ** (-torch.arange(64, device=q.device) / 64)

    def plain():
        angle = (positions[:, None] * frequency)[:, None]
        return turned(torch, q, angle.cos(), angle.sin()), turned(torch, k, angle.cos(), angle.sin())
    return {"bytes": 4 * (q.numel() + k.numel()) + 4 * len(positions), "out": outs[0], "eager": plain,
            "call": ("qn_apply_rope_pos_ids", *outs, q, k, positions, None),
            "flashinfer": lambda f: f.apply_rope_pos_ids(q, k, positions)}


def make_rope_cache(torch, options, **_):
    q, k, positions = heads_of(torch, options)
    outs = torch.empty_like(q), torch.empty_like(k)
    angle = torch.arange(16384, device=q.device)[:, None] * 1e4 ** (-torch.arange(64, device=q.device) / 64)
    table, n = torch.cat((angle.cos(), angle.sin()), 1), len(positions)

    def plain():
        c, s = table[positions][:, None].chunk(2, -1)
        return turned(torch, q, c, s), turned(torch, k, c, s)
    return {"bytes": 4 * (q.numel() + k.numel()) + 516 * n, "out": outs[0], "eager": plain,
            "call": ("qn_apply_rope_with_cos_sin_cache", *outs, q, k, table, positions, 0),
            "flashinfer": lambda f: f.apply_rope_with_cos_sin_cache(positions, q.view(n, -1), k.view(n, -1), 128, table)}


def make_append(torch, options, **_):
    """8 sequences of 1024 tokens, 8 heads of 128, pages of 16."""
    n, batches, page = 8192, 8, 16
    pages = n // page
    key, value = (torch.randn(n, 8, 128, dtype=torch.bfloat16, device=options.device) for _ in range(2))
    caches = tuple(torch.zeros(pages, page, 8, 128, dtype=torch.bfloat16, device=options.device) for _ in range(2))

    def ints(values):
        return torch.as_tensor(values, dtype=torch.int32, device=options.device)
    batch, position = ints([t // 1024 for t in range(n)]), ints([t % 1024 for t in range(n)])
    indices, indptr = ints(torch.randperm(pages)), ints([b * pages // batches for b in range(batches + 1)])
    last = ints([page] * batches)
    slots = (indices[(indptr[batch] + position // page).long()] * page + position % page).long()

    def plain():
        for cache, rows in zip(caches, (key, value)):
            cache.view(n, 8, 128)[slots] = rows
    args = AppendArgs(*caches, key, value, batch, position, indices, indptr)
    return {"bytes": 8 * key.numel() + 8 * n, "out": caches[0], "in_place": True, "eager": plain,
            "call": ("qn_append_paged_kv_cache", args),
            "flashinfer": lambda f: f.append_paged_kv_cache(key, value, batch, position, caches, indices, indptr, last)}


class AppendArgs:
    """qn_append_paged_kv_cache_args of tensors."""

    def __init__(self, *tensors):
        self.tensors = tensors

    def make(self, tensor):
        class Args(ctypes.Structure):
            _fields_ = [("struct_size", ctypes.c_size_t), ("pointers", ctypes.c_void_p * 9), ("layout", ctypes.c_int32)]
        keep = [tensor(t) for t in self.tensors]
        args = Args(struct_size=ctypes.sizeof(Args))
        for i, t in enumerate(keep):
            args.pointers[i] = ctypes.addressof(t)
        args.keep = keep
        return args


OPS = {"rmsnorm": make_rmsnorm, "fused_add_rmsnorm": make_fused_add, "layernorm": make_layernorm,
       "rmsnorm_quant": make_rmsnorm_quant, "rmsnorm_token_quant": make_token_quant,
       "rmsnorm_group_quant": make_group_quant, "silu_and_mul": make_silu_and_mul, "rope": make_rope}
GPU_OPS = {"rope_pos_ids": make_rope_pos_ids, "rope_cache": make_rope_cache, "append": make_append}

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
        self.torch, self.streams = torch, {}

    def on_current_stream(self):
        """PyTorch's current one: a graph is recorded on another than its usual one."""
        if self.id[0] == peers.CPU:
            return self.stream
        native = self.torch.cuda.current_stream().cuda_stream
        if native not in self.streams:
            self.streams[native] = ctypes.c_void_p()
            self.call("qn_stream_wrap", ctypes.byref(self.streams[native]), self.device, ctypes.c_void_p(native))
        return self.streams[native]

    def tensor(self, tensor):
        out = peers.dl_tensor(tensor)
        out.device_type, out.device_id = self.id
        return out

    def prepare(self, name, *operands):
        """A function that makes the call; what Python must prepare is prepared here."""
        plain = {float: ctypes.c_float, int: ctypes.c_int32, type(None): lambda _: None,
                 AppendArgs: lambda a: a.make(self.tensor)}
        keep = [plain.get(type(o), self.tensor)(o) for o in operands]
        args = [ctypes.byref(o) if isinstance(o, ctypes.Structure) else o for o in keep]
        run = getattr(self.lib, name)

        def call():
            if run(self.on_current_stream(), *args) != 0:
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


def replay_of(torch, run):
    """A graph of GRAPH_CALLS calls, recorded: what they take without the host."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        run()
        run()
        stream.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            for _ in range(GRAPH_CALLS):
                run()
    return graph.replay


def sides_of(torch, quern, made, options):
    # A copy reads and writes each byte, so half as many bytes make the same traffic.
    room = [torch.ones(made["bytes"] // 8, dtype=torch.float32, device=options.device) for _ in range(2)]
    sides = [Side("quern", quern.prepare(*made["call"])), Side("copy", quern.prepare("qn_copy", *room)),
             Side("eager", made["eager"])]
    if not options.no_compile:
        function, args = made.get("compile", (made["eager"], ()))
        compiled = torch.compile(function, dynamic=False)
        sides.append(Side("compile", lambda: compiled(*args)))
    on_gpu = torch.device(options.device).type == "cuda"
    if "triton" in made and on_gpu and importlib.util.find_spec("triton"):
        import triton_rows
        sides.append(Side("triton", lambda: made["triton"](triton_rows)))
    if "flashinfer" in made and on_gpu and importlib.util.find_spec("flashinfer"):
        import flashinfer
        sides.append(Side("flashinfer", lambda: made["flashinfer"](flashinfer)))
    return sides


def difference(torch, made):
    """How far quern's result is from PyTorch's, as a part of the norm; in place: not compared."""
    if made.get("in_place"):
        return None
    theirs = made["eager"]()
    ours, theirs = made["out"].float(), (theirs[0] if isinstance(theirs, tuple) else theirs).float()
    return float((ours - theirs).norm() / theirs.norm())


def shape_of(name, options):
    usual = (16384, 8192) if options.device != "cpu" else USUAL.get(name, (4096, 7168))
    return options.rows or usual[0], options.dim or usual[1]


def measure_op(torch, quern, name, options):
    device = torch.device(options.device)
    rows, dim = shape_of(name, options)
    x, residual = (torch.randn(rows, dim, dtype=torch.bfloat16, device=device) for _ in range(2))
    make, weight = (OPS | GPU_OPS)[name], torch.randn(dim, dtype=torch.bfloat16, device=device)
    made = make(torch, x=x, residual=residual, weight=weight, options=options)
    sides, measure = sides_of(torch, quern, made, options), timer_of(torch, device)
    if options.graph:
        for side in sides:
            side.recorded, side.run = side.run, replay_of(torch, side.run)  # the graph uses the call's tensors
    for i in range(options.runs + 3):
        for side in sides:
            time.sleep(options.pause)
            ns = measure(side.run)
            if i >= 3:  # the first runs compile and touch memory for the first time
                side.times.append(ns / (GRAPH_CALLS if options.graph else 1))
    quern.prepare(*made["call"])()
    kernel = quern.lib.qn_last_kernel().decode()
    if name in GPU_OPS:
        rows, dim = made["out"].shape[0], made["out"][0].numel()
    row = {"op": name, "rows": rows, "dim": dim, "graph": options.graph, "dtype": "bf16", "device": options.device,
           "threads": options.threads_here if device.type == "cpu" else None, "runs": options.runs, "bytes": made["bytes"],
           "kernel": kernel, "torch": torch.__version__, "difference": difference(torch, made)}
    for side in sides:
        row[f"{side.name}_ns"] = int(statistics.median(side.times))
        row[f"{side.name}_best_ns"] = int(min(side.times))
    return row


def versions_of(torch, device):
    """What else the figures depend on: the GPU, its driver, the peers."""
    found = {"torch": torch.__version__}
    for package in ("triton", "flashinfer-python", "nvidia-cutlass-dsl"):
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            pass
    if device.type == "cuda":
        smi = subprocess.run(["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"], check=False,
                             stdout=subprocess.PIPE, text=True)
        found["device"] = smi.stdout.strip().splitlines()[0] if smi.returncode == 0 else torch.cuda.get_device_name()
    return found


def worker(options):
    import torch
    torch.manual_seed(1)
    if torch.device(options.device).type == "cpu":
        torch.set_num_threads(options.threads_here)
    quern = Rows(torch, options.library, torch.device(options.device))
    with torch.no_grad():
        rows = [measure_op(torch, quern, name, options) for name in options.ops]
        print(json.dumps({"versions": versions_of(torch, torch.device(options.device)), "rows": rows}))


def print_table(rows):
    sides = ["quern", "copy", "eager", "compile", "triton", "flashinfer"]
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
    parser.add_argument("--ops", type=lambda text: text.split(","), default=list(OPS),
                        help="comma list of: " + ", ".join(OPS) + "; on a GPU also " + ", ".join(GPU_OPS))
    parser.add_argument("--tokens", type=peers.numbers, default=[4608, 24, 24], help="of RoPE: tokens, heads of q, of k")
    parser.add_argument("--graph", action="store_true", help="on a GPU: replay recorded calls")
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
    unknown = set(options.ops) - set(OPS | GPU_OPS)
    if unknown:
        parser.error(f"--ops: unknown {', '.join(sorted(unknown))}; accepted: {', '.join(OPS | GPU_OPS)}")
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
        result = peers.of_child(threads, OMP_WAIT_POLICY="passive")  # else PyTorch's threads spin into the others' turns
        rows += result["rows"]
    result = {"processor": peers.processor(), "command": " ".join(["python", "bench/peer_rows.py", *sys.argv[1:]]),
              "versions": result["versions"], "rows": rows}
    if options.json == "-":
        print(json.dumps(result, indent=1))
        return
    print(f"{result['processor']}; torch {rows[0]['torch']}; bf16, {options.runs} runs")
    print_table(rows)
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
