# SPDX-License-Identifier: Apache-2.0
"""DeepGEMM's Einstein sums, each a product in groups, or one product."""

from __future__ import annotations

import torch

from ..._public import found
from . import _check
from ._operands import Operand, granularities, multiply, operand, renamed, scales_of_op
from ._run import run
from ._types import Pair, Recipe, Tensor

_SUMS = "bmk,bnk->mn", "bhr,hdr->bhd", "bhd,hdr->bhr"
_FP8_SUMS = "bhr,hdr->bhd", "bhd,hdr->bhr", "bhd,bhr->hdr"


def _check_expression(op, expr, accepted):
    """Returns the letters of a, b and d."""
    if expr not in accepted:
        raise NotImplementedError(f"{op}: expr is {found(expr)}; accepted: {', '.join(map(repr, accepted))}")
    return expr.replace("->", ",").split(",")


def _check_sizes(op, letters, named):
    """Checks that a letter has one size in all tensors."""
    sizes = {}
    for text, (name, x) in zip(letters, named.items(), strict=True):
        _check.shape(op, name, x, *[None] * len(text))
        _check.shape(op, name, x, *[sizes.get(letter) for letter in text])
        sizes.update(zip(text, x.shape, strict=True))


def _check_c(op, c, d):
    if c is not None:
        _check.shape(op, "c", c, *d.shape)
        _check.dtype(op, "c", c, (d.dtype,))


def _products(op, d, a, b, c):
    """Computes d[i] = c[i] + a[i] b[i]^T for each i of the first dimension. With c they are products one by one: quern's fast
    kernels add none to batches."""
    scales = (None, None) if a.scale is None else scales_of_op(a, b)
    if c is None and scales:
        run(op, "gemm", renamed(a, b), a.values, b.values, scale_a=scales[0], scale_b=scales[1], out=d)
        return
    for i in range(len(d)):
        multiply(op, d[i], a[i], b[i], None if c is None else c[i])


def einsum(expr: str, a: Tensor, b: Tensor, d: Tensor, c: Tensor | None = None, use_cublaslt: bool = False) -> None:
    """Computes d = c + expr of bf16 a and b.

    expr  "bmk,bnk->mn": d of f32 with c, which is d itself in DeepGEMM and any tensor here, or of bf16 without;
          "bhr,hdr->bhd" and "bhd,hdr->bhr": d of bf16, no c
    use_cublaslt  who computes, a hint, which changes nothing; an error with "bmk,bnk->mn", as in DeepGEMM

    Raises ValueError (shape, stride), NotImplementedError (expr, dtype), TypeError (no tensor), RuntimeError (gradients).
    """
    op = "einsum"
    letters = _check_expression(op, expr, _SUMS)
    _check.hints(op, use_cublaslt=use_cublaslt)
    _check.tensors(op, {"d": d, "a": a, "b": b, "c": c}, none=("c",))
    _check_sizes(op, letters, {"a": a, "b": b, "d": d})
    for name, x in (("a", a), ("b", b)):
        _check.dtype(op, name, x, (torch.bfloat16,))
    _check_c(op, c, d)
    if expr != _SUMS[0]:
        _check.dtype(op, "d", d, (torch.bfloat16,))
        _check.refuse(op, f"{expr!r} does not add", c=c)
        b = b if expr == _SUMS[1] else b.mT
        return _products(op, d.transpose(0, 1), Operand("a", a.transpose(0, 1)), Operand("b", b), None)
    if use_cublaslt:
        raise NotImplementedError(f"{op}: use_cublaslt is True; accepted with {expr!r}: False")
    _check.dtype(op, "d", d, _check.D_TYPES)
    # One product over all of b and k.
    a, b = (x.transpose(0, 1).flatten(1) for x in (a, b))
    multiply(op, d, Operand("a", a), Operand("b", b), c)


def fp8_einsum(expr: str, a: Pair, b: Pair, d: Tensor, c: Tensor | None = None, recipe: Recipe = (1, 128, 128)) -> None:
    """Computes d = c + expr of FP8 a and b.

    expr    "bhr,hdr->bhd", "bhd,hdr->bhr" or "bhd,bhr->hdr"
    a, b    (e4m3fn or e4m3fnuz as expr says, scales f32, or packed as UE8M0 along the last letter)
    d, c    bf16 or f32
    recipe  (gran_m, gran_n, gran_k): elements for which a scale stands, where k is the letter that is summed, m a's other one and
            n b's other one

    Raises what einsum raises.
    """
    op = "fp8_einsum"
    letters = _check_expression(op, expr, _FP8_SUMS)
    (a, sfa), (b, sfb) = _check.pair(op, "a", a), _check.pair(op, "b", b)
    _check.tensors(op, {"d": d, "a[0]": a, "a[1]": sfa, "b[0]": b, "b[1]": sfb, "c": c}, none=("c",))
    _check_sizes(op, letters, {"a[0]": a, "b[0]": b, "d": d})
    _check.dtype(op, "d", d, _check.D_TYPES)
    _check_c(op, c, d)
    gran_a, gran_b = granularities(op, sfb, recipe)
    for name, x, like in (("a[1]", sfa, a), ("b[1]", sfb, b)):
        _check.shape(op, name, x, *[None] * like.ndim)
    if expr == _FP8_SUMS[2]:
        a, sfa, b, sfb = (x.permute(1, 2, 0) for x in (a, sfa, b, sfb))
    else:
        a, sfa, d = (x.transpose(0, 1) for x in (a, sfa, d))
        c = None if c is None else c.transpose(0, 1)
        b, sfb = (b, sfb) if expr == _FP8_SUMS[0] else (b.mT, sfb.mT)
    _products(op, d, operand(op, "a", a, sfa, gran_a), operand(op, "b", b, sfb, gran_b), c)
