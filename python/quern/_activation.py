# SPDX-License-Identifier: Apache-2.0
"""Gated activations: out = f(gate) * up, gate = x[..., :h] and up = x[..., h:] the halves of x.

x [..., 2 h] f32, f16 or bf16; out [..., h] of x's dtype or FP8. Computed in f32, rounded once. Raises ValueError (shape,
stride, overlap, limit), NotImplementedError (dtype); nothing is written then.
"""

from . import _ops
from ._tensor import empty_like, fp8_name

_FUNCTIONS = {"silu": 0, "gelu": 1, "gelu_tanh": 2}


def _half(x, dtype=None):
    return empty_like(x, shape=(*x.shape[:-1], x.shape[-1] // 2), dtype=dtype)


def _number(op, function):
    if function not in _FUNCTIONS:
        raise ValueError(f"{op}: function is {function!r}; accepted: {', '.join(_FUNCTIONS)}")
    return _FUNCTIONS[function]


def silu_and_mul(x, out=None):
    """gate / (1 + exp(-gate)) * up."""
    out = _half(x) if out is None else out
    _ops.silu_and_mul(out, x)
    return out


def gelu_and_mul(x, out=None):
    """gate / 2 * (1 + erf(gate / sqrt(2))) * up."""
    out = _half(x) if out is None else out
    _ops.gelu_and_mul(out, x)
    return out


def gelu_tanh_and_mul(x, out=None):
    """gate / 2 * (1 + tanh(sqrt(2 / pi) (gate + 0.044715 gate^3))) * up."""
    out = _half(x) if out is None else out
    _ops.gelu_tanh_and_mul(out, x)
    return out


def act_and_mul(x, function="silu", limit=0.0, out=None):
    """f(min(gate, limit)) * clamp(up, -limit, limit); function "silu", "gelu" or "gelu_tanh"; limit 0: none."""
    number = _number("act_and_mul", function)
    out = _half(x) if out is None else out
    _ops.act_and_mul(out, x, number, limit)
    return out


def act_and_mul_quant(x, scale, function="silu", limit=0.0, dtype="e4m3fn", out=None):
    """act_and_mul divided by scale, one f32 on x's device, to FP8; nothing is rounded in between."""
    number = _number("act_and_mul_quant", function)
    out = _half(x, fp8_name(dtype)) if out is None else out
    _ops.act_and_mul_quant(out, x, scale, number, limit)
    return out


def act_and_mul_dynamic_quant(x, function="silu", limit=0.0, group=None, scale_eps=1e-10, dtype="e4m3fn", out=None,
                              scale=None):
    """act_and_mul to FP8 with scales found on the way: (out, scale), scale = max(amax, scale_eps) / max of the kind.

    group  None: a scale for each row; 128: one for 128 elements
    """
    number = _number("act_and_mul_dynamic_quant", function)
    if group not in (None, 128):
        raise ValueError(f"act_and_mul_dynamic_quant: group is {group}; accepted: None, 128")
    out = _half(x, fp8_name(dtype)) if out is None else out
    if scale is None:
        rows = tuple(x.shape[:-1])
        scale = empty_like(x, shape=rows if group is None else (*rows, -(-(x.shape[-1] // 2) // 128)), dtype="float32")
    _ops.act_and_mul_dynamic_quant(out, scale, x, number, limit, scale_eps)
    return out, scale
