# SPDX-License-Identifier: Apache-2.0
"""AITER's sorting of tokens by expert, which is not served."""

from .._absent import MOE, absent

moe_sorting_fwd = absent("moe_sorting_fwd", MOE)
