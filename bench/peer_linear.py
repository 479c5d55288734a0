#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""quern's product beside PyTorch's torch.nn.functional.linear for the linear layers of models, bf16, on an NVIDIA GPU; and the
table of quern.patch (python/quern/_patch/linears.json), which is made of these figures.

    python bench/peer_linear.py --json bench/results/h200_linear.json                    measure
    python bench/peer_linear.py --models llama-8b,qwen3-8b --m 1,16,64 --no-bias
    python bench/peer_linear.py --table python/quern/_patch/linears.json --from bench/results/h200_linear.json   the table, no GPU

Each side is a CUDA graph of calls that follow each other, whose inputs, weights and outputs go round through more than the L2
cache. The sides take turns; figures are medians of the rounds, of one call. The ratio is PyTorch's time over quern's. With --json
the figures are written after each layer, so that what was measured before --seconds ran out is kept. Needs torch.
"""

import argparse
import collections
import itertools
import json
import shlex
import statistics
import sys
import time

import peer_common
from peer_gemm import Gemm

# (n, k) of each model's layers; those of lm_head are measured up to 256 rows, as models project few tokens.
MODELS = {
    "flux": [(3072, 3072), (12288, 3072), (3072, 12288), (3072, 15360), (9216, 3072), (18432, 3072), (6144, 3072), (3072, 4096),
             (3072, 64), (64, 3072)],
    "llama-8b": [(4096, 4096), (1024, 4096), (14336, 4096), (4096, 14336), (128256, 4096)],
    "llama-70b": [(8192, 8192), (1024, 8192), (28672, 8192), (8192, 28672), (128256, 8192)],
    "qwen3-8b": [(4096, 4096), (1024, 4096), (12288, 4096), (4096, 12288), (151936, 4096)],
    "qwen3-32b": [(8192, 5120), (1024, 5120), (5120, 8192), (25600, 5120), (5120, 25600), (151936, 5120)]}
M = (1, 16, 64, 256, 512, 1024, 4096, 4608)
HEAD, HEAD_M = 100_000, 256
LEAST_GAIN = 1.02  # of the ratio, for a range of the table


# ---- times

def sets_of(torch, m, n, k, has_bias):
    """Returns as many (x, weight, bias, out) as fill twice the L2 cache."""
    l2 = torch.cuda.get_device_properties(0).L2_cache_size
    count = max(1, -(-2 * l2 // (2 * (m * k + n * k + m * n))))

    def some(*shape):
        return torch.randn(shape, dtype=torch.bfloat16, device="cuda")
    return [(some(m, k), some(n, k), some(n) if has_bias else None, some(m, n)) for _ in range(count)]


def graph_of(torch, runs, calls):
    """Returns a graph of this many calls, which take turns through runs. Results live until their turn comes again, so that
    PyTorch's outputs go round as quern's do."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        runs[0]()
    torch.cuda.synchronize()
    graph, kept = torch.cuda.CUDAGraph(), collections.deque(maxlen=len(runs))
    with torch.cuda.graph(graph):
        for run in itertools.islice(itertools.cycle(runs), calls):
            kept.append(run())
    return graph


def timed(torch, graph, calls):
    """Returns the microseconds of a call."""
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    graph.replay()
    end.record()
    end.synchronize()
    return start.elapsed_time(end) * 1e3 / calls


def ours_of(quern, x, weight, bias, out):
    return quern.prepare("qn_gemm", Gemm(d=out, a=x, b=weight, **({} if bias is None else {"bias": bias})))


def measure(torch, quern, options, m, n, k, has_bias):
    sets = sets_of(torch, m, n, k, has_bias)
    calls = max(len(sets), min(100, int(600 / max(5, m * n * k / 3.5e8, n * k / 2e6))))
    sides = {"quern": [ours_of(quern, *one) for one in sets],
             "torch": [lambda x=x, w=w, b=b: torch.nn.functional.linear(x, w, b) for x, w, b, _ in sets]}
    graphs, times = {name: graph_of(torch, runs, calls) for name, runs in sides.items()}, {"quern": [], "torch": []}
    sides["quern"][0]()
    kernel = quern.lib.qn_last_kernel().decode()
    want = torch.nn.functional.linear(*sets[0][:3]).float()
    error = ((sets[0][3].float() - want).norm() / want.norm()).item()
    for i in range(options.rounds + 2):
        for name, graph in graphs.items():
            one = timed(torch, graph, calls)
            if i > 1:
                times[name].append(one)
    us = {name: statistics.median(all) for name, all in times.items()}
    return {"m": m, "n": n, "k": k, "bias": has_bias, "kernel": kernel, "error": error, "us": us, "calls": calls, "sets": len(sets),
            "limit_us": 2 * (m * k + n * k + m * n) / 4.8e6, "ratio": us["torch"] / us["quern"]}


def problems(options):
    """Returns each layer's (m, n, k, has_bias), no layer twice."""
    seen = {}
    for model in options.models:
        for n, k in MODELS[model]:
            seen[n, k] = seen.get((n, k), ()) + (model,)
    for (n, k), models in seen.items():
        yield models, [(m, n, k, bias) for m in options.m if n < HEAD or m <= HEAD_M
                       for bias in ((False, True) if options.bias else (False,))]


def run(options):
    import torch
    torch.manual_seed(1)
    quern, begin = peer_common.Quern(torch, options.library, "cuda:0"), time.monotonic()
    result = {"versions": peer_common.versions_of(torch, torch.device("cuda:0")), "rounds": options.rounds,
              "command": shlex.join(["bench/peer_linear.py", *sys.argv[1:]]), "rows": []}
    for models, layer in problems(options):
        for problem in layer:
            if time.monotonic() - begin > options.seconds:
                print(f"{options.seconds} s are over")
                return result
            row = measure(torch, quern, options, *problem) | {"models": list(models)}
            result["rows"].append(row)
            print(f"{row['m']:5} {row['n']:6} {row['k']:6} {'bias' if row['bias'] else '':4} quern {row['us']['quern']:8.2f}  "
                  f"torch {row['us']['torch']:8.2f}  {row['ratio']:5.3f}  {row['error']:.1e} {row['kernel']}", flush=True)
        torch.cuda.empty_cache()
        save(options.json, result)
    return result


def save(path, value):
    if path:
        with open(path, "w") as file:
            rows = ",\n".join("  " + json.dumps(row) for row in value["rows"])  # a line each
            head = json.dumps({**value, "rows": []}, indent=1)
            file.write(head.replace('"rows": []', f'"rows": [\n{rows}\n ]'))
            file.write("\n")


# ---- the table

def ranges(rows):
    """Returns (first m, last m, least ratio) of each run of neighbouring measured m that all win."""
    found, last = [], False
    for row in sorted(rows, key=lambda row: row["m"]):
        wins = row["ratio"] >= LEAST_GAIN
        if wins and last:
            found[-1] = (found[-1][0], row["m"], min(found[-1][2], row["ratio"]))
        elif wins:
            found.append((row["m"], row["m"], row["ratio"]))
        last = wins
    return found


def table_of(result):
    layers = {}
    for row in result["rows"]:
        layers.setdefault((row["n"], row["k"], row["bias"]), []).append(row)
    return {"command": result["command"], "device": result["versions"]["device"].partition(",")[0],
            "rows": [{"n": n, "k": k, "bias": bias, "first_m": first, "last_m": last, "ratio": round(ratio, 3)}
                     for (n, k, bias), rows in sorted(layers.items()) for first, last, ratio in ranges(rows)]}


# ---- the script's frame

def numbers(text):
    return sorted({int(word) for word in text.split(",")})


def models(text):
    found = text.split(",")
    if wrong := [word for word in found if word not in MODELS]:
        raise argparse.ArgumentTypeError(f"found {wrong[0]}, accepted: {', '.join(MODELS)}")
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", type=models, default=list(MODELS), help=f"comma list of {', '.join(MODELS)}")
    parser.add_argument("--m", type=numbers, default=list(M), help="rows of activations, comma list")
    parser.add_argument("--no-bias", dest="bias", action="store_false", help="without bias only")
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--seconds", type=float, default=600, help="ends after these, with what it has")
    parser.add_argument("--library", help="libquern.so")
    parser.add_argument("--json", help="also write the figures to this file")
    parser.add_argument("--table", help="make this table instead of measuring")
    parser.add_argument("--from", dest="figures", help="of the figures that --json wrote")
    options = parser.parse_args()
    if bool(options.table) != bool(options.figures):
        parser.error("--table and --from: found one, accepted: both or neither")
    if options.table:
        with open(options.figures) as file:
            save(options.table, table_of(json.load(file)))
        return
    peer_common.need("torch")
    run(options)


if __name__ == "__main__":
    main()
