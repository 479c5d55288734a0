# SPDX-License-Identifier: Apache-2.0
"""What stand-ins check of arguments before anything is computed. An error names the function, the argument, what was found and
what is accepted."""

import numbers

import torch

from .._public import found
from ..torch._tensors import check as check_all
from ..torch._tensors import refuse_gradients


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
