# SPDX-License-Identifier: Apache-2.0
"""FlashInfer's small helpers."""

from .._check import integer


def next_positive_power_of_2(x):
    """Returns the smallest power of two of at least x; 1 for x below 1."""
    return 1 << max(integer("next_positive_power_of_2", "x", x, -(1 << 62)) - 1, 0).bit_length()
