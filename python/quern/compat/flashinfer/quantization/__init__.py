# SPDX-License-Identifier: Apache-2.0
"""FlashInfer's quantisation, and its packing of truth values."""

from ._packbits import packbits, segment_packbits
from .fp8_quantization import mxfp8_dequantize_host, mxfp8_grouped_quantize, mxfp8_quantize
from .fp4_quantization import (block_scale_interleave, e2m1_and_ufp8sf_scale_to_float, fp4_quantize, get_fp4_quantization_module,
                               mxfp4_dequantize, mxfp4_dequantize_host, mxfp4_quantize, nvfp4_batched_quantize,
                               nvfp4_block_scale_interleave, nvfp4_kv_dequantize, nvfp4_kv_dequantize_paged, nvfp4_kv_quantize,
                               nvfp4_quantize, nvfp4_quantize_paged_kv_cache, scaled_fp4_grouped_quantize, shuffle_matrix_a,
                               shuffle_matrix_sf_a, silu_and_mul_nvfp4_quantize)
from .nvfp4_quantization_utils import NVFP44Over6Config, NVFP44Over6ErrMode, make_nvfp4_global_scale, resolve_nvfp4_4over6

__all__ = ["NVFP44Over6Config", "NVFP44Over6ErrMode", "block_scale_interleave", "e2m1_and_ufp8sf_scale_to_float", "fp4_quantize",
           "get_fp4_quantization_module", "make_nvfp4_global_scale", "mxfp4_dequantize", "mxfp4_dequantize_host", "mxfp4_quantize",
           "mxfp8_dequantize_host", "mxfp8_grouped_quantize", "mxfp8_quantize", "nvfp4_batched_quantize",
           "nvfp4_block_scale_interleave", "nvfp4_kv_dequantize", "nvfp4_kv_dequantize_paged", "nvfp4_kv_quantize", "nvfp4_quantize",
           "nvfp4_quantize_paged_kv_cache", "packbits", "resolve_nvfp4_4over6", "scaled_fp4_grouped_quantize", "segment_packbits",
           "shuffle_matrix_a", "shuffle_matrix_sf_a", "silu_and_mul_nvfp4_quantize"]
