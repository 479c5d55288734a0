# SPDX-License-Identifier: Apache-2.0
"""What is checked of arguments before anything is computed. An error names the function, the argument, what was found and
what is accepted."""

import numbers

import torch

from ..._public import flag, found
from ...torch._tensors import check as check_all
from ...torch._tensors import refuse_gradients

FP8 = torch.float8_e4m3fn, torch.float8_e4m3fnuz
D_TYPES = torch.bfloat16, torch.float32


def tensors(op, named, none=()):
    """Checks that values are plain tensors of one device that need no gradient. none: names whose value may be None."""
    first = None
    for name, x in named.items():
        if x is None and name in none:
            continue
        if not isinstance(x, torch.Tensor):
            accepted = "a PyTorch tensor, None" if name in none else "a PyTorch tensor"
            raise TypeError(f"{op}: {name} is {found(x)}; accepted: {accepted}")
        first = first or (name, x.device)
        if x.device != first[1]:
            raise ValueError(f"{op}: {name} is on {x.device}, needs {first[1]}, where {first[0]} is")
    check = refuse_gradients if torch.compiler.is_compiling() else check_all
    check(op, tuple(named), tuple(named.values()))


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


def shape(op, name, x, *needs, is_turned=False):
    """Checks sizes; None stands for any. is_turned: the caller gave x with its last two dimensions the other way round, and
    the message says them so."""
    if len(x.shape) == len(needs) and all(n is None or n == size for n, size in zip(needs, x.shape, strict=True)):
        return
    def told(sizes):
        sizes = ["any" if size is None else size for size in sizes]
        sizes = [*sizes[:-2], *sizes[:-3:-1]] if is_turned else sizes
        return f"[{', '.join(map(str, sizes))}]"
    raise ValueError(f"{op}: {name} has shape {told(x.shape)}, needs {told(needs)}")


def rows(op, name, x):
    """Checks that a result's rows are contiguous."""
    if x.shape[-1] > 1 and x.stride(-1) != 1:
        raise ValueError(f"{op}: {name} has strides {list(x.stride())}, needs contiguous rows")


def either_contiguous(op, name, x):
    """Checks that the rows or the columns of a matrix, or of a stack of them, are contiguous."""
    strides = [stride for size, stride in zip(x.shape[-2:], x.stride()[-2:], strict=True) if size > 1]
    if len(strides) == 2 and 1 not in strides:
        raise ValueError(f"{op}: {name} has strides {list(x.stride())}, needs contiguous rows or columns")


def contiguous(op, **named):
    for name, x in named.items():
        if not x.is_contiguous():
            raise ValueError(f"{op}: {name} has strides {list(x.stride())}, needs a contiguous tensor")


def integer(op, name, value, least, most=None):
    """Returns an integer within bounds, both included."""
    if isinstance(value, bool) or not isinstance(value, numbers.Integral) or value < least or (most is not None and value > most):
        accepted = f"an integer of {least} or above" if most is None else f"an integer from {least} to {most}"
        raise ValueError(f"{op}: {name} is {found(value)}; accepted: {accepted}")
    return int(value)


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
