# SPDX-License-Identifier: Apache-2.0
"""Matrix multiplication: FP8 with block scales and bf16, dense and grouped.

a        [m, k]  e4m3fn or e4m3fnuz with scale_a [m, ceil(k / 128)] f32, or bf16 without
b        [n, k]  a's kind, with scale_b [ceil(n / 128), ceil(k / 128)] f32; packed: what gemm_pack gave
Either dimension of a and b may be the contiguous one, so b.T of a [k, n] tensor is a valid b. Sums are kept in f32.
Raises ValueError (shape, stride), NotImplementedError (dtype); nothing is written then.
"""

from . import _ops, _tensor
from ._native import ffi
from ._tensor import empty_like


def gemm(a, b, c=None, *, scale_a=None, scale_b=None, dtype="bf16", packed=False, n=None, out=None):
    """a b^T + c: [m, n] bf16 or f32.

    c       [m, n] of out's dtype, or None; may be out itself
    dtype   of a new out: "bf16" or "f32"
    packed  b and scale_b come from gemm_pack; a new out then needs n, the weights' own row count
    """
    if out is None:
        out = empty_like(a, shape=(a.shape[0], _columns("gemm", b, packed, n)), dtype=dtype)
    _ops.gemm(out, a, b, c, scale_a, scale_b, packed)
    return out


def gemm_grouped_contiguous(a, b, group_layout, *, scale_a=None, scale_b=None, by_ends=False, m_alignment=0,
                            zero_padding=False, packed=False, n=None, out=None):
    """Each row of a belongs to one group of b [groups, n, k]: out[r] = a[r] b[group of r]^T, bf16.

    group_layout  i32: [m], the group of each row or -1; with by_ends [groups], where each group's real rows end, group g
                  starting at a multiple of m_alignment (0: 128)
    Rows of no group are left alone, except that zero_padding clears those between groups.
    """
    if out is None:
        out = empty_like(a, shape=(a.shape[0], _columns("gemm_grouped_contiguous", b, packed, n)), dtype="bf16")
    _ops.gemm_grouped_contiguous(out, a, b, scale_a, scale_b, group_layout, by_ends, m_alignment, zero_padding, packed)
    return out


def gemm_grouped_masked(a, b, group_layout, *, scale_a=None, scale_b=None, expected_m=1, packed=False, n=None, out=None):
    """Each group has a slab of rows: out[g, r] = a[g, r] b[g]^T for r < group_layout[g], bf16; other rows are left alone.

    a             [groups, m_max, k], scale_a [groups, m_max, ceil(k / 128)]; b [groups, n, k]
    group_layout  [groups] i32: real rows of each slab
    expected_m    rows a group is likely to have: a hint
    """
    if out is None:
        out = empty_like(a, shape=(*a.shape[:2], _columns("gemm_grouped_masked", b, packed, n)), dtype="bf16")
    _ops.gemm_grouped_masked(out, a, b, scale_a, scale_b, group_layout, expected_m, packed)
    return out


def gemm_pack(b, scale_b):
    """FP8 weights [n, k] or [groups, n, k] in the order in which b's device reads them fastest: (packed, packed_scale)."""
    packed = _tensor.give_like(b, ffi.gemm_packed_empty(_tensor.tensor(b)))
    packed_scale = empty_like(scale_b)
    _ops.gemm_pack(packed, packed_scale, b, scale_b)
    return packed, packed_scale


def _columns(op, b, packed, n):
    if n is not None:
        return n
    if packed:
        raise ValueError(f"{op}: packed weights have padded rows: give n or out")
    return b.shape[-2]
