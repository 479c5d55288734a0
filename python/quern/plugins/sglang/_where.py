# SPDX-License-Identifier: Apache-2.0
"""What SGLang runs on, as quern names it."""

import functools

import torch

from .._calls import Calls
from .._probe import Probe

calls = Calls("sglang")


def _arch():
    return torch.cuda.get_device_properties(0).gcnArchName.partition(":")[0]


def name():
    if torch.version.hip:
        return _arch()
    return "cuda" if torch.cuda.is_available() else "cpu"


@functools.cache
def probe():
    """Returns what tells kernels of this platform. NVIDIA's GPUs cannot be asked before they are opened."""
    if torch.version.hip:
        return Probe(f"sim:{_arch()}")
    return Probe(None if torch.cuda.is_available() else "cpu")
