# SPDX-License-Identifier: Apache-2.0
"""Timings of a call: by the device's events on a GPU, by the clock on the CPU."""

import os
import time
from collections.abc import Callable
from typing import Any

import torch

from .._check import integer, refuse
from ...._public import flag, found

_FLUSH_BYTES = 256 << 20  # more than any cache holds


def _flush():
    if torch.cuda.is_available():
        torch.empty(_FLUSH_BYTES, dtype=torch.uint8, device="cuda").zero_()


def _seconds(fn, before):
    """Returns the time of one call, without that of before()."""
    before()
    if not torch.cuda.is_available():
        start = time.perf_counter()
        fn()
        return time.perf_counter() - start
    events = [torch.cuda.Event(enable_timing=True) for _ in range(2)]
    events[0].record()
    fn()
    events[1].record()
    torch.cuda.synchronize()
    return events[0].elapsed_time(events[1]) / 1e3


def bench(fn: Callable[[], Any], num_warmups: int = 5, num_tests: int = 10, high_precision: bool = False) -> float:
    """Returns the mean time of fn() in seconds. high_precision: a long product goes ahead, so that the host's time does not
    count."""
    warmups, tests = integer("bench", "num_warmups", num_warmups, 0), integer("bench", "num_tests", num_tests, 1)
    is_precise = flag("bench", "high_precision", high_precision) and torch.cuda.is_available()
    _flush()
    for _ in range(warmups):
        fn()
    if is_precise:
        x = torch.randn(8192, 8192, device="cuda")
        x @ x
    return _seconds(lambda: [fn() for _ in range(tests)], lambda: None) / tests


def bench_kineto(fn: Callable[[], Any], kernel_names: "str | tuple[str, ...]", num_tests: int = 30,
                 suppress_kineto_output: bool = False, trace_path: None = None, flush_l2: bool = True,
                 with_multiple_kernels: bool = False, barrier: "Callable[[], Any] | None" = None) -> Any:
    """Returns the mean time of fn() in seconds, as a tuple of equal shares if kernel_names is a tuple of names.

    kernel_names  DeepGEMM's kernels, which are not here: how many parts the time is told in
    num_tests     calls that are timed; on the CPU one
    flush_l2      a GPU's caches are flushed before each call
    barrier       called before each call
    suppress_kineto_output, with_multiple_kernels  hints, which change nothing: nothing is printed, and all kernels count
    trace_path    None, as no trace is taken

    With the environment's DG_USE_NVIDIA_TOOLS=1 nothing is called, and all times are 1.
    """
    op = "bench_kineto"
    if not isinstance(kernel_names, (str, tuple)) or not kernel_names:
        raise TypeError(f"{op}: kernel_names is {found(kernel_names)}; accepted: a name, a tuple of names")
    refuse(op, "would be written by PyTorch's profiler, which is not run", trace_path=trace_path)
    tests, flush = integer(op, "num_tests", num_tests, 1), flag(op, "flush_l2", flush_l2)
    flag(op, "suppress_kineto_output", suppress_kineto_output)
    flag(op, "with_multiple_kernels", with_multiple_kernels)
    share = 1
    if not int(os.environ.get("DG_USE_NVIDIA_TOOLS", "0")):
        fn()
        steps = [step for step in (_flush if flush else None, barrier) if step]
        tests = tests if torch.cuda.is_available() else 1
        total = sum(_seconds(fn, lambda: [step() for step in steps]) for _ in range(tests)) / tests
        share = total if isinstance(kernel_names, str) else total / len(kernel_names)
    return share if isinstance(kernel_names, str) else (share,) * len(kernel_names)
