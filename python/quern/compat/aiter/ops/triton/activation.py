# SPDX-License-Identifier: Apache-2.0
"""A gated activation to FP8."""

from __future__ import annotations

import torch

from ....._public import found
from ... import _check
from ...utility import dtypes
from ..activation import quantised

Tensor = torch.Tensor
_FUNCTIONS = "silu", "gelu", "gelu_tanh"


def act_mul_and_fp8_group_quant(x: Tensor, activation: str, group_size: int, dtype_quant: torch.dtype = dtypes.fp8) -> tuple[Tensor, Tensor]:
    """Returns (f(gate) * up as FP8, f32 scales [rows, ceil(h / 128)]) of x [rows, 2 h].

    activation  "silu", "gelu" or "gelu_tanh"
    group_size  128
    """
    op = "act_mul_and_fp8_group_quant"
    _check.tensors(op, {"x": x})
    _check.shape(op, "x", x, None, None)
    if activation not in _FUNCTIONS:
        raise ValueError(f"{op}: activation is {found(activation)}; accepted: {', '.join(map(repr, _FUNCTIONS))}")
    _check.only(op, "columns of a scale", 128, group_size=group_size)
    _check.dtype(op, "dtype_quant", dtype_quant, _check.FP8)
    columns = x.shape[1] // 2
    out = torch.empty(len(x), columns, dtype=dtype_quant, device=x.device)
    scale = torch.empty(len(x), -(-columns // 128), dtype=torch.float32, device=x.device)
    quantised(op, out, x, scale, activation, 0.0, 128, False, "x")
    return out, scale
