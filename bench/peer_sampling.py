#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""quern's sampling beside PyTorch's eager operators, in one process: the same problem, the sides taking turns, on the CPU.

    python bench/peer_sampling.py                          all functions, 128256 tokens, batches of 1, 8 and 64
    python bench/peer_sampling.py --rows 4 --vocab 32000   another size
    python bench/peer_sampling.py --threads 1 --processor-time    the process's own time, where other programs share the processor
    python bench/peer_sampling.py --json result.json       the figures for programs as well

PyTorch's side is what an engine without a library for it runs: top_k by topk, top_p by a sort and a running sum, a token by
the faster of torch.multinomial and of a race of exponentials (`race`), which vLLM and SGLang run. Logits are f32. A ratio above
1 means that quern is faster; `ratio` compares medians, `of best` each side's fastest run, which other programs on the machine
disturb less. Needs torch.
"""

import argparse
import ctypes
import json
import time

import peer_common
from peer_common import DLTensor, Side, numbers, take_turns, timer_of

POINTER = ctypes.POINTER(DLTensor)
TEMPERATURE, TOP_K, TOP_P, MIN_P = 0.8, 50, 0.9, 0.05


class SampleArgs(ctypes.Structure):
    _fields_ = [("struct_size", ctypes.c_size_t),
                *((name, POINTER) for name in ("out", "valid", "logits", "probs", "indices", "temperatures", "top_ks", "top_ps", "min_ps")),
                ("temperature", ctypes.c_float), ("top_k", ctypes.c_int64), ("top_p", ctypes.c_float), ("min_p", ctypes.c_float),
                ("order", ctypes.c_int32), ("seeds", POINTER), ("offsets", POINTER), ("seed", ctypes.c_int64), ("offset", ctypes.c_int64)]


class PenaltiesArgs(ctypes.Structure):
    _fields_ = [("struct_size", ctypes.c_size_t),
                *((name, POINTER) for name in ("out", "logits", "counts", "in_prompt", "repetitions", "presences", "frequencies")),
                *((name, ctypes.c_float) for name in ("repetition", "presence", "frequency"))]


class Struct:
    """The arguments of a function that takes a struct."""

    def __init__(self, kind, tensors, **numbers):
        self.kind, self.tensors, self.numbers = kind, tensors, numbers

    def make(self, quern):
        pointers = {name: ctypes.pointer(quern.tensor(t)) for name, t in self.tensors.items()}
        args = self.kind(struct_size=ctypes.sizeof(self.kind), **pointers, **self.numbers)
        args.keep = pointers
        return args


class Whole:
    """An integer of 64 bits."""

    def __init__(self, value):
        self.value = value

    def make(self, _):
        return ctypes.c_int64(self.value)


# ---- PyTorch's side

_INF = float("inf")


def race(torch, probs):
    return (probs / torch.empty_like(probs).exponential_()).argmax(-1)


def masked_by_k(logits):
    return logits.masked_fill(logits < logits.topk(TOP_K).values[:, -1:], -_INF)


def masked_by_p(torch, logits):
    ordered, places = logits.sort(-1)
    sums = ordered.softmax(-1).cumsum(-1)
    drops = sums <= 1 - TOP_P
    drops[:, -1] = False
    return logits.masked_fill(torch.zeros_like(drops).scatter(1, places, drops), -_INF)


def penalized(torch, logits, counts):
    sent = counts > 0
    repeated = torch.where(sent, 1.1, 1.0)
    logits = torch.where(logits > 0, logits / repeated, logits * repeated)
    return logits - 0.2 * counts - 0.1 * sent


def make_cases(torch, logits, probs, counts):
    """Returns for each function the call of quern, and PyTorch's ways."""
    tokens, out = torch.empty(len(logits), dtype=torch.int32), torch.empty_like(logits)

    def sample(x="logits", **numbers):
        numbers = {"temperature": TEMPERATURE, **numbers} if x == "logits" else numbers
        return "qn_sample", Struct(SampleArgs, {"out": tokens, x: logits if x == "logits" else probs}, seed=1, **numbers)

    def drawn(*filters):
        def probabilities():
            x = logits / TEMPERATURE
            for each in filters:
                x = each(x)
            return x.softmax(-1)
        return {"multinomial": lambda: torch.multinomial(probabilities(), 1), "race": lambda: race(torch, probabilities())}

    def by_p(x):
        return masked_by_p(torch, x)

    def by_min_p(x):
        p = x.softmax(-1)
        return x.masked_fill(p < MIN_P * p.amax(-1, keepdim=True), -_INF)

    def renorm_p():
        kept = torch.where(masked_by_p(torch, probs.log()).isinf(), 0.0, probs)
        return kept / kept.sum(-1, keepdim=True)

    def renorm_k():
        kept = torch.where(probs < probs.topk(TOP_K).values[:, -1:], 0.0, probs)
        return kept / kept.sum(-1, keepdim=True)

    return {
        "softmax": (("qn_softmax", out, logits, None, TEMPERATURE), {"softmax": lambda: (logits / TEMPERATURE).softmax(-1)}),
        "greedy": (("qn_sample_greedy", tokens, None, logits), {"argmax": lambda: logits.argmax(-1)}),
        "sample": (sample(), drawn()),
        "sample_probs": (sample("probs"), {"multinomial": lambda: torch.multinomial(probs, 1), "race": lambda: race(torch, probs)}),
        "top_k": (sample(top_k=TOP_K), drawn(masked_by_k)),
        "top_p": (sample(top_p=TOP_P), drawn(by_p)),
        "top_k_top_p": (sample(top_k=TOP_K, top_p=TOP_P), drawn(masked_by_k, by_p)),
        "min_p": (sample(min_p=MIN_P), drawn(by_min_p)),
        "top_k_renorm": (("qn_top_k_renorm_probs", out, probs, None, Whole(TOP_K)), {"topk": renorm_k}),
        "top_p_renorm": (("qn_top_p_renorm_probs", out, probs, None, TOP_P), {"sort": renorm_p}),
        "top_k_mask": (("qn_top_k_mask_logits", out, logits, None, Whole(TOP_K)), {"topk": lambda: masked_by_k(logits)}),
        "penalties": (("qn_apply_penalties", Struct(PenaltiesArgs, {"out": out, "logits": logits, "counts": counts}, repetition=1.1,
                                                    presence=0.1, frequency=0.2)), {"where": lambda: penalized(torch, logits, counts)}),
    }


# ---- the run

def processor_time(run):
    start = time.process_time_ns()
    run()
    return time.process_time_ns() - start


def measure_rows(options, torch, quern, rows):
    torch.manual_seed(rows)
    logits = 3 * torch.randn(rows, options.vocab)
    cases = make_cases(torch, logits, logits.softmax(-1), (torch.rand(rows, options.vocab) < 0.01).int())
    for name, (call, theirs) in cases.items():
        if options.ops and name not in options.ops.split(","):
            continue
        ours = Side("quern", quern.prepare(*call))
        others = [Side(way, run) for way, run in theirs.items()]
        take_turns([ours, *others], processor_time if options.processor_time else timer_of(torch, torch.device("cpu")), options)
        other = min(others, key=lambda side: side.median)
        yield {"op": name, "rows": rows, "vocab": options.vocab, "threads": options.threads_here, "peer": other.name,
               "quern_us": ours.median / 1e3, "peer_us": other.median / 1e3, "ratio": other.median / ours.median,
               "best_ratio": min(side.best for side in others) / ours.best, "kernel": quern.lib.qn_last_kernel().decode()}


def run_here(options):
    import torch
    torch.set_num_threads(options.threads_here)
    quern = peer_common.Quern(torch, options.library)
    with torch.inference_mode():
        rows = [row for count in options.rows for row in measure_rows(options, torch, quern, count)]
    print(json.dumps({"versions": peer_common.versions_of(torch, torch.device("cpu")), "rows": rows}))


def print_table(result):
    print(f"{result['processor']}; torch {result['versions']['torch']}")
    print(f"{'threads':>7} {'rows':>5} {'vocab':>7}  {'op':<13} {'quern us':>10} {'PyTorch us':>11}  {'its way':<12} {'ratio':>6} {'of best':>8}")
    for row in result["rows"]:
        print(f"{row['threads']:>7} {row['rows']:>5} {row['vocab']:>7}  {row['op']:<13} {row['quern_us']:>10.0f} {row['peer_us']:>11.0f}  "
              f"{row['peer']:<12} {row['ratio']:>6.2f} {row['best_ratio']:>8.2f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ops", default="", help="functions, comma list (default: all)")
    parser.add_argument("--rows", type=numbers, default=[1, 8, 64], help="sizes of the batch, comma list (default: 1,8,64)")
    parser.add_argument("--vocab", type=int, default=128256, help="tokens of the vocabulary (default: %(default)s)")
    parser.add_argument("--processor-time", action="store_true", help="processor time of the process's threads in place of time")
    peer_common.add_options(parser)
    parser.set_defaults(threads=[2])
    options = parser.parse_args()
    peer_common.need("torch")
    if options.threads_here:
        run_here(options)
        return
    peer_common.publish(peer_common.collect(options.threads), options.json, print_table)


if __name__ == "__main__":
    main()
