# SPDX-License-Identifier: Apache-2.0
"""AITER's parts of mixtures of experts."""

import torch

from .. import _check
from .._absent import MOE, absent
from .topk import no_shared, route

moe_align_block_size = absent("moe_align_block_size", MOE)


def moe_sum(input: torch.Tensor, output: torch.Tensor) -> None:
    """Writes the sum of input [tokens, experts, dim] over experts to output [tokens, dim], by PyTorch."""
    _check.tensors("moe_sum", {"output": output, "input": input})
    _check.shape("moe_sum", "input", input, None, None, None)
    _check.shape("moe_sum", "output", output, input.shape[0], input.shape[2])
    output.copy_(input.float().sum(1))


def topk_softmax(topk_weights: torch.Tensor, topk_indices: torch.Tensor, token_expert_indices: torch.Tensor, gating_output: torch.Tensor,
                 need_renorm: bool, num_shared_experts: int = 0, shared_expert_scoring_func: str = "") -> None:
    """Chooses by softmax of gating_output. Token t's expert j has number j * tokens + t in token_expert_indices, i32 [tokens, experts
    of a token]. num_shared_experts is 0, and shared_expert_scoring_func changes nothing then."""
    op = "topk_softmax"
    no_shared(op, num_shared_experts)
    _check.tensors(op, {"topk_weights": topk_weights, "token_expert_indices": token_expert_indices})
    _check.shape(op, "token_expert_indices", token_expert_indices, *topk_weights.shape)
    route(op, topk_weights, topk_indices, gating_output, None, "topk_indices", need_renorm)
    tokens, experts = topk_weights.shape
    token_expert_indices.copy_(torch.arange(tokens * experts, device=topk_weights.device).view(experts, tokens).T)
