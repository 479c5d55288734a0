# SPDX-License-Identifier: Apache-2.0
"""FlashInfer's layers of experts, in bf16, f16 and FP8.

An expert computes activation(gate, up) w2^T with gate and up from x w1^T; the first half of w1's rows are ups, the second gates, unless
a function says otherwise. Where weights are shuffled, rows are put back behind the products.
"""

import torch

from .... import _quantize
from ...._public import flag, found
from ..._check import integer, shape, tensors
from .. import _run
from .._absent import absent
from .._experts import Experts, activation, alternating_rows, check_layer, compute, local
from .._hints import check_backend, check_flags, refuse
from .._products import FP8, SIXTEEN, kind, result
from .._trtllm_moe import (trtllm_bf16_moe, trtllm_bf16_routed_moe, trtllm_fp8_block_scale_moe, trtllm_fp8_block_scale_routed_moe,
                          trtllm_fp8_per_tensor_scale_moe, trtllm_fp8_per_tensor_scale_routed_moe)
from ..tllm_enums import DEFAULT_SWIGLU_ALPHA, DEFAULT_SWIGLU_BETA, DEFAULT_SWIGLU_LIMIT, ActivationType

__all__ = ["B12xMoEWrapper", "CuteDslBf16MoEWrapper", "CuteDslMoEWrapper", "CuteDslMxfp8Mxfp4MoEWrapper", "b12x_fused_moe",
           "cudnn_frost_grouped_gemm1_swiglu", "cudnn_frost_grouped_gemm1_swiglu_workspace_size", "cute_dsl_fused_moe",
           "cute_dsl_fused_moe_bf16", "cute_dsl_fused_moe_mxfp8_mxfp4", "cute_dsl_fused_moe_nvfp4", "cutlass_fused_moe",
           "reorder_rows_for_gated_act_gemm", "trtllm_bf16_moe", "trtllm_bf16_routed_moe", "trtllm_fp4_block_scale_moe",
           "trtllm_fp4_block_scale_routed_moe", "trtllm_fp8_block_scale_moe", "trtllm_fp8_block_scale_routed_moe",
           "trtllm_fp8_per_tensor_scale_moe", "trtllm_fp8_per_tensor_scale_routed_moe"]

_FP4 = "quern has no experts of FP4 weights; choose a model in bf16 or FP8, or set VLLM_USE_FLASHINFER_MOE_FP4=0"
_CUDNN = "it is a part of a layer of experts, which quern has as a whole: call cutlass_fused_moe"


def reorder_rows_for_gated_act_gemm(x):
    """Returns a copy of x [rows, ..], whose two halves alternate."""
    tensors("reorder_rows_for_gated_act_gemm", {"x": x})
    if not x.ndim or len(x) % 2:
        raise ValueError(f"reorder_rows_for_gated_act_gemm: x has shape {list(x.shape)}; accepted: an even number of rows")
    return x[alternating_rows(len(x), x.device)]


# ---- routed before

_CUTLASS = "input", "token_selected_experts", "token_final_scales", "fc1_expert_weights", "fc2_expert_weights"


def _cutlass_experts(op, x, w1, w2, quant_scales, by_blocks, bias1, bias2):
    """Returns the weights with their scales."""
    biases = [None if bias is None else bias.float() for bias in (bias1, bias2)]
    if w1.dtype not in FP8:
        kind(op, "fc1_expert_weights", w1, (*SIXTEEN, *FP8))
        if by_blocks:
            raise ValueError(f"{op}: use_deepseek_fp8_block_scale is True; accepted with weights of {w1.dtype}: False")
        if quant_scales:
            raise ValueError(f"{op}: quant_scales is {found(quant_scales)}; accepted with weights of {w1.dtype}: None")
        return Experts(w1, w2, bias1=biases[0], bias2=biases[1])
    needed = 2 if by_blocks else 4
    if not isinstance(quant_scales, (list, tuple)) or len(quant_scales) != needed:
        raise ValueError(f"{op}: quant_scales is {found(quant_scales)}; accepted with weights of {w1.dtype}: {needed} tensors")
    if by_blocks:
        for i, w in enumerate((w1, w2)):
            shape(op, f"quant_scales[{i}]", quant_scales[i], len(w), -(-w.shape[1] // 128), -(-w.shape[2] // 128))
        return Experts(w1, w2, *(scale.float().contiguous() for scale in quant_scales), *biases)
    scale1, inner, scale2 = (scale.reshape(-1).float() for scale in quant_scales[:3])
    if inner.numel() != 1:
        raise NotImplementedError(f"{op}: quant_scales[1] has {inner.numel()} entries; accepted: 1")
    for i, scale in ((0, scale1), (2, scale2)):
        if scale.numel() != len(w1):
            raise ValueError(f"{op}: quant_scales[{i}] has {scale.numel()} entries, needs {len(w1)}")
    return Experts(w1, w2, scale1, scale2, *biases, inner_scale=1 / inner)


def cutlass_fused_moe(input, token_selected_experts, token_final_scales, fc1_expert_weights, fc2_expert_weights, output_dtype,
                      quant_scales, fc1_expert_biases=None, fc2_expert_biases=None, input_sf=None, swiglu_alpha=None, swiglu_beta=None,
                      swiglu_limit=None, tp_size=1, tp_rank=0, ep_size=1, ep_rank=0, cluster_size=1, cluster_rank=0, output=None,
                      enable_alltoall=False, use_deepseek_fp8_block_scale=False, use_w4_group_scaling=False, use_mxfp8_act_scaling=False,
                      min_latency_mode=False, use_packed_weights=False, use_wfp4afp8_humming=False, tune_max_num_tokens=8192,
                      enable_pdl=None, activation_type=ActivationType.Swiglu, swizzled_input_sf=True, use_fused_finalize=True,
                      profile_ids=None, workspace_buffer=None, *, clamped_relu2_limit=None, situ_beta=None, situ_linear_beta=None,
                      backend="cutlass"):
    """Returns [output]: output [tokens, hidden] of output_dtype, bf16 or f16.

    input                   [tokens, hidden] of bf16 or f16; with FP8 weights and one scale each, FP8
    token_selected_experts  [tokens, top_k], of all experts; this device has those from ep_rank * experts on
    token_final_scales      [tokens, top_k]; None: 1
    fc1_expert_weights, fc2_expert_weights  [experts, 2 inner, hidden], [experts, hidden, inner] of bf16, f16 or FP8
    quant_scales            of FP8: [scales of the first product [experts], what its result is multiplied with, scales of the second
                            [experts], input's, which the first has in it]; with use_deepseek_fp8_block_scale the f32 scales of both
                            weights for 128 x 128, input being quantised on the way
    swiglu_alpha, swiglu_beta, swiglu_limit  [experts], one number for all, read on the host: (1, 0), or beta 1
    tp_size, tp_rank        of weights that are parts; with tp_size above 1, fc2_expert_biases are None
    enable_pdl, tune_max_num_tokens, use_fused_finalize, profile_ids, workspace_buffer, swizzled_input_sf  change nothing
    """
    op = "cutlass_fused_moe"
    check_backend(op, backend, ("cutlass",))
    check_flags(op, enable_pdl=enable_pdl, use_fused_finalize=use_fused_finalize, swizzled_input_sf=swizzled_input_sf)
    refuse(op, input_sf=input_sf, enable_alltoall=enable_alltoall, use_w4_group_scaling=use_w4_group_scaling,
           use_mxfp8_act_scaling=use_mxfp8_act_scaling, min_latency_mode=min_latency_mode, use_packed_weights=use_packed_weights,
           use_wfp4afp8_humming=use_wfp4afp8_humming, clamped_relu2_limit=clamped_relu2_limit, situ_beta=situ_beta,
           situ_linear_beta=situ_linear_beta, cluster_size=None if cluster_size == 1 else cluster_size,
           cluster_rank=None if cluster_rank == 0 else cluster_rank)
    integer(op, "tune_max_num_tokens", tune_max_num_tokens, 1)
    _check_parts(op, tp_size, tp_rank, ep_size, ep_rank, fc2_expert_biases, profile_ids, workspace_buffer)
    if token_final_scales is None:
        token_final_scales = torch.ones(token_selected_experts.shape, device=input.device)
    check_layer(op, input, token_selected_experts, token_final_scales, fc1_expert_weights, fc2_expert_weights, _CUTLASS)
    layer = _cutlass_experts(op, input, fc1_expert_weights, fc2_expert_weights, quant_scales,
                             flag(op, "use_deepseek_fp8_block_scale", use_deepseek_fp8_block_scale), fc1_expert_biases,
                             fc2_expert_biases)
    x, x_scale = _input(op, input, layer)
    count = len(fc1_expert_weights)
    act = activation(op, activation_type, count, swiglu_alpha, swiglu_beta, swiglu_limit)
    out = result(op, output, input.shape, output_dtype, input.device, SIXTEEN, "output_dtype")
    return [compute(op, x, x_scale, layer, token_final_scales, local(token_selected_experts, ep_rank * count, count), act, out)]


def _check_parts(op, tp_size, tp_rank, ep_size, ep_rank, bias2, profile_ids, workspace_buffer):
    integer(op, "tp_rank", tp_rank, 0, integer(op, "tp_size", tp_size, 1) - 1)
    integer(op, "ep_rank", ep_rank, 0, integer(op, "ep_size", ep_size, 1) - 1)
    if tp_size > 1 and bias2 is not None:
        raise NotImplementedError(f"{op}: fc2_expert_biases is {found(bias2)} with tp_size {tp_size}; accepted: None")
    if profile_ids is not None and (not isinstance(profile_ids, (list, tuple)) or len(profile_ids) != 2):
        raise ValueError(f"{op}: profile_ids is {found(profile_ids)}; accepted: two numbers, None")
    if workspace_buffer is not None:
        tensors(op, {"workspace_buffer": workspace_buffer})


def _input(op, x, layer):
    """Returns (x, its scales) as the first product takes them."""
    if layer.w1.dtype not in FP8:
        kind(op, "input", x, (layer.w1.dtype,))
        return x, None
    if layer.inner_scale is not None:
        kind(op, "input", x, FP8)
        return x, None
    kind(op, "input", x, SIXTEEN)
    return _run.call(op, _quantize.quantize_fp8, {"x": "input"}, x, (1, 128), layer.w1.dtype, 1e-10)


_BF16 = "x", "token_selected_experts", "token_final_scales", "w1_weight", "w2_weight"


def cute_dsl_fused_moe_bf16(x, token_selected_experts, token_final_scales, w1_weight, w2_weight, num_experts, top_k,
                            num_local_experts=None, local_expert_offset=0, use_fused_finalize=True, moe_output=None, enable_pdl=True,
                            activation_type=ActivationType.Swiglu.value, swiglu_alpha=DEFAULT_SWIGLU_ALPHA,
                            swiglu_beta=DEFAULT_SWIGLU_BETA, swiglu_limit=DEFAULT_SWIGLU_LIMIT, situ_beta=None, situ_linear_beta=None, *, intermediate_buffer=None, tactic=None):
    """Returns [tokens, hidden] of x's dtype, bf16 or f16. Rows of w1_weight [experts, 2 inner, hidden] are 32 ups, 32 gates, and so on.
    token_selected_experts and token_final_scales are [tokens, top_k]; this device has num_local_experts experts from
    local_expert_offset on. use_fused_finalize, enable_pdl, intermediate_buffer and tactic change nothing."""
    op = "cute_dsl_fused_moe_bf16"
    check_flags(op, use_fused_finalize=use_fused_finalize, enable_pdl=enable_pdl)
    refuse(op, situ_beta=situ_beta, situ_linear_beta=situ_linear_beta)
    check_layer(op, x, token_selected_experts, token_final_scales, w1_weight, w2_weight, _BF16)
    if intermediate_buffer is not None:
        tensors(op, {"intermediate_buffer": intermediate_buffer})
    if tactic is not None and not isinstance(tactic, (list, tuple)):
        raise ValueError(f"{op}: tactic is {found(tactic)}; accepted: a tuple, None")
    _check_count(op, token_selected_experts, top_k, w1_weight, num_experts, num_local_experts, local_expert_offset, "w1_weight")
    kind(op, "x", x, SIXTEEN)
    rows = w1_weight.shape[1]
    if rows % 64:
        raise ValueError(f"{op}: w1_weight has {rows} rows; accepted: multiples of 64")
    by_32 = torch.arange(rows, device=x.device).reshape(-1, 2, 32)
    layer = Experts(w1_weight, w2_weight, order=torch.cat([by_32[:, 1].flatten(), by_32[:, 0].flatten()]))
    act = activation(op, activation_type, len(w1_weight), swiglu_alpha, swiglu_beta, swiglu_limit)
    out = result(op, moe_output, x.shape, x.dtype, x.device, SIXTEEN, "x")
    return compute(op, x, None, layer, token_final_scales, local(token_selected_experts, local_expert_offset, len(w1_weight)), act, out)


def _check_count(op, ids, top_k, w1, num_experts, num_local_experts, offset, name):
    """Checks the numbers that repeat what tensors say."""
    if ids.shape[1] != integer(op, "top_k", top_k, 1):
        raise ValueError(f"{op}: top_k is {top_k}, the experts of a token are {ids.shape[1]}")
    integer(op, "num_experts", num_experts, 1)
    count = num_experts if num_local_experts is None else integer(op, "num_local_experts", num_local_experts, 1, num_experts)
    integer(op, "local_expert_offset", offset, 0, num_experts - count)
    if len(w1) != count:
        raise ValueError(f"{op}: {name} has {len(w1)} experts, num_local_experts says {count}")


class CuteDslBf16MoEWrapper:
    """cute_dsl_fused_moe_bf16 for layers of one kind."""

    def __init__(self, num_experts, top_k, hidden_size, intermediate_size, num_local_experts=None, local_expert_offset=0,
                 output_dtype=torch.bfloat16, enable_pdl=True, use_fused_finalize=True, activation_type=ActivationType.Swiglu.value,
                 swiglu_alpha=DEFAULT_SWIGLU_ALPHA, swiglu_beta=DEFAULT_SWIGLU_BETA, swiglu_limit=DEFAULT_SWIGLU_LIMIT, situ_beta=None,
                 situ_linear_beta=None):
        op = self._op = type(self).__name__
        check_flags(op, use_fused_finalize=use_fused_finalize, enable_pdl=enable_pdl)
        refuse(op, situ_beta=situ_beta, situ_linear_beta=situ_linear_beta)
        kind(op, "output_dtype", output_dtype, SIXTEEN)
        activation(op, activation_type, 1, swiglu_alpha, swiglu_beta, swiglu_limit)
        self._sizes = integer(op, "hidden_size", hidden_size, 1), integer(op, "intermediate_size", intermediate_size, 1)
        self._dtype = output_dtype
        self._options = {"num_experts": num_experts, "top_k": top_k, "num_local_experts": num_local_experts,
                         "local_expert_offset": local_expert_offset, "activation_type": activation_type, "swiglu_alpha": swiglu_alpha,
                         "swiglu_beta": swiglu_beta, "swiglu_limit": swiglu_limit}

    def run(self, x, token_selected_experts, token_final_scales, w1_weight, w2_weight, tactic=None, moe_output=None,
            intermediate_buffer=None):
        """Returns what cute_dsl_fused_moe_bf16 returns."""
        hidden, inner = self._sizes
        tensors(self._op, {"x": x, "w1_weight": w1_weight, "w2_weight": w2_weight})
        if x.dtype != self._dtype:
            raise ValueError(f"{self._op}: x has dtype {x.dtype}, output_dtype is {self._dtype}")
        shape(self._op, "x", x, None, hidden)
        shape(self._op, "w2_weight", w2_weight, None, hidden, inner)
        return cute_dsl_fused_moe_bf16(x, token_selected_experts, token_final_scales, w1_weight, w2_weight, **self._options,
                                       moe_output=moe_output, intermediate_buffer=intermediate_buffer, tactic=tactic)



# ---- refused

b12x_fused_moe = absent("b12x_fused_moe", _FP4)
cute_dsl_fused_moe = absent("cute_dsl_fused_moe", _FP4)
cute_dsl_fused_moe_nvfp4 = absent("cute_dsl_fused_moe_nvfp4", _FP4)
cute_dsl_fused_moe_mxfp8_mxfp4 = absent("cute_dsl_fused_moe_mxfp8_mxfp4", _FP4)
trtllm_fp4_block_scale_moe = absent("trtllm_fp4_block_scale_moe", _FP4)
trtllm_fp4_block_scale_routed_moe = absent("trtllm_fp4_block_scale_routed_moe", _FP4)
cudnn_frost_grouped_gemm1_swiglu = absent("cudnn_frost_grouped_gemm1_swiglu", _CUDNN)
cudnn_frost_grouped_gemm1_swiglu_workspace_size = absent("cudnn_frost_grouped_gemm1_swiglu_workspace_size", _CUDNN)
B12xMoEWrapper = absent("B12xMoEWrapper", _FP4)
CuteDslMoEWrapper = absent("CuteDslMoEWrapper", _FP4)
CuteDslMxfp8Mxfp4MoEWrapper = absent("CuteDslMxfp8Mxfp4MoEWrapper", _FP4)
