# SPDX-License-Identifier: Apache-2.0
"""DeepGEMM's products in groups of rows, each group of which meets a matrix of its own. Results are bf16."""

from __future__ import annotations

import torch

from . import _check
from ._operands import Operand, granularities, operand, renamed, scales_of_op
from ._run import run
from ._settings import get_mk_alignment_for_contiguous_layout
from ._types import Granularity, Pair, Recipe, Tensor

_BF16 = (torch.bfloat16,)
_FIRST_RECIPE = (1, 128, 128), None, None  # that of DeepGEMM's first release


def _with_scales(op, a, b):
    """Returns the scales as quern's grouped ops take them."""
    if a.scale is None:
        return None, None
    if scales := scales_of_op(a, b):
        return scales
    raise NotImplementedError(
        f"{op}: scales stand for {a.gran_mn} x {a.gran_k} elements of {a.name} and {b.gran_mn} x {b.gran_k} of {b.name}, for which there "
        f"is no grouped kernel here; accepted: 1 x 128 of {a.name}, and 1 x 128 or 128 x 128 of {b.name}")


def _operands(op, a, b, names, ndim, recipes=None, is_turned=False, **others):
    """Checks the operands of a grouped product and returns them, a having ndim dimensions. recipes: of FP8; None: bf16. others: more
    tensors, by name."""
    if recipes is None:
        _check.tensors(op, {**others, names[0]: a, names[1]: b})
        _check_stacks(op, names, a, b, ndim, is_turned)
        for name, x in zip(names, (a, b), strict=False):
            _check.dtype(op, name, x, _BF16)
        return Operand(names[0], a), Operand(names[1], b.mT if is_turned else b)
    (a, sfa), (b, sfb) = _check.pair(op, names[0], a), _check.pair(op, names[1], b)
    parts = {f"{names[0]}[0]": a, f"{names[0]}[1]": sfa, f"{names[1]}[0]": b, f"{names[1]}[1]": sfb}
    _check.tensors(op, {**others, **parts})
    _check_stacks(op, [f"{names[0]}[0]", f"{names[1]}[0]"], a, b, ndim, is_turned)
    gran_a, gran_b = granularities(op, sfb, *recipes)
    b, sfb = (x.mT if is_turned and x.ndim == 3 else x for x in (b, sfb))
    return operand(op, names[0], a, sfa, gran_a), operand(op, names[1], b, sfb, gran_b, is_turned)


def _check_stacks(op, names, a, b, ndim, is_turned):
    _check.shape(op, names[0], a, *[None] * ndim)
    k = a.shape[-1]
    _check.shape(op, names[1], b, a.shape[0] if ndim == 3 else None, *((k, None) if is_turned else (None, k)))


def _check_d(op, name, d, *sizes):
    _check.shape(op, name, d, *sizes)
    _check.dtype(op, name, d, _BF16)
    _check.rows(op, name, d)


def _check_layout(op, name, layout, count):
    _check.shape(op, name, layout, count)
    _check.dtype(op, name, layout, (torch.int32,))
    _check.contiguous(op, **{name: layout})


def _with_padding(op, layout):
    """Gives rows of no group the group of the 128 rows around them, as DeepGEMM has it: it computes whole tiles, by the group of a
    tile's first row."""
    if get_mk_alignment_for_contiguous_layout() % 128:
        raise NotImplementedError(f"{op}: the alignment is {get_mk_alignment_for_contiguous_layout()}; accepted without "
                                  "use_psum_layout, as quern's tiles have 128 rows: multiples of 128")
    first = layout[::128].repeat_interleave(128)[:len(layout)]
    return torch.where(layout == -1, first, layout)


def _contiguous(op, d, a, b, layout, by_ends, zero_padding, names=("a", "b", "d", "grouped_layout")):
    _check_d(op, names[2], d, a.values.shape[0], b.values.shape[1])
    _check_layout(op, names[3], layout, len(b.values) if by_ends else len(d))
    scales = _with_scales(op, a, b)
    if len(d) == 0:
        return
    alignment = get_mk_alignment_for_contiguous_layout() if by_ends else 0
    layout = layout if by_ends else _with_padding(op, layout)
    run(op, "gemm_grouped_contiguous", renamed(a, b, names[2], names[3]), a.values, b.values, layout, scale_a=scales[0],
        scale_b=scales[1], by_ends=by_ends, m_alignment=alignment, zero_padding=by_ends and zero_padding, out=d)


def _check_hints(op, compiled_dims, use_psum_layout, expected_m, **flags):
    _check.hints(op, compiled_dims, use_psum_layout=use_psum_layout, **flags)
    if expected_m is None:
        return
    _check.integer(op, "expected_m_for_psum_layout", expected_m, 1)
    if not use_psum_layout:
        raise ValueError(f"{op}: expected_m_for_psum_layout is {expected_m}; accepted without use_psum_layout: None")


# ---- contiguous, FP8

def _fp8_contiguous(op, a, b, d, layout, recipes, compiled_dims, disable_ue8m0_cast, by_ends, zero_padding, expected_m, is_turned):
    _check_hints(op, compiled_dims, by_ends, expected_m, disable_ue8m0_cast=disable_ue8m0_cast, ensure_zero_padding=zero_padding)
    a, b = _operands(op, a, b, "ab", 2, recipes, is_turned, d=d, grouped_layout=layout)
    _contiguous(op, d, a, b, layout, bool(by_ends), bool(zero_padding))


def m_grouped_fp8_fp4_gemm_nt_contiguous(a: Pair, b: Pair, d: Tensor, grouped_layout: Tensor, recipe: Recipe | None = None,
                                         recipe_a: Granularity | None = None, recipe_b: Granularity | None = None,
                                         compiled_dims: str = "nk", disable_ue8m0_cast: bool = False,
                                         use_psum_layout: bool = False, ensure_zero_padding: bool = True,
                                         expected_m_for_psum_layout: int | None = None) -> None:
    """Computes d[r] = a[r] b[group of r]^T of FP8 matrices, whose rows are sorted by group.

    a               (e4m3fn or e4m3fnuz [m, k], scales [m, ceil(k / 128)] of f32 or packed as UE8M0)
    b               (e4m3fn or e4m3fnuz [groups, n, k], scales [groups, ceil(n / 128), ceil(k / 128)])
    d               bf16 [m, n], written
    grouped_layout  i32 [m]: the group of each row, or -1 of rows that fill a group up to a multiple of 128; such a row counts to
                    the group that has the first of its 128 rows. With use_psum_layout i32 [groups]: where each group's rows end;
                    the next group begins at the next multiple of get_mk_alignment_for_contiguous_layout()
    recipe, recipe_a, recipe_b  as in fp8_fp4_gemm_nt; (1, 128, 128) alone
    ensure_zero_padding         with use_psum_layout: d's rows between groups become 0. Without it changes nothing
    compiled_dims, disable_ue8m0_cast, expected_m_for_psum_layout  hints, which change nothing

    Raises what fp8_fp4_gemm_nt raises.
    """
    _fp8_contiguous("m_grouped_fp8_fp4_gemm_nt_contiguous", a, b, d, grouped_layout, (recipe, recipe_a, recipe_b), compiled_dims,
                    disable_ue8m0_cast, use_psum_layout, ensure_zero_padding, expected_m_for_psum_layout, False)


def m_grouped_fp8_fp4_gemm_nn_contiguous(a: Pair, b: Pair, d: Tensor, grouped_layout: Tensor, recipe: Recipe | None = None,
                                         recipe_a: Granularity | None = None, recipe_b: Granularity | None = None,
                                         compiled_dims: str = "nk", disable_ue8m0_cast: bool = False,
                                         use_psum_layout: bool = False, ensure_zero_padding: bool = True) -> None:
    """Computes m_grouped_fp8_fp4_gemm_nt_contiguous of b [groups, k, n], whose scales are [groups, ceil(k / 128), ceil(n / 128)]."""
    _fp8_contiguous("m_grouped_fp8_fp4_gemm_nn_contiguous", a, b, d, grouped_layout, (recipe, recipe_a, recipe_b), compiled_dims,
                    disable_ue8m0_cast, use_psum_layout, ensure_zero_padding, None, True)


def m_grouped_gemm_fp8_fp8_bf16_nt_contiguous(lhs: Pair, rhs: Pair, out: Tensor, m_indices: Tensor) -> None:
    """Computes m_grouped_fp8_gemm_nt_contiguous under its name and with the parameters of DeepGEMM's first release."""
    op, names = "m_grouped_gemm_fp8_fp8_bf16_nt_contiguous", ("lhs", "rhs", "out", "m_indices")
    a, b = _operands(op, lhs, rhs, names, 2, _FIRST_RECIPE, out=out, m_indices=m_indices)
    _contiguous(op, out, a, b, m_indices, False, False, names)


m_grouped_fp8_gemm_nt_contiguous = m_grouped_fp8_fp4_gemm_nt_contiguous
m_grouped_fp8_gemm_nn_contiguous = m_grouped_fp8_fp4_gemm_nn_contiguous


# ---- contiguous, bf16

def _bf16_contiguous(op, a, b, d, layout, compiled_dims, by_ends, zero_padding, expected_m, is_turned):
    _check_hints(op, compiled_dims, by_ends, expected_m, ensure_zero_padding=zero_padding)
    a, b = _operands(op, a, b, "ab", 2, None, is_turned, d=d, grouped_layout=layout)
    _contiguous(op, d, a, b, layout, bool(by_ends), bool(zero_padding))


def m_grouped_bf16_gemm_nt_contiguous(a: Tensor, b: Tensor, d: Tensor, grouped_layout: Tensor, compiled_dims: str = "nk",
                                      use_psum_layout: bool = False, ensure_zero_padding: bool = True,
                                      expected_m_for_psum_layout: int | None = None) -> None:
    """Computes m_grouped_fp8_fp4_gemm_nt_contiguous of bf16 a [m, k] and b [groups, n, k], which have no scales."""
    _bf16_contiguous("m_grouped_bf16_gemm_nt_contiguous", a, b, d, grouped_layout, compiled_dims, use_psum_layout,
                     ensure_zero_padding, expected_m_for_psum_layout, False)


def m_grouped_bf16_gemm_nn_contiguous(a: Tensor, b: Tensor, d: Tensor, grouped_layout: Tensor, compiled_dims: str = "nk",
                                      use_psum_layout: bool = False, ensure_zero_padding: bool = True) -> None:
    """Computes m_grouped_bf16_gemm_nt_contiguous of b [groups, k, n]."""
    _bf16_contiguous("m_grouped_bf16_gemm_nn_contiguous", a, b, d, grouped_layout, compiled_dims, use_psum_layout,
                     ensure_zero_padding, None, True)


# ---- masked

def _masked(op, d, a, b, masked_m, expected_m, names=("a", "b", "d")):
    _check.integer(op, "expected_m", expected_m, 1)
    groups, m_max, _ = a.values.shape
    _check_d(op, names[2], d, groups, m_max, b.values.shape[1])
    _check_layout(op, "masked_m", masked_m, groups)
    scale_a, scale_b = _with_scales(op, a, b)
    run(op, "gemm_grouped_masked", renamed(a, b, names[2], "masked_m"), a.values, b.values, masked_m, scale_a=scale_a,
        scale_b=scale_b, expected_m=expected_m, out=d)


def m_grouped_fp8_fp4_gemm_nt_masked(a: Pair, b: Pair, d: Tensor, masked_m: Tensor, expected_m: int, recipe: Recipe | None = None,
                                     recipe_a: Granularity | None = None, recipe_b: Granularity | None = None,
                                     compiled_dims: str = "nk", disable_ue8m0_cast: bool = False) -> None:
    """Computes d[g, r] = a[g, r] b[g]^T of FP8 matrices for r < masked_m[g]; d's other rows are left alone.

    a           (e4m3fn or e4m3fnuz [groups, m_max, k], scales [groups, m_max, ceil(k / 128)] of f32 or packed as UE8M0)
    b           (e4m3fn or e4m3fnuz [groups, n, k], scales [groups, ceil(n / 128), ceil(k / 128)])
    d           bf16 [groups, m_max, n], written
    masked_m    i32 [groups], 0 to m_max
    expected_m  rows that a group likely has, 1 or above: a hint, which changes no result
    recipe, recipe_a, recipe_b         as in fp8_fp4_gemm_nt; (1, 128, 128) alone
    compiled_dims, disable_ue8m0_cast  hints, which change nothing

    Raises what fp8_fp4_gemm_nt raises.
    """
    op = "m_grouped_fp8_fp4_gemm_nt_masked"
    _check.hints(op, compiled_dims, disable_ue8m0_cast=disable_ue8m0_cast)
    a, b = _operands(op, a, b, "ab", 3, (recipe, recipe_a, recipe_b), d=d, masked_m=masked_m)
    _masked(op, d, a, b, masked_m, expected_m)


def m_grouped_gemm_fp8_fp8_bf16_nt_masked(lhs: Pair, rhs: Pair, out: Tensor, masked_m: Tensor, expected_m: int) -> None:
    """Computes m_grouped_fp8_gemm_nt_masked under its name and with the parameters of DeepGEMM's first release."""
    op, names = "m_grouped_gemm_fp8_fp8_bf16_nt_masked", ("lhs", "rhs", "out")
    a, b = _operands(op, lhs, rhs, names, 3, _FIRST_RECIPE, out=out, masked_m=masked_m)
    _masked(op, out, a, b, masked_m, expected_m, names)


def m_grouped_bf16_gemm_nt_masked(a: Tensor, b: Tensor, d: Tensor, masked_m: Tensor, expected_m: int,
                                  compiled_dims: str = "nk") -> None:
    """Computes m_grouped_fp8_fp4_gemm_nt_masked of bf16 a [groups, m_max, k] and b [groups, n, k], which have no scales."""
    op = "m_grouped_bf16_gemm_nt_masked"
    _check.hints(op, compiled_dims)
    a, b = _operands(op, a, b, "ab", 3, d=d, masked_m=masked_m)
    _masked(op, d, a, b, masked_m, expected_m)


m_grouped_fp8_gemm_nt_masked = fp8_m_grouped_gemm_nt_masked = m_grouped_fp8_fp4_gemm_nt_masked
bf16_m_grouped_gemm_nt_masked = m_grouped_bf16_gemm_nt_masked
