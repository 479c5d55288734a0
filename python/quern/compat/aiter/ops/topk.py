# SPDX-License-Identifier: Apache-2.0
"""AITER's routing: weights f32 and ids i32 [tokens, experts of a token], written, perhaps slices of wider tensors. The best expert
comes first, of equal ones the lower.

need_renorm            weights are divided by their sum
routed_scaling_factor  by which they are multiplied then
"""

from __future__ import annotations

import torch

from .... import _moe
from ...._public import flag, found
from .. import _check
from .._absent import MOE, absent
from .._run import run

Tensor = torch.Tensor


def route(op, topk_weights, topk_ids, gating_output, bias, ids_name="topk_ids", need_renorm=False, **options):
    """Routes by quern's moe_route, into the given tensors."""
    _check.tensors(op, {"topk_weights": topk_weights, ids_name: topk_ids, "gating_output": gating_output, "correction_bias": bias},
                   none=("correction_bias",))
    _check.shape(op, "gating_output", gating_output, None, None)
    _check.shape(op, "topk_weights", topk_weights, len(gating_output), None)
    _check.shape(op, ids_name, topk_ids, *topk_weights.shape)
    names = {"logits": "gating_output", "weights": "topk_weights", "ids": ids_name, "bias": "correction_bias",
             "top_k": "topk_weights' columns",
             "groups": "num_expert_group", "topk_groups": "topk_group", "scaling": "routed_scaling_factor"}
    run(op, _moe.moe_route, names, gating_output, topk_weights.shape[1], bias, renormalize=flag(op, "need_renorm", need_renorm),
        weights=topk_weights, ids=topk_ids, **options)


def no_shared(op, count):
    _check.only(op, "whose scores are more columns of gating_output", 0, num_shared_experts=count)


def topk_gating(topk_weights: Tensor, topk_indices: Tensor, gating_output: Tensor, correction_bias: Tensor | None = None,
                need_renorm: bool = True, routed_scaling_factor: float = 1.0, score_func: str = "sqrtsoftplus",
                num_shared_experts: int = 0) -> None:
    """Chooses by score_func of gating_output, plus correction_bias [experts], or [0] for none.

    score_func          "softmax" or "sigmoid"
    num_shared_experts  0
    """
    op = "topk_gating"
    no_shared(op, num_shared_experts)
    if score_func not in ("softmax", "sigmoid"):
        raise NotImplementedError(f"{op}: score_func is {found(score_func)}; accepted: 'softmax', 'sigmoid'")
    if isinstance(correction_bias, Tensor) and correction_bias.shape == (0,):
        correction_bias = None
    route(op, topk_weights, topk_indices, gating_output, correction_bias, "topk_indices", need_renorm, scoring=score_func,
          scaling=_check.number(op, "routed_scaling_factor", routed_scaling_factor))


def topk_sigmoid(topk_weights: Tensor, topk_indices: Tensor, gating_output: Tensor) -> None:
    """Chooses by the largest of gating_output; weights are their sigmoids."""
    route("topk_sigmoid", topk_weights, topk_indices, gating_output, None, "topk_indices", scoring="sigmoid")


def biased_grouped_topk(gating_output: Tensor, correction_bias: Tensor, topk_weights: Tensor, topk_ids: Tensor, num_expert_group: int,
                        topk_group: int, need_renorm: bool, routed_scaling_factor: float = 1.0) -> None:
    """Chooses by sigmoid plus correction_bias [experts], among the topk_group of num_expert_group groups whose two best have the
    largest sum."""
    op = "biased_grouped_topk"
    route(op, topk_weights, topk_ids, gating_output, correction_bias, need_renorm=need_renorm, scoring="sigmoid", groups=num_expert_group,
          topk_groups=topk_group, scaling=_check.number(op, "routed_scaling_factor", routed_scaling_factor))


def grouped_topk(gating_output: Tensor, topk_weights: Tensor, topk_ids: Tensor, num_expert_group: int, topk_group: int, need_renorm: bool,
                 is_softmax: bool = True, routed_scaling_factor: float = 1.0) -> None:
    """Chooses by softmax, or sigmoid, among the topk_group of num_expert_group groups whose best is the largest."""
    op = "grouped_topk"
    route(op, topk_weights, topk_ids, gating_output, None, need_renorm=need_renorm, groups=num_expert_group, topk_groups=topk_group,
          scoring="softmax" if flag(op, "is_softmax", is_softmax) else "sigmoid",
          scaling=_check.number(op, "routed_scaling_factor", routed_scaling_factor))


moe_fused_gate = absent("moe_fused_gate", MOE)
