# SPDX-License-Identifier: Apache-2.0
"""SGLang's layers of experts, of FP8 with blocks of 128 x 128 and of 16 bits, and its routing with groups."""

import torch
from sglang.srt.distributed.device_communicators.pynccl_allocator import use_symmetric_memory
from sglang.srt.layers.dp_attention import is_allocation_symmetric
from sglang.srt.layers.moe import topk
from sglang.srt.layers.moe.token_dispatcher import StandardCombineInput
from sglang.srt.layers.moe.utils import get_moe_a2a_backend, get_moe_runner_backend
from sglang.srt.layers.quantization import fp8_utils
from sglang.srt.layers.quantization.unquant import UnquantizedFusedMoEMethod
from sglang.srt.plugins.hook_registry import HookRegistry, HookType
from sglang.srt.runtime_context import get_exec, get_lora, get_parallel

import quern

from .. import _fp8
from . import _where
from .linear import pack
from .ops import give

_FP8, _SIXTEEN, _ROUTING = "FP8 block experts", "16-bit experts", "routing with groups"


# ---- what quern serves

def _activation(config):
    """Returns quern's function for a layer and its options. Raises NotImplementedError where it has none."""
    alpha, beta, limit = config.gemm1_alpha, config.gemm1_beta, config.gemm1_clamp_limit
    if not config.is_gated or config.activation not in ("silu", "gelu", "gelu_tanh"):
        raise NotImplementedError(f"its activation is {config.activation}, gated {config.is_gated}")
    if config.activation == "silu" and alpha is not None:
        if beta not in (None, 1.0):
            raise NotImplementedError(f"its beta is {beta}, and quern's 1")
        return "swiglu", {"alpha": alpha, "limit": limit or 0.0, "interleaved": config.gate_up_interleaved}
    if alpha is not None or limit is not None:
        raise NotImplementedError("it clamps what its activation makes of the gate")
    return config.activation, {"limit": config.swiglu_limit or 0.0}


def _refusal(method, layer):
    """Returns why SGLang computes a layer itself; None if quern does. Nothing of this changes once the layer is made."""
    config, backend = layer.moe_runner_config, method.get_moe_runner_backend(layer)
    if backend is None or not backend.is_triton() or not get_moe_runner_backend().is_auto():
        return f"SGLang was told which experts to take, or has others for this layer: {getattr(backend, 'value', backend)}"
    if not get_moe_a2a_backend().is_none():
        return f"tokens go to other GPUs by {get_moe_a2a_backend().value}"
    if get_lora().enable_lora or get_exec().moe.enable_paged_experts:
        return "LoRA or the paging of experts reads its weights"
    if config.apply_router_weight_on_input or config.no_combine:
        return "it weights its input, or wants each expert's result"
    try:
        _activation(config)
    except NotImplementedError as why:
        return str(why)
    return None


def _run(layer, dispatched, inner=0, **scales):
    """Computes a layer. Ids are of this rank's experts, -1 for others'."""
    config, (weights, ids, *_), x = layer.moe_runner_config, dispatched.topk_output, dispatched.hidden_states
    function, options = _activation(config)
    with use_symmetric_memory(get_parallel().tp_group, disabled=not is_allocation_symmetric()):  # as SGLang makes it
        out = torch.empty_like(x)
    quern.fused_moe(x, layer.w13_weight.data, layer.w2_weight.data, weights.float() * (config.routed_scaling_factor or 1.0),
                    ids.to(torch.int32), function, bias1=_bias(layer, "w13_weight_bias"), bias2=_bias(layer, "w2_weight_bias"),
                    packed=inner != 0, inner=inner, out=out, **scales, **options)
    return StandardCombineInput(hidden_states=out)


def _bias(layer, name):
    bias = getattr(layer, name, None)
    return bias if bias is None else bias.data if bias.dtype == torch.bfloat16 else bias.data.float()


# ---- FP8

def _fp8_refusal(method, layer):
    if not method.block_quant or method.weight_block_size != [128, 128] or method.use_mxfp8 or method.is_fp4_expert:
        return f"its weights are not FP8 with blocks of [128, 128]: {method.weight_block_size}"
    return _refusal(method, layer)


def _loaded(load, self, layer):
    """Decides for a layer as its weights are loaded, and packs them, where quern's kernels read them so."""
    load(self, layer)
    why = _fp8_refusal(self, layer)
    self.is_by_quern = why is None
    if why:
        _where.calls.tell(_FP8, why)
    elif _fp8.packs(_where.probe(), layer.w13_weight.dtype):
        pack(layer, "w13_weight", "w13_weight_scale_inv")
        pack(layer, "w2_weight", "w2_weight_scale_inv")


def _applied(original, self, layer, dispatch_output):
    if not getattr(self, "is_by_quern", False):
        return original(self, layer, dispatch_output)
    is_packed = hasattr(layer.w2_weight, "quern_rows")

    def ours():
        return _run(layer, dispatch_output, layer.intermediate_size_per_partition if is_packed else 0,
                    w1_scale=layer.w13_weight_scale_inv.data, w2_scale=layer.w2_weight_scale_inv.data)

    return ours() if is_packed else _where.calls(_FP8, ours, lambda: original(self, layer, dispatch_output))


# ---- 16 bits

def _unquantised(self, theirs, layer, dispatch_output):
    if not hasattr(self, "quern_refusal"):
        self.quern_refusal = "its gates and ups alternate" if self.w13_swiglu_interleaved else _refusal(self, layer)
    if self.quern_refusal:
        _where.calls.tell(_SIXTEEN, self.quern_refusal)
        return theirs()
    return _run(layer, dispatch_output)


# ---- routing

def _biased(original, hidden_states, gating_output, correction_bias, topk, renormalize, num_expert_group=None, topk_group=None,
            num_fused_shared_experts=0, routed_scaling_factor=None, apply_routed_scaling_factor_on_output=False):
    shared = num_fused_shared_experts

    def ours():
        if correction_bias.ndim != 1 or shared > 1:
            raise NotImplementedError("each token has a bias of its own" if shared < 2 else f"{shared} shared experts, one of them by lot")
        return quern.moe_route(gating_output, topk - shared, correction_bias.data, "sigmoid", num_expert_group or 1, topk_group or 1,
                               renormalize, routed_scaling_factor if apply_routed_scaling_factor_on_output else 1.0, shared,
                               _shared_weight(routed_scaling_factor, apply_routed_scaling_factor_on_output))

    return _where.calls(_ROUTING, ours, lambda: original(
        hidden_states, gating_output, correction_bias, topk, renormalize, num_expert_group, topk_group, shared, routed_scaling_factor,
        apply_routed_scaling_factor_on_output))


def _shared_weight(factor, is_fused):
    return topk.fused_shared_expert_weight(routed_scaling_factor=factor, fused_in_topk=bool(is_fused))


def _grouped(original, hidden_states, gating_output, topk, renormalize, num_expert_group=None, topk_group=None,
             num_fused_shared_experts=0, routed_scaling_factor=None, apply_routed_scaling_factor_on_output=False, scoring_func="softmax"):
    def ours():
        if num_fused_shared_experts or scoring_func not in ("softmax", "sigmoid"):
            raise NotImplementedError(f"{num_fused_shared_experts} shared experts without a bias, or scores by {scoring_func}")
        return quern.moe_route(gating_output, topk, None, scoring_func, num_expert_group, topk_group, renormalize,
                               routed_scaling_factor if apply_routed_scaling_factor_on_output else 1.0)

    return _where.calls(_ROUTING, ours, lambda: original(
        hidden_states, gating_output, topk, renormalize, num_expert_group, topk_group, num_fused_shared_experts, routed_scaling_factor,
        apply_routed_scaling_factor_on_output, scoring_func))


def _register_experts(table):
    for target, hook in (("process_weights_after_loading", _loaded), ("apply", _applied)):
        HookRegistry.register(f"sglang.srt.layers.quantization.fp8.Fp8MoEMethod.{target}", hook, HookType.AROUND)
    _fp8.register_experts(table, _where.probe(), fp8_utils.fp8_dtype)
    give(UnquantizedFusedMoEMethod, _unquantised, _SIXTEEN)
    a, b = (torch.ones(shape, dtype=torch.bfloat16) for shape in ((128, 256), (2, 256, 256)))
    table.serve(_SIXTEEN, _where.probe().kernel(quern.gemm_grouped_contiguous, a, b, torch.ones(128, dtype=torch.int32)), "128 rows by 256 x 256")


def register(table):
    if fp8_utils._use_aiter:
        table.leave("experts, routing", "SGLANG_USE_AITER=1 gives them to AITER")
        return
    for target, hook in (("biased_grouped_topk", _biased), ("grouped_topk", _grouped)):
        HookRegistry.register(f"sglang.srt.layers.moe.topk.{target}", hook, HookType.AROUND)
    table.serve(_ROUTING, _where.probe().kernel(quern.moe_route, torch.zeros(1, 256), 8, groups=8, topk_groups=4),
                "1 token, 256 experts in 8 groups")
    _register_experts(table)
    table.leave("other experts", "FP8 by rows or tensors, int8, FP4: quern was not measured to be faster, or has no such type")
    table.leave("routing without groups", "SGLang's own is joined with its checks of padding and places of experts")
