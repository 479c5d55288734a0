# SPDX-License-Identifier: Apache-2.0
"""AITER's RMSNorms. Sums are f32, a result is rounded once. input is [.., h]; all tensors of a call have one dtype.

use_model_sensitive_rmsnorm  0; 1, which rounds before it multiplies by the weight as T5 does, is not served
gemma_norm                   1 + weight stands for weight
"""

import torch

from .... import _norm
from ...._public import flag, found
from .. import _check
from .._absent import SMOOTH, absent
from .._run import run

Tensor = torch.Tensor
_SENSITIVE = "which rounds before it multiplies by the weight"


def _norm_rows(op, out, input, weight, epsilon, gemma_norm):
    """Writes the norm of input's rows to out."""
    function = _norm.gemma_rmsnorm if flag(op, "gemma_norm", gemma_norm) else _norm.rmsnorm
    if out.shape != input.shape:
        raise ValueError(f"{op}: out has shape {list(out.shape)}, needs {list(input.shape)}, input's")
    target = out if out.ndim in (2, 3) else out.view(-1, out.shape[-1])
    run(op, function, {"x": "input", "eps": "epsilon"}, input.reshape(target.shape), weight, _check.number(op, "epsilon", epsilon),
        out=target)


def _new_norm(op, input, weight, epsilon, sensitive):
    _check.only(op, _SENSITIVE, 0, use_model_sensitive_rmsnorm=sensitive)
    _check.tensors(op, {"input": input, "weight": weight})
    out = torch.empty_like(input, memory_format=torch.contiguous_format)
    _norm_rows(op, out, input, weight, epsilon, False)
    return out


def rms_norm(input: Tensor, weight: Tensor, epsilon: float, use_model_sensitive_rmsnorm: int = 0) -> Tensor:
    """Returns input / sqrt(mean(input^2) + epsilon) * weight."""
    return _new_norm("rms_norm", input, weight, epsilon, use_model_sensitive_rmsnorm)


def rmsnorm2d_fwd(input: Tensor, weight: Tensor, epsilon: float, use_model_sensitive_rmsnorm: int = 0) -> Tensor:
    """Returns rms_norm."""
    return _new_norm("rmsnorm2d_fwd", input, weight, epsilon, use_model_sensitive_rmsnorm)


def rmsnorm(out: Tensor, input: Tensor, weight: Tensor, epsilon: float, gemma_norm: bool = False) -> None:
    """Writes rms_norm to out."""
    _check.tensors("rmsnorm", {"out": out, "input": input, "weight": weight})
    _norm_rows("rmsnorm", out, input, weight, epsilon, gemma_norm)


# ---- with a residual

def shares_memory(a, b):
    return a.untyped_storage().data_ptr() == b.untyped_storage().data_ptr()


def _copy_pair(op, input, residual_in, to, residual_out):
    """Copies input to `to` and residual_in to residual_out, where the tensors may be each other. to None: only the second."""
    for name, t in (("residual_in", residual_in), ("residual_out", residual_out)):
        if t.shape != input.shape:
            raise ValueError(f"{op}: {name} has shape {list(t.shape)}, needs {list(input.shape)}, input's")
        if t.dtype != input.dtype:
            raise ValueError(f"{op}: {name} has dtype {t.dtype}, needs {input.dtype}, input's")
    if to is not None:
        if to.shape != input.shape or to.dtype != input.dtype:
            raise ValueError(f"{op}: out has shape {list(to.shape)} of {to.dtype}, needs {list(input.shape)} of {input.dtype}, input's")
        residual_in = residual_in.clone() if shares_memory(to, residual_in) else residual_in
        to.copy_(input)
    residual_out.copy_(residual_in)


def _add_norm(op, out, input, residual_in, residual_out, weight, epsilon, gemma_norm):
    _check.tensors(op, {"out": out, "input": input, "residual_in": residual_in, "residual_out": residual_out, "weight": weight})
    gemma = flag(op, "gemma_norm", gemma_norm)
    epsilon = _check.number(op, "epsilon", epsilon)
    _check.contiguous(op, out=out, residual_out=residual_out)
    _copy_pair(op, input, residual_in, out, residual_out)
    run(op, _norm.gemma_fused_add_rmsnorm if gemma else _norm.fused_add_rmsnorm,
        {"x": "out", "residual": "residual_out", "eps": "epsilon"}, out.view(-1, out.shape[-1]),
        residual_out.view(-1, out.shape[-1]), weight, epsilon)


def rmsnorm2d_fwd_with_add(out: Tensor, input: Tensor, residual_in: Tensor, residual_out: Tensor, weight: Tensor, epsilon: float,
                           gemma_norm: bool = False, use_model_sensitive_rmsnorm: int = 0) -> None:
    """Writes input + residual_in to residual_out, and the norm of the sum before it is rounded to out. out may be input, and
    residual_out may be residual_in."""
    _check.only("rmsnorm2d_fwd_with_add", _SENSITIVE, 0, use_model_sensitive_rmsnorm=use_model_sensitive_rmsnorm)
    _add_norm("rmsnorm2d_fwd_with_add", out, input, residual_in, residual_out, weight, epsilon, gemma_norm)


def add_rmsnorm(out: Tensor, input: Tensor, residual_in: Tensor, residual_out: Tensor, weight: Tensor, epsilon: float,
                gemma_norm: bool = False) -> None:
    """Computes rmsnorm2d_fwd_with_add."""
    _add_norm("add_rmsnorm", out, input, residual_in, residual_out, weight, epsilon, gemma_norm)


# ---- to FP8

def scales_of(op, name, scale, rows, group, columns, is_turned):
    """Returns f32 scales as a view that quern writes, [rows] or [rows, groups]. is_turned: their bytes lie as [groups, rows]."""
    _check.dtype(op, name, scale, (torch.float32,))
    _check.contiguous(op, **{name: scale})
    groups = -(-columns // group) if group else 1
    if scale.numel() != rows * groups:
        raise ValueError(f"{op}: {name} has {scale.numel()} entries, needs {rows * groups}")
    if not group:
        return scale.view(rows)
    return scale.view(groups, rows).T if is_turned else scale.view(rows, groups)


def quantised(op, out, input, residual, scale, weight, epsilon, group_size, shuffle_scale, gemma_norm, scale_name="scale"):
    """Writes the norm of [rows, h] as FP8 to out, and its scales. residual: None, or input is added to it first."""
    _check.dtype(op, "out", out, _check.FP8)
    if group_size not in (0, 128) or isinstance(group_size, bool):
        raise NotImplementedError(f"{op}: group_size is {found(group_size)}; accepted: 0 for a scale each row, 128")
    x, target = _check.rows_of(input), out.view(-1, out.shape[-1])
    if out.shape != input.shape:
        raise ValueError(f"{op}: out has shape {list(out.shape)}, needs {list(input.shape)}, input's")
    written = scales_of(op, scale_name, scale, x.shape[0], group_size, x.shape[1], flag(op, "shuffle_scale", shuffle_scale))
    weight = weight.float() + 1 if flag(op, "gemma_norm", gemma_norm) else weight
    run(op, _norm.rmsnorm_dynamic_quant, {"x": "input", "eps": "epsilon", "scale": scale_name, "residual": "residual_out"}, x, weight,
        _check.number(op, "epsilon", epsilon), None if residual is None else residual.view(x.shape), group_size or None, out=target,
        scale=written)


def _add_quantised(op, out, input, residual_in, residual_out, scale, weight, *options, scale_name="scale"):
    _check.tensors(op, {"out": out, "input": input, "residual_in": residual_in, "residual_out": residual_out, scale_name: scale,
                        "weight": weight})
    _check.contiguous(op, residual_out=residual_out)
    if shares_memory(residual_out, input):
        input = input.clone()
    _copy_pair(op, input, residual_in, None, residual_out)
    quantised(op, out, input, residual_out, scale, weight, *options, scale_name=scale_name)


def rmsnorm_quant(out: Tensor, input: Tensor, scale: Tensor, weight: Tensor, epsilon: float, group_size: int = 0,
                  shuffle_scale: bool = False, gemma_norm: bool = False) -> None:
    """Writes the norm as FP8 to out, and its scales, amax / max of the kind.

    out            e4m3fn or e4m3fnuz, input's shape
    scale          f32: one for each row, or for 128 columns of it, contiguous
    group_size     0 or 128
    shuffle_scale  the scales' bytes lie as [groups, rows], whatever scale's shape
    """
    _check.tensors("rmsnorm_quant", {"out": out, "input": input, "scale": scale, "weight": weight})
    quantised("rmsnorm_quant", out, input, None, scale, weight, epsilon, group_size, shuffle_scale, gemma_norm)


def add_rmsnorm_quant(out: Tensor, input: Tensor, residual_in: Tensor, residual_out: Tensor, scale: Tensor, weight: Tensor,
                      epsilon: float, group_size: int = 0, shuffle_scale: bool = False, gemma_norm: bool = False) -> None:
    """Writes input + residual_in to residual_out, and computes rmsnorm_quant of the sum before it is rounded."""
    _add_quantised("add_rmsnorm_quant", out, input, residual_in, residual_out, scale, weight, epsilon, group_size, shuffle_scale,
                   gemma_norm)


def rmsnorm2d_fwd_with_dynamicquant(out: Tensor, input: Tensor, yscale: Tensor, weight: Tensor, epsilon: float,
                                    use_model_sensitive_rmsnorm: int = 0, group_size: int = 0, shuffle_scale: bool = False) -> None:
    """Computes rmsnorm_quant."""
    op = "rmsnorm2d_fwd_with_dynamicquant"
    _check.only(op, _SENSITIVE, 0, use_model_sensitive_rmsnorm=use_model_sensitive_rmsnorm)
    _check.tensors(op, {"out": out, "input": input, "yscale": yscale, "weight": weight})
    quantised(op, out, input, None, yscale, weight, epsilon, group_size, shuffle_scale, False, "yscale")


def rmsnorm2d_fwd_with_add_dynamicquant(out: Tensor, input: Tensor, residual_in: Tensor, residual_out: Tensor, yscale: Tensor,
                                        weight: Tensor, epsilon: float, use_model_sensitive_rmsnorm: int = 0, group_size: int = 0,
                                        shuffle_scale: bool = False) -> None:
    """Computes add_rmsnorm_quant."""
    op = "rmsnorm2d_fwd_with_add_dynamicquant"
    _check.only(op, _SENSITIVE, 0, use_model_sensitive_rmsnorm=use_model_sensitive_rmsnorm)
    _add_quantised(op, out, input, residual_in, residual_out, yscale, weight, epsilon, group_size, shuffle_scale, False,
                   scale_name="yscale")


rmsnorm2d_fwd_with_smoothquant = absent("rmsnorm2d_fwd_with_smoothquant", SMOOTH)
rmsnorm2d_fwd_with_add_smoothquant = absent("rmsnorm2d_fwd_with_add_smoothquant", SMOOTH)
