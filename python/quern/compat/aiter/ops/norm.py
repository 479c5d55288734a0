# SPDX-License-Identifier: Apache-2.0
"""AITER's LayerNorms. input is [.., h]; weight and bias are of its dtype or f32."""

from __future__ import annotations

import torch

from .... import _norm
from .. import _check
from .._absent import SMOOTH, absent
from .._run import run

Tensor = torch.Tensor
_X_BIAS = "which is added before the norm"


def _layer(op, out, input, weight, bias, epsilon):
    shape = input.shape if input.ndim in (2, 3) else (-1, input.shape[-1])
    run(op, _norm.layernorm, {"x": "input", "gamma": "weight", "beta": "bias", "eps": "epsilon"}, input.reshape(shape), weight, bias,
        _check.number(op, "epsilon", epsilon), out=out.view(shape))


def _new_layer(op, input, weight, bias, epsilon, x_bias):
    _check.refuse(op, _X_BIAS, x_bias=x_bias)
    _check.tensors(op, {"input": input, "weight": weight, "bias": bias}, none=("weight", "bias"))
    out = torch.empty_like(input, memory_format=torch.contiguous_format)
    _layer(op, out, input, weight, bias, epsilon)
    return out


def layer_norm(input: Tensor, weight: Tensor | None = None, bias: Tensor | None = None, epsilon: float = 1e-5,
               x_bias: Tensor | None = None) -> Tensor:
    """Returns (input - mean) / sqrt(variance + epsilon) * weight + bias. x_bias is None."""
    return _new_layer("layer_norm", input, weight, bias, epsilon, x_bias)


def layernorm2d_fwd(input: Tensor, weight: Tensor, bias: Tensor, epsilon: float = 1e-5, x_bias: Tensor | None = None) -> Tensor:
    """Returns layer_norm."""
    return _new_layer("layernorm2d_fwd", input, weight, bias, epsilon, x_bias)


def layernorm2d_fwd_with_add(out: Tensor, input: Tensor, residual_in: Tensor, residual_out: Tensor, weight: Tensor, bias: Tensor,
                             epsilon: float, x_bias: Tensor | None = None) -> None:
    """Writes input + residual_in to residual_out, and layer_norm of the sum before it is rounded to out."""
    op = "layernorm2d_fwd_with_add"
    _check.refuse(op, _X_BIAS, x_bias=x_bias)
    named = {"out": out, "input": input, "residual_in": residual_in, "residual_out": residual_out}
    _check.tensors(op, {**named, "weight": weight, "bias": bias})
    for name, x in named.items():
        _check.shape(op, name, x, *input.shape)
    total = input.float() + residual_in.float()
    result = torch.empty_like(total)
    _layer(op, result, total, weight.float(), bias.float(), epsilon)
    residual_out.copy_(total)
    out.copy_(result)


layernorm2d_fwd_with_smoothquant = absent("layernorm2d_fwd_with_smoothquant", SMOOTH)
layernorm2d_fwd_with_add_smoothquant = absent("layernorm2d_fwd_with_add_smoothquant", SMOOTH)
