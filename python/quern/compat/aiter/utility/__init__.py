# SPDX-License-Identifier: Apache-2.0
"""AITER's dtypes, and orders of FP4's scales."""

from . import dtypes, fp4_utils

__all__ = ["dtypes", "fp4_utils"]
