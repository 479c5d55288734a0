# SPDX-License-Identifier: Apache-2.0
"""vLLM's layers of experts of FP8 with block scales, and DeepSeek's routing.

vLLM has no way to register experts or what routes to them. The plugin therefore wraps three of its functions: the one that chooses the
kernel of a layer of experts, the one that builds it when the weights are there, and the one that its router of groups calls. (vLLM's class
GroupedTopk is a custom op, but no layer of vLLM's makes one.)
"""

import functools

import torch
from vllm import envs
from vllm._aiter_ops import rocm_aiter_ops
from vllm.model_executor.layers.fused_moe import modular_kernel
from vllm.model_executor.layers.fused_moe.activation import MoEActivation
from vllm.model_executor.layers.fused_moe.oracle.fp8 import Fp8MoeBackend
from vllm.model_executor.layers.fused_moe.router import grouped_topk_router
from vllm.model_executor.layers.fused_moe.topk_weight_and_reduce import TopKWeightAndReduceNoOP
from vllm.model_executor.layers.quantization import fp8
from vllm.model_executor.layers.quantization.utils.quant_utils import kFp8Dynamic128Sym, kFp8Static128BlockSym
from vllm.model_executor.utils import replace_parameter
from vllm.platforms import current_platform

import quern

from .. import _fp8
from . import _where
from .linear import packs

_ACTIVATIONS = (MoEActivation.SILU, MoEActivation.GELU, MoEActivation.GELU_TANH, MoEActivation.SWIGLUOAI, MoEActivation.SWIGLUOAI_UNINTERLEAVE)

_AITER_IS_SET = "VLLM_ROCM_USE_AITER or VLLM_ROCM_USE_AITER_MOE is set"


def _function(activation, config):
    """Returns quern's function for an activation of vLLM's, and its options. Raises NotImplementedError where it has none."""
    limit = config.clamp_limit or 0.0
    if activation == MoEActivation.SWIGLUOAI:  # vLLM's kernel has these numbers as constants
        return "swiglu", {"limit": 7.0, "alpha": 1.702, "interleaved": True}
    if activation == MoEActivation.SWIGLUOAI_UNINTERLEAVE and config.beta == 1.0:
        return "swiglu", {"limit": limit, "alpha": config.alpha}
    if activation == MoEActivation.SWIGLUOAI_UNINTERLEAVE and (config.alpha, config.beta) != (1.0, 0.0):
        raise NotImplementedError(f"FP8 block experts: beta is {config.beta} with alpha {config.alpha}; accepted: 1 with any, 0 with 1")
    if activation in (MoEActivation.SILU, MoEActivation.SWIGLUOAI_UNINTERLEAVE):
        return "silu", {"limit": limit}
    return "gelu_tanh" if activation == MoEActivation.GELU_TANH else "gelu", {}


class QuernFp8BlockExperts(modular_kernel.FusedMoEExpertsModular):
    """Experts of FP8 by 128 x 128. Activations are quantised inside."""

    @property
    def expects_unquantized_inputs(self):
        return True

    @staticmethod
    def activation_format():
        return modular_kernel.FusedMoEActivationFormat.Standard

    @staticmethod
    def _supports_current_device():
        return True

    @staticmethod
    def _supports_no_act_and_mul():
        return False

    @staticmethod
    def _supports_quant_scheme(weight_key, activation_key):
        return (weight_key, activation_key) == (kFp8Static128BlockSym, kFp8Dynamic128Sym)

    @staticmethod
    def _supports_activation(activation):
        return activation in _ACTIVATIONS

    @staticmethod
    def _supports_parallel_config(moe_parallel_config):
        return not moe_parallel_config.use_all2all_kernels and not moe_parallel_config.enable_eplb

    @staticmethod
    def _supports_batch_invariance():
        return True

    def moe_problem_size(self, a1, w1, w2, topk_ids):
        return len(w1), len(a1), 2 * self.moe_config.intermediate_size_per_partition, a1.shape[-1], topk_ids.shape[1]

    def workspace_shapes(self, M, N, K, *_):
        return (0,), (0,), (M, K)

    def finalize_weight_and_reduce_impl(self):
        return TopKWeightAndReduceNoOP()

    def apply(self, output, hidden_states, w1, w2, topk_weights, topk_ids, activation, global_num_experts, expert_map, a1q_scale,
              a2_scale, workspace13, workspace2, expert_tokens_meta, apply_router_weight_on_input):
        function, options = _function(activation, self.activation_config)
        is_packed, config = getattr(w1, "is_quern_packed", False), self.moe_config
        weights = torch.ones_like(topk_weights) if apply_router_weight_on_input else topk_weights  # which vLLM has applied
        quern.fused_moe(hidden_states, w1.data, w2.data, weights.float(), topk_ids.to(torch.int32), function, w1_scale=self.w1_scale,
                        w2_scale=self.w2_scale, bias1=_bias(self.w1_bias), bias2=_bias(self.w2_bias), expert_map=expert_map,
                        packed=is_packed, inner=config.intermediate_size_per_partition if is_packed else 0,
                        out=output, **options)


def _bias(bias):
    return bias if bias is None or bias.dtype == torch.bfloat16 else bias.float()


# ---- vLLM's functions, wrapped

def _selected(select_fp8_moe_backend):
    @functools.wraps(select_fp8_moe_backend)
    def wrapped(config, weight_key, activation_key, *arguments, **options):
        """Answers with Triton's backend, which leaves weights as they are, and quern's kernel, where that can be."""
        standard = modular_kernel.FusedMoEActivationFormat.Standard
        can, why = QuernFp8BlockExperts.is_supported_config(QuernFp8BlockExperts, config, weight_key, activation_key, standard)
        if can and config.moe_backend == "auto" and not _aiter_is_set():
            return Fp8MoeBackend.TRITON, QuernFp8BlockExperts
        told = f"moe_backend {config.moe_backend}" if config.moe_backend != "auto" else _AITER_IS_SET
        _where.calls.tell("FP8 block experts", why or f"vLLM was told which experts to take: {told}")
        return select_fp8_moe_backend(config, weight_key, activation_key, *arguments, **options)

    return wrapped


def _aiter_is_set():
    return envs.is_set("VLLM_ROCM_USE_AITER") or envs.is_set("VLLM_ROCM_USE_AITER_MOE")


def _packed(init_moe_kernel):
    @functools.wraps(init_moe_kernel)
    def wrapped(self, layer):
        if self.experts_cls is QuernFp8BlockExperts and packs() and not getattr(layer.w13_weight, "is_quern_packed", False):
            for name in ("w13", "w2"):
                weight, scale = getattr(layer, f"{name}_weight"), getattr(layer, f"{name}_{self.weight_scale_name}")
                weight, scale = quern.gemm_pack(weight.data, scale.data)
                replace_parameter(layer, f"{name}_weight", weight)
                replace_parameter(layer, f"{name}_{self.weight_scale_name}", scale)
                getattr(layer, f"{name}_weight").is_quern_packed = True
        init_moe_kernel(self, layer)

    return wrapped


# ---- routing

def _routed(grouped_topk):
    @functools.wraps(grouped_topk)
    def wrapped(hidden_states, gating_output, topk, renormalize, num_expert_group=0, topk_group=0, scoring_func="softmax",
                routed_scaling_factor=1.0, e_score_correction_bias=None):
        def ours():
            bias = None if e_score_correction_bias is None else e_score_correction_bias.data
            return quern.moe_route(gating_output, topk, bias, scoring_func, num_expert_group, topk_group, renormalize, routed_scaling_factor)

        return _where.calls("grouped_topk", ours, lambda: grouped_topk(
            hidden_states, gating_output, topk, renormalize, num_expert_group, topk_group, scoring_func, routed_scaling_factor,
            e_score_correction_bias))

    return wrapped


def _register_routing(table):
    name = "grouped_topk"
    if current_platform.is_cpu():
        table.leave(name, "vLLM has a router of its own for the CPU")
        return
    grouped_topk_router.grouped_topk = _routed(grouped_topk_router.grouped_topk)
    if rocm_aiter_ops.is_fused_moe_enabled():
        table.leave(name, "VLLM_ROCM_USE_AITER is set, and vLLM then calls AITER's")
        return
    kernel = _where.probe().kernel(quern.moe_route, torch.zeros(1, 256), 8, groups=8, topk_groups=4)
    table.serve(name, kernel, "1 token, 256 experts in 8 groups")


def register(table):
    _register_routing(table)
    fp8.select_fp8_moe_backend = _selected(fp8.select_fp8_moe_backend)
    fp8.Fp8MoEMethod._init_moe_kernel = _packed(fp8.Fp8MoEMethod._init_moe_kernel)
    name = "FP8 block experts"
    if _aiter_is_set():
        table.leave(name, f"{_AITER_IS_SET}, and vLLM then looks at no other experts")
    else:
        _fp8.register_experts(table, _where.probe(), _where.kind())
    table.leave("other experts", "bf16, FP8 by rows or tensors, int8, FP4: quern was not measured to be faster, or has no such type")
    table.leave("routing without groups", "vLLM calls its own kernel there by name")
