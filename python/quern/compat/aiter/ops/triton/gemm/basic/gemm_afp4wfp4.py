# SPDX-License-Identifier: Apache-2.0
"""FP4 is not served."""

from ....._absent import FP4, absent

gemm_afp4wfp4 = absent("gemm_afp4wfp4", FP4)
gemm_afp4wfp4_pre_quant = absent("gemm_afp4wfp4_pre_quant", FP4)
