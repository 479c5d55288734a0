#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Whole models with and without quern.patch: results layer by layer, and times, at real widths with random weights.

    python bench/patch_models.py                    a few blocks of FLUX and of Llama 3 8B on cuda:0, in bf16
    python bench/patch_models.py --models flux --compile      compiled by torch.compile as well (takes a minute)
    python bench/patch_models.py --json result.json           the figures for programs as well

Sides take turns, 21 rounds, each on a CUDA graph of one pass, so that times are the device's; medians. The errors are
relative to the same model in double, at the layer where patched and unpatched differ most in favour of the unpatched.
Needs torch with CUDA, transformers, diffusers; nothing is downloaded.
"""

import argparse
import copy
import json
import pathlib
import statistics
import subprocess
import sys

import torch
from diffusers import FluxTransformer2DModel
from transformers import LlamaConfig, LlamaForCausalLM

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "tests/clients"))
from models import error, in_double, run, spread_norms  # noqa: E402

import quern  # noqa: E402

ROUNDS = 21


def in_bf16(model):
    return spread_norms(model).to(torch.bfloat16).requires_grad_(False)


def make_flux():
    """FLUX.1's width: 24 heads of 128; a picture of 1024 x 1024, which is 64 * 64 patches, and 512 tokens of text."""
    model = in_bf16(FluxTransformer2DModel(num_layers=2, num_single_layers=4))
    ids = torch.zeros(4096, 3)
    ids[:, 1:] = torch.cartesian_prod(torch.arange(64), torch.arange(64))
    b = torch.bfloat16
    return model, {"hidden_states": torch.randn(1, 4096, 64, dtype=b), "timestep": torch.full((1,), 0.5, dtype=b),
                   "encoder_hidden_states": torch.randn(1, 512, 4096, dtype=b), "img_ids": ids,
                   "txt_ids": torch.zeros(512, 3), "pooled_projections": torch.randn(1, 768, dtype=b)}


def make_llama(n):
    model = in_bf16(LlamaForCausalLM(LlamaConfig(
        hidden_size=4096, num_hidden_layers=4, num_attention_heads=32, num_key_value_heads=8, intermediate_size=14336,
        vocab_size=4096, max_position_embeddings=8192, initializer_range=4096**-0.5, tie_word_embeddings=False)))
    return model, {"input_ids": torch.randint(0, 4096, (1, n)), "use_cache": False}


MODELS = {"flux": make_flux, "llama-4096": lambda: make_llama(4096), "llama-1": lambda: make_llama(1)}


# ---- results

def compare(patched, plain, exact):
    """The worst layer: (its path, patched model's error, unpatched model's)."""
    pairs = [(path, error(ours, want), error(theirs, want)) for path in exact
             for ours, theirs, want in zip(patched[path], plain[path], exact[path], strict=True)]
    return max(pairs, key=lambda pair: pair[1] / max(pair[2], 2.0**-9))


# ---- times

def captured(function, inputs):
    """A graph of one pass."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(3):
            function(**inputs)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        function(**inputs)
    return graph


def timed(graph, passes):
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    for _ in range(passes):
        graph.replay()
    end.record()
    torch.cuda.synchronize()
    return start.elapsed_time(end) / passes


def medians(graphs):
    passes = {name: max(1, int(20 / timed(graph, 2))) for name, graph in graphs.items()}
    times = {name: [] for name in graphs}
    for _ in range(ROUNDS):
        for name, graph in graphs.items():
            times[name].append(timed(graph, passes[name]))
    return {name: statistics.median(values) for name, values in times.items()}


def measure(make, with_compile):
    """The figures of one model."""
    torch.manual_seed(1)
    with torch.device("cuda"):
        model, inputs = make()
    changed = {name: x for name, x in inputs.items() if isinstance(x, torch.Tensor)}
    rest = {name: x for name, x in inputs.items() if name not in changed}
    double = copy.deepcopy(model).double()
    exact = run(double, in_double(changed) | rest)
    del double
    plain, other, graphs = run(model, inputs), copy.deepcopy(model), {}
    with quern.patch(other) as patch:
        print(patch)
        path, ours, theirs = compare(run(other, inputs), plain, exact)
        calls = {f"{op}: {kernel}": count for (op, kernel), count in patch.calls.items()}
        del plain, exact
        with torch.inference_mode():
            graphs["unpatched"], graphs["patched"] = captured(model, inputs), captured(other, inputs)
            if with_compile:
                graphs["unpatched, compiled"] = captured(torch.compile(model, fullgraph=True), inputs)
                graphs["patched, compiled"] = captured(torch.compile(other, fullgraph=True), inputs)
            times = medians(graphs)
    return {"worst_layer": path or "the whole model", "error_patched": ours, "error_unpatched": theirs, "ms": times,
            "calls": calls, "replaced": patch.counts}


def environment():
    import diffusers
    import transformers
    driver = subprocess.run(["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"], capture_output=True,
                            text=True).stdout.strip()
    return {"device": torch.cuda.get_device_name(), "driver": driver, "torch": torch.__version__,
            "transformers": transformers.__version__, "diffusers": diffusers.__version__, "quern": quern.__version__,
            "command": " ".join(["bench/patch_models.py", *sys.argv[1:]]), "rounds": ROUNDS}


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS), help="(default: all)")
    parser.add_argument("--compile", action="store_true", help="torch.compile's models as well")
    parser.add_argument("--json", metavar="FILE", help="where the figures go")
    options = parser.parse_args()
    results = {**environment(), "models": {}}
    for name in options.models:
        figures = results["models"][name] = measure(MODELS[name], options.compile)
        print(f"{name}: worst layer {figures['worst_layer']}: error {figures['error_patched']:.2e}, "
              f"unpatched {figures['error_unpatched']:.2e}")
        for side, time in figures["ms"].items():
            print(f"  {side:20} {time:8.3f} ms  {figures['ms']['unpatched'] / time:5.2f}x", flush=True)
        torch.cuda.empty_cache()
        if options.json:
            with open(options.json, "w") as file:
                json.dump(results, file, indent=1)


if __name__ == "__main__":
    main()
