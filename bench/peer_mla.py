#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""quern's MLA decode on an NVIDIA GPU beside the card's limits. PyTorch has no MLA of its own to compare with.

    python bench/peer_mla.py                                  64 requests of 4096 keys, 128 heads and 16
    python bench/peer_mla.py --problems 1x16384x128,8x4096x16x4   requests x keys x heads, perhaps x tokens of each request
    python bench/peer_mla.py --page 1 --chunks=-1,2048        pages of another size; keys of a chunk, -1: all, 0: quern's choice
    python bench/peer_mla.py --cache float8_e4m3fn            a cache of FP8
    python bench/peer_mla.py --json result.json               the figures for programs as well

q is bf16. One cache has 512 + 64 elements a key, in pages in random order; several tokens are causal. Before each call the
L2 cache is flushed; a call's time is that of its kernels in the profiler's trace, the merge of chunks among them, the median
of the runs. TFLOP/s count both products, GB/s the cache once. The limit is the longer of what 989 TFLOP/s and 4.8 TB/s
allow, an H200's. The error is that of the first and the last request, to PyTorch in float32. Needs torch.
"""

import argparse
import ctypes
import json
import subprocess
import sys

import peer_common
from peer_attention import PlanArgs, make_plan
from peer_common import DLTensor, numbers
from peer_gemm import traced

DIM, ROPE = 512, 64
MOST_FLOPS, MOST_BYTES = 989e12, 4.8e12  # a second


class MlaArgs(ctypes.Structure):
    """include/quern/mla.h."""
    _fields_ = [("struct_size", ctypes.c_size_t)] + [
        (name, ctypes.POINTER(DLTensor)) for name in ("o", "lse", "q_nope", "q_pe", "ckv", "kpe", "ckv_scales", "kv_indices")] + [
        ("plan", ctypes.c_void_p), ("plan_bytes", ctypes.c_int64),
        ("schedule", ctypes.POINTER(DLTensor)), ("workspace", ctypes.POINTER(DLTensor)),
        ("is_causal", ctypes.c_int32), ("sm_scale", ctypes.c_float), ("q_scale", ctypes.c_float), ("kv_scale", ctypes.c_float),
        ("q_scales", ctypes.POINTER(DLTensor)), ("kv_scales", ctypes.POINTER(DLTensor)), ("lse_base", ctypes.c_int32)]


class Problem:
    """A token or a few for each of `batch` caches of `keys` keys."""

    def __init__(self, torch, size, page, cache):
        self.torch, self.page = torch, page
        self.batch, self.keys, self.heads, self.tokens = size
        self.each = -(-self.keys // page)  # pages of a request
        self.scale = (128 + ROPE) ** -0.5
        make = {"dtype": torch.bfloat16, "device": "cuda:0"}
        self.q = torch.randn(self.batch * self.tokens, self.heads, DIM + ROPE, **make)
        self.o = torch.empty(self.batch * self.tokens, self.heads, DIM, **make)
        self.cache = torch.randn(self.batch * self.each, page, DIM + ROPE, **make).to(getattr(torch, cache))
        self.indices = torch.randperm(self.batch * self.each, device="cuda:0", dtype=torch.int32)
        pairs = self.tokens * self.keys - self.tokens * (self.tokens - 1) // 2  # of a query and a key that it sees
        self.flops = 2 * self.batch * self.heads * pairs * (2 * DIM + ROPE)
        self.bytes = self.cache.element_size() * self.batch * self.keys * (DIM + ROPE)

    def limit_us(self):
        return max(self.flops / MOST_FLOPS, self.bytes / MOST_BYTES) * 1e6

    def expected(self, request):
        """Returns the result of a request by PyTorch in float32."""
        torch = self.torch
        pages = self.indices[request * self.each:(request + 1) * self.each].long()
        k = self.cache[pages].reshape(-1, DIM + ROPE)[:self.keys].float()
        q = self.q[request * self.tokens:(request + 1) * self.tokens].float()
        x = torch.einsum("thd,kd->thk", q, k) * self.scale
        last = torch.arange(self.tokens, device=x.device) + self.keys - self.tokens
        x.masked_fill_(torch.arange(self.keys, device=x.device) > last[:, None, None], float("-inf"))
        return torch.einsum("thk,kd->thd", x.softmax(-1), k[:, :DIM])

    def error(self):
        """Returns the relative error of the first and the last request."""
        found = 0
        for request in (0, self.batch - 1):
            want = self.expected(request)
            got = self.o[request * self.tokens:(request + 1) * self.tokens].float()
            found = max(found, ((got - want).norm() / want.norm()).item())
        return found


class Mla:
    """The arguments of qn_mla_decode for a problem, in chunks of so many keys."""

    def __init__(self, problem, chunk):
        self.problem, self.chunk = problem, chunk

    def plan(self, quern):
        p = self.problem
        last = p.keys - (p.each - 1) * p.page
        qo, kv, lasts = ((ctypes.c_int32 * len(values))(*values)
                         for values in (range(0, (p.batch + 1) * p.tokens, p.tokens), range(0, (p.batch + 1) * p.each, p.each),
                                        [last] * p.batch))
        args = PlanArgs(struct_size=ctypes.sizeof(PlanArgs), batches=p.batch, qo_indptr=qo, kv_indptr=kv, kv_last_page_len=lasts,
                        page_size=p.page, num_qo_heads=p.heads, num_kv_heads=1, head_dim_vo=DIM, kv_chunk=self.chunk,
                        num_compute_units=p.torch.cuda.get_device_properties(0).multi_processor_count)
        return make_plan(quern, args)

    def make(self, quern):
        p, torch = self.problem, quern.torch
        plan, plan_bytes, room_bytes = self.plan(quern)
        tensors = {"o": p.o, "q_nope": p.q[..., :DIM], "q_pe": p.q[..., DIM:], "ckv": p.cache[..., :DIM], "kpe": p.cache[..., DIM:],
                   "kv_indices": p.indices, "schedule": torch.frombuffer(plan, dtype=torch.uint8).to(p.q.device)}
        if room_bytes:
            tensors["workspace"] = torch.empty(room_bytes, dtype=torch.uint8, device=p.q.device)
        pointers = {name: ctypes.pointer(quern.tensor(t)) for name, t in tensors.items()}
        args = MlaArgs(struct_size=ctypes.sizeof(MlaArgs), plan=ctypes.cast(plan, ctypes.c_void_p), plan_bytes=plan_bytes,
                       is_causal=p.tokens > 1, sm_scale=p.scale, **pointers)
        args.keep = pointers, plan
        return args


def measure(torch, quern, options, size):
    problem = Problem(torch, size, options.page, options.cache)
    sides = {f"chunk {chunk}": quern.prepare("qn_mla_decode", Mla(problem, chunk)) for chunk in options.chunks}
    errors = {}
    for name, run in sides.items():
        problem.o.zero_()
        run()
        errors[name] = problem.error()
    kernel = quern.lib.qn_last_kernel().decode()
    us, _ = traced(torch, sides, options.runs)
    return {"batch": problem.batch, "keys": problem.keys, "heads": problem.heads, "tokens": problem.tokens, "page": options.page, "cache": options.cache,
            "kernel": kernel, "error": errors, "us": us, "limit_us": problem.limit_us(),
            "tflops": {name: problem.flops / time / 1e6 for name, time in us.items()},
            "gb_s": {name: problem.bytes / time / 1e3 for name, time in us.items()}}


def worker(options):
    import torch
    torch.manual_seed(1)
    torch.backends.cuda.matmul.allow_tf32 = False
    quern = peer_common.Quern(torch, options.library, "cuda:0")
    rows = []
    for size in options.problems:
        rows.append(measure(torch, quern, options, size))
        torch.cuda.empty_cache()
    print(json.dumps({"versions": peer_common.versions_of(torch, torch.device("cuda:0")), "rows": rows}))


def problems(text):
    def problem(word):
        try:
            sizes = [int(x) for x in word.split("x")]
        except ValueError:
            sizes = []
        if len(sizes) not in (3, 4) or min(sizes) < 1:
            raise argparse.ArgumentTypeError(f"found {word}, accepted: BATCHxKEYSxHEADS, perhaps xTOKENS, of 1 or more")
        return tuple(sizes) if len(sizes) == 4 else (*sizes, 1)
    return [problem(word) for word in text.split(",")]


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--problems", type=problems, default=problems("64x4096x128,64x4096x16"), help="batch x keys x heads, comma list")
    parser.add_argument("--page", type=int, default=64, help="keys of a page (default: %(default)s)")
    parser.add_argument("--cache", choices=("bfloat16", "float8_e4m3fn"), default="bfloat16", help="(default: %(default)s)")
    parser.add_argument("--chunks", type=numbers, default=[0], help="keys of a chunk, comma list; 0: quern's choice")
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--library", help="libquern.so")
    parser.add_argument("--json", action="append", default=[], help="also write the figures to this file")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args()


def print_table(result):
    print(f"{result['versions'].get('device')}; torch {result['versions']['torch']}; medians, L2 flushed")
    for r in result["rows"]:
        for name, us in r["us"].items():
            print(f"{r['batch']:4} x {r['keys']:6} keys, {r['heads']:3} heads, {r['tokens']} tokens, page {r['page']:3} {r['cache']} {name:12}"
                  f" {us:8.1f} us {r['tflops'][name]:7.1f} TFLOP/s {r['gb_s'][name]:7.1f} GB/s {r['limit_us'] / us:5.0%} of the limit"
                  f"  error {r['error'].get(name, 0):.1e}  {r['kernel']}", flush=True)


def main():
    options = parse()
    if options.worker:
        worker(options)
        return
    peer_common.need("torch")
    child = subprocess.run([sys.executable, *sys.argv, "--worker"], stdout=subprocess.PIPE, text=True)
    if child.returncode != 0:
        sys.exit(child.returncode)
    found = json.loads(child.stdout.splitlines()[-1])
    result = {"command": " ".join(["python", "bench/peer_mla.py", *sys.argv[1:]]), **found}
    peer_common.publish(result, options.json, print_table)


if __name__ == "__main__":
    main()
