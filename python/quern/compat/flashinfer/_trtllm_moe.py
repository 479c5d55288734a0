# SPDX-License-Identifier: Apache-2.0
"""FlashInfer's layers of experts under TensorRT-LLM's names, with routing or routed before."""

import torch

from ... import _moe
from ..._public import flag, found
from .._check import integer, shape, tensors
from . import _run
from ._experts import Experts, activation, alternating_rows, check_layer, compute, local, shuffled_rows
from ._hints import check_flags, refuse
from ._products import FP8, kind, result
from .tllm_enums import ActivationType, Fp8QuantizationType, RoutingMethodType, WeightLayout, member

_SOFTMAX = RoutingMethodType.Default, RoutingMethodType.Renormalize, RoutingMethodType.RenormalizeNaive
_WITH_BIAS = RoutingMethodType.DeepSeekV3, RoutingMethodType.MiniMax2
_RENORMALIZED = (RoutingMethodType.Renormalize, RoutingMethodType.RenormalizeNaive, RoutingMethodType.SigmoidRenorm, *_WITH_BIAS)
_REFUSED = RoutingMethodType.TopK, RoutingMethodType.Unspecified
_OA = "gemm1_alpha", "gemm1_beta", "gemm1_clamp_limit"


def _route(op, given):
    """Returns (weights, ids) of routing_logits."""
    method = member(op, "routing_method_type", RoutingMethodType, given["routing_method_type"])
    logits, bias, scaling = given["routing_logits"], given["routing_bias"], given["routed_scaling_factor"]
    tensors(op, {"routing_logits": logits, "routing_bias": bias}, ("routing_bias",))
    shape(op, "routing_logits", logits, len(given["hidden_states"]), given["num_experts"])
    if method in _REFUSED:
        raise NotImplementedError(f"{op}: routing_method_type is {method!r}; accepted: all but {_REFUSED[0]!r}")
    if bias is not None and method not in _WITH_BIAS:
        raise NotImplementedError(f"{op}: routing_bias is {found(bias)}; accepted with {method!r}: None")
    if method != RoutingMethodType.DeepSeekV3 and scaling not in (None, 1):
        raise NotImplementedError(f"{op}: routed_scaling_factor is {scaling}; accepted with {method!r}: None, 1")
    if method == RoutingMethodType.Llama4 and given["top_k"] != 1:
        raise ValueError(f"{op}: top_k is {given['top_k']}; accepted with {method!r}: 1")
    groups = (given["n_group"] or 1, given["topk_group"] or 1) if method == RoutingMethodType.DeepSeekV3 else (1, 1)
    if method != RoutingMethodType.DeepSeekV3 and (given["n_group"] or 1) != 1:
        raise NotImplementedError(f"{op}: n_group is {given['n_group']}; accepted with {method!r}: None, 0, 1")
    names = {"logits": "routing_logits", "bias": "routing_bias", "groups": "n_group", "topk_groups": "topk_group",
             "scaling": "routed_scaling_factor"}
    return _run.call(op, _moe.moe_route, names, logits, given["top_k"], None if bias is None else bias.contiguous(),
                     "softmax" if method in _SOFTMAX else "sigmoid", *groups, _is_renormalized(op, method, given), scaling or 1.0)


def _is_renormalized(op, method, given):
    norm = flag(op, "norm_topk_prob", given.get("norm_topk_prob", True))
    if not norm and method in (RoutingMethodType.Renormalize, *_WITH_BIAS):
        raise NotImplementedError(f"{op}: norm_topk_prob is False; accepted with {method!r}: True")
    return method in _RENORMALIZED and norm


def _routed(op, given):
    """Returns (weights, ids) of topk_ids: two tensors, or one of int32 with an id above a bf16 weight."""
    packed, tokens, top_k = given["topk_ids"], len(given["hidden_states"]), given["top_k"]
    if isinstance(packed, (tuple, list)):
        if len(packed) != 2:
            raise ValueError(f"{op}: topk_ids is {found(packed)}; accepted: a tensor, (ids, weights)")
        ids, weights = packed
        tensors(op, {"topk_ids[0]": ids, "topk_ids[1]": weights})
        shape(op, "topk_ids[0]", ids, tokens, top_k)
        shape(op, "topk_ids[1]", weights, tokens, top_k)
        return weights.float(), ids
    tensors(op, {"topk_ids": packed})
    shape(op, "topk_ids", packed, tokens, top_k)
    if packed.dtype != torch.int32:
        raise ValueError(f"{op}: topk_ids has dtype {packed.dtype}, needs torch.int32")
    return packed.view(torch.bfloat16)[..., 0::2].float(), packed >> 16


def _keep_ids(op, replay, ids):
    if replay is None:
        return
    tensors(op, {"routing_replay_out": replay})
    if replay.dtype != torch.int16 or replay.ndim != 2 or len(replay) < len(ids) or replay.shape[1] != ids.shape[1]:
        raise ValueError(f"{op}: routing_replay_out has shape {list(replay.shape)} of {replay.dtype}, needs [{len(ids)} or more, "
                         f"{ids.shape[1]}] of torch.int16")
    replay[:len(ids)] = ids


def _weight(op, name, w, layout):
    """Returns a weight as [experts, rows, columns]; one in blocks of 128 bytes of columns is copied."""
    tensors(op, {name: w})
    if layout == WeightLayout.MajorK:
        shape(op, name, w, None, None, None)
        return w
    if layout != WeightLayout.BlockMajorK:
        raise NotImplementedError(f"{op}: weight_layout is {layout!r}; accepted: MajorK, BlockMajorK")
    shape(op, name, w, None, None, None, 128 // w.dtype.itemsize)
    return w.transpose(1, 2).flatten(2)


def _orders(w1, w2, tile, is_alternating):
    """Returns where gates and ups, and the result's columns, lie behind the products with shuffled weights."""
    rows = shuffled_rows(w1.shape[1], tile, w1.device)
    rows = alternating_rows(w1.shape[1], w1.device)[rows] if is_alternating else rows
    place = rows.argsort()
    half = w1.shape[1] // 2
    return torch.cat([place[half:], place[:half]]), shuffled_rows(w2.shape[1], tile, w2.device).argsort()


def _layer(op, given, x, x_scale, layer):
    """Routes, computes and returns the result. given: the arguments of the public function."""
    check_flags(op, enable_pdl=given["enable_pdl"])
    refuse(op, gemm1_lora_delta=given.get("gemm1_lora_delta"))
    if not flag(op, "do_finalize", given["do_finalize"]):
        raise NotImplementedError(f"{op}: do_finalize is False; accepted: True")
    integer(op, "tune_max_num_tokens", given["tune_max_num_tokens"], 1)
    count = integer(op, "local_num_experts", given["local_num_experts"], 1, integer(op, "num_experts", given["num_experts"], 1))
    integer(op, "local_expert_offset", given["local_expert_offset"], 0, given["num_experts"] - count)
    integer(op, "top_k", given["top_k"], 1)
    is_routed = "topk_ids" in given
    weights, ids = _routed(op, given) if is_routed else _route(op, given)
    if is_routed:
        _check_hints(op, given)
    check_layer(op, x, ids, weights, layer.w1, layer.w2, ("hidden_states", "topk_ids", "topk_ids", "gemm1_weights", "gemm2_weights"))
    for name, has, needed in (("local_num_experts", len(layer.w1), count),
                              ("intermediate_size", layer.w2.shape[2], given["intermediate_size"])):
        if has != needed:
            raise ValueError(f"{op}: {name} is {needed}, the weights have {has}")
    _keep_ids(op, given["routing_replay_out"], ids)
    act = activation(op, given["activation_type"], count, *(given.get(name) for name in _OA), _OA)
    out = result(op, given["output"], x.shape, torch.bfloat16, x.device, (torch.bfloat16,), "bf16")
    return compute(op, x, x_scale, layer, weights, local(ids, given["local_expert_offset"], count), act, out)


def _check_hints(op, given):
    """Checks what routing would need, and nothing does that is routed already."""
    member(op, "routing_method_type", RoutingMethodType, given["routing_method_type"])
    for name in ("n_group", "topk_group"):
        if given[name] is not None:
            integer(op, name, given[name], 0)
    scaling = given["routed_scaling_factor"]
    if scaling is not None and (isinstance(scaling, bool) or not isinstance(scaling, (int, float))):
        raise ValueError(f"{op}: routed_scaling_factor is {found(scaling)}; accepted: a number, None")
    if given.get("routing_bias") is not None:
        tensors(op, {"routing_bias": given["routing_bias"]})


# ---- bf16

def _bf16(op, given):
    layout = member(op, "weight_layout", WeightLayout, given["weight_layout"])
    w1, w2 = (_weight(op, name, given[name], layout) for name in ("gemm1_weights", "gemm2_weights"))
    kind(op, "hidden_states", given["hidden_states"], (torch.bfloat16,))
    for name, w in (("gemm1_weights", w1), ("gemm2_weights", w2)):
        kind(op, name, w, (torch.bfloat16,))
    orders = _orders(w1, w2, 128, True) if flag(op, "use_shuffled_weight", given["use_shuffled_weight"]) else (None, None)
    return _layer(op, given, given["hidden_states"], None, Experts(w1, w2, order=orders[0], out_order=orders[1]))


def trtllm_bf16_moe(routing_logits, routing_bias, hidden_states, gemm1_weights, gemm2_weights, num_experts, top_k, n_group, topk_group,
                    intermediate_size, local_expert_offset, local_num_experts, routed_scaling_factor=None, routing_method_type=0,
                    use_shuffled_weight=True, weight_layout=WeightLayout.BlockMajorK, do_finalize=True, enable_pdl=True,
                    tune_max_num_tokens=8192, activation_type=ActivationType.Swiglu.value, norm_topk_prob=True,
                    routing_replay_out=None, gemm1_alpha=None, gemm1_beta=None, gemm1_clamp_limit=None, output=None):
    """Returns output bf16 [tokens, hidden]: routes tokens by routing_logits [tokens, experts], and computes their experts.

    hidden_states   bf16 [tokens, hidden]
    gemm1_weights   bf16 [local experts, 2 inner, hidden], ups before gates; gemm2_weights [local experts, hidden, inner]. With
                    use_shuffled_weight gemm1's halves alternate (reorder_rows_for_gated_act_gemm) and the rows of both are those of
                    shuffle_matrix_a with a tile of 128. With weight_layout BlockMajorK both lie in blocks of 64 columns,
                    [local experts, columns / 64, rows, 64], and are copied by each call; MajorK is faster here
    routing_method_type  RoutingMethodType, all but TopK; n_group, topk_group and routed_scaling_factor are DeepSeekV3's, routing_bias
                    also MiniMax2's. norm_topk_prob False: RenormalizeNaive and SigmoidRenorm do not renormalise
    routing_replay_out  int16 [tokens or more, top_k]: written with the experts
    gemm1_alpha, gemm1_beta, gemm1_clamp_limit  [local experts], one number for all, read on the host; as swiglu_* of cutlass_fused_moe
    do_finalize True; enable_pdl and tune_max_num_tokens change nothing
    """
    return _bf16("trtllm_bf16_moe", locals())


def trtllm_bf16_routed_moe(topk_ids, hidden_states, gemm1_weights, gemm2_weights, num_experts, top_k, n_group, topk_group,
                           intermediate_size, local_expert_offset, local_num_experts, routed_scaling_factor=None,
                           routing_method_type=0, use_shuffled_weight=True, weight_layout=WeightLayout.BlockMajorK, do_finalize=True,
                           enable_pdl=True, gemm1_lora_delta=None, tune_max_num_tokens=8192,
                           activation_type=ActivationType.Swiglu.value, routing_replay_out=None, gemm1_alpha=None, gemm1_beta=None,
                           gemm1_clamp_limit=None, output=None):
    """Computes trtllm_bf16_moe of tokens that are routed already.

    topk_ids  (ids i32, weights) [tokens, top_k], or one i32 [tokens, top_k]: an id in the higher half, a bf16 weight in the lower
    n_group, topk_group, routed_scaling_factor and routing_method_type change nothing
    """
    return _bf16("trtllm_bf16_routed_moe", locals())


# ---- FP8

def _block_scale(op, given):
    how = member(op, "fp8_quantization_type", Fp8QuantizationType, given["fp8_quantization_type"])
    if how != Fp8QuantizationType.DeepSeekFp8:
        raise NotImplementedError(f"{op}: fp8_quantization_type is {how!r}; accepted: {Fp8QuantizationType.DeepSeekFp8!r}")
    refuse(op, num_fused_shared_experts=given.get("num_fused_shared_experts") or None, gemm1_bias=given.get("gemm1_bias"),
           gemm2_bias=given.get("gemm2_bias"))
    layout = member(op, "weight_layout", WeightLayout, given["weight_layout"])
    w1, w2 = (_weight(op, name, given[name], layout) for name in ("gemm1_weights", "gemm2_weights"))
    x, x_scale = given["hidden_states"], given["hidden_states_scale"]
    tensors(op, {"hidden_states": x, "hidden_states_scale": x_scale})
    shape(op, "hidden_states", x, None, None)
    shape(op, "hidden_states_scale", x_scale, -(-x.shape[1] // 128), len(x))
    for name, value in (("hidden_states", x), ("gemm1_weights", w1), ("gemm2_weights", w2)):
        kind(op, name, value, FP8)
    for name, size, has in (("valid_hidden_size", given["valid_hidden_size"], x.shape[1]),
                            ("valid_intermediate_size", given["valid_intermediate_size"], w2.shape[2])):
        if size not in (None, has):
            raise NotImplementedError(f"{op}: {name} is {size}; accepted: None, {has}")
    scales = [_blocks(op, name, given[name], w) for name, w in (("gemm1_weights_scale", w1), ("gemm2_weights_scale", w2))]
    orders = _orders(w1, w2, 64, False) if flag(op, "use_shuffled_weight", given["use_shuffled_weight"]) else (None, None)
    return _layer(op, given, x, x_scale.float().T, Experts(w1, w2, *scales, order=orders[0], out_order=orders[1]))


def _blocks(op, name, scale, w):
    tensors(op, {name: scale})
    shape(op, name, scale, len(w), -(-w.shape[1] // 128), -(-w.shape[2] // 128))
    return scale.float().contiguous()


def trtllm_fp8_block_scale_moe(routing_logits, routing_bias, hidden_states, hidden_states_scale, gemm1_weights, gemm1_weights_scale,
                               gemm2_weights, gemm2_weights_scale, num_experts, top_k, n_group, topk_group, intermediate_size,
                               local_expert_offset, local_num_experts, routed_scaling_factor, routing_method_type=0,
                               use_shuffled_weight=False, weight_layout=0, do_finalize=True, enable_pdl=None, tune_max_num_tokens=8192,
                               fp8_quantization_type=Fp8QuantizationType.DeepSeekFp8, num_fused_shared_experts=None,
                               activation_type=ActivationType.Swiglu.value, norm_topk_prob=True, routing_replay_out=None,
                               gemm1_alpha=None, gemm1_beta=None, gemm1_clamp_limit=None, output=None, valid_hidden_size=None,
                               valid_intermediate_size=None, *, gemm1_bias=None, gemm2_bias=None):
    """Returns output bf16 [tokens, hidden]: trtllm_bf16_moe of FP8.

    hidden_states, gemm1_weights, gemm2_weights  FP8 of trtllm_bf16_moe's shapes; blocks of columns are of 128. With use_shuffled_weight
                         halves do not alternate, and the tile is 64
    hidden_states_scale  f32 [hidden / 128, tokens]; gemm1_weights_scale [local experts, 2 inner / 128, hidden / 128] and
                         gemm2_weights_scale [local experts, hidden / 128, inner / 128] are f32, in the order of unshuffled rows
    fp8_quantization_type DeepSeekFp8, num_fused_shared_experts None or 0, no biases; valid_* are None or the sizes themselves
    """
    return _block_scale("trtllm_fp8_block_scale_moe", locals())


def trtllm_fp8_block_scale_routed_moe(topk_ids, routing_bias, hidden_states, hidden_states_scale, gemm1_weights, gemm1_weights_scale,
                                      gemm2_weights, gemm2_weights_scale, num_experts, top_k, n_group, topk_group, intermediate_size,
                                      local_expert_offset, local_num_experts, routed_scaling_factor, routing_method_type=0,
                                      use_shuffled_weight=False, weight_layout=0, do_finalize=True, enable_pdl=None,
                                      gemm1_lora_delta=None, output=None, tune_max_num_tokens=8192,
                                      fp8_quantization_type=Fp8QuantizationType.DeepSeekFp8,
                                      activation_type=ActivationType.Swiglu.value, gemm1_alpha=None, gemm1_beta=None,
                                      gemm1_clamp_limit=None, valid_hidden_size=None, valid_intermediate_size=None):
    """Computes trtllm_fp8_block_scale_moe of tokens that are routed already, by topk_ids as trtllm_bf16_routed_moe has it. What routing
    would need changes nothing."""
    return _block_scale("trtllm_fp8_block_scale_routed_moe", {**locals(), "routing_replay_out": None})


def _per_tensor(op, given):
    refuse(op, use_routing_scales_on_input=flag(op, "use_routing_scales_on_input", given["use_routing_scales_on_input"]))
    x, w1, w2 = (given[name] for name in ("hidden_states", "gemm1_weights", "gemm2_weights"))
    tensors(op, {"hidden_states": x, "gemm1_weights": w1, "gemm2_weights": w2})
    for name, value in (("hidden_states", x), ("gemm1_weights", w1), ("gemm2_weights", w2)):
        kind(op, name, value, FP8)
    shape(op, "gemm1_weights", w1, None, None, None)
    shape(op, "gemm2_weights", w2, None, None, None)
    scales = []
    for name in ("output1_scales_gate_scalar", "output1_scales_scalar", "output2_scales_scalar"):
        tensors(op, {name: given[name]})
        shape(op, name, given[name], len(w1))
        scales.append(given[name].float())
    gate, ups, last = scales
    order, out_order = _orders(w1, w2, 128, True)
    one = torch.ones(1, dtype=torch.float32, device=x.device)
    layer = Experts(w1, w2, gate, last, ups_scale=ups / gate, inner_scale=one, order=order, out_order=out_order)
    return _layer(op, given, x, None, layer)


def trtllm_fp8_per_tensor_scale_moe(routing_logits, routing_bias, hidden_states, gemm1_weights, output1_scales_scalar,
                                    output1_scales_gate_scalar, gemm2_weights, output2_scales_scalar, num_experts, top_k, n_group,
                                    topk_group, intermediate_size, local_expert_offset, local_num_experts, routed_scaling_factor,
                                    use_routing_scales_on_input, routing_method_type=0, do_finalize=True, enable_pdl=None,
                                    tune_max_num_tokens=8192, activation_type=ActivationType.Swiglu.value, norm_topk_prob=True,
                                    routing_replay_out=None, output=None):
    """Returns output bf16 [tokens, hidden]: trtllm_bf16_moe of FP8 with one scale each.

    hidden_states, gemm1_weights, gemm2_weights  FP8, weights shuffled as trtllm_bf16_moe's with use_shuffled_weight, MajorK
    output1_scales_gate_scalar, output1_scales_scalar, output2_scales_scalar  f32 [local experts]: what gates, ups and the second
                    product are multiplied with. Between the products values are FP8 without a scale
    use_routing_scales_on_input False
    """
    return _per_tensor("trtllm_fp8_per_tensor_scale_moe", locals())


def trtllm_fp8_per_tensor_scale_routed_moe(topk_ids, routing_bias, hidden_states, gemm1_weights, output1_scales_scalar,
                                           output1_scales_gate_scalar, gemm2_weights, output2_scales_scalar, num_experts, top_k,
                                           n_group, topk_group, intermediate_size, local_expert_offset, local_num_experts,
                                           routed_scaling_factor, use_routing_scales_on_input, routing_method_type=0, do_finalize=True,
                                           enable_pdl=None, tune_max_num_tokens=8192, activation_type=ActivationType.Swiglu.value,
                                           routing_replay_out=None, output=None):
    """Computes trtllm_fp8_per_tensor_scale_moe of tokens that are routed already, by topk_ids as trtllm_bf16_routed_moe has it. What
    routing would need changes nothing."""
    return _per_tensor("trtllm_fp8_per_tensor_scale_routed_moe", locals())
