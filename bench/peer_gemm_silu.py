#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""quern's GEMM with SiLU-and-multiply beside the product without it, on an NVIDIA GPU: kernels' own times, the sides taking turns.

    python bench/peer_gemm_silu.py
    python bench/peer_gemm_silu.py --cases fp8:64x28672x4096,bf16:64x28672x4096,fp8:32768x4096x7168/8
    python bench/peer_gemm_silu.py --runs 3 --kernels gemm.any     the same by one kernel of quern's
    python bench/peer_gemm_silu.py --json result.json

A case is a kind, m x n x k, and perhaps the groups among which m is split evenly (QN_GEMM_GROUPED_INDEX). Sides: silu, one call; of
FP8 also codes, one call to e4m3fn with scales of 128 columns; plain, the product to n columns; plain + step, and then quern's
qn_silu_and_mul; torch, PyTorch's product (FP8: cuBLASLt with the same block scales, one call a group) and its silu(gate) * up. Times
are peer_gemm.py's. Needs torch.
"""

import argparse
import os
import sys

import peer_common
from peer_gemm import Gemm, across, quantize, traced

SILU_AND_MUL = 2
CASES = "fp8:64x28672x4096,fp8:4096x28672x4096,bf16:64x28672x4096,bf16:4096x28672x4096,fp8:32768x4096x7168/8,fp8:512x4096x7168/8"


def operands_of(torch, kind, m, n, k, groups):
    """Returns the tensors of qn_gemm's arguments, and PyTorch's product of group i's rows."""
    rows, x = m // groups, torch.randn(m, k, device="cuda")
    weights = [torch.randn(n, k, device="cuda") / k ** 0.5 for _ in range(groups)]
    if kind == "bf16":
        a, b = x.bfloat16(), torch.stack([w.bfloat16() for w in weights])
        return {"a": a, "b": b}, lambda i: a[i * rows:(i + 1) * rows] @ b[i].t()
    a, scale_a = quantize(torch, x, 1)
    parts = [quantize(torch, w, 128) for w in weights]
    b, scale_b = torch.stack([p[0].view(torch.uint8) for p in parts]).view(torch.float8_e4m3fn), torch.stack([p[1] for p in parts])
    of_group = [across(scale_a[i * rows:(i + 1) * rows]) for i in range(groups)]
    return {"a": a, "b": b, "scale_a": across(scale_a), "scale_b": scale_b}, lambda i: torch._scaled_mm(
        a[i * rows:(i + 1) * rows], b[i].t(), of_group[i], scale_b[i].t(), out_dtype=torch.bfloat16)


def sides_of(torch, quern, kind, m, n, k, groups):
    tensors, product = operands_of(torch, kind, m, n, k, groups)
    silu, plain = (torch.empty(m, columns, dtype=torch.bfloat16, device="cuda") for columns in (n // 2, n))
    codes, scales = silu.to(torch.float8_e4m3fn), torch.empty(n // 256, m, device="cuda").t()
    if groups > 1:
        tensors["group_layout"] = torch.arange(groups, dtype=torch.int32, device="cuda").repeat_interleave(m // groups)
    else:
        tensors.update({name: tensors[name][0] for name in ("b", "scale_b") if name in tensors})
    name, rest = ("qn_gemm_grouped_contiguous", (1,)) if groups > 1 else ("qn_gemm", ())

    def call(d, activation=0, **more):
        return quern.prepare(name, Gemm(activation, d=d, **tensors, **more), *rest)
    by_plain, step = call(plain), quern.prepare("qn_silu_and_mul", silu, plain)
    sides = {"silu": call(silu, SILU_AND_MUL), "plain": by_plain, "plain + step": lambda: (by_plain(), step())}
    if kind == "fp8":
        sides["codes"] = call(codes, SILU_AND_MUL, scale_d=scales)

    def layer():
        for i in range(groups):
            y = product(i)
            torch.nn.functional.silu(y[:, :n // 2]) * y[:, n // 2:]
    sides["torch"] = layer
    want = torch.cat([product(i) for i in range(groups)]).float()
    return silu, torch.nn.functional.silu(want[:, 0::2]) * want[:, 1::2], sides


def measure(torch, quern, options, case):
    kind, m, n, k, groups = case
    d, want, sides = sides_of(torch, quern, *case)
    kernels = {}
    for name, run in sides.items():
        run()
        kernels[name] = quern.lib.qn_last_kernel().decode()
    sides["silu"]()
    torch.cuda.synchronize()
    error = (d.float() - want).norm().item() / want.norm().item()
    us, _ = traced(torch, sides, options.runs)
    return {"kind": kind, "m": m, "n": n, "k": k, "groups": groups, "error": error, "us": us,
            "kernels": {name: kernels[name] for name in ("silu", "plain", "codes") if name in kernels},
            "tflops": 2 * m * n * k / us["silu"] / 1e6}


def cases(text):
    def case(word):
        kind, _, rest = word.partition(":")
        size, _, groups = rest.partition("/")
        if kind not in ("fp8", "bf16") or size.count("x") != 2:
            raise argparse.ArgumentTypeError(f"found {word}, accepted: fp8 or bf16, MxNxK, perhaps /GROUPS")
        return kind, *(int(x) for x in size.split("x")), int(groups or 1)
    return [case(word) for word in text.split(",")]


def print_table(result):
    print(f"{result['versions'].get('device')}; torch {result['versions']['torch']}; us, medians, L2 flushed")
    for r in result["rows"]:
        times = "  ".join(f"{name} {time:.2f}" for name, time in r["us"].items())
        print(f"{r['kind']} {r['m']}x{r['n']}x{r['k']}/{r['groups']}  {times}  ({r['tflops']:.0f} TFLOP/s, error {r['error']:.1e}) "
              + " ".join(r["kernels"].values()), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=cases, default=cases(CASES), help="KIND:MxNxK, or KIND:MxNxK/GROUPS; comma list")
    parser.add_argument("--kernels", help="one of quern's kernels, forced")
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--library", help="libquern.so")
    parser.add_argument("--json", action="append", default=[], help="also write the figures to this file")
    options = parser.parse_args()
    if options.kernels:
        os.environ["QUERN_FORCE"] = f"gemm={options.kernels}"
    peer_common.need("torch")
    import torch
    torch.manual_seed(1)
    quern = peer_common.Quern(torch, options.library, "cuda:0")
    rows = []
    for case in options.cases:
        rows.append(measure(torch, quern, options, case))
        torch.cuda.empty_cache()
    result = {"command": " ".join(["python", "bench/peer_gemm_silu.py", *sys.argv[1:]]),
              "versions": peer_common.versions_of(torch, torch.device("cuda:0")), "rows": rows}
    peer_common.publish(result, options.json, print_table)


if __name__ == "__main__":
    main()
