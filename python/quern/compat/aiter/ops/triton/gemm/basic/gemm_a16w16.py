# SPDX-License-Identifier: Apache-2.0
"""A product of bf16 or f16."""

from __future__ import annotations

from typing import Any

import torch

from ..... import _check
from .....tuned_gemm import product

Tensor = torch.Tensor


def gemm_a16w16(x: Tensor, w: Tensor, bias: Tensor | None = None, dtype: torch.dtype = torch.bfloat16, y: Tensor | None = None,
                config: Any = None, activation: None = None, skip_reduce: bool = False, kernel_type: str = "bandwidth_bound",
                backend: str | None = None) -> Tensor:
    """Returns x [m, k] w [n, k]^T + bias [n], written to y or a new tensor of dtype. config, kernel_type and backend change nothing;
    activation is None, skip_reduce False."""
    _check.refuse("gemm_a16w16", "which quern's product lacks", activation=activation)
    _check.only("gemm_a16w16", "partial sums", False, skip_reduce=skip_reduce)
    return product("gemm_a16w16", ("x", "w", "y"), x, w, bias, dtype, y)
