# SPDX-License-Identifier: Apache-2.0
"""What is checked of DeepGEMM's arguments before anything is computed."""

import torch

from ..._public import flag, found
from .._check import contiguous, integer, rows, shape, tensors  # noqa: F401

FP8 = torch.float8_e4m3fn, torch.float8_e4m3fnuz
D_TYPES = torch.bfloat16, torch.float32


def pair(op, name, value):
    """Returns the two members of (FP8 values, scales)."""
    if not isinstance(value, (tuple, list)) or len(value) != 2:
        raise TypeError(f"{op}: {name} is {found(value)}; accepted: (values, scales), two PyTorch tensors")
    return value


def dtype(op, name, x, accepted):
    if x.dtype == torch.int8 and torch.float8_e4m3fn in accepted:
        raise NotImplementedError(f"{op}: {name} has dtype torch.int8, packed FP4, which SM100's matrix cores take and no chip "
                                  f"that quern serves; accepted: {', '.join(map(str, accepted))}")
    if x.dtype not in accepted:
        raise NotImplementedError(f"{op}: {name} has dtype {x.dtype}; accepted: {', '.join(map(str, accepted))}")


def either_contiguous(op, name, x):
    """Checks that the rows or the columns of a matrix, or of a stack of them, are contiguous."""
    strides = [stride for size, stride in zip(x.shape[-2:], x.stride()[-2:], strict=True) if size > 1]
    if len(strides) == 2 and 1 not in strides:
        raise ValueError(f"{op}: {name} has strides {list(x.stride())}, needs contiguous rows or columns")


def hints(op, compiled_dims=None, **flags):
    """Checks arguments that say how DeepGEMM computes: compiled_dims, the dimensions that it compiles into its kernels, and truth
    values."""
    if compiled_dims is not None and not (isinstance(compiled_dims, str) and set(compiled_dims) <= set("mnk")):
        raise ValueError(f"{op}: compiled_dims is {found(compiled_dims)}; accepted: letters of 'mnk'")
    for name, value in flags.items():
        flag(op, name, value)


def refuse(op, why, **arguments):
    """Refuses arguments that are not None."""
    for name, value in arguments.items():
        if value is not None:
            raise NotImplementedError(f"{op}: {name} is {found(value)}, which {why}; accepted: None")
