#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The gradients of attention beside PyTorch's, in one process, the sides taking turns.

    python bench/peer_backward.py                                24 heads of 128, 1024 tokens, on the CPU
    python bench/peer_backward.py --heads 8 --tokens 512,4096 --json result.json
    python bench/peer_backward.py --processor-time               where other programs share the processor
    python bench/peer_backward.py --device cuda:0 --tokens 4096  on a GPU

Sides: `torch`, the backward pass of scaled_dot_product_attention as autograd calls it, by the kernel that PyTorch chooses; `quern`,
quern.attention_backward, from the o and log-sum-exp of quern.attention. "apart" is the largest distance of the three gradients,
relative to the largest of PyTorch's. Needs torch and the quern package.
"""

import argparse
import json
import pathlib
import sys

import torch

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from peer_common import Side, device_of, numbers, processor, processor_time, take_turns, timer_of, versions_of  # noqa: E402


def sides_of(quern, heads, tokens, dim, dtype, is_causal, device):
    made = [torch.randn(1, heads, tokens, dim, device=device).to(dtype) for _ in range(4)]
    d_out, wanted = made[0], [x.requires_grad_() for x in made[1:]]
    result = torch.nn.functional.scaled_dot_product_attention(*wanted, is_causal=is_causal)
    q, k, v = (x.detach() for x in wanted)
    out, lse = quern.attention(q, k, v, layout="HND", is_causal=is_causal, return_lse=True)
    return {"torch": lambda: torch.autograd.grad(result, wanted, d_out, retain_graph=True),
            "quern": lambda: quern.attention_backward(d_out, q, k, v, out, lse, layout="HND", is_causal=is_causal)[:3]}


def apart(runs):
    pairs = zip(runs["torch"](), runs["quern"](), strict=True)
    return max(float((a.float() - b.float()).abs().max() / a.float().abs().max()) for a, b in pairs)


def measure_one(quern, o, tokens, dtype, is_causal, device):
    runs = sides_of(quern, o.heads, tokens, o.dim, dtype, is_causal, device)
    row = {"tokens": tokens, "dtype": str(dtype).removeprefix("torch."), "causal": is_causal, "apart": apart(runs)}
    sides = [Side(name, run) for name, run in runs.items()]
    take_turns(sides, processor_time if o.processor_time else timer_of(torch, device), o)
    flops = 10 * o.heads * o.dim * (tokens * (tokens + 1) / 2 if is_causal else tokens**2)
    row |= {side.name: side.median / 1e3 for side in sides}  # microseconds
    return row | {"times": row["torch"] / row["quern"], "gflops": flops / row["quern"] / 1e3, "kernel": quern.last_kernel()}


def print_table(result):
    print(f"{result['processor']}, PyTorch {result['versions']['torch']}, {result['threads']} threads")
    print("tokens  type      mask    torch µs  quern µs  times  GFLOP/s  apart    kernel")
    for r in result["rows"]:
        print(f"{r['tokens']:6}  {r['dtype']:8}  {'causal' if r['causal'] else 'none':6}  {r['torch']:8.0f}  {r['quern']:8.0f}  "
              f"{r['times']:5.2f}  {r['gflops']:7.0f}  {r['apart']:.1e}  {r['kernel']}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--heads", type=int, default=24)
    parser.add_argument("--dim", type=int, default=128)
    parser.add_argument("--tokens", type=numbers, default=[1024], help="comma list")
    parser.add_argument("--dtypes", default="bfloat16,float32", help="comma list (default: %(default)s)")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--most", type=float, default=60, help="seconds after which a side runs no more")
    parser.add_argument("--pause", type=float)
    parser.add_argument("--processor-time", action="store_true", help="processor time, not the clock's; on the CPU")
    parser.add_argument("--json", help="also write the figures to this file")
    o = parser.parse_args()
    torch.set_num_threads(o.threads)
    import quern  # behind PyTorch, whose stream it takes
    device = device_of(torch, o.device)
    rows = [measure_one(quern, o, tokens, getattr(torch, dtype), is_causal, device)
            for dtype in o.dtypes.split(",") for tokens in o.tokens for is_causal in (False, True)]
    result = {"processor": processor(), "versions": versions_of(torch, device), "threads": o.threads, "rows": rows}
    print_table(result)
    if o.json:
        pathlib.Path(o.json).write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
