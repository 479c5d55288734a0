# SPDX-License-Identifier: Apache-2.0
"""AITER's functions over quern: `import quern.compat.aiter as aiter`, on PyTorch tensors of any device.

Names, modules, parameters and results are AITER's (0.1.20), as vLLM and SGLang call them, as far as quern has the op;
docs/aiter.md lists them. What engines import and quern has not raises NotImplementedError, which says what to switch off. No
gradients are computed: a tensor that needs one is a RuntimeError.
"""

from .utility import dtypes
from .ops.enum import (ActivationType, QuantType)
from .ops.rmsnorm import (add_rmsnorm, add_rmsnorm_quant, rms_norm, rmsnorm, rmsnorm2d_fwd, rmsnorm2d_fwd_with_add,
                          rmsnorm2d_fwd_with_add_dynamicquant, rmsnorm2d_fwd_with_add_smoothquant,
                          rmsnorm2d_fwd_with_dynamicquant, rmsnorm2d_fwd_with_smoothquant, rmsnorm_quant)
from .ops.norm import (layer_norm, layernorm2d_fwd, layernorm2d_fwd_with_add, layernorm2d_fwd_with_add_smoothquant,
                       layernorm2d_fwd_with_smoothquant)
from .ops.quant import (dynamic_per_group_scaled_quant, dynamic_per_group_scaled_quant_fp4, dynamic_per_tensor_quant,
                        dynamic_per_token_scaled_quant, get_hip_quant, per_1x32_f4_quant, per_1x32_f4_quant_hip,
                        per_1x32_mx_quant_hip, per_group_quant_hip, per_tensor_quant_hip, per_token_quant_hip,
                        static_per_tensor_quant)
from .ops.gemm_op_a8w8 import (flatmm_a8w8_blockscale_ASM, gemm_a4w4, gemm_a8w8, gemm_a8w8_ASM, gemm_a8w8_CK,
                               gemm_a8w8_blockscale, gemm_a8w8_blockscale_bpreshuffle, gemm_a8w8_bpreshuffle, get_CKGEMM_config,
                               get_GEMM_config_with_quant_type)
from .ops.activation import (gelu_and_mul, gelu_and_mul_bias, gelu_fast, gelu_tanh_and_mul, scaled_silu_and_mul, silu_and_mul,
                             silu_and_mul_bias, silu_and_mul_quant, swiglu_and_mul, swiglu_and_mul_bias)
from .ops.mha import (flash_attn_fp8_pertensor_func, flash_attn_func, flash_attn_varlen_fp8_pertensor_func,
                      flash_attn_varlen_func, mha_batch_prefill_func)
from .ops.attention import (get_mla_metadata_info_v1, get_mla_metadata_v1, get_ps_metadata_info_v1, get_ps_metadata_v1,
                            mla_prefill_ps_asm_fwd, mla_reduce_v1, pa_fwd_asm, paged_attention_common, paged_attention_ragged,
                            paged_attention_rocm, paged_attention_v1)
from .ops.cache import (concat_and_cache_mla, cp_gather_indexer_k_quant_cache, indexer_k_quant_and_cache, reshape_and_cache,
                        reshape_and_cache_flash, reshape_and_cache_with_block_quant, reshape_and_cache_with_pertoken_quant)
from .ops.rope import (rope_cached_2c_fwd, rope_cached_fwd, rope_cached_positions_2c_fwd, rope_cached_positions_2c_fwd_inplace,
                       rope_cached_positions_fwd, rope_cached_positions_fwd_inplace,
                       rope_cached_positions_offsets_2c_fwd_inplace, rope_cached_positions_offsets_fwd_inplace)
from .ops.topk import (biased_grouped_topk, grouped_topk, moe_fused_gate, topk_gating, topk_sigmoid)
from .ops.moe_op import (moe_align_block_size, moe_sum, topk_softmax)
from .ops.moe_sorting import moe_sorting_fwd
from .ops.sample import greedy_sample
from .ops.fused_qk_rmsnorm_group_quant import fused_qk_rmsnorm
from . import mla

__version__ = "0.1.20"

__all__ = [
    "ActivationType", "QuantType", "__version__", "add_rmsnorm", "add_rmsnorm_quant", "biased_grouped_topk",
    "concat_and_cache_mla", "cp_gather_indexer_k_quant_cache", "dtypes", "dynamic_per_group_scaled_quant",
    "dynamic_per_group_scaled_quant_fp4", "dynamic_per_tensor_quant", "dynamic_per_token_scaled_quant",
    "flash_attn_fp8_pertensor_func", "flash_attn_func", "flash_attn_varlen_fp8_pertensor_func", "flash_attn_varlen_func",
    "flatmm_a8w8_blockscale_ASM", "fused_qk_rmsnorm", "gelu_and_mul", "gelu_and_mul_bias", "gelu_fast", "gelu_tanh_and_mul",
    "gemm_a4w4", "gemm_a8w8", "gemm_a8w8_ASM", "gemm_a8w8_CK", "gemm_a8w8_blockscale", "gemm_a8w8_blockscale_bpreshuffle",
    "gemm_a8w8_bpreshuffle", "get_CKGEMM_config", "get_GEMM_config_with_quant_type", "get_hip_quant",
    "get_mla_metadata_info_v1", "get_mla_metadata_v1", "get_ps_metadata_info_v1", "get_ps_metadata_v1", "greedy_sample",
    "grouped_topk", "indexer_k_quant_and_cache", "layer_norm", "layernorm2d_fwd", "layernorm2d_fwd_with_add",
    "layernorm2d_fwd_with_add_smoothquant", "layernorm2d_fwd_with_smoothquant", "mha_batch_prefill_func", "mla",
    "mla_prefill_ps_asm_fwd", "mla_reduce_v1", "moe_align_block_size", "moe_fused_gate", "moe_sorting_fwd", "moe_sum",
    "pa_fwd_asm", "paged_attention_common", "paged_attention_ragged", "paged_attention_rocm", "paged_attention_v1",
    "per_1x32_f4_quant", "per_1x32_f4_quant_hip", "per_1x32_mx_quant_hip", "per_group_quant_hip", "per_tensor_quant_hip",
    "per_token_quant_hip", "reshape_and_cache", "reshape_and_cache_flash", "reshape_and_cache_with_block_quant",
    "reshape_and_cache_with_pertoken_quant", "rms_norm", "rmsnorm", "rmsnorm2d_fwd", "rmsnorm2d_fwd_with_add",
    "rmsnorm2d_fwd_with_add_dynamicquant", "rmsnorm2d_fwd_with_add_smoothquant", "rmsnorm2d_fwd_with_dynamicquant",
    "rmsnorm2d_fwd_with_smoothquant", "rmsnorm_quant", "rope_cached_2c_fwd", "rope_cached_fwd",
    "rope_cached_positions_2c_fwd", "rope_cached_positions_2c_fwd_inplace", "rope_cached_positions_fwd",
    "rope_cached_positions_fwd_inplace", "rope_cached_positions_offsets_2c_fwd_inplace",
    "rope_cached_positions_offsets_fwd_inplace", "scaled_silu_and_mul", "silu_and_mul", "silu_and_mul_bias",
    "silu_and_mul_quant", "static_per_tensor_quant", "swiglu_and_mul", "swiglu_and_mul_bias", "topk_gating", "topk_sigmoid",
    "topk_softmax",
]


def __getattr__(name: str) -> object:
    """Raises for a name of AITER's that is not here, and says where the list of names is."""
    raise AttributeError(f"quern.compat.aiter has no {name}; docs/aiter.md lists what it has of AITER 0.1.20")
