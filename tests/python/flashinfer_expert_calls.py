# SPDX-License-Identifier: Apache-2.0
"""Calls of quern.compat.flashinfer's layers of experts, and a line for each of their parameters."""

import torch
from flashinfer_calls import CLASSES, FUNCTIONS
from flashinfer_tools import randn
from table_tools import Acts, Hint, Refused, Unused, Written

BF16, FP8 = torch.bfloat16, torch.float8_e4m3fn
TOKENS, EXPERTS, HIDDEN, INNER, TOP_K = 7, 6, 128, 128, 2


def bf16(*shape, seed=0):
    return (randn(*shape, dtype=torch.float32, seed=seed) / 4).to(BF16)


def ids():
    return torch.stack([torch.randperm(EXPERTS, generator=torch.Generator().manual_seed(t))[:TOP_K] for t in range(TOKENS)]).int()


def weights():
    return torch.rand(TOKENS, TOP_K, generator=torch.Generator().manual_seed(9))


def layer():
    return {"gemm1_weights": bf16(EXPERTS, 2 * INNER, HIDDEN), "gemm2_weights": bf16(EXPERTS, HIDDEN, INNER, seed=1)}


def layer_of_fp8():
    return {name: w.to(FP8) for name, w in layer().items()}


NUMBERS = {"num_experts": EXPERTS, "top_k": TOP_K, "n_group": None, "topk_group": None, "intermediate_size": INNER, "local_expert_offset": 0,
           "local_num_experts": EXPERTS, "routing_method_type": 1}
PLAIN = {"use_shuffled_weight": False, "weight_layout": 0}


def logits():
    return {"routing_logits": randn(TOKENS, EXPERTS, dtype=torch.float32), "routing_bias": None}


def routed():
    return {"topk_ids": (ids(), weights())}


def ones(*shape):
    return torch.ones(shape)


def of_blocks():
    return {**layer_of_fp8(), "hidden_states": bf16(TOKENS, HIDDEN).to(FP8), "hidden_states_scale": ones(1, TOKENS),
            "gemm1_weights_scale": ones(EXPERTS, 2, 1) / 2, "gemm2_weights_scale": ones(EXPERTS, 1, 1) / 2, **NUMBERS,
            "routed_scaling_factor": None}


def of_tensors():
    scale = {name: ones(EXPERTS) / 2 for name in ("output1_scales_scalar", "output1_scales_gate_scalar", "output2_scales_scalar")}
    return {**layer_of_fp8(), **scale, "hidden_states": bf16(TOKENS, HIDDEN).to(FP8), **NUMBERS, "routed_scaling_factor": None,
            "use_routing_scales_on_input": False}


def in_bf16():
    return {**layer(), "hidden_states": bf16(TOKENS, HIDDEN), **NUMBERS, **PLAIN}


def cutlass():
    return {"input": bf16(TOKENS, HIDDEN), "token_selected_experts": ids(), "token_final_scales": weights(),
            "fc1_expert_weights": layer()["gemm1_weights"], "fc2_expert_weights": layer()["gemm2_weights"], "output_dtype": BF16,
            "quant_scales": None}


def routed_call():
    return {"x": bf16(TOKENS, HIDDEN), "token_selected_experts": ids(), "token_final_scales": weights(),
            "w1_weight": layer()["gemm1_weights"], "w2_weight": layer()["gemm2_weights"]}


FUNCTIONS |= {
    "cutlass_fused_moe": (cutlass, ()),
    "cute_dsl_fused_moe_bf16": (lambda: {**routed_call(), "num_experts": EXPERTS, "top_k": TOP_K}, ()),
    "reorder_rows_for_gated_act_gemm": (lambda: {"x": torch.arange(12.0).reshape(6, 2)}, ()),
    "trtllm_bf16_moe": (lambda: {**in_bf16(), **logits()}, ()), "trtllm_bf16_routed_moe": (lambda: {**in_bf16(), **routed()}, ()),
    "trtllm_fp8_block_scale_moe": (lambda: {**of_blocks(), **logits()}, ()),
    "trtllm_fp8_block_scale_routed_moe": (lambda: {**of_blocks(), **routed(), "routing_bias": None}, ()),
    "trtllm_fp8_per_tensor_scale_moe": (lambda: {**of_tensors(), **logits()}, ()),
    "trtllm_fp8_per_tensor_scale_routed_moe": (lambda: {**of_tensors(), **routed(), "routing_bias": None}, ()),
}
CLASSES["CuteDslBf16MoEWrapper"] = lambda: {
    "__init__": {"num_experts": EXPERTS, "top_k": TOP_K, "hidden_size": HIDDEN, "intermediate_size": INNER}, "run": routed_call()}


# ---- what each parameter does

def of(owner, **lines):
    return {f"{owner}.{name}": line for name, line in lines.items()}


def flipped(t):
    return t.flip(0)


def doubled(t):
    return 2 * t


def other_bytes(t):
    return t.view(torch.uint8).flip(-1).contiguous().view(t.dtype)


def all_experts(value):
    return torch.full((EXPERTS,), value)


def swiglu(*names):
    alpha, beta, limit = names
    return {alpha: Acts(all_experts(1.702), **{beta: all_experts(1.0)}), beta: Acts(all_experts(1.0)), limit: Acts(all_experts(0.25))}


def expert_lines():
    flags = dict.fromkeys(("enable_alltoall", "use_w4_group_scaling", "use_mxfp8_act_scaling", "min_latency_mode", "use_packed_weights",
                           "use_wfp4afp8_humming"), Refused(True))
    written = Written(TOKENS, HIDDEN, dtype=BF16)
    finalize = {"use_fused_finalize": Hint(True, False), "tune_max_num_tokens": Hint(8192, 16)}
    situ = {"situ_beta": Refused(ones(1)), "situ_linear_beta": Refused(ones(1))}
    tokens = {"token_selected_experts": Acts(flipped), "token_final_scales": Acts(doubled), "activation_type": Acts(4)}
    lines = {
        **of("cutlass_fused_moe", **tokens, **flags, **finalize, **situ, **swiglu("swiglu_alpha", "swiglu_beta", "swiglu_limit"),
             input=Acts(doubled), fc1_expert_weights=Acts(doubled), fc2_expert_weights=Acts(doubled), output_dtype=Acts(torch.float16),
             quant_scales=Acts([ones(1)] * 4), fc1_expert_biases=Acts(ones(EXPERTS, 2 * INNER)), fc2_expert_biases=Acts(ones(EXPERTS, HIDDEN)),
             input_sf=Refused(ones(1)), tp_size=Hint(1, 2), tp_rank=Acts(1), ep_size=Hint(1, 2), ep_rank=Acts(1, ep_size=2),
             cluster_size=Refused(2), cluster_rank=Refused(1), output=written, use_deepseek_fp8_block_scale=Acts(True),
             swizzled_input_sf=Hint(True, False), profile_ids=Unused([1, 2]), workspace_buffer=Unused(torch.zeros(9, dtype=torch.uint8)),
             clamped_relu2_limit=Refused(ones(1)), backend=Hint("cutlass")),
        "reorder_rows_for_gated_act_gemm.x": Acts(doubled),
        **_cute_lines(tokens, situ, written),
    }
    return lines | _trtllm_lines(written)


def _cute_lines(tokens, situ, written):
    numbers = {"swiglu_alpha": Acts(1.702, swiglu_beta=1.0), "swiglu_beta": Acts(1.0), "swiglu_limit": Acts(0.25), "num_experts": Acts(1),
               "top_k": Acts(1), "num_local_experts": Acts(3), "local_expert_offset": Acts(1), "use_fused_finalize": Hint(True, False)}
    tensors = {"x": Acts(doubled), "w1_weight": Acts(doubled), "w2_weight": Acts(doubled), "moe_output": written,
               "intermediate_buffer": Unused(ones(1)), "tactic": Unused((1,))}
    return {**of("cute_dsl_fused_moe_bf16", **tokens, **situ, **numbers, **tensors),
            **of("CuteDslBf16MoEWrapper.run", **tokens, **tensors),
            **of("CuteDslBf16MoEWrapper.__init__", **situ, **numbers, activation_type=tokens["activation_type"], hidden_size=Acts(64),
                 intermediate_size=Acts(64), output_dtype=Acts(torch.float16))}


def _trtllm_lines(written):
    deepseek = {"routing_method_type": 2, "n_group": 2, "topk_group": 1}
    routing = {"routing_logits": Acts(flipped), "routing_bias": Acts(torch.arange(float(EXPERTS)), **deepseek), "n_group": Acts(3, **deepseek),
               "topk_group": Acts(2, **deepseek), "routed_scaling_factor": Acts(2.0, **deepseek), "routing_method_type": Acts(6),
               "norm_topk_prob": Acts(False, routing_method_type=4)}
    done = {"topk_ids": Acts((ids().flip(0), weights())), "n_group": Unused(2), "topk_group": Unused(1),
            "routed_scaling_factor": Unused(2.0, wrong="much"), "routing_method_type": Unused(2), "routing_bias": Unused(ones(EXPERTS)),
            "gemm1_lora_delta": Refused(ones(1))}
    replay = {"routing_replay_out": Written(TOKENS, TOP_K, dtype=torch.int16)}
    common = {"num_experts": Acts(1), "top_k": Acts(1), "intermediate_size": Acts(64), "local_expert_offset": Acts(1),
              "local_num_experts": Acts(3), "do_finalize": Refused(False), "tune_max_num_tokens": Hint(8192, 16), "activation_type": Acts(4),
              "output": written}
    swiglus = swiglu("gemm1_alpha", "gemm1_beta", "gemm1_clamp_limit")
    codes = dict.fromkeys(("hidden_states", "gemm1_weights", "gemm2_weights"), Acts(other_bytes))
    plain = dict.fromkeys(codes, Acts(doubled))
    layout = {"use_shuffled_weight": Acts(True), "weight_layout": Acts(2)}
    blocks = {"hidden_states_scale": Acts(doubled), "gemm1_weights_scale": Acts(doubled), "gemm2_weights_scale": Acts(doubled),
              "fp8_quantization_type": Refused(2, 3), "gemm1_bias": Refused(ones(1)), "gemm2_bias": Refused(ones(1)),
              "num_fused_shared_experts": Refused(1), "valid_hidden_size": Refused(64), "valid_intermediate_size": Refused(64)}
    tensor = dict.fromkeys(("output1_scales_scalar", "output1_scales_gate_scalar", "output2_scales_scalar"), Acts(doubled))
    tensor["use_routing_scales_on_input"] = Refused(True)
    without = blocks | dict.fromkeys(("num_fused_shared_experts", "gemm1_bias", "gemm2_bias"))
    calls = {"trtllm_bf16_moe": common | swiglus | plain | layout | routing | replay,
             "trtllm_bf16_routed_moe": common | swiglus | plain | layout | done | replay,
             "trtllm_fp8_block_scale_moe": common | swiglus | codes | layout | blocks | routing | replay,
             "trtllm_fp8_block_scale_routed_moe": common | swiglus | codes | layout | without | done,
             "trtllm_fp8_per_tensor_scale_moe": common | codes | tensor | routing | replay,
             "trtllm_fp8_per_tensor_scale_routed_moe": common | codes | tensor | done | replay}
    return {f"{call}.{name}": line for call, lines in calls.items() for name, line in lines.items() if line is not None}
