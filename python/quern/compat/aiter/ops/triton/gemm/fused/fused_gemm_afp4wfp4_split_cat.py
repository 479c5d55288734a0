# SPDX-License-Identifier: Apache-2.0
"""A product of FP4, which is not served. SGLang imports it in any case."""

from ....._absent import FP4, absent

fused_gemm_afp4wfp4_split_cat = absent("fused_gemm_afp4wfp4_split_cat", FP4)
