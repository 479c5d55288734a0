# SPDX-License-Identifier: Apache-2.0
"""Both norms of MLA at once."""

from __future__ import annotations

import torch

from .. import _check
from .rmsnorm import _norm_rows

Tensor = torch.Tensor


def _fused_qk_rmsnorm(q_out: Tensor | None, q: Tensor, q_weight: Tensor, q_eps: float, k_out: Tensor | None, k: Tensor,
                      k_weight: Tensor, k_eps: float) -> tuple[Tensor, Tensor]:
    """Returns the RMSNorms of q and of k, which are written to q_out and k_out, or to new ones."""
    op = "_fused_qk_rmsnorm"
    _check.tensors(op, {"q": q, "q_weight": q_weight, "k": k, "k_weight": k_weight, "q_out": q_out, "k_out": k_out},
                   none=("q_out", "k_out"))
    q_out, k_out = (torch.empty_like(x, memory_format=torch.contiguous_format) if out is None else out
                    for out, x in ((q_out, q), (k_out, k)))
    _norm_rows(op, q_out, q, q_weight, q_eps, False)
    _norm_rows(op, k_out, k, k_weight, k_eps, False)
    return q_out, k_out
