# SPDX-License-Identifier: Apache-2.0
"""A kernel under test: compiled by clang, launched through HIP's module API, by ctypes alone."""
import ctypes
import os
import pathlib
import subprocess

import pytest

from conftest import hip

COUNT, GROUPS = 256, 4
SOURCE = pathlib.Path(__file__).with_name("reverse.c")


def check(status):
    assert status == 0, f"HIP error {status}"


def compile_kernel(folder, *flags):
    output = folder / "reverse.co"
    subprocess.check_call([os.environ.get("CLANG", "clang"), "--target=amdgcn-amd-amdhsa", "-mcpu=gfx942", "-nogpulib", "-ffreestanding",
                           "-std=c23", "-O2", "-g", *flags, str(SOURCE), "-o", str(output)])
    return output.read_bytes()


def reverse(code, numbers):
    """The kernel's result, whatever it is: the fixture looks after faults."""
    module, function = ctypes.c_void_p(), ctypes.c_void_p()
    check(hip.hipModuleLoadData(ctypes.byref(module), code))
    check(hip.hipModuleGetFunction(ctypes.byref(function), module, b"reverse"))
    host = (ctypes.c_int * len(numbers))(*numbers)
    size = ctypes.c_size_t(ctypes.sizeof(host))
    source, result = ctypes.c_void_p(), ctypes.c_void_p()
    for pointer in source, result:
        check(hip.hipMalloc(ctypes.byref(pointer), size))
    check(hip.hipMemcpy(source, host, size, 1))
    arguments = (ctypes.c_void_p * 2)(*(ctypes.addressof(p) for p in (source, result)))
    check(hip.hipModuleLaunchKernel(function, len(numbers) // COUNT, 1, 1, COUNT, 1, 1, 0, None, arguments, None))
    hip.hipMemcpy(host, result, size, 2)
    return list(host)


def test_reverse(tmp_path):
    numbers = list(range(GROUPS * COUNT))
    want = [number for g in range(GROUPS) for number in reversed(numbers[g * COUNT : (g + 1) * COUNT])]
    assert reverse(compile_kernel(tmp_path), numbers) == want


def test_missing_barrier(tmp_path, kernel_faults):
    """The result of the wrong kernel may be right; the race is found all the same."""
    reverse(compile_kernel(tmp_path, "-DNO_BARRIER"), range(GROUPS * COUNT))
    races = [fault for fault in kernel_faults.take() if fault["kind"] == "race"]
    assert races and all(fault["instruction"]["source"]["file"] == str(SOURCE) for fault in races)


@pytest.mark.skipif("SHOW" not in os.environ, reason="fails on purpose: SHOW=1 shows how")
def test_that_fails(tmp_path):
    reverse(compile_kernel(tmp_path, "-DNO_BARRIER"), range(GROUPS * COUNT))
