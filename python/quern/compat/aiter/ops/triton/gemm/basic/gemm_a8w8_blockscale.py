# SPDX-License-Identifier: Apache-2.0
"""Products of FP8 with scales of blocks."""

from __future__ import annotations

from typing import Any

import torch

from ......._public import flag
from ..... import _check
from .....ops.gemm_op_a8w8 import blockscale

Tensor = torch.Tensor
_NAMES = "x", "w", "x_scale", "w_scale", "y"


def gemm_a8w8_blockscale(x: Tensor, w: Tensor, x_scale: Tensor, w_scale: Tensor, dtype: torch.dtype = torch.bfloat16,
                         y: Tensor | None = None, config: Any = None, skip_reduce: bool = False, kernel_type: str = "bandwidth_bound",
                         backend: str | None = None) -> Tensor:
    """Returns aiter.gemm_a8w8_blockscale, written to y or a new tensor of dtype. config, kernel_type and backend change nothing;
    skip_reduce is False."""
    _check.only("gemm_a8w8_blockscale", "partial sums", False, skip_reduce=skip_reduce)
    return blockscale("gemm_a8w8_blockscale", _NAMES, x, w, x_scale, w_scale, dtype, y, False, False)


def gemm_a8w8_blockscale_preshuffle(x: Tensor, w: Tensor, x_scale: Tensor, w_scale: Tensor, dtype: torch.dtype = torch.bfloat16,
                                    y: Tensor | None = None, config: Any = None, skip_reduce: bool = False,
                                    is_x_scale_tranposed: bool = True, kernel_type: str = "bandwidth_bound",
                                    backend: str | None = None) -> Tensor:
    """Returns gemm_a8w8_blockscale of a w from shuffle_weight, seen as [n / 16, 16 k]. is_x_scale_tranposed: contiguous scales of x
    have their bytes as [groups, m]."""
    op = "gemm_a8w8_blockscale_preshuffle"
    _check.only(op, "partial sums", False, skip_reduce=skip_reduce)
    _check.tensors(op, {"w": w})
    _check.shape(op, "w", w, None, 16 * x.shape[-1])
    return blockscale(op, _NAMES, x, w.view(16 * len(w), -1), x_scale, w_scale, dtype, y, True,
                      flag(op, "is_x_scale_tranposed", is_x_scale_tranposed))
