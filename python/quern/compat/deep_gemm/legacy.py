# SPDX-License-Identifier: Apache-2.0
"""DeepGEMM's products in bf16 for GPUs before Hopper, which rows are gathered for, by quern's kernels."""

from __future__ import annotations

import torch

from . import _check, grouped
from ._operands import Operand, multiply
from ._types import Pair, Tensor


def m_grouped_bf16_gemm_nt_contiguous_tl(a: Tensor, b: Tensor, d: Tensor, m_indices: Tensor) -> None:
    """Computes m_grouped_bf16_gemm_nt_contiguous, m_indices i32 [m] being grouped_layout."""
    grouped._bf16_contiguous("m_grouped_bf16_gemm_nt_contiguous_tl", a, b, d, m_indices, None, False, True, None, False)


def m_grouped_bf16_gemm_nn_contiguous_tl(a: Tensor, b: Tensor, d: Tensor, m_indices: Tensor) -> None:
    """Computes m_grouped_bf16_gemm_nt_contiguous_tl of b [groups, k, n]."""
    grouped._bf16_contiguous("m_grouped_bf16_gemm_nn_contiguous_tl", a, b, d, m_indices, None, False, True, None, True)


def _gathered(op, name, x, indices):
    """Returns x's rows by their numbers; a negative number, of no row, gives the first one."""
    _check.shape(op, name, indices, None)
    _check.dtype(op, name, indices, (torch.int32,))
    return x[indices.long().clamp(min=0)]


def _a_fused_m_grouped(op, a, b, d, mappings, is_turned):
    m_indices, rows = _check.pair(op, "mappings", mappings)
    _check.tensors(op, {"d": d, "a": a, "b": b, "mappings[0]": m_indices, "mappings[1]": rows})
    _check.shape(op, "a", a, None, None)
    a = _gathered(op, "mappings[1]", a, rows)
    grouped._bf16_contiguous(op, a, b, d, m_indices, None, False, True, None, is_turned)


def a_fused_m_grouped_bf16_gemm_nt_contiguous_tl(a: Tensor, b: Tensor, d: Tensor, mappings: Pair) -> None:
    """Computes m_grouped_bf16_gemm_nt_contiguous of rows that are gathered from a.

    a         bf16 [rows, k]
    mappings  (i32 [m]: each row's group or -1, i32 [m]: its row in a)
    """
    _a_fused_m_grouped("a_fused_m_grouped_bf16_gemm_nt_contiguous_tl", a, b, d, mappings, False)


def a_fused_m_grouped_bf16_gemm_nn_contiguous_tl(a: Tensor, b: Tensor, d: Tensor, mappings: Pair) -> None:
    """Computes a_fused_m_grouped_bf16_gemm_nt_contiguous_tl of b [groups, k, n]."""
    _a_fused_m_grouped("a_fused_m_grouped_bf16_gemm_nn_contiguous_tl", a, b, d, mappings, True)


def _fused_k_grouped(op, a, b, d, handle, acc, gathered):
    if not isinstance(handle, (tuple, list)) or len(handle) != 3:
        raise TypeError(f"{op}: handle is {handle!r}; accepted: (k_indices, k_start, k_end)")
    indices, start, end = handle
    _check.hints(op, acc=acc)
    _check.tensors(op, {"d": d, "a": a, "b": b, "handle[0]": indices, "handle[1]": start, "handle[2]": end})
    for name, x in (("a", a), ("b", b)):
        _check.shape(op, name, x, None, None)
        _check.dtype(op, name, x, (torch.bfloat16,))
    _check.shape(op, "d", d, None, a.shape[1], b.shape[1])
    _check.dtype(op, "d", d, _check.D_TYPES)
    _check.contiguous(op, d=d)
    for name, x in (("handle[1]", start), ("handle[2]", end)):
        _check.shape(op, name, x, len(d))
    a = _gathered(op, "handle[0]", a, indices) if gathered == "a" else a
    b = _gathered(op, "handle[0]", b, indices) if gathered == "b" else b
    _check.shape(op, "b" if gathered == "a" else "a", b if gathered == "a" else a, len(indices), None)
    for g, (first, last) in enumerate(zip(start.tolist(), end.tolist(), strict=True)):
        multiply(op, d[g], Operand("a", a[first:last].T), Operand("b", b[first:last].T), d[g] if acc else None)


def a_fused_k_grouped_bf16_gemm_tn_contiguous_tl(a: Tensor, b: Tensor, d: Tensor, handle: tuple[Tensor, Tensor, Tensor],
                                                 acc: bool) -> None:
    """Computes d[g] = a_g^T b_g, or adds it to d, of rows of a that are gathered.

    a       bf16 [rows, m]; b bf16 [k, n]
    d       bf16 or f32 [groups, m, n], contiguous
    handle  i32 [k]: the row in a of each row of b; i32 [groups]: where each group begins and where it ends, read on the host
    acc     whether d is added to
    """
    _fused_k_grouped("a_fused_k_grouped_bf16_gemm_tn_contiguous_tl", a, b, d, handle, acc, "a")


def b_fused_k_grouped_bf16_gemm_tn_contiguous_tl(a: Tensor, b: Tensor, d: Tensor, handle: tuple[Tensor, Tensor, Tensor],
                                                 acc: bool) -> None:
    """Computes a_fused_k_grouped_bf16_gemm_tn_contiguous_tl with rows of b gathered, and a bf16 [k, m]."""
    _fused_k_grouped("b_fused_k_grouped_bf16_gemm_tn_contiguous_tl", a, b, d, handle, acc, "b")
