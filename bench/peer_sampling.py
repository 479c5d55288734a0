#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""quern's sampling beside PyTorch's eager operators, in one process: the same problem, the sides taking turns.

    python bench/peer_sampling.py                          all functions, 128256 tokens, batches of 1, 8 and 64
    python bench/peer_sampling.py --rows 4 --vocab 32000   another size
    python bench/peer_sampling.py --threads 1 --processor-time    the process's own time, where other programs share the processor
    python bench/peer_sampling.py --device cuda:0 --rows 1,64,256    on a GPU: calls replayed in graphs; beside FlashInfer if it is there
    python bench/peer_sampling.py --json result.json       the figures for programs as well

PyTorch's side is what an engine without a library for it runs: top_k by topk, top_p by a sort and a running sum, a token by
the faster of torch.multinomial and of a race of exponentials (`race`), which vLLM and SGLang run. Logits are f32. A ratio above
1 means that quern is faster; `ratio` compares medians, `of best` each side's fastest run, which other programs on the machine
disturb less. Needs torch.
"""

import argparse
import ctypes
import importlib.util
import json
import sys

import peer_common
from peer_common import GRAPH_CALLS, DLTensor, Side, numbers, processor_time, take_turns, timer_of

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
    tokens, out = torch.empty(len(logits), dtype=torch.int32, device=logits.device), torch.empty_like(logits)

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


def flashinfer_ways(logits, probs):
    """Returns FlashInfer's calls for the functions that it has."""
    from flashinfer import sampling
    return {
        "softmax": lambda: sampling.softmax(logits, temperature=TEMPERATURE),
        "sample": lambda: sampling.sampling_from_logits(logits / TEMPERATURE),
        "sample_probs": lambda: sampling.sampling_from_probs(probs),
        "top_k": lambda: sampling.top_k_sampling_from_probs(sampling.softmax(logits, temperature=TEMPERATURE), TOP_K),
        "top_p": lambda: sampling.top_p_sampling_from_probs(sampling.softmax(logits, temperature=TEMPERATURE), TOP_P),
        "top_k_top_p": lambda: sampling.top_k_top_p_sampling_from_probs(sampling.softmax(logits, temperature=TEMPERATURE), TOP_K, TOP_P,
                                                                       filter_apply_order="joint"),
        "min_p": lambda: sampling.min_p_sampling_from_probs(sampling.softmax(logits, temperature=TEMPERATURE), MIN_P),
        "top_k_renorm": lambda: sampling.top_k_renorm_probs(probs, TOP_K),
        "top_p_renorm": lambda: sampling.top_p_renorm_probs(probs, TOP_P),
        "top_k_mask": lambda: sampling.top_k_mask_logits(logits, TOP_K),
    }


# ---- the run

def others_of(theirs, extra):
    """Returns PyTorch's sides, and FlashInfer's if it has this function."""
    return [Side(way, run) for way, run in theirs.items()] + ([Side("flashinfer", extra)] if extra else [])


def can_replay(torch, side):
    """Records a peer's calls. Those that read on the host cannot be recorded."""
    try:
        side.record(torch)
        return True
    except RuntimeError as error:
        torch.cuda.synchronize()
        print(f"{side.name}: has no time, as no graph takes it: {str(error).splitlines()[0]}", file=sys.stderr)
        return False


def take_turns_on(torch, device, ours, others, options):
    """Times the sides on a GPU, their calls replayed in graphs. Returns the peers that have times."""
    ours.record(torch)
    kept = [side for side in others if can_replay(torch, side)]
    take_turns([ours, *kept], timer_of(torch, device), options, GRAPH_CALLS)
    return kept


def measure_rows(options, torch, quern, rows):
    torch.manual_seed(rows)
    device = peer_common.device_of(torch, options.device)
    logits = 3 * torch.randn(rows, options.vocab, device=device)
    probs = logits.softmax(-1)
    cases = make_cases(torch, logits, probs, (torch.rand(rows, options.vocab, device=device) < 0.01).int())
    has_flashinfer = device.type != "cpu" and importlib.util.find_spec("flashinfer")
    extra = flashinfer_ways(logits, probs) if has_flashinfer else {}
    for name, (call, theirs) in cases.items():
        if options.ops and name not in options.ops.split(","):
            continue
        ours, others = Side("quern", quern.prepare(*call)), others_of(theirs, extra.get(name))
        if device.type == "cpu":
            take_turns([ours, *others], processor_time if options.processor_time else timer_of(torch, device), options)
        else:
            others = take_turns_on(torch, device, ours, others, options)
        other = min(others, key=lambda side: side.median)
        yield {"op": name, "rows": rows, "vocab": options.vocab, "threads": options.threads_here, "peer": other.name,
               "quern_us": ours.median / 1e3, "peer_us": other.median / 1e3, "ratio": other.median / ours.median,
               "sides_us": {side.name: side.median / 1e3 for side in others},
               "best_ratio": min(side.best for side in others) / ours.best, "kernel": quern.lib.qn_last_kernel().decode()}


def run_here(options):
    import torch
    torch.set_num_threads(options.threads_here)
    device = peer_common.device_of(torch, options.device)
    quern = peer_common.Quern(torch, options.library, device)
    with torch.inference_mode():
        rows = [row for count in options.rows for row in measure_rows(options, torch, quern, count)]
    print(json.dumps({"versions": peer_common.versions_of(torch, device), "rows": rows}))


def print_table(result):
    print(f"{result['processor']}; torch {result['versions']['torch']}")
    print(f"{'threads':>7} {'rows':>5} {'vocab':>7}  {'op':<13} {'quern us':>10} {'peer us':>11}  {'its way':<12} {'ratio':>6} {'of best':>8}")
    for row in result["rows"]:
        print(f"{row['threads']:>7} {row['rows']:>5} {row['vocab']:>7}  {row['op']:<13} {row['quern_us']:>10.1f} {row['peer_us']:>11.1f}  "
              f"{row['peer']:<12} {row['ratio']:>6.2f} {row['best_ratio']:>8.2f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ops", default="", help="functions, comma list (default: all)")
    parser.add_argument("--rows", type=numbers, default=[1, 8, 64], help="sizes of the batch, comma list (default: 1,8,64)")
    parser.add_argument("--vocab", type=int, default=128256, help="tokens of the vocabulary (default: %(default)s)")
    parser.add_argument("--processor-time", action="store_true", help="processor time of the process's threads in place of time")
    parser.add_argument("--device", default="cpu", help="cpu, cuda:N or hip:N (default: %(default)s)")
    peer_common.add_options(parser)
    parser.set_defaults(threads=[2])
    options = parser.parse_args()
    peer_common.need("torch")
    if options.threads_here:
        run_here(options)
        return
    threads = options.threads if options.device == "cpu" else [1]
    peer_common.publish(peer_common.collect(threads), options.json, print_table)


if __name__ == "__main__":
    main()
