# SPDX-License-Identifier: Apache-2.0
"""Which kernels FP8 weights with blocks of 128 x 128 get on an engine's platform, and whether these read packed weights."""

import functools

import torch

import quern

from ._probe import UNKNOWN


@functools.cache
def linear_kernel(probe, kind, packed):
    """Returns the kernel of a small product of weights of that FP8 kind; None where no device can be asked."""
    if not probe.is_open:
        return None
    a, b = torch.ones(1, 512).to(kind), torch.ones(256, 512).to(kind)
    b, scale_b = probe.tensor(b), probe.tensor(torch.ones(2, 4))
    if packed:
        b, scale_b = quern.gemm_pack(b, scale_b)
    return probe.kernel(quern.gemm, a, b, scale_a=torch.ones(1, 4), scale_b=scale_b, packed=packed, n=256 if packed else None)


def packs(probe, kind):
    """Returns whether quern's fast kernels here take packed weights."""
    kernel = linear_kernel(probe, kind, True)
    return kernel is not None and not kernel.startswith("gemm.any")


@functools.cache
def experts_kernel(probe, kind):
    """Returns the kernel of an expert's product of that FP8 kind."""
    if not probe.is_open:
        return UNKNOWN
    a, b, packed = torch.ones(128, 256).to(kind), torch.ones(2, 256, 256).to(kind), packs(probe, kind)
    b, scale_b = probe.tensor(b), probe.tensor(torch.ones(2, 2, 2))
    if packed:
        b, scale_b = quern.gemm_pack(b, scale_b)
    return probe.kernel(quern.gemm_grouped_contiguous, a, b, torch.ones(128, dtype=torch.int32), scale_a=torch.ones(128, 2),
                        scale_b=scale_b, packed=packed, n=256 if packed else None)


def register_linear(table, probe, kind):
    """Tells the table what computes FP8 block linear layers."""
    packed = packs(probe, kind)
    table.serve("FP8 block linear", linear_kernel(probe, kind, packed) or UNKNOWN, "1 x 512 by 256 x 512" + (", packed" if packed else ""))


def register_experts(table, probe, kind):
    """Tells the table what computes FP8 block experts."""
    table.serve("FP8 block experts", experts_kernel(probe, kind), "128 rows by 256 x 256" + (", packed" if packs(probe, kind) else ""))
