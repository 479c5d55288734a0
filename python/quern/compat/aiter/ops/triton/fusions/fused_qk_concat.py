# SPDX-License-Identifier: Apache-2.0
"""A fusion of MLA, which is not served."""

from ...._absent import absent

fused_qk_rope_cat = absent("fused_qk_rope_cat", "quern has no such fusion; set SGLANG_USE_AITER=0")
