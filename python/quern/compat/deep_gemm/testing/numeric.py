# SPDX-License-Identifier: Apache-2.0
"""Comparison of results, and the bytes that tensors hold."""

from typing import Any

import numpy
import torch


def calc_diff(x: torch.Tensor, y: torch.Tensor) -> "torch.Tensor | float":
    """Returns 1 - 2 sum(x y) / sum(x^2 + y^2), in f64: 0 if both are equal, or 0 everywhere."""
    x, y = x.double(), y.double()
    squares = (x * x + y * y).sum()
    return 1 - 2 * (x * y).sum() / squares if squares != 0 else 0.0


def count_bytes(*tensors: Any) -> int:
    """Returns the bytes of tensors, also of those in tuples and lists; None counts 0."""
    total = 0
    for t in tensors:
        if isinstance(t, (tuple, list)):
            total += count_bytes(*t)
        elif t is not None:
            total += t.numel() * t.element_size()
    return total


def assert_bitwise_equal(x: torch.Tensor, y: torch.Tensor, label: str = "") -> None:
    """Raises AssertionError, with label and the first place that differs, unless x and y have one shape, dtype and content, bit by
    bit."""
    for what, a, b in (("shape", tuple(x.shape), tuple(y.shape)), ("dtype", x.dtype, y.dtype)):
        if a != b:
            raise AssertionError(f"{label or 'bits'}: {what} {a} and {b}")
    bits = [t.contiguous().view(-1).view(torch.uint8).view(-1, t.element_size()) for t in (x, y)]
    differs = (bits[0] != bits[1]).any(1)
    if differs.any():
        place = tuple(map(int, numpy.unravel_index(int(differs.nonzero()[0, 0]), x.shape)))
        raise AssertionError(f"{label or 'bits'}: {int(differs.sum())} elements of {x.numel()} differ, the first at {place}: "
                             f"{x[place].item()} and {y[place].item()}")
