# SPDX-License-Identifier: Apache-2.0
"""AITER's layer, which is not served."""

from ._absent import absent

get_rope = absent("get_rope", "quern has no layers; use the engine's own rotary embedding, SGLANG_USE_AITER=0")
