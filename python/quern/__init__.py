# SPDX-License-Identifier: Apache-2.0
"""Inference kernels for AMD GPUs, NVIDIA GPUs and the CPU, and a simulated AMD GPU that runs their machine code.

Functions take every array that speaks DLPack: NumPy arrays (with ml_dtypes' bf16 and FP8 types), PyTorch tensors, and
quern's own Tensor, which `quern.to(x, "sim:gfx942")` makes on any device. A function runs on the device of its arrays;
PyTorch's tensors run on PyTorch's current stream. Errors are exceptions, which name the function, the argument, what was
found and what is accepted: ValueError (an argument's shape, strides or value), TypeError (no array, no number),
NotImplementedError (a dtype, a device), LookupError (no such device), RuntimeError (the driver's error), MemoryError,
OSError. The values of index arrays are checked on the CPU, and on GPUs with QUERN_VALIDATE=1, which waits for the device.
docs/python.md tells more.

>>> x = numpy.array([[3, 4]], numpy.float32)
>>> quern.rmsnorm(x, numpy.ones(2, numpy.float32)).round(3)
array([[0.849, 1.131]], dtype=float32)
"""

import sys as _sys

from ._native import ffi as _ffi
from ._device import Device, device, devices
from ._tensor import Tensor, empty, to
from ._tensor import numpy_of as numpy
from ._activation import (act_and_mul, act_and_mul_dynamic_quant, act_and_mul_quant, activation_backward, gelu_and_mul,
                          gelu_tanh_and_mul, silu_and_mul)
from ._attention import (AttentionGradients, AttentionPlan, attention, attention_backward, attention_dropout_mask, attention_dropout_rng, attention_plan, merge_state,
                         merge_states)
from ._gemm import gemm, gemm_grouped_contiguous, gemm_grouped_masked, gemm_pack
from ._kvcache import (append_paged_kv_cache, append_paged_mla_kv_cache, concat_and_cache_mla,
                       gather_paged_mla_kv_cache, get_batch_indices_positions, get_seq_lens, quantize_and_cache_mla, reshape_and_cache)
from ._mla import mla_decode
from ._moe import fused_moe, moe_activate, moe_permute, moe_route, moe_sort, moe_sum
from ._norm import (NormGradients, adaptive_layernorm, adaptive_layernorm_dynamic_quant, fused_add_rmsnorm, fused_add_rmsnorm_quant,
                   gated_residual_layernorm, gemma_fused_add_rmsnorm, gemma_rmsnorm, layernorm, layernorm_quant,
                   norm_backward, rmsnorm, rmsnorm_dynamic_quant, rmsnorm_quant)
from ._patch import Patch, patch
from ._quantize import (convert_fp8, dequantize_fp8, packbits, quantize_fp8, quantize_groups, quantize_static,
                        quantize_tensor, segment_packbits)
from ._rope import (apply_llama31_rope, apply_llama31_rope_pos_ids, apply_rope, apply_rope_pos_ids,
                    apply_rope_with_cos_sin_cache, qk_rmsnorm_rope, rope_quantize_fp8,
                    rope_quantize_fp8_append_paged_kv_cache)
from ._sampling import (apply_penalties, chain_speculative_sampling, sample, sample_greedy, sample_probs, softmax,
                        top_k_mask_logits, top_k_renorm_probs, top_p_renorm_probs)
from ._scales import (ceil_to_ue8m0, get_k_grouped_mn_major_tma_aligned_packed_ue8m0_tensor,
                      get_mn_major_tma_aligned_packed_ue8m0_tensor, get_mn_major_tma_aligned_tensor, get_tma_aligned_size,
                      pack_k_grouped_scales, pack_ue8m0_to_int, transform_scales, transform_sf_into_required_layout,
                      unpack_ue8m0_from_int)

from . import _public

__version__: str = _ffi.version()


@_public.public()
def last_kernel() -> str:
    """Returns the full name of the kernel that this thread's last op ran, such as "norm.cpu_avx512"; "" before the first op.

    Raises nothing.

    >>> quern.rmsnorm(numpy.ones((1, 8), numpy.float32), numpy.ones(8, numpy.float32)).shape, quern.last_kernel()[:8]
    ((1, 8), 'norm.cpu')
    """
    return _ffi.last_kernel()


# Functions in the order of their modules.
__all__ = [
    "AttentionGradients", "AttentionPlan", "Device", "NormGradients", "Patch", "Tensor", "__version__",
    "device", "devices", "empty", "last_kernel", "numpy", "patch", "to",
    "adaptive_layernorm", "adaptive_layernorm_dynamic_quant", "fused_add_rmsnorm", "fused_add_rmsnorm_quant",
    "gated_residual_layernorm", "gemma_fused_add_rmsnorm", "gemma_rmsnorm", "layernorm", "layernorm_quant", "norm_backward", "rmsnorm",
    "rmsnorm_dynamic_quant", "rmsnorm_quant",
    "act_and_mul", "act_and_mul_dynamic_quant", "act_and_mul_quant", "activation_backward", "gelu_and_mul", "gelu_tanh_and_mul", "silu_and_mul",
    "attention", "attention_backward", "attention_dropout_mask", "attention_dropout_rng", "attention_plan", "merge_state", "merge_states",
    "mla_decode",
    "gemm", "gemm_grouped_contiguous", "gemm_grouped_masked", "gemm_pack",
    "append_paged_kv_cache", "append_paged_mla_kv_cache", "concat_and_cache_mla", "gather_paged_mla_kv_cache",
    "get_batch_indices_positions", "get_seq_lens", "quantize_and_cache_mla", "reshape_and_cache",
    "fused_moe", "moe_activate", "moe_permute", "moe_route", "moe_sort", "moe_sum",
    "convert_fp8", "dequantize_fp8", "packbits", "quantize_fp8", "quantize_groups", "quantize_static", "quantize_tensor",
    "segment_packbits",
    "apply_llama31_rope", "apply_llama31_rope_pos_ids", "apply_rope", "apply_rope_pos_ids", "apply_rope_with_cos_sin_cache",
    "qk_rmsnorm_rope", "rope_quantize_fp8", "rope_quantize_fp8_append_paged_kv_cache",
    "apply_penalties", "chain_speculative_sampling", "sample", "sample_greedy", "sample_probs", "softmax", "top_k_mask_logits",
    "top_k_renorm_probs", "top_p_renorm_probs",
    "ceil_to_ue8m0", "get_k_grouped_mn_major_tma_aligned_packed_ue8m0_tensor", "get_mn_major_tma_aligned_packed_ue8m0_tensor",
    "get_mn_major_tma_aligned_tensor", "get_tma_aligned_size", "pack_k_grouped_scales", "pack_ue8m0_to_int", "transform_scales",
    "transform_sf_into_required_layout", "unpack_ue8m0_from_int",
]


if "torch" in _sys.modules:
    from . import torch as _torch  # noqa: F401
