# SPDX-License-Identifier: Apache-2.0
"""A layer of experts of quern's parts, for weights whose rows lie as FlashInfer's kernels want them: ups before gates, or shuffled. Rows
are put in order behind the products, where they are a token's and not a weight's."""

import dataclasses
import math

import torch

from ... import _gemm, _moe, _quantize
from ..._public import found
from .._check import shape, tensors
from . import _run
from ._products import FP8
from .tllm_enums import ActivationType, member

_FUNCTIONS = {ActivationType.Swiglu: "silu", ActivationType.SwigluBias: "silu", ActivationType.Geglu: "gelu",
              ActivationType.GegluTanh: "gelu_tanh"}
_ALIGNMENT = 16  # an expert's rows begin at a multiple of it


@dataclasses.dataclass
class Activation:
    """moe_activate's function, limit and alpha."""

    function: str
    limit: float = 0.0
    alpha: float = 0.0


@dataclasses.dataclass
class Experts:
    """Weights of a device's experts. order: which columns of the first product are gates, then ups; None: ups come first. out_order:
    which columns of the second are the result's; None: all as they are."""

    w1: torch.Tensor
    w2: torch.Tensor
    scale1: torch.Tensor | None = None
    scale2: torch.Tensor | None = None
    bias1: torch.Tensor | None = None
    bias2: torch.Tensor | None = None
    ups_scale: torch.Tensor | None = None  # [experts], beside scale1
    inner_scale: torch.Tensor | None = None  # [1], of FP8 between the products; None: one for each 128
    order: torch.Tensor | None = None
    out_order: torch.Tensor | None = None


def shuffled_rows(rows, epilogue_tile_m, device=None):
    """Returns which row each row of a shuffled weight was: in blocks of 32, or of 16 if the tile is no multiple of 128."""
    block = 16 if epilogue_tile_m % 128 else 32
    old = torch.arange(rows, device=device)
    new = old // block * block + old % block // (block // 8) + 8 * (old % (block // 8))
    return torch.empty_like(old).scatter_(0, new, old)


def alternating_rows(rows, device=None):
    """Returns which row each row was of a weight whose two halves alternate."""
    return torch.arange(rows, device=device).reshape(2, -1).T.flatten()


def _uniform(op, name, value, experts):
    """Returns the number that a tensor has for each expert, read on the host; None stays None."""
    if value is None:
        return None
    if not isinstance(value, torch.Tensor):
        return float(value)
    if value.numel() not in (1, experts):
        raise ValueError(f"{op}: {name} has {value.numel()} entries, needs {experts}")
    first, *others = set(value.flatten().tolist()) or {None}
    if others:
        raise NotImplementedError(f"{op}: {name} has different numbers; accepted: one for all experts")
    return first


def activation(op, kind, experts, alpha=None, beta=None, limit=None, names=("swiglu_alpha", "swiglu_beta", "swiglu_limit")):
    """Returns what acts between the products: gate / (1 + exp(-alpha gate)) * (up + beta), with gate up to limit and up within it."""
    kind = member(op, "activation_type", ActivationType, kind)
    if kind not in _FUNCTIONS:
        raise NotImplementedError(f"{op}: activation_type is {kind!r}; accepted: {', '.join(map(repr, _FUNCTIONS))}")
    alpha, beta, limit = (_uniform(op, name, value, experts) for name, value in zip(names, (alpha, beta, limit), strict=True))
    limit = 0.0 if limit is None or limit >= torch.finfo(torch.float32).max or math.isinf(limit) else limit
    if alpha in (None, 1.0) and not beta:
        return Activation(_FUNCTIONS[kind], limit)
    if _FUNCTIONS[kind] != "silu" or beta != 1.0:
        raise NotImplementedError(f"{op}: {names[1]} is {found(beta)} with {names[0]} {found(alpha)} and {kind!r}; accepted: 0 with alpha "
                                  "1, or 1 with Swiglu")
    return Activation("swiglu", limit, 1.0 if alpha is None else alpha)


def local(ids, offset, experts):
    """Returns numbers of this device's experts, which begin at offset, and -1 for others."""
    own = _run.index(ids) - offset
    return torch.where((own >= 0) & (own < experts), own, -1)


def compute(op, x, x_scale, layer, weights, ids, act, out):
    """Writes to out [tokens, hidden] what a token's experts make of it, times weights f32 [tokens, top_k]. ids are of local()."""
    ends, row_of_pair, pair_of_row, expert_of_row, *_ = _run.call(op, _moe.moe_sort, {}, ids, len(layer.w1), _ALIGNMENT)
    rows = _run.call(op, _moe.moe_permute, {}, x, pair_of_row, ids.shape[1], x_scale)
    rows, scale = (rows, None) if x_scale is None else rows
    h = _product(op, rows, layer.w1, ends, scale, layer.scale1, layer.bias1)
    h = _in_order(h, layer.order)
    if layer.ups_scale is not None:
        half = h.shape[1] // 2
        h[:, half:] *= layer.ups_scale[expert_of_row.long().clamp(min=0)][:, None]
    inner, scale = _activated(op, h, layer, act, expert_of_row)
    y = _product(op, inner, layer.w2, ends, scale, layer.scale2, layer.bias2)
    y = y if layer.out_order is None else y[:, layer.out_order]
    return _run.call(op, _moe.moe_sum, {}, y, weights.float().contiguous(), row_of_pair, out=out)


def _product(op, a, b, ends, scale_a, scale_b, bias):
    dtype = a.dtype if a.dtype in (torch.bfloat16, torch.float16) else torch.bfloat16
    out = torch.zeros(len(a), b.shape[1], dtype=dtype, device=a.device)
    _run.call(op, _gemm.gemm_grouped_contiguous, {}, a, b, ends, scale_a=scale_a, scale_b=scale_b, by_ends=True, m_alignment=_ALIGNMENT,
              bias=bias, out=out)
    return out


def _in_order(h, order):
    """Returns gates before ups."""
    if order is not None:
        return h[:, order]
    half = h.shape[1] // 2
    return torch.cat([h[:, half:], h[:, :half]], 1)


def _activated(op, h, layer, act, expert_of_row):
    """Returns (rows for the second product, their scales)."""
    options = {"limit": act.limit, "alpha": act.alpha, "expert_of_row": expert_of_row}
    shape_ = len(h), h.shape[1] // 2
    if layer.w2.dtype in FP8 and layer.inner_scale is None:
        return _run.call(op, _moe.moe_activate, {}, h, act.function, dtype=layer.w2.dtype, **options)
    inner = _run.call(op, _moe.moe_activate, {}, h, act.function, out=torch.zeros(shape_, dtype=h.dtype, device=h.device), **options)
    if layer.inner_scale is None:
        return inner, None
    return _run.call(op, _quantize.quantize_static, {}, inner, layer.inner_scale, layer.w2.dtype), None


def check_layer(op, x, ids, weights, w1, w2, names):
    """Checks the shapes of a layer's tensors. names: op's of x, ids, weights, w1, w2."""
    tensors(op, dict(zip(names, (x, ids, weights, w1, w2), strict=True)))
    shape(op, names[0], x, None, None)
    shape(op, names[1], ids, len(x), None)
    shape(op, names[2], weights, *ids.shape)
    shape(op, names[3], w1, None, None, x.shape[1])
    shape(op, names[4], w2, len(w1), x.shape[1], w1.shape[1] // 2)
