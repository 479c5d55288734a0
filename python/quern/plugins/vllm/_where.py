# SPDX-License-Identifier: Apache-2.0
"""What vLLM runs on, as quern names it."""

import functools

from vllm.platforms import current_platform

from .._calls import Calls
from .._probe import Probe

calls = Calls("vllm")


def _arch():
    from vllm.platforms import rocm
    return rocm._GCN_ARCH.partition(":")[0]


def name():
    return _arch() if current_platform.is_rocm() else current_platform.device_name


def refused():
    """Returns why quern can compute nothing here; None if it can."""
    if current_platform.is_rocm() or current_platform.is_cuda() or current_platform.is_cpu():
        return None
    return f"quern has kernels for AMD's GPUs, NVIDIA's and CPUs, not for vLLM's platform {type(current_platform).__name__}"


def kind():
    """Returns the platform's kind of FP8."""
    return current_platform.fp8_dtype()


@functools.cache
def probe():
    """Returns what tells kernels of this platform. NVIDIA's GPUs cannot be asked before they are opened."""
    if current_platform.is_rocm():
        return Probe(f"sim:{_arch()}")
    return Probe("cpu" if current_platform.is_cpu() else None)


def method():
    """Returns the name of the method by which custom ops run here."""
    return "forward_hip" if current_platform.is_rocm() else "forward_cpu" if current_platform.is_cpu() else "forward_cuda"
