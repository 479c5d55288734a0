#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a call of quern costs from Python with PyTorch tensors, beyond the driver's own launch of an empty kernel.

    python bench/python_call.py                    on cuda:0
    python bench/python_call.py --device cpu       without a launch: the call with no rows
    python bench/python_call.py --json FILE        the figures for programs as well

Host time of one call while the device's queue has room: the best of 21 batches of 200 calls, the device idle before each.
The launch is cuLaunchKernel of an empty kernel, called through ctypes; what ctypes itself costs is the time of the same call
with no function, which the driver refuses at once, and is taken off. Needs torch.
"""

import argparse
import ctypes
import json
import time

BATCHES, CALLS = 21, 200
EMPTY = b".version 7.0\n.target sm_80\n.address_size 64\n.visible .entry empty() { ret; }\n\0"


def best_us(call, wait):
    """Returns the microseconds of one call of the fastest batch."""
    best = float("inf")
    for _ in range(BATCHES):
        wait()
        start = time.perf_counter_ns()
        for _ in range(CALLS):
            call()
        best = min(best, time.perf_counter_ns() - start)
        wait()
    return best / CALLS / 1000


def check(result):
    if result:
        raise RuntimeError(f"CUDA driver: error {result}")


def launch_us(torch):
    """Returns the microseconds of the driver's launch of an empty kernel on PyTorch's current stream."""
    driver = ctypes.CDLL("libcuda.so.1")
    module, function = ctypes.c_void_p(), ctypes.c_void_p()
    check(driver.cuModuleLoadData(ctypes.byref(module), EMPTY))
    check(driver.cuModuleGetFunction(ctypes.byref(function), module, b"empty"))
    launch = driver.cuLaunchKernel
    launch.argtypes = [ctypes.c_void_p] + [ctypes.c_uint] * 7 + [ctypes.c_void_p] * 3
    stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)

    def call(what):
        return lambda: launch(what, 1, 1, 1, 32, 1, 1, 0, stream, None, None)

    check(call(function)())
    if call(None)() == 0:
        raise RuntimeError("the driver launched a null function")
    whole = best_us(call(function), torch.cuda.synchronize)
    return whole - best_us(call(None), torch.cuda.synchronize)


def calls_of(torch, quern, device):
    """Returns name -> a call, each one kernel of few bytes (on the CPU: of no rows)."""
    rows = 0 if device == "cpu" else 1
    x, weight = torch.randn(rows, 64, device=device), torch.ones(64, device=device)
    out, half = torch.empty_like(x), torch.empty(rows, 32, device=device)
    q, positions = torch.randn(rows, 1, 64, device=device), torch.zeros(rows, dtype=torch.int32, device=device)
    q_out = torch.empty_like(q)
    return {
        "quern.rmsnorm, out given": lambda: quern.rmsnorm(x, weight, out=out),
        "quern.rmsnorm, out made": lambda: quern.rmsnorm(x, weight),
        "quern.fused_add_rmsnorm": lambda: quern.fused_add_rmsnorm(x, out, weight),
        "quern.silu_and_mul, out given": lambda: quern.silu_and_mul(x, out=half),
        "quern.apply_rope_pos_ids, out given": lambda: quern.apply_rope_pos_ids(q, None, positions, q_out=q_out),
        "torch.ops.quern.rmsnorm": lambda: torch.ops.quern.rmsnorm(out, x, weight, 1e-6),
        "torch rms_norm": lambda: torch.nn.functional.rms_norm(x, (64,), weight, 1e-6),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--json", metavar="FILE")
    options = parser.parse_args()
    import torch
    import quern
    on_gpu = options.device != "cpu"
    if on_gpu:
        torch.cuda.set_device(options.device)
    wait = torch.cuda.synchronize if on_gpu else lambda: None
    launch = launch_us(torch) if on_gpu else 0.0
    name = torch.cuda.get_device_name() if on_gpu else "CPU"
    print(f"{name}, PyTorch {torch.__version__}; launch of an empty kernel: {launch:.2f} µs")
    print(f"{'call':40} {'µs':>7} {'beyond the launch':>18}")
    result = {"device": name, "torch": torch.__version__, "launch_us": launch, "calls": {}}
    for what, call in calls_of(torch, quern, options.device).items():
        call()
        us = best_us(call, wait)
        result["calls"][what] = {"us": us, "beyond_launch_us": us - launch}
        print(f"{what:40} {us:7.2f} {us - launch:18.2f}")
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump(result, file, indent=1)


if __name__ == "__main__":
    main()
