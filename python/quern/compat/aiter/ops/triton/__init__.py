# SPDX-License-Identifier: Apache-2.0
"""AITER's Triton functions by quern's kernels, under the names of today and the flat ones of before."""

import importlib
import sys

_FLAT = {"gemm_a16w16": "gemm.basic.gemm_a16w16", "gemm_a8w8_blockscale": "gemm.basic.gemm_a8w8_blockscale",
         "gemm_afp4wfp4": "gemm.basic.gemm_afp4wfp4",
         "gemm_afp4wfp4_pre_quant_atomic": "gemm.basic.gemm_afp4wfp4_pre_quant_atomic",
         "unified_attention": "attention.unified_attention", "fused_fp8_quant": "quant.fused_fp8_quant",
         "fused_add_rmsnorm_pad": "normalization.fused_add_rmsnorm_pad", "fused_kv_cache": "fusions.fused_kv_cache",
         "fused_qk_concat": "fusions.fused_qk_concat"}

for _flat, _nested in _FLAT.items():
    _module = importlib.import_module(f"{__name__}.{_nested}")
    sys.modules[f"{__name__}.{_flat}"] = _module
    globals()[_flat] = _module
