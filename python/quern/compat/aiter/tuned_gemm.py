# SPDX-License-Identifier: Apache-2.0
"""AITER's products of bf16 and f16."""

from __future__ import annotations

import torch

from ... import _gemm
from . import _check
from ._run import run

Tensor = torch.Tensor
_KINDS = torch.bfloat16, torch.float16, torch.float32, *_check.FP8


def product(op, names, x, w, bias, otype, out=None, scale_a=None, scale_b=None):
    """Returns x [.., k] w [n, k]^T + bias. names: op's of x, w and out."""
    _check.tensors(op, {names[0]: x, names[1]: w, "bias": bias, names[2]: out}, none=("bias", names[2]))
    _check.shape(op, names[1], w, None, x.shape[-1])
    for name, t in ((names[0], x), (names[1], w)):
        _check.dtype(op, name, t, _KINDS)
    rows, kind = _check.rows_of(x), otype or (torch.bfloat16 if x.dtype in _check.FP8 else x.dtype)
    if out is None:
        out = torch.empty(*x.shape[:-1], len(w), dtype=kind, device=x.device)
    _check.shape(op, names[2], out, *x.shape[:-1], len(w))
    if bias is not None:
        _check.shape(op, "bias", bias, len(w))
        bias = bias.float()
    scales = {name: s if s is None else s.view(1, 1) for name, s in (("scale_a", _check.scale(op, "scale_a", scale_a, x)),
                                                                    ("scale_b", _check.scale(op, "scale_b", scale_b, x)))}
    run(op, _gemm.gemm, dict(zip(("a", "b", "out"), names, strict=True)), rows, w, bias=bias, out=out.view(len(rows), len(w)), **scales)
    return out


class TunedGemm:
    """Has mm."""

    def mm(self, inp: Tensor, weights: Tensor, bias: Tensor | None = None, otype: torch.dtype | None = None,
           scale_a: Tensor | None = None, scale_b: Tensor | None = None, scale_c: None = None) -> Tensor:
        """Returns inp [.., k] weights [n, k]^T + bias [n], of otype or inp's dtype. scale_a, scale_b: f32 [1], of FP8; scale_c None."""
        _check.refuse("mm", "which makes the result FP8", scale_c=scale_c)
        return product("mm", ("inp", "weights", "out"), inp, weights, bias, otype, None, scale_a, scale_b)


tgemm = TunedGemm()
