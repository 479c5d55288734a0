# SPDX-License-Identifier: Apache-2.0
"""A norm to FP8, and a second norm beside it."""

from __future__ import annotations

import torch

from ......_public import flag
from .... import _check
from ....utility import dtypes
from ...rmsnorm import _norm_rows, quantised

Tensor = torch.Tensor


def fused_rms_fp8_group_quant(inp1: Tensor, inp1_weight: Tensor, inp1_epsilon: float, inp2: Tensor | None = None,
                              inp2_weight: Tensor | None = None, inp2_epsilon: float | None = None, group_size: int = 128,
                              dtype_quant: torch.dtype = dtypes.fp8, res1: Tensor | None = None, output_unquantized_inp1: bool = False,
                              transpose_scale: bool = False, is_x_scale_strided: bool = False
                              ) -> tuple[tuple[Tensor, Tensor], Tensor | None, Tensor | None, Tensor | None]:
    """Returns ((q, scale), norm, norm of inp2, sum): RMSNorm of inp1 + res1 [rows, h] as FP8 with f32 scales [rows, ceil(h / 128)],
    and unless None the norm itself (output_unquantized_inp1), inp2's norm, and inp1 + res1.

    group_size          128
    transpose_scale     the scales' bytes lie as [groups, rows]; is_x_scale_strided: and the strides say so
    """
    op = "fused_rms_fp8_group_quant"
    named = {"inp1": inp1, "inp1_weight": inp1_weight, "inp2": inp2, "inp2_weight": inp2_weight, "res1": res1}
    _check.tensors(op, named, none=("inp2", "inp2_weight", "res1"))
    _check.only(op, "columns of a scale", 128, group_size=group_size)
    _check.dtype(op, "dtype_quant", dtype_quant, _check.FP8)
    keeps, is_turned = flag(op, "output_unquantized_inp1", output_unquantized_inp1), flag(op, "transpose_scale", transpose_scale)
    _check.shape(op, "inp1", inp1, None, None)
    (rows, columns), total = inp1.shape, None
    groups, summand = -(-columns // 128), inp1
    if res1 is not None:
        _check.shape(op, "res1", res1, rows, columns)
        _check.dtype(op, "res1", res1, (inp1.dtype,))
        total = res1.clone(memory_format=torch.contiguous_format)
    out = torch.empty(rows, columns, dtype=dtype_quant, device=inp1.device)
    scale = torch.empty(rows, groups, dtype=torch.float32, device=inp1.device)
    quantised(op, out, summand, total, scale, inp1_weight, inp1_epsilon, 128, is_turned, False)
    if is_turned and flag(op, "is_x_scale_strided", is_x_scale_strided):
        scale = scale.view(groups, rows).T
    norm = _second(op, inp1 if total is None else total, inp1_weight, inp1_epsilon) if keeps else None
    return (out, scale), norm, None if inp2 is None else _second(op, inp2, inp2_weight, inp2_epsilon), total


def _second(op, x, weight, epsilon):
    out = torch.empty_like(x, memory_format=torch.contiguous_format)
    _norm_rows(op, out, x, weight, epsilon, False)
    return out
