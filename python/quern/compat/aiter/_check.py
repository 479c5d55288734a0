# SPDX-License-Identifier: Apache-2.0
"""What is checked of AITER's arguments before anything is computed."""

import numbers

import torch

from ..._public import flag, found
from .._check import contiguous, integer, shape, tensors

__all__ = ["FP8", "contiguous", "dtype", "fp8_values", "hints", "integer", "number", "only", "refuse", "rows_of", "scale", "shape",
           "tensors"]

FP8 = torch.float8_e4m3fn, torch.float8_e4m3fnuz


def dtype(op, name, given, accepted):
    """Checks a tensor's dtype, or a dtype."""
    kind = given.dtype if isinstance(given, torch.Tensor) else given
    if kind not in accepted:
        told = f"{name} has dtype {kind}" if isinstance(given, torch.Tensor) else f"{name} is {found(kind)}"
        told = f"{name} is {kind}" if isinstance(kind, torch.dtype) and not isinstance(given, torch.Tensor) else told
        raise NotImplementedError(f"{op}: {told}; accepted: {', '.join(map(str, accepted))}")


def refuse(op, why, **arguments):
    """Refuses arguments that are not None."""
    for name, value in arguments.items():
        if value is not None:
            raise NotImplementedError(f"{op}: {name} is {found(value)}, {why}; accepted: None")


def only(op, why, accepted, **arguments):
    """Refuses arguments that are not the accepted value: they mean something, which nothing here does."""
    for name, value in arguments.items():
        if isinstance(value, torch.Tensor) or value is None or value != accepted:
            raise NotImplementedError(f"{op}: {name} is {found(value)}, {why}; accepted: {accepted!r}")


def hints(op, **flags):
    """Checks truth values that say how AITER computes."""
    for name, value in flags.items():
        flag(op, name, value)


def number(op, name, value):
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise TypeError(f"{op}: {name} is {found(value)}; accepted: a number")
    return float(value)


def rows_of(x):
    """Returns x as [rows, columns], a view where that is possible."""
    return x if x.ndim == 2 else x.reshape(-1, x.shape[-1])


def scale(op, name, value, like, count=1):
    """Returns f32 [count] on like's device of a number, or a tensor of one or of count; None stays None."""
    if value is None:
        return None
    if not isinstance(value, torch.Tensor):
        return torch.full((count,), number(op, name, value), dtype=torch.float32, device=like.device)
    if value.numel() not in (1, count):
        raise ValueError(f"{op}: {name} has {value.numel()} entries, needs 1" + (f" or {count}" if count > 1 else ""))
    return value.reshape(-1).to(device=like.device, dtype=torch.float32).expand(count).contiguous()


_CACHES = "auto", "fp8", "fp8_e4m3"


def fp8_values(op, word, **caches):
    """Returns caches, as FP8 if kv_cache_dtype says so of bytes."""
    from .utility import dtypes
    if word not in _CACHES:
        raise NotImplementedError(f"{op}: kv_cache_dtype is {found(word)}; accepted: {', '.join(map(repr, _CACHES))}")
    for name, cache in caches.items():
        if cache.dtype in (torch.uint8, torch.int8):
            if word == "auto":
                raise NotImplementedError(f"{op}: {name} has dtype {cache.dtype}; accepted with kv_cache_dtype 'auto': f16, bf16, FP8")
            caches[name] = cache.view(dtypes.fp8)
        elif word != "auto" and cache.dtype not in FP8:
            raise ValueError(f"{op}: {name} has dtype {cache.dtype}; accepted with kv_cache_dtype {word!r}: bytes, "
                             f"{', '.join(map(str, FP8))}")
    return list(caches.values())
