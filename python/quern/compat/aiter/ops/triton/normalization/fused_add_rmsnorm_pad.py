# SPDX-License-Identifier: Apache-2.0
"""A norm whose rows are padded."""

from __future__ import annotations

import torch

from .... import _check
from ...rmsnorm import _norm_rows, rmsnorm2d_fwd_with_add

Tensor = torch.Tensor


def fused_add_rmsnorm_pad(x: Tensor, weight: Tensor, epsilon: float, res: Tensor | None = None,
                          x_pad_to_multiple: int = 0) -> Tensor | tuple[Tensor, Tensor]:
    """Returns RMSNorm of x [rows, h], or (RMSNorm, x + res); the norm's rows end in zeros, up to a multiple of x_pad_to_multiple."""
    op = "fused_add_rmsnorm_pad"
    _check.tensors(op, {"x": x, "weight": weight, "res": res}, none=("res",))
    _check.shape(op, "x", x, None, None)
    multiple = _check.integer(op, "x_pad_to_multiple", x_pad_to_multiple, 0)
    out, total = torch.empty_like(x, memory_format=torch.contiguous_format), None
    if res is None:
        _norm_rows(op, out, x, weight, epsilon, False)
    else:
        _check.shape(op, "res", res, *x.shape)
        total = torch.empty_like(out)
        rmsnorm2d_fwd_with_add(out, x, res, total, weight, epsilon)
    out = torch.nn.functional.pad(out, (0, -x.shape[1] % multiple)) if multiple else out
    return out if total is None else (out, total)
