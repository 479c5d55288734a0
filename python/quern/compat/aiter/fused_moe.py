# SPDX-License-Identifier: Apache-2.0
"""AITER's routing by softmax, and its layer of experts."""

from __future__ import annotations

from typing import Any

import torch

from ... import _moe
from ..._public import found
from . import _check
from ._absent import MOE, absent
from ._run import run
from .ops.enum import ActivationType, QuantType
from .ops.shuffle import unshuffled
from .ops.topk import route

Tensor = torch.Tensor


def fused_topk(hidden_states: Tensor, gating_output: Tensor, topk: int, renormalize: bool, topk_ids: Tensor | None = None,
               topk_weights: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Returns (weights f32, ids i32) [tokens, topk] of the topk largest softmax of gating_output [tokens, experts], in the given
    tensors or new ones. Of hidden_states the number of tokens counts."""
    op = "fused_topk"
    _check.tensors(op, {"hidden_states": hidden_states, "gating_output": gating_output})
    _check.shape(op, "hidden_states", hidden_states, len(gating_output), None)
    shape = len(gating_output), _check.integer(op, "topk", topk, 1)
    topk_weights = torch.empty(shape, dtype=torch.float32, device=gating_output.device) if topk_weights is None else topk_weights
    topk_ids = torch.empty(shape, dtype=torch.int32, device=gating_output.device) if topk_ids is None else topk_ids
    _check.shape(op, "topk_weights", topk_weights, *shape)
    route(op, topk_weights, topk_ids, gating_output, None, need_renorm=renormalize)
    return topk_weights, topk_ids


_FUNCTIONS = {ActivationType.Silu: "silu", ActivationType.Gelu: "gelu", ActivationType.Swiglu: "swiglu"}
_BLOCKS = QuantType.per_1x128, QuantType.per_128x128


def _expert_map(op, mask):
    """Returns each expert's number among those that the mask, 1 for this device's, has; -1 for others."""
    if mask is None:
        return None
    _check.shape(op, "expert_mask", mask, None)
    is_here = mask != 0
    return torch.where(is_here, is_here.cumsum(0) - 1, -1).to(torch.int32)


def _block_scales(op, quant_type, **weights):
    """Returns each weight's scales as [experts, blocks of rows, blocks of columns]; None without FP8."""
    scales = []
    for name, (w, scale) in weights.items():
        if quant_type == QuantType.No:
            _check.dtype(op, name, w, (torch.bfloat16, torch.float16))
            _check.refuse(op, "with QuantType.No", **{f"{name}_scale": scale})
            scales.append(None)
            continue
        _check.dtype(op, name, w, _check.FP8)
        shape = w.shape[0], -(-w.shape[1] // 128), -(-w.shape[2] // 128)
        _check.tensors(op, {name: w, f"{name}_scale": scale})
        if scale.numel() != shape[0] * shape[1] * shape[2]:
            raise ValueError(f"{op}: {name}_scale has shape {list(scale.shape)}, needs {list(shape)}")
        scales.append(scale.reshape(shape).float())
    return scales


def fused_moe(hidden_states: Tensor, w1: Tensor, w2: Tensor, topk_weight: Tensor, topk_ids: Tensor, expert_mask: Tensor | None = None,
              activation: ActivationType | int = ActivationType.Silu, quant_type: QuantType | int = QuantType.No,
              doweight_stage1: bool = False, w1_scale: Tensor | None = None, w2_scale: Tensor | None = None, a1_scale: None = None,
              a2_scale: None = None, block_size_M: int | None = None, num_local_tokens: None = None,
              moe_sorting_dispatch_policy: int = 0, dtype: torch.dtype | None = None, hidden_pad: int = 0, intermediate_pad: int = 0,
              bias1: Tensor | None = None, bias2: Tensor | None = None, splitk: int = 0, swiglu_limit: float | None = None,
              beta: None = None, linear_beta: None = None, gate_mode: str | None = "separated", shared_w1: None = None,
              shared_w2: None = None, shared_w1_scale: None = None, shared_w2_scale: None = None, shared_expert_id: int = -1,
              stage2_scatter: Any = None) -> Tensor:
    """Returns the sum over a token's experts of topk_weight times activation(x w1^T + bias1) w2^T + bias2, [tokens, hidden] of dtype.

    hidden_states  bf16 or f16 [tokens, hidden], with FP8 weights quantised by 1 x 128 on the way, as the activation's result is
    w1, w2         [experts, 2 inner, hidden], gates before ups, and [experts, hidden, inner]: from shuffle_weight, and copied back at
                   each call
    topk_weight, topk_ids  f32 and i32 [tokens, experts of a token]; an id of -1 counts for nothing
    expert_mask    i32 [all experts, or more]: 1 where this device has the expert, 0 elsewhere; None: it has all
    quant_type     No; per_1x128 or per_128x128: w1_scale and w2_scale are f32 for blocks of 128 x 128
    swiglu_limit   of Swiglu 7 if it is None or 0; of others none then
    block_size_M, moe_sorting_dispatch_policy, splitk  hints
    All others are what they are by default.
    """
    op = "fused_moe"
    _check.tensors(op, {"hidden_states": hidden_states, "w1": w1, "w2": w2, "topk_weight": topk_weight, "topk_ids": topk_ids,
                        "expert_mask": expert_mask, "bias1": bias1, "bias2": bias2}, none=("expert_mask", "bias1", "bias2"))
    for default, values in ((0, {"hidden_pad": hidden_pad, "intermediate_pad": intermediate_pad}), (False,
                                                                                                    {"doweight_stage1": doweight_stage1}),
                            (-1, {"shared_expert_id": shared_expert_id}), ("separated", {"gate_mode": gate_mode or "separated"})):
        _check.only(op, "which quern's layer of experts lacks", default, **values)
    _check.refuse(op, "which quern's layer of experts lacks", a1_scale=a1_scale, a2_scale=a2_scale, num_local_tokens=num_local_tokens,
                  beta=beta, linear_beta=linear_beta, shared_w1=shared_w1, shared_w2=shared_w2, shared_w1_scale=shared_w1_scale,
                  shared_w2_scale=shared_w2_scale, stage2_scatter=stage2_scatter)
    if activation not in _FUNCTIONS:
        raise NotImplementedError(f"{op}: activation is {found(activation)}; accepted: {', '.join(a.name for a in _FUNCTIONS)}")
    if quant_type not in (QuantType.No, *_BLOCKS):
        raise NotImplementedError(f"{op}: quant_type is {found(quant_type)}; accepted: No, per_1x128, per_128x128")
    for name, w in (("w1", w1), ("w2", w2)):
        _check.shape(op, name, w, None, None, None)
    scales = _block_scales(op, quant_type, w1=(w1, w1_scale), w2=(w2, w2_scale))
    function = _FUNCTIONS[ActivationType(activation)]
    limit = _check.number(op, "swiglu_limit", swiglu_limit or (7.0 if function == "swiglu" else 0.0))
    return run(op, _moe.fused_moe, {"x": "hidden_states", "weights": "topk_weight", "ids": "topk_ids"}, hidden_states,
               unshuffled(op, "w1", w1), unshuffled(op, "w2", w2), topk_weight, topk_ids, function, w1_scale=scales[0], w2_scale=scales[1],
               bias1=None if bias1 is None else bias1.float(), bias2=None if bias2 is None else bias2.float(),
               expert_map=_expert_map(op, expert_mask), limit=limit, dtype=dtype or hidden_states.dtype)


moe_sorting = absent("moe_sorting", MOE)
