#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Mixtures of experts beside PyTorch's eager ops, in one process: routing and the layer, the sides taking turns.

    python bench/peer_moe.py                           DeepSeek-V3's rule, and layers of 32 experts of 1024 x 512, on the CPU
    python bench/peer_moe.py --tokens 1,4096 --experts 64 --hidden 2048 --inner 1408 --top-k 6
    python bench/peer_moe.py --device cuda:0 --experts 256 --hidden 7168 --inner 2048 --top-k 8 --tokens 1,64,1024,4096 --most 5
    python bench/peer_moe.py --threads 1 --json result.json         one thread, the figures for programs as well
    python bench/peer_moe.py --threads 1 --processor-time           where other programs share the processor

Sides: `eager`, PyTorch's ops as transformers writes them: softmax or sigmoid, topk, gather; a loop over the experts that have
tokens, with linear, silu, mul and index_add. `bf16` and `fp8`, quern's functions; `fp8` has weights of e4m3fn with a scale for
each 128 x 128 and quantises activations by 1 x 128 inside, `eager` has bf16 weights. "apart" is the relative distance from
eager's result. On a GPU `grouped` is PyTorch's grouped product between its sorting, gathering and adding ops, as transformers
has it; quern and `grouped` are replayed in graphs there, `eager` is not, as its loop reads counts on the host. Needs torch and the quern package.
"""

import argparse
import json
import os
import pathlib
import sys

import torch
from torch.nn import functional

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from peer_common import GRAPH_CALLS, Side, device_of, numbers, processor, processor_time, take_turns, timer_of, versions_of  # noqa: E402

BF16 = torch.bfloat16


# ---- PyTorch's ops

def eager_softmax(logits, top_k):
    weights, ids = torch.topk(torch.softmax(logits, -1, dtype=torch.float32), top_k)
    return weights / weights.sum(-1, keepdim=True), ids


def eager_groups(logits, bias, top_k, groups, topk_groups, scaling):
    scores = logits.float().sigmoid()
    choice = scores + bias
    by_group = choice.view(len(logits), groups, -1).topk(2, -1)[0].sum(-1)
    taken = torch.zeros_like(by_group).scatter_(1, by_group.topk(topk_groups, -1)[1], 1)
    mask = taken.unsqueeze(-1).expand(-1, -1, logits.shape[1] // groups).reshape_as(logits)
    ids = choice.masked_fill(mask == 0, float("-inf")).topk(top_k, -1)[1]
    weights = scores.gather(1, ids)
    return weights / (weights.sum(-1, keepdim=True) + 1e-20) * scaling, ids


def eager_layer(x, w1, w2, weights, ids):
    out = torch.zeros_like(x)
    hit = functional.one_hot(ids.long(), len(w1)).permute(2, 1, 0)
    for expert in torch.nonzero(hit.sum((1, 2)))[:, 0].tolist():
        place, token = torch.where(hit[expert])
        gate, up = functional.linear(x[token], w1[expert]).chunk(2, -1)
        made = functional.linear(functional.silu(gate) * up, w2[expert])
        out.index_add_(0, token, made * weights[token, place, None].to(x.dtype))
    return out


def grouped_layer(x, w1, w2, weights, ids):
    flat = ids.flatten().long()
    order = flat.argsort()
    ends = torch.zeros(len(w1), dtype=torch.long, device=x.device).scatter_add_(0, flat, torch.ones_like(flat)).cumsum(0).int()
    gate, up = torch._grouped_mm(x[order // ids.shape[1]], w1.transpose(1, 2), offs=ends).chunk(2, -1)
    made = torch._grouped_mm(functional.silu(gate) * up, w2.transpose(1, 2), offs=ends)
    scaled = made * weights.flatten()[order, None].to(x.dtype)
    return torch.empty_like(made).index_copy_(0, order, scaled).view(*ids.shape, -1).sum(1)


# ---- the problems

def routing_sides(quern, tokens, grouped):
    logits, bias = torch.randn(tokens, 256), torch.randn(256) * 0.1
    if grouped:
        return {"eager": lambda: eager_groups(logits, bias, 8, 8, 4, 2.5)[0],
                "quern": lambda: quern.moe_route(logits, 8, bias, "sigmoid", 8, 4, True, 2.5)[0]}
    return {"eager": lambda: eager_softmax(logits, 8)[0], "quern": lambda: quern.moe_route(logits, 8, renormalize=True)[0]}


def blocks_of(quern, w):
    parts = [quern.quantize_fp8(x, block=(128, 128)) for x in w]
    return torch.stack([q for q, _ in parts]), torch.stack([scale for _, scale in parts])


class Layer:
    def __init__(self, quern, options):
        e, h, i = options.experts, options.hidden, options.inner
        shapes = (e, 2 * i, h), (e, h, i)
        self.w1, self.w2 = (torch.randn(*shape, dtype=BF16).mul_(shape[-1]**-0.5) for shape in shapes)
        self.q1, self.q2 = blocks_of(quern, self.w1), blocks_of(quern, self.w2)

    def sides(self, quern, tokens, options):
        x = torch.randn(tokens, options.hidden).to(BF16)
        weights, ids = quern.moe_route(torch.randn(tokens, options.experts), options.top_k, renormalize=True)
        grouped = {"grouped": lambda: grouped_layer(x, self.w1, self.w2, weights, ids)} if x.is_cuda else {}
        return {"eager": lambda: eager_layer(x, self.w1, self.w2, weights, ids),
                "bf16": lambda: quern.fused_moe(x, self.w1, self.w2, weights, ids),
                "fp8": lambda: quern.fused_moe(x, self.q1[0], self.q2[0], weights, ids, w1_scale=self.q1[1], w2_scale=self.q2[1]), **grouped}


def take_turns_on(sides, options):
    """Times the sides on a GPU, all but `eager` replayed in graphs."""
    timer = timer_of(torch, device_of(torch, options.device))
    take_turns(sides[:1], timer, options)
    for side in sides[1:]:
        side.record(torch)
    take_turns(sides[1:], timer, options, GRAPH_CALLS)


def measure(name, sides, options, results):
    wanted = sides["eager"]().float()
    timed = [Side(side, run) for side, run in sides.items()]
    if options.device == "cpu":
        take_turns(timed, processor_time if options.processor_time else timer_of(torch, torch.device("cpu")), options)
    else:
        take_turns_on(timed, options)
    eager = timed[0]
    for side in timed:
        got = sides[side.name]().float()
        apart = float((got - wanted).norm() / wanted.norm())
        results.append({"problem": name, "side": side.name, "median_us": side.median / 1e3, "best_us": side.best / 1e3,
                        "of_eager": eager.median / side.median, "best_of_eager": eager.best / side.best, "apart": apart})
        print(f"{name:28} {side.name:6} {side.median / 1e3:10.1f} us {eager.median / side.median:6.2f}x "
              f"{eager.best / side.best:6.2f}x best {apart:8.1e} apart", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=numbers, default=[1, 16, 128, 512], help="comma list")
    parser.add_argument("--experts", type=int, default=32)
    parser.add_argument("--hidden", type=int, default=1024)
    parser.add_argument("--inner", type=int, default=512)
    parser.add_argument("--top-k", type=int, default=4)
    parser.add_argument("--device", default="cpu", help="cpu, cuda:N or hip:N (default: %(default)s)")
    parser.add_argument("--threads", type=int, default=2, help="CPU threads of each side (default: %(default)s)")
    parser.add_argument("--processor-time", action="store_true", help="on the CPU: processor time of the process's threads in place of time")
    parser.add_argument("--runs", type=int, default=20, help="timed runs of each side (default: %(default)s)")
    parser.add_argument("--most", type=float, default=600, help="seconds after which a side runs no more")
    parser.add_argument("--pause", type=float, help="seconds between runs (default: 0.002)")
    parser.add_argument("--json", help="also write the figures to this file")
    options = parser.parse_args()
    os.environ["QUERN_NUM_THREADS"] = str(options.threads)
    torch.set_num_threads(options.threads)
    torch.manual_seed(1)
    torch.set_default_device(device_of(torch, options.device))
    import quern
    results = []
    with torch.no_grad():
        for tokens in options.tokens:
            measure(f"softmax 8 of 256, {tokens}", routing_sides(quern, tokens, False), options, results)
            measure(f"4 of 8 groups, {tokens}", routing_sides(quern, tokens, True), options, results)
        layer = Layer(quern, options)
        for tokens in options.tokens:
            measure(f"layer, {tokens}", layer.sides(quern, tokens, options), options, results)
    if options.json:
        report = {"options": vars(options), "processor": processor(), **versions_of(torch, device_of(torch, options.device)), "results": results}
        pathlib.Path(options.json).write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
