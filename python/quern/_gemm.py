# SPDX-License-Identifier: Apache-2.0
"""Matrix multiplication: FP8 with block scales and bf16, dense and grouped. Sums are kept in f32."""

from __future__ import annotations

from typing import Any

from . import _ops, _tensor
from ._native import ffi
from ._public import flag, found, public
from ._tensor import choose_dtype, dims, empty_like
from ._types import Array, DType, GemmActivation

_ACTIVATIONS = {None: 0, "gelu_tanh": 1, "silu_and_mul": 2}


@public(d="out", b_is_packed="packed")
def gemm(a: Array, b: Array, c: Array | None = None, *, scale_a: Array | None = None, scale_b: Array | None = None,
         bias: Array | None = None, activation: GemmActivation | None = None, gate: Array | None = None,
         dtype: DType = "bf16", packed: bool = False, n: int | None = None, out: Array | None = None) -> Any:
    """Computes c + gate * activation(a b^T + bias): [m, n] of bf16 or f32, rounded once.

    a           [m, k] of e4m3fn or e4m3fnuz with scale_a, or bf16 without
    b           [n, k] of a's kind; packed: what gemm_pack gave. Either dimension of a and b may be the contiguous one, so b.T
                of a [k, n] array is a valid b
    c           [m, n] of out's dtype, which may be out itself: a residual, for one; None: nothing is added
    scale_a     f32 [m, ceil(k / 128)], of FP8 alone
    scale_b     f32 [ceil(n / 128), ceil(k / 128)], of FP8 alone; packed: what gemm_pack gave
    bias        [n] of bf16 or f32; None: nothing is added
    activation  "gelu_tanh"; "silu_and_mul": silu(x[2j]) * x[2j+1] of pairs of columns, so that out, c and gate have n / 2
                columns, and b's rows alternate between gate and up; None: none
    gate        bf16 or f32 [n], or [batches, n] with a row for each m / batches rows; None: nothing is multiplied
    dtype       of a new out: bf16 or f32
    packed      b and scale_b come from gemm_pack
    n           b's own rows, for a new out; needed with packed
    out         [m, n] of bf16 or f32; None: a new one

    Returns out, of a's kind. Raises ValueError (shape, stride, overlap, activation, packed without n or out),
    NotImplementedError (dtype), TypeError (no array); nothing is written then.

    >>> one = numpy.ones((2, 128), numpy.float32)
    >>> (a, scale_a), (b, scale_b) = quern.quantize_fp8(one), quern.quantize_fp8(one, block=(128, 128))
    >>> quern.gemm(a, b, scale_a=scale_a, scale_b=scale_b, dtype="f32").round(3)
    array([[128., 128.],
           [128., 128.]], dtype=float32)
    """
    if activation not in _ACTIVATIONS:
        raise ValueError(f"gemm: activation is {found(activation)}; accepted: None, 'gelu_tanh', 'silu_and_mul'")
    if out is None:
        name = choose_dtype("gemm", dtype, ("bfloat16", "float32"))
        columns = _activated("gemm", _columns("gemm", b, 2, packed, n), activation)
        out = empty_like(a, shape=(dims("gemm", "a", a, 2)[0], columns), dtype=name)
    _ops.gemm(out, a, b, c, scale_a, scale_b, bias, gate, _ACTIVATIONS[activation], packed)
    return out


@public(d="out", b_is_packed="packed")
def gemm_grouped_contiguous(a: Array, b: Array, group_layout: Array, *, scale_a: Array | None = None,
                            scale_b: Array | None = None, by_ends: bool = False, m_alignment: int = 0,
                            zero_padding: bool = False, packed: bool = False, n: int | None = None,
                            out: Array | None = None) -> Any:
    """Computes out[r] = a[r] b[group of r]^T, bf16, where each row of a belongs to one group of b or to none.

    Rows of no group are not written.

    a             [m, k], as gemm has it
    b             [groups, n, k] of a's kind; packed: what gemm_pack gave
    group_layout  i32 [m], the group of each row or -1; with by_ends [groups], where each group's real rows end. QUERN_VALIDATE=1
                  checks what it holds
    scale_a       f32 [m, ceil(k / 128)], of FP8 alone
    scale_b       f32 [groups, ceil(n / 128), ceil(k / 128)], of FP8 alone
    by_ends       what group_layout holds
    m_alignment   group g begins at a multiple of it; 0: 128
    zero_padding  with by_ends: the rows between groups become 0
    packed        b and scale_b come from gemm_pack
    n             columns of a new out, b's own rows; needed with packed
    out           bf16 [m, n]; None: a new one

    Returns out, of a's kind. Raises what gemm raises, and ValueError for a bad m_alignment.

    >>> import ml_dtypes
    >>> a, b = numpy.ones((128, 64), ml_dtypes.bfloat16), numpy.ones((2, 4, 64), ml_dtypes.bfloat16)
    >>> out = quern.gemm_grouped_contiguous(a, b, numpy.ones(128, numpy.int32))
    >>> out.shape, float(out[0, 0])
    ((128, 4), 64.0)
    """
    op = "gemm_grouped_contiguous"
    if out is None:
        out = empty_like(a, shape=(dims(op, "a", a, 2)[0], _columns(op, b, 3, packed, n)), dtype="bf16")
    _ops.gemm_grouped_contiguous(out, a, b, scale_a, scale_b, group_layout, by_ends, m_alignment, zero_padding, packed)
    return out


@public(d="out", b_is_packed="packed")
def gemm_grouped_masked(a: Array, b: Array, group_layout: Array, *, scale_a: Array | None = None,
                        scale_b: Array | None = None, expected_m: int = 1, packed: bool = False, n: int | None = None,
                        out: Array | None = None) -> Any:
    """Computes out[g, r] = a[g, r] b[g]^T, bf16, for r < group_layout[g], where each group has a slab of rows.

    Other rows are not written.

    a             [groups, m_max, k], as gemm has it
    b             [groups, n, k] of a's kind; packed: what gemm_pack gave
    group_layout  i32 [groups], real rows of each slab, 0 to m_max, which QUERN_VALIDATE=1 checks
    scale_a       f32 [groups, m_max, ceil(k / 128)], of FP8 alone
    scale_b       f32 [groups, ceil(n / 128), ceil(k / 128)], of FP8 alone
    expected_m    rows a group is likely to have: a hint, which changes no result
    packed        b and scale_b come from gemm_pack
    n             columns of a new out, b's own rows; needed with packed
    out           bf16 [groups, m_max, n]; None: a new one

    Returns out, of a's kind. Raises what gemm raises.

    >>> import ml_dtypes
    >>> a, b = numpy.ones((2, 3, 64), ml_dtypes.bfloat16), numpy.ones((2, 4, 64), ml_dtypes.bfloat16)
    >>> out = quern.gemm_grouped_masked(a, b, numpy.array([3, 1], numpy.int32))
    >>> out.shape, float(out[1, 0, 0])
    ((2, 3, 4), 64.0)
    """
    op = "gemm_grouped_masked"
    if out is None:
        out = empty_like(a, shape=(*dims(op, "a", a, 3)[:2], _columns(op, b, 3, packed, n)), dtype="bf16")
    _ops.gemm_grouped_masked(out, a, b, scale_a, scale_b, group_layout, expected_m, packed)
    return out


@public(op="gemm_pack gemm_packed_shape", packed_scale="scale_b")
def gemm_pack(b: Array, scale_b: Array) -> tuple[Any, Any]:
    """Packs FP8 weights in the order in which b's device reads them fastest: (packed, packed_scale).

    A program does this once, when it loads the weights.

    b        [n, k] or [groups, n, k] of e4m3fn or e4m3fnuz
    scale_b  f32 [ceil(n / 128), ceil(k / 128)], or [groups, ..]

    The results are for gemm's b and scale_b with packed=True on that kind of device alone. Raises ValueError (shape, stride),
    NotImplementedError (dtype, device), TypeError (no array).

    >>> b, scale_b = quern.quantize_fp8(numpy.ones((128, 128), numpy.float32), block=(128, 128))
    >>> packed, packed_scale = quern.gemm_pack(b, scale_b)
    """
    packed = _tensor.give_like(b, ffi.gemm_packed_empty(_tensor.tensor(b)))
    packed_scale = empty_like(scale_b)
    _ops.gemm_pack(packed, packed_scale, b, scale_b)
    return packed, packed_scale


def _columns(op, b, ndim, packed, n):
    if n is not None:
        if n < 0:
            raise ValueError(f"{op}: n is {n}; accepted: 0 or above")
        return n
    if flag(op, "packed", packed):
        raise ValueError(f"{op}: n is None; needed with packed, whose rows are padded, or out")
    return dims(op, "b", b, ndim)[-2]


def _activated(op, columns, activation):
    """Returns how many columns of out so many of the product make."""
    if activation != "silu_and_mul":
        return columns
    if columns % 2:
        raise ValueError(f"{op}: b has {columns} rows; accepted with activation 'silu_and_mul': an even number")
    return columns // 2
