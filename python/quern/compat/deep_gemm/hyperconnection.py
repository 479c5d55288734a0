# SPDX-License-Identifier: Apache-2.0
"""DeepGEMM's product before the norm of hyperconnections."""

from __future__ import annotations

import torch

from . import _check
from ._operands import Operand, multiply
from ._types import Tensor

_MOST_K = 4096


def _to_tf32(b):
    """Rounds f32 numbers to TF32's eleven significant bits."""
    nearest = (b.contiguous().view(torch.int32) + 0x1000 & ~0x1FFF).view(torch.float32)
    return torch.where(b.isfinite(), nearest, b)


def _parts(b):
    """Returns TF32 numbers as two bf16 ones, whose sum they are."""
    upper = b.to(torch.bfloat16)
    return upper, torch.where(b.isfinite(), b - upper, 0).to(torch.bfloat16)


def tf32_hc_prenorm_gemm(a: Tensor, b: Tensor, d: Tensor, sqr_sum: Tensor, num_splits: int | None = None) -> None:
    """Computes d = a b^T, of b rounded to TF32, and sqr_sum = the sums of squares of a's rows, in f32.

    a           bf16 [m, k]
    b           f32 [n, k]
    d           f32 [m, n], or [num_splits, m, n], whose sum over the first dimension is the product
    sqr_sum     f32 [m], or [num_splits, m]
    num_splits  parts of k, each of which is a product of its own; None: one, without a dimension

    Raises ValueError (shape, stride), NotImplementedError (dtype), TypeError (no tensor), RuntimeError (gradients).
    """
    op = "tf32_hc_prenorm_gemm"
    _check.tensors(op, {"d": d, "sqr_sum": sqr_sum, "a": a, "b": b})
    lead = [] if num_splits is None else [_check.integer(op, "num_splits", num_splits, 1)]
    _check.shape(op, "a", a, None, None)
    _check.shape(op, "b", b, None, a.shape[1])
    _check.shape(op, "d", d, *lead, a.shape[0], b.shape[0])
    _check.shape(op, "sqr_sum", sqr_sum, *lead, a.shape[0])
    _check.dtype(op, "a", a, (torch.bfloat16,))
    for name, x in (("b", b), ("d", d), ("sqr_sum", sqr_sum)):
        _check.dtype(op, name, x, (torch.float32,))
    _check.rows(op, "d", d)
    _check.either_contiguous(op, "a", a)
    step = -(-a.shape[1] // (num_splits or 1))
    for i, (total, squares) in enumerate([(d, sqr_sum)] if num_splits is None else zip(d, sqr_sum, strict=True)):
        columns = slice(i * step, (i + 1) * step)
        squares.copy_(a[:, columns].float().square().sum(-1))
        _add_up(op, total, a[:, columns], b[:, columns])


def _add_up(op, total, a, b):
    """Computes total = a b^T, of so much of k at once that what Hopper's tensor cores cut off each sum stays small."""
    c = None
    for start in range(0, max(a.shape[1], 1), _MOST_K):
        columns = slice(start, start + _MOST_K)
        for part in _parts(_to_tf32(b[:, columns])):
            multiply(op, total, Operand("a", a[:, columns]), Operand("b", part), c)
            c = total
