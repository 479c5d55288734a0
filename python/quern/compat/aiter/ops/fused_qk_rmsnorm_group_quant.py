# SPDX-License-Identifier: Apache-2.0
"""A norm of MLA with quantisation, which is not served."""

from .._absent import absent

fused_qk_rmsnorm = absent("fused_qk_rmsnorm", "quern has no such norm of two tensors; set SGLANG_USE_AITER=0")
