# SPDX-License-Identifier: Apache-2.0
"""DeepGEMM's dense products: d = c + a b^T, and with other orders of dimensions.

fp8_*_nt, _nn, _tn, _tt   a is [m, k], or for t* [k, m]; b is [n, k], or for *n [k, n]; scales lie as their values do
compiled_dims             letters of "mnk": a hint, as is disable_ue8m0_cast, since scales stay as they are here
"""

from __future__ import annotations

import torch

from . import _check
from ._operands import Operand, granularities, multiply, operand
from ._types import Granularity, Pair, Recipe, Tensor

_TURNED = {"nt": (False, False), "nn": (False, True), "tn": (True, True), "tt": (True, False)}


def _turn(x, is_turned):
    return x.transpose(-2, -1) if is_turned else x


def _check_result(op, d, c, m, n, d_name="d"):
    _check.shape(op, d_name, d, m, n)
    _check.dtype(op, d_name, d, _check.D_TYPES)
    _check.rows(op, d_name, d)
    if c is not None:
        _check.shape(op, "c", c, m, n)
        _check.dtype(op, "c", c, (d.dtype,))
        _check.rows(op, "c", c)


def _check_matrices(op, names, a, b, turned):
    """Checks that a and b are matrices with one k. Returns (m, n, k)."""
    _check.shape(op, names[0], a, None, None)
    _check.shape(op, names[1], b, None, a.shape[1], is_turned=turned[1])
    return a.shape[0], b.shape[0], a.shape[1]


def _fp8(op, layout, a, b, d, c, recipe, recipe_a, recipe_b, names=("a", "b", "d"), d_types=_check.D_TYPES):
    (a, sfa), (b, sfb) = _check.pair(op, names[0], a), _check.pair(op, names[1], b)
    _check.tensors(op, {names[2]: d, f"{names[0]}[0]": a, f"{names[0]}[1]": sfa, f"{names[1]}[0]": b, f"{names[1]}[1]": sfb,
                        "c": c}, none=("c",))
    turned = _TURNED[layout]
    a, sfa, b, sfb = (_turn(x, turned[i // 2]) if x.ndim == 2 else x for i, x in enumerate((a, sfa, b, sfb)))
    m, n, _ = _check_matrices(op, (f"{names[0]}[0]", f"{names[1]}[0]"), a, b, turned)
    gran_a, gran_b = granularities(op, sfb, recipe, recipe_a, recipe_b)
    a, b = operand(op, names[0], a, sfa, gran_a, turned[0]), operand(op, names[1], b, sfb, gran_b, turned[1])
    _check_result(op, d, c, m, n, names[2])
    _check.dtype(op, names[2], d, d_types)
    multiply(op, d, a, b, c, names[2])


def fp8_fp4_gemm_nt(a: Pair, b: Pair, d: Tensor, c: Tensor | None = None, recipe: Recipe | None = None,
                    recipe_a: Granularity | None = None, recipe_b: Granularity | None = None, compiled_dims: str = "nk",
                    disable_ue8m0_cast: bool = False) -> None:
    """Computes d = c + a b^T of FP8 matrices.

    a         (e4m3fn or e4m3fnuz [m, k], scales [m, ceil(k / 128)] of f32 or packed as UE8M0, i32 [m, ceil(k / 512)])
    b         (e4m3fn or e4m3fnuz [n, k], scales [ceil(n / 128), ceil(k / 128)], or as the recipe says)
    d         bf16 or f32 [m, n], written
    c         [m, n] of d's dtype, which may be d; None: nothing is added
    recipe    (gran_m, gran_n, gran_k): elements for which a scale stands, 1 or 128, and 32 or 128 of k. None: (1, 128, 128), or
              (1, 1, 128) for a packed b. All but (1, 128, 128) take a product for each block of k
    recipe_a, recipe_b  (gran_mn, gran_k) of each, in place of recipe
    compiled_dims, disable_ue8m0_cast  hints, which change nothing

    Raises ValueError (shape, stride, recipe), NotImplementedError (dtype; FP4), TypeError (no tensor); RuntimeError (a tensor that
    needs a gradient).
    """
    op = "fp8_fp4_gemm_nt"
    _check.hints(op, compiled_dims, disable_ue8m0_cast=disable_ue8m0_cast)
    _fp8(op, "nt", a, b, d, c, recipe, recipe_a, recipe_b)


def fp8_fp4_gemm_nn(a: Pair, b: Pair, d: Tensor, c: Tensor | None = None, recipe: Recipe | None = None,
                    recipe_a: Granularity | None = None, recipe_b: Granularity | None = None, compiled_dims: str = "nk",
                    disable_ue8m0_cast: bool = False) -> None:
    """Computes fp8_fp4_gemm_nt of b [k, n], whose scales are [ceil(k / 128), ceil(n / 128)]."""
    op = "fp8_fp4_gemm_nn"
    _check.hints(op, compiled_dims, disable_ue8m0_cast=disable_ue8m0_cast)
    _fp8(op, "nn", a, b, d, c, recipe, recipe_a, recipe_b)


def fp8_fp4_gemm_tn(a: Pair, b: Pair, d: Tensor, c: Tensor | None = None, recipe: Recipe | None = None,
                    recipe_a: Granularity | None = None, recipe_b: Granularity | None = None, compiled_dims: str = "mn",
                    disable_ue8m0_cast: bool = False) -> None:
    """Computes fp8_fp4_gemm_nt of a [k, m] and b [k, n], whose scales are turned as well."""
    op = "fp8_fp4_gemm_tn"
    _check.hints(op, compiled_dims, disable_ue8m0_cast=disable_ue8m0_cast)
    _fp8(op, "tn", a, b, d, c, recipe, recipe_a, recipe_b)


def fp8_fp4_gemm_tt(a: Pair, b: Pair, d: Tensor, c: Tensor | None = None, recipe: Recipe | None = None,
                    recipe_a: Granularity | None = None, recipe_b: Granularity | None = None, compiled_dims: str = "mn",
                    disable_ue8m0_cast: bool = False) -> None:
    """Computes fp8_fp4_gemm_nt of a [k, m], whose scales are turned as well."""
    op = "fp8_fp4_gemm_tt"
    _check.hints(op, compiled_dims, disable_ue8m0_cast=disable_ue8m0_cast)
    _fp8(op, "tt", a, b, d, c, recipe, recipe_a, recipe_b)


fp8_gemm_nt, fp8_gemm_nn, fp8_gemm_tn, fp8_gemm_tt = fp8_fp4_gemm_nt, fp8_fp4_gemm_nn, fp8_fp4_gemm_tn, fp8_fp4_gemm_tt


def gemm_fp8_fp8_bf16_nt(lhs: Pair, rhs: Pair, out: Tensor) -> None:
    """Computes fp8_gemm_nt under its name and with the parameters of DeepGEMM's first release; out is bf16."""
    _fp8("gemm_fp8_fp8_bf16_nt", "nt", lhs, rhs, out, None, (1, 128, 128), None, None, ("lhs", "rhs", "out"), (torch.bfloat16,))


def fp8_gemm_nt_skip_head_mid(a: Pair, b: Pair, d: Tensor, head_splits: Recipe, recipe: Recipe | None = None,
                              compiled_dims: str = "nk", disable_ue8m0_cast: bool = False) -> None:
    """Computes fp8_gemm_nt into heads of d that have room in their midst, which is not written.

    a, b, recipe  as in fp8_fp4_gemm_nt, n a multiple of left + right
    d             [m, n / (left + right) * (left + mid + right)]
    head_splits   (left, mid, right): columns of d's heads
    """
    op = "fp8_gemm_nt_skip_head_mid"
    _check.hints(op, compiled_dims, disable_ue8m0_cast=disable_ue8m0_cast)
    if not isinstance(head_splits, (tuple, list)) or len(head_splits) != 3:
        raise ValueError(f"{op}: head_splits is {head_splits!r}; accepted: (left, mid, right)")
    left, mid, right = (_check.integer(op, "head_splits", part, 0) for part in head_splits)
    values = _check.pair(op, "a", a)[0], _check.pair(op, "b", b)[0]
    _check.tensors(op, {"d": d, "a[0]": values[0], "b[0]": values[1]})
    for name, x in zip(("a[0]", "b[0]"), values, strict=True):
        _check.shape(op, name, x, None, None)
    m, n = (len(x) for x in values)
    if left + right == 0 or n % (left + right):
        raise ValueError(f"{op}: head_splits is {(left, mid, right)}; accepted: a left + right that divides n, {n}")
    heads = n // (left + right)
    _check.shape(op, "d", d, m, heads * (left + mid + right))
    _check.rows(op, "d", d)
    product = torch.empty(m, n, dtype=d.dtype, device=d.device)
    _fp8(op, "nt", a, b, product, None, recipe, None, None)
    product, d = product.unflatten(1, (heads, left + right)), d.unflatten(1, (heads, left + mid + right))
    d[:, :, :left] = product[:, :, :left]
    d[:, :, left + mid:] = product[:, :, left:]


# ---- bf16

def _bf16(op, layout, a, b, d, c, types=(torch.bfloat16,)):
    _check.tensors(op, {"d": d, "a": a, "b": b, "c": c}, none=("c",))
    turned = _TURNED[layout]
    a, b = (_turn(x, is_turned) if x.ndim == 2 else x for x, is_turned in zip((a, b), turned, strict=True))
    m, n, _ = _check_matrices(op, "ab", a, b, turned)
    _check.dtype(op, "a", a, types)
    _check.dtype(op, "b", b, (torch.bfloat16,) if a.dtype == torch.bfloat16 else _check.FP8)
    _check_result(op, d, c, m, n)
    multiply(op, d, *(_plain(name, x) for name, x in (("a", a), ("b", b))), c)


def _plain(name, x):
    """Returns an operand without scales: FP8 gets ones."""
    if x.dtype == torch.bfloat16:
        return Operand(name, x)
    gran = 1 if name == "a" else 128
    ones = torch.ones(-(-x.shape[0] // gran), -(-x.shape[1] // 128), dtype=torch.float32, device=x.device)
    return Operand(name, x, ones, gran)


def bf16_gemm_nt(a: Tensor, b: Tensor, d: Tensor, c: Tensor | None = None, compiled_dims: str = "nk") -> None:
    """Computes d = c + a b^T of bf16 a [m, k] and b [n, k]. d, c: bf16 or f32 [m, n], c perhaps d. compiled_dims: a hint."""
    _check.hints("bf16_gemm_nt", compiled_dims)
    _bf16("bf16_gemm_nt", "nt", a, b, d, c)


def bf16_gemm_nn(a: Tensor, b: Tensor, d: Tensor, c: Tensor | None = None, compiled_dims: str = "nk") -> None:
    """Computes bf16_gemm_nt of b [k, n]."""
    _check.hints("bf16_gemm_nn", compiled_dims)
    _bf16("bf16_gemm_nn", "nn", a, b, d, c)


def bf16_gemm_tn(a: Tensor, b: Tensor, d: Tensor, c: Tensor | None = None, compiled_dims: str = "mn") -> None:
    """Computes bf16_gemm_nt of a [k, m] and b [k, n]."""
    _check.hints("bf16_gemm_tn", compiled_dims)
    _bf16("bf16_gemm_tn", "tn", a, b, d, c)


def bf16_gemm_tt(a: Tensor, b: Tensor, d: Tensor, c: Tensor | None = None, compiled_dims: str = "mn") -> None:
    """Computes bf16_gemm_nt of a [k, m]."""
    _check.hints("bf16_gemm_tt", compiled_dims)
    _bf16("bf16_gemm_tt", "tt", a, b, d, c)


def cublaslt_gemm_nt(a: Tensor, b: Tensor, d: Tensor, c: Tensor | None = None) -> None:
    """Computes bf16_gemm_nt, by quern and not by cuBLASLt; a and b may be FP8, which has no scales then."""
    _bf16("cublaslt_gemm_nt", "nt", a, b, d, c, (torch.bfloat16, *_check.FP8))


def cublaslt_gemm_nn(a: Tensor, b: Tensor, d: Tensor, c: Tensor | None = None) -> None:
    """Computes cublaslt_gemm_nt of b [k, n]."""
    _bf16("cublaslt_gemm_nn", "nn", a, b, d, c, (torch.bfloat16, *_check.FP8))


def cublaslt_gemm_tn(a: Tensor, b: Tensor, d: Tensor, c: Tensor | None = None) -> None:
    """Computes cublaslt_gemm_nt of a [k, m] and b [k, n]."""
    _bf16("cublaslt_gemm_tn", "tn", a, b, d, c, (torch.bfloat16, *_check.FP8))


def cublaslt_gemm_tt(a: Tensor, b: Tensor, d: Tensor, c: Tensor | None = None) -> None:
    """Computes cublaslt_gemm_nt of a [k, m]."""
    _bf16("cublaslt_gemm_tt", "tt", a, b, d, c, (torch.bfloat16, *_check.FP8))
