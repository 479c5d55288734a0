# SPDX-License-Identifier: Apache-2.0
"""AITER's quantisation: scale = max(amax, 1e-10) / max of the kind, y = x / scale, saturating. x is [.., columns] of f32, f16 or
bf16; the kinds are e4m3fn, e4m3fnuz and int8.

num_rows, num_rows_factor  only the first num_rows * num_rows_factor rows need be computed: hints, as all rows are
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from .... import _quantize
from ...._public import flag, found
from .. import _check
from .._absent import FP4, absent
from .._run import run
from .enum import QuantType
from .rmsnorm import scales_of

Tensor = torch.Tensor
KINDS = (*_check.FP8, torch.int8)
_NAMES = {"x": "input", "q": "out", "scale": "scales"}


def _row_hints(op, num_rows, num_rows_factor):
    _check.integer(op, "num_rows_factor", num_rows_factor, 1)
    if num_rows is not None and not (isinstance(num_rows, torch.Tensor) and num_rows.numel() == 1):
        raise ValueError(f"{op}: num_rows is {found(num_rows)}; accepted: None, a tensor of one")


def _groups(op, out, input, scales, group, is_turned, names):
    """Quantises groups of columns, 0 for whole rows."""
    _check.dtype(op, names.get("q", "out"), out, KINDS)
    if out.shape != input.shape:
        raise ValueError(f"{op}: {names['q']} has shape {list(out.shape)}, needs {list(input.shape)}, {names['x']}'s")
    _check.contiguous(op, **{names["q"]: out})
    x = _check.rows_of(input)
    written = scales_of(op, names["scale"], scales, x.shape[0], group, x.shape[1], is_turned)
    written = written[:, None] if written.ndim == 1 else written
    run(op, _quantize.quantize_groups, names, x, group, q=out.view(x.shape), scale=written)


def dynamic_per_token_scaled_quant(out: Tensor, input: Tensor, scales: Tensor, scale_ub: Tensor | None = None,
                                   shuffle_scale: bool = False, num_rows: Tensor | None = None, num_rows_factor: int = 1) -> None:
    """Quantises each row of input.

    out            input's shape, or its values in rows of several of input's
    scales         f32: one for each row of input, contiguous
    scale_ub       None
    shuffle_scale  of scales [rows, groups], whose input has a row for each group: the bytes lie as [groups, rows]
    """
    op = "dynamic_per_token_scaled_quant"
    _check.tensors(op, {"out": out, "input": input, "scales": scales})
    _check.refuse(op, "which bounds scales", scale_ub=scale_ub)
    _row_hints(op, num_rows, num_rows_factor)
    if flag(op, "shuffle_scale", shuffle_scale) and scales.ndim > 1 and scales.shape[-1] > 1:
        group = input.shape[-1]
        if not input.is_contiguous() or scales.numel() * group != input.numel():
            raise ValueError(f"{op}: scales has shape {list(scales.shape)}, needs one for each row of a contiguous input, "
                             f"{list(input.shape)}")
        rows = input.view(-1, scales.shape[-1] * group)
        _check.contiguous(op, out=out)
        _groups(op, out.view(rows.shape), rows, scales, group, True, _NAMES)
    else:
        _check.contiguous(op, out=out)
        _groups(op, out.view(input.shape), input, scales, 0, False, _NAMES)


def dynamic_per_tensor_quant(out: Tensor, input: Tensor, scale: Tensor) -> None:
    """Quantises input with one scale, f32 [1], which is written."""
    op = "dynamic_per_tensor_quant"
    _check.tensors(op, {"out": out, "input": input, "scale": scale})
    _check.contiguous(op, out=out)
    run(op, _quantize.quantize_tensor, {"x": "input", "q": "out"}, _check.rows_of(input), q=_check.rows_of(out), scale=scale.view(-1))


def static_per_tensor_quant(out: Tensor, input: Tensor, scale: Tensor) -> None:
    """Writes input / scale to out; scale is f32 [1], above 0."""
    op = "static_per_tensor_quant"
    _check.tensors(op, {"out": out, "input": input, "scale": scale})
    _check.contiguous(op, out=out)
    run(op, _quantize.quantize_static, {"x": "input", "q": "out"}, _check.rows_of(input), scale.reshape(-1), q=_check.rows_of(out))


def _new(op, x, quant_dtype):
    _check.tensors(op, {"x": x})
    _check.dtype(op, "quant_dtype", quant_dtype, KINDS)
    return torch.empty(x.shape, dtype=quant_dtype, device=x.device)


def per_tensor_quant_hip(x: Tensor, scale: Tensor | None = None, quant_dtype: torch.dtype = torch.int8, num_rows: None = None,
                         num_rows_factor: int = 1) -> tuple[Tensor, Tensor]:
    """Returns (y, scale [1]) of one scale: the given one, or a new one."""
    op = "per_tensor_quant_hip"
    _check.refuse(op, "which AITER refuses, too", num_rows=num_rows)
    _row_hints(op, None, num_rows_factor)
    y = _new(op, x, quant_dtype)
    if scale is not None:
        _check.tensors(op, {"x": x, "scale": scale})
        run(op, _quantize.quantize_static, {}, _check.rows_of(x), scale.reshape(-1), q=_check.rows_of(y))
        return y, scale.view(1)
    scale = torch.empty(1, dtype=torch.float32, device=x.device)
    run(op, _quantize.quantize_tensor, {}, _check.rows_of(x), q=_check.rows_of(y), scale=scale)
    return y, scale


def per_token_quant_hip(x: Tensor, scale: None = None, quant_dtype: torch.dtype = torch.int8, num_rows: Tensor | None = None,
                        num_rows_factor: int = 1) -> tuple[Tensor, Tensor]:
    """Returns (y, scale f32 [.., 1]), a scale for each row. scale is None."""
    op = "per_token_quant_hip"
    _check.refuse(op, "which AITER refuses, too", scale=scale)
    _row_hints(op, num_rows, num_rows_factor)
    y = _new(op, x, quant_dtype)
    scales = torch.empty((*x.shape[:-1], 1), dtype=torch.float32, device=x.device)
    _groups(op, y, x, scales, 0, False, {"x": "x", "q": "y", "scale": "scale"})
    return y, scales


def per_group_quant_hip(x: Tensor, scale: None = None, quant_dtype: torch.dtype = torch.int8, group_size: int = 128,
                        transpose_scale: bool = False, num_rows: Tensor | None = None, num_rows_factor: int = 1,
                        scale_type: torch.dtype = torch.float32) -> tuple[Tensor, Tensor]:
    """Returns (y, scale f32 [.., columns / group_size]).

    group_size       32, 64 or 128, which divides the columns
    transpose_scale  the scales' bytes lie as [groups, rows], their shape notwithstanding
    scale_type       f32
    """
    op = "per_group_quant_hip"
    _check.refuse(op, "which AITER refuses, too", scale=scale)
    _check.dtype(op, "scale_type", scale_type, (torch.float32,))
    _row_hints(op, num_rows, num_rows_factor)
    if group_size not in (32, 64, 128):
        raise ValueError(f"{op}: group_size is {found(group_size)}; accepted: 32, 64, 128")
    y = _new(op, x, quant_dtype)
    if x.shape[-1] % group_size:
        raise ValueError(f"{op}: x has shape {list(x.shape)}, needs columns in groups of {group_size}")
    scales = torch.empty((*x.shape[:-1], x.shape[-1] // group_size), dtype=torch.float32, device=x.device)
    _groups(op, y, x, scales, group_size, flag(op, "transpose_scale", transpose_scale), {"x": "x", "q": "y", "scale": "scale"})
    return y, scales


per_1x32_f4_quant = absent("per_1x32_f4_quant", FP4)
per_1x32_f4_quant_hip = absent("per_1x32_f4_quant_hip", FP4)
per_1x32_mx_quant_hip = absent("per_1x32_mx_quant_hip", FP4)
dynamic_per_group_scaled_quant = absent("dynamic_per_group_scaled_quant", FP4)
dynamic_per_group_scaled_quant_fp4 = absent("dynamic_per_group_scaled_quant_fp4", FP4)


def _as_it_is(x: Tensor, *_arguments: Any, **_options: Any) -> tuple[Tensor, None]:
    return x, None


_BY_TYPE = {QuantType.No: _as_it_is, QuantType.per_Tensor: per_tensor_quant_hip, QuantType.per_Token: per_token_quant_hip,
            QuantType.per_1x32: per_1x32_mx_quant_hip,
            QuantType.per_1x128: functools.partial(per_group_quant_hip, group_size=128)}


def get_hip_quant(qType: QuantType | int) -> Callable[..., Any]:
    """Returns the function that quantises so: (x, quant_dtype=...) -> (y, scale)."""
    if qType not in _BY_TYPE:
        raise NotImplementedError(f"get_hip_quant: qType is {qType!r}; accepted: {', '.join(kind.name for kind in _BY_TYPE)}")
    return _BY_TYPE[QuantType(qType)]
