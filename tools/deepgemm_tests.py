#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs DeepGEMM's own tests, unchanged, over quern.compat.deep_gemm.

tools/deepgemm_tests.py CHECKOUT                                  all tests of a checkout of DeepGEMM, on PyTorch's GPU
tools/deepgemm_tests.py CHECKOUT test_layout test_bf16.test_gemm  some files, some functions
tools/deepgemm_tests.py --cpu --max-size 256 CHECKOUT test_bf16   on the CPU, with smaller matrices

--cpu       tensors for "cuda" are made on the CPU
--max-size  sizes above it that DeepGEMM's generators give are cut to it, as its own take hours on a CPU. Queries and keys of
            test_attention's scores are divided instead, 65536 keys to it, requests by an eighth of that; DG_MQA_NUM_CASES=n makes it
            take n cases of each kind. Sizes that other tests have in themselves stay
--timings   tests time their calls as well

The exit status is 1 if a test failed. Tests that need what quern refuses are told as such and do not count: test_mega_moe needs
SM100, test_sanitizer NVIDIA's tool, test_lazy_init eight GPUs, test_jit (of the first release) NVIDIA's compiler.
"""

import argparse
import contextlib
import importlib
import inspect
import os
import pathlib
import random
import sys
import time
import traceback

import torch

import quern.compat

_LEFT_OUT = "test_mega_moe", "test_sanitizer", "test_lazy_init", "test_jit"
_NOTHING_ON_THE_CPU = "manual_seed", "synchronize", "empty_cache", "reset_peak_memory_stats"
# Where the cases of DeepGEMM's generators have sizes, and where means of which 1.3 times as much may not be above the most.
_SIZES = {"enumerate_normal": (2, 3, 4), "enumerate_m_grouped_contiguous": (3, 4, 5), "enumerate_m_grouped_masked": (3, 5, 6),
          "enumerate_k_grouped_contiguous": (1, 2, 5, 6, 7), "enumerate_sf_layout": (0, 1), "enumerate_k_grouped_sf_layout": (0,)}
_MEANS = {"enumerate_m_grouped_masked": (4,)}
# Where the cases of test_attention have sizes that are divided, which part of the divisor each takes, and the most keys. A few requests
# alone would differ by chance from results without FP8 by more than DeepGEMM allows.
_DIVIDED, _MOST_KEYS = {"prefill": {5: 1, 6: 1}, "paged": {7: 8, 12: 1}}, 65536


class _OnCpu(torch.overrides.TorchFunctionMode):
    """Makes tensors for "cuda" on the CPU."""

    def __torch_function__(self, function, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        if str(kwargs.get("device", "")).startswith("cuda"):
            kwargs["device"] = "cpu"
        return function(*args, **kwargs)


@contextlib.contextmanager
def _on_cpu():
    for name in _NOTHING_ON_THE_CPU:
        setattr(torch.cuda, name, lambda *_: None)
    for name in ("max_memory_allocated", "max_memory_reserved"):
        setattr(torch.cuda, name, lambda *_: 0)
    with _OnCpu():
        yield


def _cut(value, most):
    """Returns a size, or a list of sizes, none above the most."""
    return [_cut(one, most) for one in value] if isinstance(value, list) else min(value, most)


def _with_less(function, places, means, most):
    """Returns a generator like DeepGEMM's whose cases have sizes up to the most, each case once."""
    def generate(*arguments, **options):
        seen = set()
        for case in function(*arguments, **options):
            case = tuple(_cut(value, most if i in places else most * 3 // 4) if i in (*places, *means) else value
                         for i, value in enumerate(case))
            if repr(case) not in seen:
                seen.add(repr(case))
                yield case

    return generate


def _cut_sizes(most):
    generators = importlib.import_module("generators")
    for name in filter(_SIZES.get, vars(generators).copy()):
        places = _SIZES[name]
        setattr(generators, name, _with_less(getattr(generators, name), places, _MEANS.get(name, ()), most))


def _divided(sample, by):
    """Returns a function like test_attention's that chooses cases, of smaller ones."""
    def choose(name, cases):
        parts = _DIVIDED[name]
        return sample(name, [tuple(value // max(by // parts[i], 1) if i in parts else value for i, value in enumerate(case)) for case in cases])

    return choose


def _cut_scores(folder, most):
    if (folder / "test_attention.py").is_file() and most < _MOST_KEYS:
        module = importlib.import_module("test_attention")
        module.sample_mqa_cases = _divided(module.sample_mqa_cases, _MOST_KEYS // most)


def _tests(folder, names):
    """Returns (name, function) of the tests of these names, file or file.function; of all without a name."""
    for name in names or sorted(p.stem for p in folder.glob("test_*.py") if p.stem not in _LEFT_OUT):
        file, _, one = name.partition(".")
        module = importlib.import_module(file)
        functions = [one] if one else [n for n, f in vars(module).items() if n.startswith("test_") and inspect.isfunction(f) and
                                       f.__module__ == file]
        for function in functions:
            yield f"{file}.{function}", getattr(module, function)


def _run(name, function):
    """Runs a test. Returns whether it passed, or could not be served."""
    torch.manual_seed(0)
    random.seed(0)
    start = time.monotonic()
    try:
        function()
        outcome = "passed"
    except NotImplementedError as error:
        outcome = f"not served: {error}"
    except Exception:
        traceback.print_exc()
        outcome = "FAILED"
    print(f"{name}: {outcome}, {time.monotonic() - start:.0f} s", flush=True)
    return outcome


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkout", type=pathlib.Path)
    parser.add_argument("tests", nargs="*")
    parser.add_argument("--cpu", action="store_true")
    parser.add_argument("--max-size", type=int)
    parser.add_argument("--timings", action="store_true")
    options = parser.parse_args()
    folder = options.checkout.resolve() / "tests"
    if not folder.is_dir():
        sys.exit(f"{options.checkout} is no checkout of DeepGEMM: it has no folder tests")
    if not options.timings:
        os.environ["DG_USE_NVIDIA_TOOLS"] = "1"  # DeepGEMM's own word for no timings
    quern.compat.install("deep_gemm")
    sys.path.insert(0, str(folder))
    with _on_cpu() if options.cpu else contextlib.nullcontext():
        if options.max_size:
            _cut_sizes(options.max_size)
            _cut_scores(folder, options.max_size)
        outcomes = [_run(*test) for test in _tests(folder, options.tests)]
    print(f"{outcomes.count('passed')} passed, {outcomes.count('FAILED')} failed, of {len(outcomes)}")
    sys.exit("FAILED" in outcomes or not outcomes)


if __name__ == "__main__":
    main()
