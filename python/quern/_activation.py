# SPDX-License-Identifier: Apache-2.0
"""Gated activations: out = f(gate) * up, where gate = x[..., :h] and up = x[..., h:]. Computed in f32, rounded once."""

from __future__ import annotations

from typing import Any, Literal

from . import _ops
from ._norm import _check_group
from ._public import found, public
from ._tensor import empty_like, fp8_name
from ._types import A, Activation, Array, DType

_FUNCTIONS = {"silu": 0, "gelu": 1, "gelu_tanh": 2}


def _half(op, x, dtype=None):
    if not x.shape:
        raise ValueError(f"{op}: x has shape [], needs a last dimension of 2 h")
    return empty_like(x, shape=(*x.shape[:-1], x.shape[-1] // 2), dtype=dtype)


def _number(op, function):
    if function not in _FUNCTIONS:
        raise ValueError(f"{op}: function is {found(function)}; accepted: {', '.join(map(repr, _FUNCTIONS))}")
    return _FUNCTIONS[function]


@public()
def silu_and_mul(x: A, out: A | None = None) -> A:
    """Computes gate / (1 + exp(-gate)) * up, where gate and up are the halves of each row.

    x    [..., 2 h] of f32, f16 or bf16, the last dimension contiguous; no rows are no error
    out  [..., h] of x's dtype; None: a new one

    Returns out. Raises ValueError (shape, stride, overlap), NotImplementedError (dtype, device), TypeError (no array); nothing
    is written then.

    >>> quern.silu_and_mul(numpy.array([[0, 1, 5, 2]], numpy.float32)).round(3)
    array([[0.   , 1.462]], dtype=float32)
    """
    if out is None and (result := _ops.recorded("silu_and_mul", x)) is not None:
        return result
    out = _half("silu_and_mul", x) if out is None else out
    _ops.silu_and_mul(out, x)
    return out


@public()
def gelu_and_mul(x: A, out: A | None = None) -> A:
    """Computes gate / 2 * (1 + erf(gate / sqrt(2))) * up, where gate and up are the halves of each row.

    x    [..., 2 h] of f32, f16 or bf16, the last dimension contiguous; no rows are no error
    out  [..., h] of x's dtype; None: a new one

    Returns out. Raises what silu_and_mul raises.

    >>> quern.gelu_and_mul(numpy.array([[0, 1, 5, 2]], numpy.float32)).round(3)
    array([[0.   , 1.683]], dtype=float32)
    """
    if out is None and (result := _ops.recorded("gelu_and_mul", x)) is not None:
        return result
    out = _half("gelu_and_mul", x) if out is None else out
    _ops.gelu_and_mul(out, x)
    return out


@public()
def gelu_tanh_and_mul(x: A, out: A | None = None) -> A:
    """Computes gate / 2 * (1 + tanh(sqrt(2 / pi) (gate + 0.044715 gate^3))) * up; gate and up are the halves of each row.

    x    [..., 2 h] of f32, f16 or bf16, the last dimension contiguous; no rows are no error
    out  [..., h] of x's dtype; None: a new one

    Returns out. Raises what silu_and_mul raises.

    >>> quern.gelu_tanh_and_mul(numpy.array([[0, 1, 5, 2]], numpy.float32)).round(3)
    array([[0.   , 1.682]], dtype=float32)
    """
    if out is None and (result := _ops.recorded("gelu_tanh_and_mul", x)) is not None:
        return result
    out = _half("gelu_tanh_and_mul", x) if out is None else out
    _ops.gelu_tanh_and_mul(out, x)
    return out


@public()
def act_and_mul(x: A, function: Activation = "silu", limit: float = 0.0, out: A | None = None) -> A:
    """Computes f(min(gate, limit)) * clamp(up, -limit, limit), where gate and up are the halves of each row.

    x         [..., 2 h] of f32, f16 or bf16, the last dimension contiguous; no rows are no error
    function  f: "silu", "gelu" or "gelu_tanh"
    limit     above 0; 0 or infinity: none
    out       [..., h] of x's dtype; None: a new one

    Returns out. Raises ValueError (shape, stride, overlap, function, limit), NotImplementedError (dtype, device), TypeError (no
    array, no number); nothing is written then.

    >>> quern.act_and_mul(numpy.array([[0, 1, 5, 9]], numpy.float32), "gelu", limit=2.0).round(3)
    array([[0.   , 1.683]], dtype=float32)
    """
    number = _number("act_and_mul", function)
    if out is None and (result := _ops.recorded("act_and_mul", x, number, limit)) is not None:
        return result
    out = _half("act_and_mul", x) if out is None else out
    _ops.act_and_mul(out, x, number, limit)
    return out


@public()
def activation_backward(d_out: Array, x: A, function: Activation = "silu", limit: float = 0.0, dx: A | None = None) -> A:
    """Computes the gradient of a loss by x of act_and_mul, from its gradient by the result: by gate, then by up.

    d_out     the loss's gradient by the result: [..., h] of x's dtype
    x         [..., 2 h] of f32, f16 or bf16, as act_and_mul had it, the last dimension contiguous; no rows are no error
    function  "silu", "gelu" or "gelu_tanh"
    limit     as in act_and_mul: where it cut gate or up, the gradient is 0
    dx        as x; None: a new one

    Returns dx. Raises what act_and_mul raises.

    >>> x = numpy.array([[0, 1, 5, 2]], numpy.float32)
    >>> quern.activation_backward(numpy.ones((1, 2), numpy.float32), x).round(3)
    array([[2.5  , 1.855, 0.   , 0.731]], dtype=float32)
    """
    number = _number("activation_backward", function)
    dx = empty_like(x) if dx is None else dx
    _ops.activation_backward(dx, d_out, x, number, limit)
    return dx


@public()
def act_and_mul_quant(x: Array, scale: Array, function: Activation = "silu", limit: float = 0.0, dtype: DType = "e4m3fn",
                      out: Array | None = None) -> Any:
    """Computes act_and_mul divided by scale, as FP8, saturating and rounded once.

    x         [..., 2 h] of f32, f16 or bf16, the last dimension contiguous
    scale     [1] f32 on x's device, above 0 and finite, which QUERN_VALIDATE=1 checks
    function  "silu", "gelu" or "gelu_tanh"
    limit     above 0; 0 or infinity: none
    dtype     of a new out: e4m3fn, e4m3fnuz, e5m2 or e5m2fnuz
    out       [..., h] of an FP8 kind; None: a new one

    Returns out, of x's kind. Raises what act_and_mul raises.

    >>> x, scale = numpy.array([[0, 1, 5, 2]], numpy.float32), numpy.full(1, 0.5, numpy.float32)
    >>> quern.act_and_mul_quant(x, scale).astype(numpy.float32)
    array([[0., 3.]], dtype=float32)
    """
    number = _number("act_and_mul_quant", function)
    out = _half("act_and_mul_quant", x, fp8_name("act_and_mul_quant", dtype)) if out is None else out
    _ops.act_and_mul_quant(out, x, scale, number, limit)
    return out


@public()
def act_and_mul_dynamic_quant(x: Array, function: Activation = "silu", limit: float = 0.0, group: Literal[128] | None = None,
                              scale_eps: float = 1e-10, dtype: DType = "e4m3fn", out: Array | None = None,
                              scale: Array | None = None) -> tuple[Any, Any]:
    """Computes act_and_mul as FP8 and its scales: (out, scale), scale = max(amax, scale_eps) / max of the kind.

    x          [..., 2 h] of f32, f16 or bf16, the last dimension contiguous
    function   "silu", "gelu" or "gelu_tanh"
    limit      above 0; 0 or infinity: none
    group      None: a scale for each row; 128: one for 128 elements. Says the shape of a new scale
    scale_eps  above 0, finite
    dtype      of a new out: e4m3fn, e4m3fnuz, e5m2 or e5m2fnuz
    out        [..., h] of an FP8 kind; None: a new one
    scale      f32 [...] or [..., ceil(h / 128)]; None: a new one

    Raises what act_and_mul raises, and ValueError for another group.

    >>> out, scale = quern.act_and_mul_dynamic_quant(numpy.array([[0, 1, 5, 2]], numpy.float32))
    >>> out.astype(numpy.float32), scale.round(5)
    (array([[  0., 448.]], dtype=float32), array([0.00326], dtype=float32))
    """
    op = "act_and_mul_dynamic_quant"
    number = _number(op, function)
    _check_group(op, group)
    out = _half(op, x, fp8_name(op, dtype)) if out is None else out
    if scale is None:
        rows = tuple(x.shape[:-1])
        scale = empty_like(x, shape=rows if group is None else (*rows, -(-(x.shape[-1] // 2) // 128)), dtype="float32")
    _ops.act_and_mul_dynamic_quant(out, scale, x, number, limit, scale_eps)
    return out, scale
