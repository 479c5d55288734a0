# SPDX-License-Identifier: Apache-2.0
"""FP4 is not served."""

from .._absent import FP4, absent

e8m0_shuffle = absent("e8m0_shuffle", FP4)
