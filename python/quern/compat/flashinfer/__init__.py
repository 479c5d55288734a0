# SPDX-License-Identifier: Apache-2.0
"""FlashInfer's functions over quern: `import quern.compat.flashinfer as flashinfer`, on PyTorch tensors of any device.

Names, modules, parameters and results are FlashInfer's (0.7), as far as quern has the op; docs/flashinfer.md lists
them. These differ: hidden sizes and dtypes are any that quern takes, where FlashInfer restricts them; `enable_pdl`,
`non_blocking`, `use_tensor_cores` and `backend` ("auto", "fa2", "fa3"), which say how FlashInfer computes, change
nothing.

SGLANG_DISABLE_FLASHINFER=1  PyTorch's own operators compute everything
SGLANG_LOG_KERNEL=1          a log line, logger "quern.compat.flashinfer", names an op's kernel whenever it changes
Both variables are read when this module is imported.
"""

from ._others import (BatchPrefillWithCausalBidirectionalRangesWrapper, CakeFmhaRequestOrderedDecodePlan, CakeRMSNormFunction,
                      KDAPrefillPlanCache, MeasurementPolicy, MiniMaxH3Mxfp8PreAttention, MiniMaxH3Nvfp4PreAttention,
                      MiniMaxH3QkvQuantizePack, RecurrentKDAPrefillWorkspace, RecurrentKDAPrefillWrapper, add_rmsnorm_fp4quant,
                      autotune_v2, autotune_v2_reload, cake_batch_context_with_kv_cache, cake_batch_decode_with_kv_cache,
                      cake_fmha_manifest, cake_rmsnorm, cake_rmsnorm_train_backward, cake_rmsnorm_train_backward_workspace_bytes,
                      cake_rmsnorm_train_forward, chunk_gated_delta_product, chunk_gated_delta_rule, chunk_gated_delta_rule2,
                      fi_trace, fused_kda_decode, gdn_fused_decode_step, gdn_fused_decode_step_supported,
                      get_dcp_spec_counter_bytes, get_dcp_spec_workspace_size_bytes, kda_prefill_supports_fp32_checkpoints,
                      mm_bf16_fp4, mm_nvfp4_svdquant, nvfp4_attention_sm120_fwd, nvfp4_attention_sm120_quantize_qkv,
                      nvfp4_quantize_append_paged_kv_cache, nvfp4_quantize_append_paged_kv_cache_with_slot_mapping,
                      nvfp4_quantize_append_paged_mla_kv_cache, nvfp4_quantize_smooth, packed_fused_kda_decode, packed_kda_decode,
                      plan_cake_fmha_request_ordered_paged_decode, prepare_bf16_fp4_weights, prepare_bf16_kda_prefill,
                      prepare_tf32_kda_prefill, recurrent_kda, rmsnorm_fp4quant, silu_and_mul_mxfp8_quantize,
                      silu_and_mul_mxfp8_quantize_backward, silu_and_mul_scaled_nvfp4_experts_quantize, svdquant_linear,
                      trtllm_fmha_v2_prefill, trtllm_sage_attention_quantize)
from .activation import gelu_and_mul, gelu_tanh_and_mul, silu_and_mul
from .attention import BatchAttention, BatchAttentionWithAttentionSinkWrapper
from .attn_scores import (compute_paged_mqa_logits_schedule, fp4_paged_mqa_logits, fp8_paged_mqa_logits, min_block_table_width,
                          padded_seq_len, precompile_paged_mqa_logits)
from .cake_sampling import top_k_top_p_sampling_from_probs as cake_top_k_top_p_sampling_from_probs
from .cascade import (BatchDecodeWithSharedPrefixPagedKVCacheWrapper, BatchPrefillWithSharedPrefixPagedKVCacheWrapper,
                      MultiLevelCascadeAttentionWrapper, merge_state, merge_state_in_place, merge_states)
from .decode import (BatchDecodeWithPagedKVCacheWrapper, CUDAGraphBatchDecodeWithPagedKVCacheWrapper,
                     cudnn_batch_decode_with_kv_cache, fast_decode_plan, launch_sm110_gqa_decode_prepared,
                     prepare_balanced_batch_decode_with_kv_cache, prepare_sm110_gqa_decode, single_decode_with_kv_cache,
                     sm110_gqa_decode)
from .fused_moe import (B12xMoEWrapper, CuteDslBf16MoEWrapper, CuteDslMoEWrapper, CuteDslMxfp8Mxfp4MoEWrapper, b12x_fused_moe,
                        cudnn_frost_grouped_gemm1_swiglu, cudnn_frost_grouped_gemm1_swiglu_workspace_size, cute_dsl_fused_moe,
                        cute_dsl_fused_moe_bf16, cute_dsl_fused_moe_mxfp8_mxfp4, cute_dsl_fused_moe_nvfp4, cutlass_fused_moe,
                        reorder_rows_for_gated_act_gemm, trtllm_bf16_moe, trtllm_bf16_routed_moe, trtllm_fp4_block_scale_moe,
                        trtllm_fp4_block_scale_routed_moe, trtllm_fp8_block_scale_moe, trtllm_fp8_block_scale_routed_moe,
                        trtllm_fp8_per_tensor_scale_moe, trtllm_fp8_per_tensor_scale_routed_moe)
from .gemm import (SegmentGEMMWrapper, bmm_bf16, bmm_fp8, bmm_mxfp8, mm_bf16, mm_fp4, mm_fp8, mm_mxfp8,
                   prepare_low_latency_gemm_weights, tgv_gemm_sm100)
from .grouped_mm import grouped_mm_bf16, grouped_mm_fp4, grouped_mm_fp8, grouped_mm_mxfp8
from .mla import BatchMLAPagedAttentionWrapper
from .norm import (fused_add_rmsnorm, fused_add_rmsnorm_fp8_block_quant, fused_add_rmsnorm_quant,
                   fused_dit_gate_residual_layernorm_gamma_beta, fused_dit_gate_residual_layernorm_scale_shift,
                   fused_dit_residual_layernorm_scale_shift, fused_qk_rmsnorm_rope, fused_rmsnorm_silu, gemma_fused_add_rmsnorm,
                   gemma_rmsnorm, layernorm, layernorm_quant, rmsnorm, rmsnorm_quant)
from .page import append_paged_kv_cache, append_paged_mla_kv_cache, get_batch_indices_positions, get_seq_lens
from .pod import BatchPODWithPagedKVCacheWrapper, PODWithPagedKVCacheWrapper
from .prefill import (BatchPrefillWithPagedKVCacheWrapper, BatchPrefillWithRaggedKVCacheWrapper, fmha_varlen,
                      fmha_varlen_plan, single_prefill_with_kv_cache, single_prefill_with_kv_cache_return_lse)
from .quantization import (NVFP44Over6Config, NVFP44Over6ErrMode, block_scale_interleave, e2m1_and_ufp8sf_scale_to_float, fp4_quantize,
                           get_fp4_quantization_module, make_nvfp4_global_scale, mxfp4_dequantize, mxfp4_dequantize_host,
                           mxfp4_quantize, mxfp8_dequantize_host, mxfp8_grouped_quantize, mxfp8_quantize, nvfp4_batched_quantize,
                           nvfp4_block_scale_interleave, nvfp4_kv_dequantize, nvfp4_kv_dequantize_paged, nvfp4_kv_quantize,
                           nvfp4_quantize, nvfp4_quantize_paged_kv_cache, packbits, resolve_nvfp4_4over6, scaled_fp4_grouped_quantize,
                           segment_packbits, shuffle_matrix_a, shuffle_matrix_sf_a, silu_and_mul_nvfp4_quantize)
from .rope import (apply_llama31_rope, apply_llama31_rope_inplace, apply_llama31_rope_pos_ids,
                   apply_llama31_rope_pos_ids_inplace, apply_rope, apply_rope_inplace, apply_rope_pos_ids,
                   apply_rope_pos_ids_inplace, apply_rope_with_cos_sin_cache, apply_rope_with_cos_sin_cache_inplace,
                   mla_rope_quantize_fp8, rope_quantize_fp8, rope_quantize_fp8_append_paged_kv_cache)
from .sampling import (chain_speculative_sampling, min_p_sampling_from_probs, sampling_from_logits, sampling_from_probs, softmax,
                       top_k_mask_logits, top_k_renorm_probs, top_k_sampling_from_probs, top_k_top_p_sampling_from_logits,
                       top_k_top_p_sampling_from_probs, top_p_renorm_probs, top_p_sampling_from_probs)
from .sparse import BlockSparseAttentionWrapper, VariableBlockSparseAttentionWrapper
from .tllm_enums import ActivationType, RoutingMethodType, SfLayout, is_gated_activation
from .topk import TopKTieBreak, top_k, top_k_page_table_transform, top_k_ragged_transform, top_k_varlen
from .utils import next_positive_power_of_2
from .xqa import xqa, xqa_mla

__version__ = "0.7.2"


def __getattr__(name):
    """Raises for a name of FlashInfer's that is not here, and says where the list of names is."""
    raise AttributeError(f"quern.compat.flashinfer has no {name}; docs/flashinfer.md lists what it has of FlashInfer 0.7")
