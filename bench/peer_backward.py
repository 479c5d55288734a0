#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The gradients of attention beside PyTorch's, in one process, the sides taking turns.

    python bench/peer_backward.py                                24 heads of 128, 1024 tokens, on the CPU
    python bench/peer_backward.py --heads 8 --tokens 512,4096 --json result.json
    python bench/peer_backward.py --processor-time               where other programs share the processor
    python bench/peer_backward.py --device cuda:0 --graph --tokens 4096 --dtypes bfloat16
                                                                 on a GPU, replayed in graphs, so without the host's part

Sides: the backward pass of scaled_dot_product_attention as autograd calls it, `torch` by the kernel that PyTorch chooses, `cudnn` and
`flash` by these (--backends; on GPUs both); `quern`, quern.attention_backward, from the o and log-sum-exp of quern.attention. "apart"
is the largest distance of quern's three gradients from the first side's, relative to the largest of those; "times" the fastest other
side's median over quern's. FLOPs are those of five products; a causal mask halves them. Needs torch and the quern package.
"""

import argparse
import contextlib
import json
import pathlib
import sys

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from peer_common import GRAPH_CALLS, Side, device_of, numbers, processor, processor_time, take_turns, timer_of, versions_of  # noqa: E402

BACKENDS = {"cudnn": SDPBackend.CUDNN_ATTENTION, "flash": SDPBackend.FLASH_ATTENTION}


def of_torch(name, d_out, wanted, is_causal):
    """Returns PyTorch's backward pass. The forward pass is part of the first call: a graph can only record the backward pass of
    one that ran on the graph's own stream."""
    result = []

    def run():
        if not result:
            with sdpa_kernel(BACKENDS[name]) if name in BACKENDS else contextlib.nullcontext():
                result.append(torch.nn.functional.scaled_dot_product_attention(
                    *wanted, is_causal=is_causal, enable_gqa=wanted[0].shape[1] != wanted[1].shape[1]))
        return torch.autograd.grad(result[0], wanted, d_out, retain_graph=True)
    return run


def sides_of(quern, o, tokens, dtype, is_causal, device):
    kv_heads = o.kv_heads or o.heads
    d_out, *wanted = (torch.randn(1, heads, tokens, o.dim, device=device).to(dtype) for heads in (o.heads, o.heads, kv_heads, kv_heads))
    q, k, v = wanted
    out, lse = quern.attention(q, k, v, layout="HND", is_causal=is_causal, return_lse=True)
    runs = {name: of_torch(name, d_out, [x.detach().clone().requires_grad_() for x in wanted], is_causal)
            for name in o.backends.split(",")}
    runs["quern"] = lambda: quern.attention_backward(d_out, q, k, v, out, lse, layout="HND", is_causal=is_causal)[:3]
    return runs


def apart(runs):
    pairs = zip(next(iter(runs.values()))(), runs["quern"](), strict=True)
    return max(float((a.float() - b.float()).abs().max() / a.float().abs().max()) for a, b in pairs)


def measure_one(quern, o, tokens, dtype, is_causal, device):
    row = {"heads": o.heads, "kv_heads": o.kv_heads or o.heads, "dim": o.dim, "tokens": tokens,
           "dtype": str(dtype).removeprefix("torch."), "causal": is_causal,
           "apart": apart(sides_of(quern, o, tokens, dtype, is_causal, device)), "kernel": quern.last_kernel()}
    sides = [Side(name, run) for name, run in sides_of(quern, o, tokens, dtype, is_causal, device).items()]
    for side in sides if o.graph else []:
        side.record(torch)
    take_turns(sides, processor_time if o.processor_time else timer_of(torch, device), o, GRAPH_CALLS if o.graph else 1)
    flops = 10 * o.heads * o.dim * (tokens * (tokens + 1) / 2 if is_causal else tokens**2)
    row |= {side.name: side.median / 1e3 for side in sides}  # microseconds
    fastest = min(row[side.name] for side in sides[:-1])
    return row | {"times": fastest / row["quern"], "gflops": flops / row["quern"] / 1e3}


def print_table(result, others):
    print(f"{result['versions'].get('device', result['processor'])}, PyTorch {result['versions']['torch']}, {result['threads']} threads")
    print("heads  dim  tokens  type      mask    " + "".join(f"{name + ' µs':>9}  " for name in others) +
          "quern µs  times  GFLOP/s  apart    kernel")
    for r in result["rows"]:
        print(f"{r['heads']:2}/{r['kv_heads']:<2}  {r['dim']:3}  {r['tokens']:6}  {r['dtype']:8}  {'causal' if r['causal'] else 'none':6}  "
              + "".join(f"{r[name]:9.0f}  " for name in others) +
              f"{r['quern']:8.0f}  {r['times']:5.2f}  {r['gflops']:7.0f}  {r['apart']:.1e}  {r['kernel']}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--heads", type=int, default=24)
    parser.add_argument("--kv-heads", type=int, help="heads of k and v (default: as many as of q)")
    parser.add_argument("--dim", type=int, default=128)
    parser.add_argument("--tokens", type=numbers, default=[1024], help="comma list")
    parser.add_argument("--dtypes", default="bfloat16,float32", help="comma list (default: %(default)s)")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--most", type=float, default=60, help="seconds after which a side runs no more")
    parser.add_argument("--pause", type=float)
    parser.add_argument("--backends", help="PyTorch's: comma list of torch, cudnn, flash (default: torch, on GPUs cudnn,flash)")
    parser.add_argument("--graph", action="store_true", help="on a GPU: replay recorded calls")
    parser.add_argument("--processor-time", action="store_true", help="processor time, not the clock's; on the CPU")
    parser.add_argument("--json", help="also write the figures to this file")
    o = parser.parse_args()
    torch.set_num_threads(o.threads)
    import quern  # behind PyTorch, whose stream it takes
    device = device_of(torch, o.device)
    o.backends = o.backends or ("torch" if device.type == "cpu" else "cudnn,flash")
    unknown = set(o.backends.split(",")) - {"torch", *BACKENDS}
    if unknown:
        parser.error(f"--backends: found {', '.join(sorted(unknown))}, accepted: torch, {', '.join(BACKENDS)}")
    if o.graph and device.type == "cpu":
        parser.error("--graph: the CPU has no graphs")
    rows = [measure_one(quern, o, tokens, getattr(torch, dtype), is_causal, device)
            for dtype in o.dtypes.split(",") for tokens in o.tokens for is_causal in (False, True)]
    result = {"command": " ".join(["python bench/peer_backward.py", *sys.argv[1:]]), "processor": processor(),
              "versions": versions_of(torch, device), "threads": o.threads, "rows": rows}
    print_table(result, o.backends.split(","))
    if o.json:
        pathlib.Path(o.json).write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
