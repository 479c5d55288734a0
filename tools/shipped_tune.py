#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes runtime/shipped.tune, quern's own table of measured choices, by quern tune on modelled chips.

    tools/shipped_tune.py --quern build/release/quern --jobs 2      measures every layer, and writes the table
    tools/shipped_tune.py --work FOLDER                             goes on with what an earlier run has left in FOLDER
    tools/shipped_tune.py --targets gfx942 --models Qwen --list     only lists some of the layers

The layers are those of the models below, each once. The table keeps what it has of layers that FOLDER knows nothing of. Times are modelled (docs/clock.md), of a sample of each kernel's
workgroups for products and attention, of those of one XCD for the others. Of products the kernels of least cost are tried.
Kernels for any shape are left out where they are the slow ones of their op.
"""

import argparse
import concurrent.futures
import dataclasses
import os
import pathlib
import re
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
SLOW = "gemm.any,gemm.any_mixed,gemm.any_fp8,attention.gpu_any_128,attention.gpu_any_512,mla.gpu_any,norm.gpu_any,activation.gpu_any"
OPS = "gemm,attention,mla,norm,activation,quantize"
TARGETS = "gfx942,gfx950,gfx1151,gfx1201"
LARGE = {"gfx942", "gfx950"}  # have room for models above 32 GB
# How much of a launch runs. A sample is too little for launches that only move data (docs/clock.md).
CLOCKS = {"gemm": "sample", "attention": "sample", "mla": "sample"}
EVERY_SIZE = "faster than the choice by costs at every size above"
MARGIN = 1.03  # a line has to save more than what a sample of workgroups may be off between two kernels
ROWS, KEYS = "1,16,64,256,1024,4096", "1024"
PRODUCTS = "1,16,64,256,1024"
SMALL = "1,16,64,256"  # on chips of one XCD, of which a larger part runs
CANDIDATES = "3"  # of a product

# Of each model: its name, whether it fits 32 GB, and the shapes of one process. `fp8` is products with block scales. The
# last layer is left out: it takes minutes for each kernel.
MODELS = [
    ("DeepSeek-V3 and R1, 8 processes", False, {
        "fp8": "2112x7168 3072x1536 4096x512 7168x2048 4608x7168 7168x2304 512x7168 7168x256",
        "mla": "16", "norm": "7168 1536 512", "quantize": "7168 2048 1536", "activation": "2304 256"}),
    ("DeepSeek-V3 and R1, attention by requests", False, {
        "fp8": "24576x1536 7168x16384 4096x7168", "mla": "128", "quantize": "16384", "activation": "2048"}),
    ("Llama-3.1-8B", True, {
        "bf16": "6144x4096 4096x4096 28672x4096 4096x14336",
        "attention": "32x8x128", "norm": "4096", "activation": "14336"}),
    ("Llama-3.1-70B", False, {
        "bf16": "10240x8192 8192x8192 57344x8192 8192x28672", "attention": "64x8x128", "norm": "8192",
        "activation": "28672"}),
    ("Llama-3.1-70B, 8 processes", False, {
        "bf16": "1280x8192 8192x1024 7168x8192 8192x3584", "attention": "8x1x128", "activation": "3584"}),
    ("Llama-3.1-405B, 8 processes", False, {
        "bf16": "2304x16384 16384x2048 13312x16384 16384x6656", "attention": "16x1x128", "norm": "16384",
        "activation": "6656"}),
    ("Qwen3-8B", True, {
        "bf16": "24576x4096 4096x12288", "norm": "128", "activation": "12288"}),
    ("Qwen3-32B", False, {
        "bf16": "10240x5120 5120x8192 51200x5120 5120x25600", "norm": "5120", "activation": "25600"}),
    ("Qwen3-30B-A3B", True, {"bf16": "5120x2048 2048x4096", "attention": "32x4x128", "norm": "2048", "activation": "768"}),
    ("gpt-oss-20b and 120b", True, {
        "bf16": "5120x2880 2880x4096", "attention": "64x8x64", "norm": "2880"}),
]
# Diffusion transformers: tokens of products, queries of attention, and shapes.
IMAGES = [
    ("FLUX.1-dev", "512,4608", "4608", {
        "bf16": "3072x3072 9216x3072 12288x3072 3072x12288 21504x3072 3072x15360", "attention": "24x24x128"}),
    ("Wan2.1-14B", "32760", "4608", {"bf16": "5120x5120 13824x5120 5120x13824", "attention": "40x40x128"}),
]


def arguments_of(kind, shape, tokens):
    """Returns quern tune's words for the layers of one shape."""
    if kind in ("attention", "mla"):
        return [kind, "--shapes", shape, "--seq", tokens]
    if kind in ("norm", "activation", "quantize"):
        return [kind, "--shapes", shape, "--tokens", tokens, "--ranges"]
    dtype = "fp8" if kind == "fp8" else "bf16"
    return ["gemm", "--shapes", shape, "--tokens", tokens, "--dtype", dtype, "--ranges", "--kernels", CANDIDATES]


def layers_of(target):
    """Yields (model, words) of the target's layers."""
    for model, is_small, kinds in MODELS:
        for kind, shapes in kinds.items() if is_small or target in LARGE else ():
            rows, products = (ROWS, PRODUCTS) if target in LARGE else (SMALL, SMALL)
            tokens = {"attention": KEYS, "mla": KEYS, "fp8": products, "bf16": products}.get(kind, rows)
            yield from ((model, arguments_of(kind, shape, tokens)) for shape in shapes.split())
    for model, tokens, keys, kinds in IMAGES:
        for kind, shapes in kinds.items():
            wanted = keys if kind == "attention" else tokens if target in LARGE else tokens.split(",")[0]
            yield from ((model, arguments_of(kind, shape, wanted)) for shape in shapes.split())


def jobs_of(targets, ops, models=""):
    """Returns (target, model, words) of every layer, those of one shape once."""
    jobs = {}
    for target in targets.split(","):
        for model, words in layers_of(target):
            if models in model and words[0] in ops.split(","):
                jobs.setdefault((target, *words), (target, model, words))
    return list(jobs.values())


def file_of(work, job):
    target, _, words = job
    return work / f"{target}-{'-'.join(words).replace('--', '').replace(',', '_')}.tune"


def measure(quern, work, job):
    """Runs quern tune for one layer, if no earlier run has. Returns why it failed."""
    target, _, words = job
    path = file_of(work, job)
    done = path.with_suffix(".done")
    if done.exists():
        return None
    environment = os.environ | {"QUERN_DISABLE": SLOW, "QUERN_NUM_THREADS": "1", "QUERN_SIM": "threads=1;mfma=fast"}
    where = ["--device", f"sim:{target}", "--clock", CLOCKS.get(words[0], "xcd"), "--output", path]
    ran = subprocess.run([quern, "tune", *words, *where], env=environment, capture_output=True, text=True, check=False)
    if ran.returncode:
        return ran.stderr.strip()
    done.touch()
    return None


def length_of(job):
    """Returns a number that grows with how long a layer takes to measure."""
    op, _, shape, _, tokens = job[2][:5]
    weights = [int(part) for part in shape.split("x")]
    if op == "gemm":
        return 1, weights[0] * weights[1] * int(tokens.split(",")[-1])
    return (2 if op in ("attention", "mla", "norm") else 0), weights[0]


def measure_all(options, jobs):
    """Runs all layers, the longest first as far as their words tell. Returns how many failed."""
    failed, begun = 0, time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        ordered = sorted(jobs, key=length_of, reverse=True)
        runs = {pool.submit(measure, options.quern, options.work, job): job for job in ordered}
        for count, run in enumerate(concurrent.futures.as_completed(runs), 1):
            target, _, words = runs[run]
            fault = run.result()
            failed += fault is not None
            print(f"{count}/{len(jobs)} {time.monotonic() - begun:.0f} s {target} {' '.join(words)}"
                  + (f": {fault}" if fault else ""), file=sys.stderr, flush=True)
    return failed


@dataclasses.dataclass
class Problem:
    text: str       # as quern tune shows it
    call: str       # what a line of the table matches, but for the batch
    times: dict     # microseconds of each kernel, that by costs first
    lines: list     # what chooses another kernel


def problems_of(text):
    """Returns the problems of a table that quern tune wrote."""
    problems = []
    for part in re.split(r"^# problem \d+ of \d+: ", text, flags=re.M)[1:]:
        first, *rest = part.splitlines()
        call = next(line for line in rest if line.startswith("# is ")).split(" | ")[0]
        times = {m[1]: float(m[2]) for m in (re.match(r"# (\S+\.\S+) ([\d.]+) us ", line) for line in rest) if m}
        lines = [line for line in rest if line and not line.startswith("#")]
        problems.append(Problem(first.split(";")[0], call, times, lines))
    return problems


def saves(problem, kernel):
    """Returns whether a kernel saves more than MARGIN of a problem's time by costs."""
    return next(iter(problem.times.values())) > MARGIN * problem.times.get(kernel, float("inf"))


def worth_of(problem, problems):
    """Returns the lines of a problem that save more than MARGIN: those for every size at every size."""
    found = []
    for line in problem.lines:
        kernel = re.search(r" -> (\S+) #", line)[1]
        sizes = [p for p in problems if p.call == problem.call] if line.endswith(EVERY_SIZE) else [problem]
        if all(saves(p, kernel) for p in sizes):
            found.append(line)
    return found


def describe(problem, problems):
    """Returns the comment of a problem that goes by costs, or the lines that choose its kernel."""
    lines = worth_of(problem, problems)
    if lines or not problem.times:
        return lines
    kernel = next(iter(problem.times))
    best = min(problem.times, key=problem.times.get)
    other = "" if best == kernel else f"; {best} {problem.times[best]:g}"
    return [f"# {problem.text}: {kernel}, as by costs, {problem.times[kernel]:g} us{other}"]


def name_of(job):
    """Returns the line of the table above a layer's."""
    return f"# {job[0]}: {' '.join(job[2])}"


def kept_of(path):
    """Returns the lines that the table at path has of each layer, by the layer's name."""
    kept, name = {}, None
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
        if line == "#":
            name = None
        elif re.match(r"# gfx\w+: \w+ --shapes ", line):
            name = line
            kept[name] = []
        elif name:
            kept[name].append(line)
    return kept


def lines_of(options, job, kept):
    """Returns the lines of a layer; none if it was never measured."""
    path = file_of(options.work, job)
    if not path.with_suffix(".done").exists():
        return kept.get(name_of(job))
    problems = problems_of(path.read_text(encoding="utf-8"))
    return [line for problem in problems for line in describe(problem, problems)]


def table_of(options, jobs):
    """Returns the whole table's lines."""
    lines = ["quern tune 1", "# quern's own table: what quern tune measured on modelled chips (docs/clock.md), made by",
             "# tools/shipped_tune.py. Calls go by it unless QUERN_TUNE names another table, or is none."]
    heading, kept = None, kept_of(options.output)
    for name in kept.keys() - {name_of(job) for job in jobs}:
        print(f"{options.output}: left out, as no model has it any more: {name[2:]}", file=sys.stderr)
    for job in jobs:
        found = lines_of(options, job, kept)
        if found is None:
            continue
        if (job[0], job[1]) != heading:
            heading = job[0], job[1]
            lines += ["#", f"# {job[0]}, {job[1]}"]
        lines += [name_of(job), *found]
    return lines


def read_options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quern", default=ROOT / "build/release/quern", help="the command")
    parser.add_argument("--targets", default=TARGETS, help=f"a comma list of chips (default: {TARGETS})")
    parser.add_argument("--models", default="", help="only models whose names have this part")
    parser.add_argument("--ops", default=OPS, help=f"a comma list (default: {OPS})")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="processes at a time (default: one a processor)")
    parser.add_argument("--work", type=pathlib.Path, default=ROOT / "build/shipped-tune", help="keeps each layer's own table")
    parser.add_argument("--output", type=pathlib.Path, default=ROOT / "runtime/shipped.tune", help="the table")
    parser.add_argument("--list", action="store_true", help="only list the layers")
    return parser.parse_args()


def main():
    options = read_options()
    every = jobs_of(TARGETS, OPS)
    jobs = jobs_of(options.targets, options.ops, options.models)
    if options.list:
        for target, model, words in jobs:
            print(target, *words, f"# {model}")
        return 0
    options.work.mkdir(parents=True, exist_ok=True)
    failed = measure_all(options, jobs)
    options.output.write_text("\n".join(table_of(options, every)) + "\n", encoding="utf-8")
    print(f"{options.output}: {len(jobs) - failed} of {len(jobs)} layers", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
