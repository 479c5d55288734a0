# SPDX-License-Identifier: Apache-2.0
"""FlashInfer's names that are here only to say why they are not served, and what to switch off in the engine."""

from ._absent import absent

_TUNE = "quern chooses its kernels by QUERN_TUNE; leave FlashInfer's tuning out, in vLLM with --no-enable-flashinfer-autotune"
_LINEAR = "quern has no linear attention; choose a model without it, or the engine's Triton kernels for it"
_CAKE = "quern has these computations under FlashInfer's own names, not Cake's; choose the backend 'fa2' or 'auto' in the engine"
_TRAINING = "quern computes no gradients; use rmsnorm for inference, PyTorch's own for training"
_FP4_CACHE = "quern has no attention over caches of FP4; choose a cache of bf16 or FP8, in vLLM with --kv-cache-dtype"
_FP4 = "quern quantises to FP4 by itself alone; leave the engine's fusion of it out, or choose a model in bf16 or FP8"
_ATTENTION = "quern has this attention under the batch wrappers' names; choose the backend 'fa2' or 'auto' in the engine"
_TRACE = "quern records no traces of FlashInfer's calls; unset FLASHINFER_TRACE_DUMP and FLASHINFER_TRACE_APPLY"

autotune_v2 = absent("autotune_v2", _TUNE)
autotune_v2_reload = absent("autotune_v2_reload", _TUNE)
MeasurementPolicy = absent("MeasurementPolicy", _TUNE)
chunk_gated_delta_product = absent("chunk_gated_delta_product", _LINEAR)
chunk_gated_delta_rule = absent("chunk_gated_delta_rule", _LINEAR)
chunk_gated_delta_rule2 = absent("chunk_gated_delta_rule2", _LINEAR)
fused_kda_decode = absent("fused_kda_decode", _LINEAR)
gdn_fused_decode_step = absent("gdn_fused_decode_step", _LINEAR)
gdn_fused_decode_step_supported = absent("gdn_fused_decode_step_supported", _LINEAR)
kda_prefill_supports_fp32_checkpoints = absent("kda_prefill_supports_fp32_checkpoints", _LINEAR)
packed_fused_kda_decode = absent("packed_fused_kda_decode", _LINEAR)
packed_kda_decode = absent("packed_kda_decode", _LINEAR)
prepare_bf16_kda_prefill = absent("prepare_bf16_kda_prefill", _LINEAR)
prepare_tf32_kda_prefill = absent("prepare_tf32_kda_prefill", _LINEAR)
recurrent_kda = absent("recurrent_kda", _LINEAR)
KDAPrefillPlanCache = absent("KDAPrefillPlanCache", _LINEAR)
RecurrentKDAPrefillWorkspace = absent("RecurrentKDAPrefillWorkspace", _LINEAR)
RecurrentKDAPrefillWrapper = absent("RecurrentKDAPrefillWrapper", _LINEAR)
CakeFmhaRequestOrderedDecodePlan = absent("CakeFmhaRequestOrderedDecodePlan", _CAKE)
cake_batch_context_with_kv_cache = absent("cake_batch_context_with_kv_cache", _CAKE)
cake_batch_decode_with_kv_cache = absent("cake_batch_decode_with_kv_cache", _CAKE)
cake_fmha_manifest = absent("cake_fmha_manifest", _CAKE)
plan_cake_fmha_request_ordered_paged_decode = absent("plan_cake_fmha_request_ordered_paged_decode", _CAKE)
get_dcp_spec_counter_bytes = absent("get_dcp_spec_counter_bytes", _CAKE)
get_dcp_spec_workspace_size_bytes = absent("get_dcp_spec_workspace_size_bytes", _CAKE)
MiniMaxH3Mxfp8PreAttention = absent("MiniMaxH3Mxfp8PreAttention", _CAKE)
MiniMaxH3Nvfp4PreAttention = absent("MiniMaxH3Nvfp4PreAttention", _CAKE)
MiniMaxH3QkvQuantizePack = absent("MiniMaxH3QkvQuantizePack", _CAKE)
CakeRMSNormFunction = absent("CakeRMSNormFunction", _TRAINING)
cake_rmsnorm = absent("cake_rmsnorm", _TRAINING)
cake_rmsnorm_train_backward = absent("cake_rmsnorm_train_backward", _TRAINING)
cake_rmsnorm_train_backward_workspace_bytes = absent("cake_rmsnorm_train_backward_workspace_bytes", _TRAINING)
cake_rmsnorm_train_forward = absent("cake_rmsnorm_train_forward", _TRAINING)
silu_and_mul_mxfp8_quantize_backward = absent("silu_and_mul_mxfp8_quantize_backward", _TRAINING)
nvfp4_attention_sm120_fwd = absent("nvfp4_attention_sm120_fwd", _FP4_CACHE)
nvfp4_attention_sm120_quantize_qkv = absent("nvfp4_attention_sm120_quantize_qkv", _FP4_CACHE)
nvfp4_quantize_append_paged_kv_cache = absent("nvfp4_quantize_append_paged_kv_cache", _FP4_CACHE)
nvfp4_quantize_append_paged_kv_cache_with_slot_mapping = absent("nvfp4_quantize_append_paged_kv_cache_with_slot_mapping", _FP4_CACHE)
nvfp4_quantize_append_paged_mla_kv_cache = absent("nvfp4_quantize_append_paged_mla_kv_cache", _FP4_CACHE)
add_rmsnorm_fp4quant = absent("add_rmsnorm_fp4quant", _FP4)
rmsnorm_fp4quant = absent("rmsnorm_fp4quant", _FP4)
mm_bf16_fp4 = absent("mm_bf16_fp4", _FP4)
prepare_bf16_fp4_weights = absent("prepare_bf16_fp4_weights", _FP4)
mm_nvfp4_svdquant = absent("mm_nvfp4_svdquant", _FP4)
nvfp4_quantize_smooth = absent("nvfp4_quantize_smooth", _FP4)
svdquant_linear = absent("svdquant_linear", _FP4)
silu_and_mul_scaled_nvfp4_experts_quantize = absent("silu_and_mul_scaled_nvfp4_experts_quantize", _FP4)
silu_and_mul_mxfp8_quantize = absent("silu_and_mul_mxfp8_quantize", _FP4)
BatchPrefillWithCausalBidirectionalRangesWrapper = absent("BatchPrefillWithCausalBidirectionalRangesWrapper", _ATTENTION)
trtllm_fmha_v2_prefill = absent("trtllm_fmha_v2_prefill", _ATTENTION)
trtllm_sage_attention_quantize = absent("trtllm_sage_attention_quantize", _ATTENTION)
fi_trace = absent("fi_trace", _TRACE)
