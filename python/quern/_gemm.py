# SPDX-License-Identifier: Apache-2.0
"""Matrix multiplication: f32, f16, bf16, FP8 and int8 in any mix, with scales of any form, dense, in batches and grouped. Sums are f32."""

from __future__ import annotations

from typing import Any

from . import _ops, _tensor
from ._native import ffi
from ._public import flag, found, public
from ._tensor import choose_dtype, dims, dtype_name, empty_like
from ._types import Array, DType, GemmActivation

_RENAMED = {"d": "out", "b_is_packed": "packed", "scale_d": "scale_out", "given_scale_d": "given_scale", "scale_d_eps": "eps"}
_ACTIVATIONS = {None: 0, "gelu_tanh": 1, "silu_and_mul": 2}


@public(**_RENAMED)
def gemm(a: Array, b: Array, c: Array | None = None, *, scale_a: Array | None = None, scale_b: Array | None = None,
         bias: Array | None = None, activation: GemmActivation | None = None, gate: Array | None = None,
         dtype: DType = "bf16", packed: bool = False, n: int | None = None, out: Array | None = None,
         scale_out: Array | None = None, given_scale: Array | None = None, eps: float | None = None) -> Any:
    """Computes c + gate * activation(a b^T + bias): [m, n] of bf16, f16 or f32, rounded once, or of FP8.

    a of three dimensions has batches, each of which meets its own b, or one for all.

    a            [m, k] or [batches, m, k] of f32, f16, bf16, FP8 of any kind or int8
    b            [n, k], with batches [batches or 1, n, k], of any of these, whatever a is; packed: what gemm_pack gave. Either
                 of the last two dimensions of a and b may be the contiguous one, so b.T of a [k, n] array is a valid b. On GPUs
                 e4m3 with e4m3 and bf16 with bf16 are fast, and f32 is multiplied as the sum of two bf16, to 3 * 2**-16 of a
                 product
    c            out's shape and dtype, perhaps out itself: a residual, for one; None: nothing is added
    scale_a      f32 [m or 1, ceil(k / 128) or 1], where 1 stands for all: [m, ceil(k / 128)] scales rows by 1 x 128, [m, 1] by row,
                 [1, 1] all of a. Dimensions of 1 at the end may be left out: [m], [1]. None: 1
    scale_b      f32 [n, ceil(n / 128) or 1, ceil(k / 128) or 1], likewise; packed: what gemm_pack gave. FP8 is fast with scales of
                 1 x 128 of a and 128 x 128 of b
                 Either, unless packed, may be powers of two: float8_e8m0fnu of these forms, or int32
                 [.., ceil(ceil(k / 128) / 4)] as pack_ue8m0_to_int gives, with a row for each of a's, or of b's, or of b's blocks of
                 128, or 1 for all; with batches a dimension of batches or 1 comes first
    bias         [n], with batches [batches or 1, n], of bf16 or f32; None: nothing is added
    activation   "gelu_tanh"; "silu_and_mul": silu(x[2j]) * x[2j+1] of pairs of columns, so that out, c and gate have n / 2
                 columns, and b's rows alternate between gate and up; None: none
    gate         bf16 or f32 [n], or [parts, n] with a row for each m / parts rows; None, as it must be with batches: nothing is
                 multiplied
    dtype        of a new out: bf16, f16, f32, e4m3fn, e4m3fnuz, e5m2 or e5m2fnuz
    packed       b and scale_b come from gemm_pack
    n            b's own rows, for a new out; needed with packed
    out          [m, n] or [batches, m, n] of such a dtype; None: a new one
    scale_out    with out of FP8: f32 [.., m, ceil(out's columns / 128)], written as quantize_groups does; None: a new one
    given_scale  with out of FP8: f32 [1], read as quantize_static does, in place of scale_out
    eps          smallest amax of scale_out; None: 1e-10

    Returns out, of a's kind; of FP8 (out, scale_out) unless given_scale is given. Raises ValueError (shape, stride, overlap,
    activation, packed without n or out, scales of out that do not fit its dtype), NotImplementedError (dtype), TypeError (no
    array); nothing is written then.

    >>> one = numpy.ones((2, 128), numpy.float32)
    >>> (a, scale_a), (b, scale_b) = quern.quantize_fp8(one), quern.quantize_fp8(one, block=(128, 128))
    >>> quern.gemm(a, b, scale_a=scale_a, scale_b=scale_b, dtype="f32").round(3)
    array([[128., 128.],
           [128., 128.]], dtype=float32)
    """
    code = _activation("gemm", activation)
    if out is None:
        *rows, _ = dims("gemm", "a", a, 2, 3)
        columns = _activated("gemm", _columns("gemm", b, 1 + len(rows), packed, n), activation)
        out = _new_out("gemm", a, (*rows, columns), dtype, _DENSE)
    scale_out = _scale_of(out, scale_out, given_scale)
    _ops.gemm(out, a, b, c, scale_a, scale_b, bias, gate, scale_out, given_scale, code, _eps("gemm", eps), packed)
    return out if scale_out is None else (out, scale_out)


@public(**_RENAMED)
def gemm_grouped_contiguous(a: Array, b: Array, group_layout: Array, *, scale_a: Array | None = None,
                            scale_b: Array | None = None, by_ends: bool = False, m_alignment: int = 0,
                            zero_padding: bool = False, bias: Array | None = None, activation: GemmActivation | None = None,
                            dtype: DType = "bf16", packed: bool = False, n: int | None = None, out: Array | None = None,
                            scale_out: Array | None = None, given_scale: Array | None = None, eps: float | None = None) -> Any:
    """Computes out[r] = activation(a[r] b[group of r]^T + bias[group of r]); each row of a belongs to a group of b or to none.

    Rows of no group are not written.

    a             [m, k], as gemm has it
    b             [groups, n, k], as gemm has it; packed: what gemm_pack gave
    group_layout  i32 [m], the group of each row or -1; with by_ends [groups], where each group's real rows end. QUERN_VALIDATE=1
                  checks what it holds
    scale_a       as gemm has it
    scale_b       as gemm has it, with a dimension of groups or 1 before the others: [groups] has one scale for each group
    by_ends       what group_layout holds
    m_alignment   group g begins at a multiple of it; 0: 128
    zero_padding  with by_ends: the rows between groups become 0
    bias          [groups, n] of bf16 or f32; None: nothing is added
    activation    as gemm has it
    dtype         of a new out: bf16, f16 or FP8
    packed        b and scale_b come from gemm_pack
    n             b's own rows, for a new out; needed with packed
    out           [m, n] of such a dtype; None: a new one
    scale_out, given_scale, eps   as gemm has them

    Returns what gemm returns. Raises what gemm raises, and ValueError for a bad m_alignment.

    >>> import ml_dtypes
    >>> a, b = numpy.ones((128, 64), ml_dtypes.bfloat16), numpy.ones((2, 4, 64), ml_dtypes.bfloat16)
    >>> out = quern.gemm_grouped_contiguous(a, b, numpy.ones(128, numpy.int32))
    >>> out.shape, float(out[0, 0])
    ((128, 4), 64.0)
    """
    op = "gemm_grouped_contiguous"
    code = _activation(op, activation)
    if out is None:
        columns = _activated(op, _columns(op, b, 3, packed, n), activation)
        out = _new_out(op, a, (dims(op, "a", a, 2)[0], columns), dtype, _GROUPED)
    scale_out = _scale_of(out, scale_out, given_scale)
    _ops.gemm_grouped_contiguous(out, a, b, scale_a, scale_b, group_layout, bias, scale_out, given_scale, by_ends,
                                 m_alignment, zero_padding, code, _eps(op, eps), packed)
    return out if scale_out is None else (out, scale_out)


@public(**_RENAMED)
def gemm_grouped_masked(a: Array, b: Array, group_layout: Array, *, scale_a: Array | None = None,
                        scale_b: Array | None = None, expected_m: int = 1, bias: Array | None = None,
                        activation: GemmActivation | None = None, dtype: DType = "bf16", packed: bool = False,
                        n: int | None = None, out: Array | None = None, scale_out: Array | None = None,
                        given_scale: Array | None = None, eps: float | None = None) -> Any:
    """Computes out[g, r] = activation(a[g, r] b[g]^T + bias[g]) for r < group_layout[g], where each group has a slab of rows.

    Other rows are not written.

    a             [groups, m_max, k], as gemm has it
    b             [groups, n, k], as gemm has it; packed: what gemm_pack gave
    group_layout  i32 [groups], real rows of each slab, 0 to m_max, which QUERN_VALIDATE=1 checks
    scale_a, scale_b  as gemm has them, with a dimension of groups or 1 before the others
    expected_m    rows a group is likely to have: a hint, which changes no result
    bias          [groups, n] of bf16 or f32; None: nothing is added
    activation    as gemm has it
    dtype         of a new out: bf16, f16 or FP8
    packed        b and scale_b come from gemm_pack
    n             b's own rows, for a new out; needed with packed
    out           [groups, m_max, n] of such a dtype; None: a new one
    scale_out, given_scale, eps   as gemm has them; scale_out is [groups, m_max, ceil(out's columns / 128)]

    Returns what gemm returns. Raises what gemm raises.

    >>> import ml_dtypes
    >>> a, b = numpy.ones((2, 3, 64), ml_dtypes.bfloat16), numpy.ones((2, 4, 64), ml_dtypes.bfloat16)
    >>> out = quern.gemm_grouped_masked(a, b, numpy.array([3, 1], numpy.int32))
    >>> out.shape, float(out[1, 0, 0])
    ((2, 3, 4), 64.0)
    """
    op = "gemm_grouped_masked"
    code = _activation(op, activation)
    if out is None:
        columns = _activated(op, _columns(op, b, 3, packed, n), activation)
        out = _new_out(op, a, (*dims(op, "a", a, 3)[:2], columns), dtype, _GROUPED)
    scale_out = _scale_of(out, scale_out, given_scale)
    _ops.gemm_grouped_masked(out, a, b, scale_a, scale_b, group_layout, bias, scale_out, given_scale, expected_m, code,
                             _eps(op, eps), packed)
    return out if scale_out is None else (out, scale_out)


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


_FP8 = ("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz")
_GROUPED = ("bfloat16", "float16", *_FP8)
_DENSE = ("bfloat16", "float16", "float32", *_FP8)


def _activation(op, activation):
    """Returns the native op's number of an activation."""
    if activation not in _ACTIVATIONS:
        raise ValueError(f"{op}: activation is {found(activation)}; accepted: None, 'gelu_tanh', 'silu_and_mul'")
    return _ACTIVATIONS[activation]


def _new_out(op, a, shape, dtype, accepted):
    return empty_like(a, shape=shape, dtype=choose_dtype(op, dtype, accepted))


def _scale_of(out, scale, given):
    """Returns the scales that out's dtype needs: those of the caller, new ones, or None."""
    if scale is not None or given is not None or dtype_name(getattr(out, "dtype", None)) not in _FP8:
        return scale
    *rows, columns = out.shape
    return empty_like(out, shape=(*rows, -(-columns // 128)), dtype="float32")


def _eps(op, eps):
    """Returns eps as C takes it, which takes 0 for "not given"."""
    if eps == 0:
        raise ValueError(f"{op}: eps is {eps}; accepted: None, 1e-30 or more, finite")
    return 0.0 if eps is None else eps


def _activated(op, columns, activation):
    """Returns how many columns of out so many of the product make."""
    if activation != "silu_and_mul":
        return columns
    if columns % 2:
        raise ValueError(f"{op}: b has {columns} rows; accepted with activation 'silu_and_mul': an even number")
    return columns // 2
