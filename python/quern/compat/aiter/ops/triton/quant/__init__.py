# SPDX-License-Identifier: Apache-2.0
"""FP4 is not served; fused_fp8_quant is."""

from ...._absent import FP4, absent

dynamic_mxfp4_quant = absent("dynamic_mxfp4_quant", FP4)
