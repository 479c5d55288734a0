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
import importlib.util
import json

import peer_common
from peer_common import GRAPH_CALLS, Side, numbers, take_turns, timer_of

EPS = 1e-6


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
    """Rotates in place, pairs half a head apart, with a quarter as many heads of k. PyTorch makes new tensors, and the
    angles once."""
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


def make_modulated_group_quant(torch, x, weight, **_):
    # scales with rows contiguous, as FP8 products on Hopper read them fastest
    n, h = x.shape
    out, scale = torch.empty(x.shape, dtype=torch.float8_e4m3fn, device=x.device), torch.empty(h // 128, n, device=x.device).T
    gamma, beta = weight[None], torch.randn_like(weight)[None]

    def plain():
        norm = torch.nn.functional.layer_norm(x.float(), (h,), None, None, EPS)
        groups = (norm * (1 + gamma.float()) + beta.float()).view(n, h // 128, 128)
        return (groups / (groups.abs().amax(2, keepdim=True) / 448)).to(torch.float8_e4m3fn).view(n, h)
    return {"bytes": 3 * x.numel() + 4 * weight.numel() + 4 * scale.numel(), "out": out, "eager": plain,
            "call": ("qn_adaptive_layernorm_dynamic_quant", out[None], scale[None], x[None], gamma, beta, EPS, 1e-10)}


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
    """Appends to 8 sequences of 1024 tokens, 8 heads of 128, pages of 16."""
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

    def make(self, quern):
        class Args(ctypes.Structure):
            _fields_ = [("struct_size", ctypes.c_size_t), ("pointers", ctypes.c_void_p * 9), ("layout", ctypes.c_int32)]
        keep = [quern.tensor(t) for t in self.tensors]
        args = Args(struct_size=ctypes.sizeof(Args))
        for i, t in enumerate(keep):
            args.pointers[i] = ctypes.addressof(t)
        args.keep = keep
        return args


OPS = {"rmsnorm": make_rmsnorm, "fused_add_rmsnorm": make_fused_add, "layernorm": make_layernorm,
       "rmsnorm_quant": make_rmsnorm_quant, "rmsnorm_token_quant": make_token_quant,
       "rmsnorm_group_quant": make_group_quant, "adaptive_layernorm_group_quant": make_modulated_group_quant, "silu_and_mul": make_silu_and_mul, "rope": make_rope}
GPU_OPS = {"rope_pos_ids": make_rope_pos_ids, "rope_cache": make_rope_cache, "append": make_append}

# Rows and their width on the CPU, where the command says nothing and they are not 4096 x 7168.
USUAL = {"silu_and_mul": (2048, 14336), "rope": (4096, 4096)}


# ---- the measurement

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
    """Returns how far quern's result is from PyTorch's, as a part of the norm. Results in place are not compared."""
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
            side.record(torch)
    take_turns(sides, measure, options, GRAPH_CALLS if options.graph else 1)
    quern.prepare(*made["call"])()
    kernel = quern.lib.qn_last_kernel().decode()
    if name in GPU_OPS:
        rows, dim = made["out"].shape[0], made["out"][0].numel()
    row = {"op": name, "rows": rows, "dim": dim, "graph": options.graph, "dtype": "bf16", "device": options.device,
           "threads": options.threads_here if device.type == "cpu" else None, "runs": options.runs, "bytes": made["bytes"],
           "kernel": kernel, "torch": torch.__version__, "difference": difference(torch, made)}
    for side in sides:
        row[f"{side.name}_ns"] = int(side.median)
        row[f"{side.name}_best_ns"] = int(side.best)
    return row


def worker(options):
    import torch
    device = peer_common.device_of(torch, options.device)
    options.device = str(device)
    torch.manual_seed(1)
    if device.type == "cpu":
        torch.set_num_threads(options.threads_here)
    quern = peer_common.Quern(torch, options.library, device)
    with torch.no_grad():
        rows = [measure_op(torch, quern, name, options) for name in options.ops]
        print(json.dumps({"versions": peer_common.versions_of(torch, device), "rows": rows}))


def print_table(result):
    rows, sides = result["rows"], ["quern", "copy", "eager", "compile", "triton", "flashinfer"]
    print(f"{result['processor']}; torch {rows[0]['torch']}; bf16, {rows[0]['runs']} runs")
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
    parser.add_argument("--tokens", type=numbers, default=[4608, 24, 24], help="of RoPE: tokens, heads of q, of k")
    parser.add_argument("--graph", action="store_true", help="on a GPU: replay recorded calls")
    parser.add_argument("--device", default="cpu", help="cpu, cuda:N or hip:N")
    parser.add_argument("--rows", type=int, help="default: 4096 on the CPU (silu_and_mul: 2048), 16384 on GPUs")
    parser.add_argument("--dim", type=int, help="default: 7168 on the CPU (silu_and_mul: 14336, rope: 4096, which is 32 heads), 8192 on GPUs")
    parser.add_argument("--no-compile", action="store_true", help="leave torch.compile out")
    peer_common.add_options(parser)
    parser.set_defaults(runs=21)
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
    peer_common.need("torch")
    # Waiting passively: else PyTorch's threads spin into the others' turns.
    result = peer_common.collect(options.threads if options.device == "cpu" else [1], OMP_WAIT_POLICY="passive")
    peer_common.publish(result, options.json, print_table)


if __name__ == "__main__":
    main()
