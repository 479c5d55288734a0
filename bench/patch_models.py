#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Whole models with and without quern.patch: results layer by layer, and times, at real widths with random weights.

    python bench/patch_models.py                    a few blocks of FLUX and of Llama 3 8B on cuda:0, in bf16; else on the CPU
    python bench/patch_models.py --device cpu --scale 4       heads, widths and lengths a quarter of that (CPU's default: an eighth)
    python bench/patch_models.py --models flux --compile      compiled by torch.compile as well (takes a minute)
    python bench/patch_models.py --json result.json           the figures for programs as well

Sides take turns, 21 rounds; medians. On a GPU each is a CUDA graph of one pass, so that times are the device's; on the CPU a pass as
it is called, by the clock on the wall, with Python's own time in it, which counts at small scales. Times of a scale above 1 say
nothing of the real widths, and no clock was held or core kept free for them. The errors are relative to the same model in double, at
the layer where patched and unpatched differ most in favour of the unpatched. Needs torch, transformers, diffusers; nothing is downloaded.
"""

import argparse
import copy
import json
import pathlib
import shutil
import statistics
import subprocess
import sys
import time

import torch
from diffusers import FluxTransformer2DModel
from transformers import LlamaConfig, LlamaForCausalLM

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "tests/clients"))
from models import error, in_double, run, spread_norms  # noqa: E402

import quern  # noqa: E402


def in_bf16(model):
    return spread_norms(model).to(torch.bfloat16).requires_grad_(False)


def make_flux(scale):
    """Makes a model of FLUX.1's width: 24 heads of 128; a picture of 1024 x 1024, which is 64 * 64 patches, and 512
    tokens of text."""
    model = in_bf16(FluxTransformer2DModel(num_layers=2, num_single_layers=4, num_attention_heads=max(1, 24 // scale)))
    side, text, b = max(2, 64 // scale), max(1, 512 // scale), torch.bfloat16
    ids = torch.zeros(side * side, 3)
    ids[:, 1:] = torch.cartesian_prod(torch.arange(side), torch.arange(side))
    return model, {"hidden_states": torch.randn(1, side * side, 64, dtype=b), "timestep": torch.full((1,), 0.5, dtype=b),
                   "encoder_hidden_states": torch.randn(1, text, 4096, dtype=b), "img_ids": ids,
                   "txt_ids": torch.zeros(text, 3), "pooled_projections": torch.randn(1, 768, dtype=b)}


def make_llama(n, scale):
    """Makes a model of Llama 3 8B's width: 32 heads of 128 on 8."""
    heads, kv_heads = max(1, 32 // scale), max(1, 8 // scale)
    model = in_bf16(LlamaForCausalLM(LlamaConfig(
        hidden_size=128 * heads, num_hidden_layers=4, num_attention_heads=heads, num_key_value_heads=kv_heads,
        intermediate_size=448 * heads, vocab_size=4096, max_position_embeddings=8192, initializer_range=(128 * heads)**-0.5,
        tie_word_embeddings=False)))
    return model, {"input_ids": torch.randint(0, 4096, (1, max(1, n // scale))), "use_cache": False}


MODELS = {"flux": make_flux, "llama-4096": lambda scale: make_llama(4096, scale), "llama-1": lambda scale: make_llama(1, scale)}


# ---- results

def compare(patched, plain, exact):
    """Returns the worst layer: (its path, patched model's error, unpatched model's)."""
    pairs = [(path, error(ours, want), error(theirs, want)) for path in exact
             for ours, theirs, want in zip(patched[path], plain[path], exact[path], strict=True)]
    return max(pairs, key=lambda pair: pair[1] / max(pair[2], 2.0**-9))


# ---- times

def captured(function, inputs):
    """Returns the function that repeats a pass; on a GPU it replays a graph."""
    if not is_on_gpu(inputs):
        function(**inputs)
        return lambda: function(**inputs)
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(3):
            function(**inputs)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        function(**inputs)
    return graph.replay


def is_on_gpu(inputs):
    return any(isinstance(x, torch.Tensor) and x.is_cuda for x in inputs.values())


def timed_on_cpu(repeat, passes):
    start = time.perf_counter()
    for _ in range(passes):
        repeat()
    return (time.perf_counter() - start) * 1e3 / passes


def timed_on_gpu(repeat, passes):
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    for _ in range(passes):
        repeat()
    end.record()
    torch.cuda.synchronize()
    return start.elapsed_time(end) / passes


def medians(sides, timed, rounds):
    passes = {name: max(1, int(20 / timed(repeat, 2))) for name, repeat in sides.items()}
    times = {name: [] for name in sides}
    for _ in range(rounds):
        for name, repeat in sides.items():
            times[name].append(timed(repeat, passes[name]))
    return {name: statistics.median(values) for name, values in times.items()}


def measure(make, options):
    """Returns the figures of one model."""
    torch.manual_seed(1)
    with torch.device(options.device):
        model, inputs = make(options.scale)
    changed = {name: x for name, x in inputs.items() if isinstance(x, torch.Tensor)}
    rest = {name: x for name, x in inputs.items() if name not in changed}
    double = copy.deepcopy(model).double()
    exact = run(double, in_double(changed) | rest)
    del double
    plain, other, sides = run(model, inputs), copy.deepcopy(model), {}
    with quern.patch(other) as patch:
        print(patch)
        path, ours, theirs = compare(run(other, inputs), plain, exact)
        calls = {f"{op}: {kernel}": count for (op, kernel), count in patch.calls.items()}
        del plain, exact
        with torch.inference_mode():
            sides["unpatched"], sides["patched"] = captured(model, inputs), captured(other, inputs)
            if options.compile:
                sides["unpatched, compiled"] = captured(torch.compile(model, fullgraph=True), inputs)
                sides["patched, compiled"] = captured(torch.compile(other, fullgraph=True), inputs)
            times = medians(sides, timed_on_gpu if is_on_gpu(inputs) else timed_on_cpu, options.rounds)
    return {"worst_layer": path or "the whole model", "error_patched": ours, "error_unpatched": theirs, "ms": times,
            "calls": calls, "replaced": patch.counts}


def device_names(device):
    """Returns the machine of the figures: the device, and for a GPU its driver if that can be asked."""
    if not device.startswith("cuda"):
        return {"device": quern.device("cpu").name, "threads": torch.get_num_threads()}
    driver = "unknown"
    if shutil.which("nvidia-smi"):
        driver = subprocess.run(["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"], capture_output=True,
                                text=True, check=True).stdout.strip()
    return {"device": torch.cuda.get_device_name(device), "driver": driver}


def environment(options):
    import diffusers
    import transformers
    return {**device_names(options.device), "torch": torch.__version__, "transformers": transformers.__version__,
            "diffusers": diffusers.__version__, "quern": quern.__version__,
            "command": " ".join(["bench/patch_models.py", *sys.argv[1:]]), "rounds": options.rounds, "scale": options.scale}


def positive(text):
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"found {value}; accepted: 1 or above")
    return value


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS), help="(default: all)")
    parser.add_argument("--compile", action="store_true", help="torch.compile's models as well")
    parser.add_argument("--json", metavar="FILE", help="where the figures go")
    parser.add_argument("--device", default="cuda:0" if torch.cuda.is_available() else "cpu", help="(default: %(default)s)")
    parser.add_argument("--scale", type=positive,
                        help="divides heads, widths and lengths (default: 1, the real ones; on the CPU 8)")
    parser.add_argument("--rounds", type=positive, default=21, help="(default: 21)")
    options = parser.parse_args()
    options.scale = options.scale or (1 if options.device.startswith("cuda") else 8)
    results = {**environment(options), "models": {}}
    for name in options.models:
        figures = results["models"][name] = measure(MODELS[name], options)
        print(f"{name}: worst layer {figures['worst_layer']}: error {figures['error_patched']:.2e}, "
              f"unpatched {figures['error_unpatched']:.2e}")
        for side, time in figures["ms"].items():
            print(f"  {side:20} {time:8.3f} ms  {figures['ms']['unpatched'] / time:5.2f}x", flush=True)
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        if options.json:
            with open(options.json, "w") as file:
                json.dump(results, file, indent=1)


if __name__ == "__main__":
    main()
