# SPDX-License-Identifier: Apache-2.0
"""Quantisation to FP8 and int8, dequantisation, conversion between the e4m3 encodings, and packing of truth values into bits."""

from __future__ import annotations

from typing import Any

from . import _ops
from ._native import ffi
from ._public import flag, found, public
from ._tensor import choose_dtype, dims, empty_like, fp8_name, number_name
from ._types import Array, BitOrder, Block, DType


@public(block_rows="block", block_cols="block")
def quantize_fp8(x: Array, block: Block = (1, 128), dtype: DType = "e4m3fn", eps: float = 1e-4, q: Array | None = None,
                 scale: Array | None = None) -> tuple[Any, Any]:
    """Quantises x by blocks: (q, scale), scale = max(amax, eps) / max of the kind, q = x / scale, saturating.

    x      [rows, cols] of f32, f16 or bf16; rows may be 0
    block  (1, 128), a token's group, or (128, 128), a block of weights; the last ones may be partial
    dtype  of a new q: e4m3fn, e4m3fnuz, e5m2 or e5m2fnuz
    eps    above 0, finite
    q      x's shape, of an FP8 kind; None: a new one
    scale  f32 [ceil(rows / block rows), ceil(cols / block columns)]; None: a new one

    Raises ValueError (shape, stride, overlap, eps, block, dtype's name), NotImplementedError (dtype, block, device), TypeError
    (no array, no number); nothing is written then.

    >>> q, scale = quern.quantize_fp8(numpy.array([[1, -2, 4]], numpy.float32))
    >>> q.astype(numpy.float32), scale.round(5)
    (array([[ 112., -224.,  448.]], dtype=float32), array([[0.00893]], dtype=float32))
    """
    rows, cols = dims("quantize_fp8", "x", x, 2)
    _check_block("quantize_fp8", block)
    q = empty_like(x, dtype=fp8_name("quantize_fp8", dtype)) if q is None else q
    if scale is None:
        scale = empty_like(x, shape=(-(-rows // block[0]), -(-cols // block[1])), dtype="float32")
    _ops.quantize_fp8(q, scale, x, block[0], block[1], eps)
    return q, scale


@public(block_rows="block", block_cols="block", x="out")
def dequantize_fp8(q: Array, scale: Array, block: Block = (1, 128), dtype: DType = "f32", out: Array | None = None) -> Any:
    """Computes q * scale, rounded once: the inverse of quantize_fp8.

    q      [rows, cols] of e4m3fn, e4m3fnuz, e5m2 or e5m2fnuz; rows may be 0
    scale  f32 [ceil(rows / block rows), ceil(cols / block columns)]
    block  (1, 128) or (128, 128)
    dtype  of a new out: f32, f16 or bf16
    out    q's shape; None: a new one

    Returns out, of q's kind. Raises what quantize_fp8 raises.

    >>> quern.dequantize_fp8(*quern.quantize_fp8(numpy.array([[1, -2, 4]], numpy.float32)))
    array([[ 1., -2.,  4.]], dtype=float32)
    """
    _check_block("dequantize_fp8", block)
    if out is None:
        out = empty_like(q, dtype=choose_dtype("dequantize_fp8", dtype, ("float32", "float16", "bfloat16")))
    _ops.dequantize_fp8(out, q, scale, block[0], block[1])
    return out


@public()
def quantize_groups(x: Array, group: int = 128, dtype: DType = "e4m3fn", eps: float = 1e-10, round_scale: bool = False,
                    packed: bool = False, q: Array | None = None, scale: Array | None = None) -> tuple[Any, Any]:
    """Quantises groups along x's rows: (q, scale), scale = max(amax, eps) / max of the kind, q = x / scale, saturating.

    x            [rows, cols] of f32, f16 or bf16; rows may be 0
    group        columns of a scale, 1 or more; 0: the whole row
    dtype        of a new q: e4m3fn, e4m3fnuz, e5m2, e5m2fnuz or i8
    eps          above 0, finite
    round_scale  scales are rounded up to powers of two
    packed       a new scale is UE8M0, four to an i32, [rows, ceil(groups / 4)]; else f32 [rows, groups]
    q            x's shape; None: a new one
    scale        as packed has it, of any strides; its dtype decides instead of packed. None: a new one

    Raises what quantize_fp8 raises.

    >>> q, scale = quern.quantize_groups(numpy.array([[1, -2, 4]], numpy.float32), 0, "i8")
    >>> q, scale.round(4)
    (array([[ 32, -64, 127]], dtype=int8), array([[0.0315]], dtype=float32))
    """
    if group < 0:
        raise ValueError(f"quantize_groups: group is {group}; accepted: 0 or more")
    packed = flag("quantize_groups", "packed", packed)
    rows, cols = dims("quantize_groups", "x", x, 2)
    q = empty_like(x, dtype=number_name("quantize_groups", dtype)) if q is None else q
    if scale is None:
        groups = -(-cols // group) if group else 1
        scale = empty_like(x, shape=(rows, -(-groups // 4) if packed else groups), dtype="int32" if packed else "float32")
    _ops.quantize_groups(q, scale, x, group, round_scale, eps)
    return q, scale


@public()
def quantize_static(x: Array, scale: Array, dtype: DType = "e4m3fn", q: Array | None = None) -> Any:
    """Computes q = x / scale for one scale, saturating.

    x      [rows, cols] of f32, f16 or bf16; rows may be 0
    scale  [1] f32 on x's device, above 0 and finite, which QUERN_VALIDATE=1 checks
    dtype  of a new q: e4m3fn, e4m3fnuz, e5m2, e5m2fnuz or i8
    q      x's shape; None: a new one

    Returns q, of x's kind. Raises what quantize_fp8 raises.

    >>> quern.quantize_static(numpy.array([[1, -2, 4]], numpy.float32), numpy.full(1, 0.5, numpy.float32), "i8")
    array([[ 2, -4,  8]], dtype=int8)
    """
    q = empty_like(x, dtype=number_name("quantize_static", dtype)) if q is None else q
    _ops.quantize_static(q, x, scale)
    return q


@public()
def quantize_tensor(x: Array, dtype: DType = "e4m3fn", eps: float = 1e-10, q: Array | None = None,
                    scale: Array | None = None) -> tuple[Any, Any]:
    """Quantises x with one scale for all of it: (q, scale), scale = max(amax, eps) / max of the kind, q = x / scale,
    saturating.

    x      [rows, cols] of f32, f16 or bf16
    dtype  of a new q: e4m3fn, e4m3fnuz, e5m2, e5m2fnuz or i8
    eps    above 0, finite
    q      x's shape; None: a new one
    scale  [1] f32, written; None: a new one

    Raises what quantize_fp8 raises.

    >>> q, scale = quern.quantize_tensor(numpy.array([[1, -2, 4]], numpy.float32), "i8")
    >>> q, scale.round(4)
    (array([[ 32, -64, 127]], dtype=int8), array([0.0315], dtype=float32))
    """
    q = empty_like(x, dtype=number_name("quantize_tensor", dtype)) if q is None else q
    scale = empty_like(x, shape=(1,), dtype="float32") if scale is None else scale
    workspace = empty_like(x, shape=(ffi.quantize_tensor_workspace(),), dtype="uint8")
    _ops.quantize_tensor(q, scale, x, workspace, eps)
    return q, scale


@public(q_out="out")
def convert_fp8(q: Array, scale: Array, dtype: DType, allow_rounding: bool = False, out: Array | None = None,
                scale_out: Array | None = None) -> tuple[Any, Any]:
    """Converts e4m3fn to e4m3fnuz or back, on the CPU only: (out, scale_out).

    To e4m3fnuz is always exact. Back, a block is exact or, if allowed, rounded.

    q               [rows, cols] of e4m3fn or e4m3fnuz
    scale           f32 [rows, ceil(cols / 128)] or [ceil(rows / 128), ceil(cols / 128)], which says what the blocks are
    dtype           the one that q is not: e4m3fn or e4m3fnuz
    allow_rounding  a block that cannot be exact is rounded
    out             q's shape, of dtype; None: a new one
    scale_out       as scale; None: a new one

    Raises NotImplementedError where a block is inexact and rounding is not allowed, and what quantize_fp8 raises.

    >>> q, scale = quern.quantize_fp8(numpy.array([[1, -2, 4]], numpy.float32))
    >>> quern.dequantize_fp8(*quern.convert_fp8(q, scale, "e4m3fnuz"))
    array([[ 1., -2.,  4.]], dtype=float32)
    """
    if out is None:
        out = empty_like(q, dtype=choose_dtype("convert_fp8", dtype, ("float8_e4m3fn", "float8_e4m3fnuz")))
    scale_out = empty_like(scale) if scale_out is None else scale_out
    _ops.convert_fp8(out, scale_out, q, scale, allow_rounding)
    return out, scale_out


_BIT_ORDERS = {"big": 0, "little": 1}


def _bit_order(op, order):
    if order not in _BIT_ORDERS:
        raise ValueError(f"{op}: order is {found(order)}; accepted: {', '.join(map(repr, _BIT_ORDERS))}")
    return _BIT_ORDERS[order]


@public()
def packbits(x: Array, order: BitOrder = "big", out: Array | None = None) -> Any:
    """Packs truth values, eight to a byte, as numpy.packbits does: u8 [ceil(n / 8)].

    x      [n] of bool or u8, contiguous; n may be 0
    order  "big": the first value in a byte's highest bit; "little": in its lowest
    out    u8 [ceil(n / 8)]; None: a new one

    Returns out, of x's kind. Raises ValueError (shape, stride, overlap, order), NotImplementedError (dtype, device), TypeError
    (no array); nothing is written then.

    >>> quern.packbits(numpy.array([True, False, True]))
    array([160], dtype=uint8)
    """
    number = _bit_order("packbits", order)
    out = empty_like(x, shape=(-(-dims("packbits", "x", x, 1)[0] // 8),), dtype="uint8") if out is None else out
    _ops.packbits(out, x, number)
    return out


@public()
def segment_packbits(x: Array, indptr: Array, order: BitOrder = "big", out: Array | None = None,
                     indptr_out: Array | None = None) -> tuple[Any, Any]:
    """Packs each segment x[indptr[i]:indptr[i + 1]] as packbits does, into bytes of its own: (out, indptr_out).

    x           [n] of bool or u8, contiguous
    indptr      i32 [segments + 1], from 0 to n, not falling
    order       "big": the first value in a byte's highest bit; "little": in its lowest
    out         u8, at least n // 8 + segments, which a new one has; the first indptr_out[-1] are written
    indptr_out  i32 [segments + 1]: segment i's bytes are out[indptr_out[i]:indptr_out[i + 1]]; None: a new one

    indptr is checked on the CPU, and on a GPU with QUERN_VALIDATE=1. Raises what packbits raises, and ValueError for indices.

    >>> x, indptr = numpy.ones(10, bool), numpy.array([0, 1, 10], numpy.int32)
    >>> quern.segment_packbits(x, indptr)
    (array([128, 255, 128], dtype=uint8), array([0, 1, 3], dtype=int32))
    """
    number = _bit_order("segment_packbits", order)
    (n,), (ends,) = dims("segment_packbits", "x", x, 1), dims("segment_packbits", "indptr", indptr, 1)
    if out is None:
        out = empty_like(x, shape=(n // 8 + max(ends - 1, 0),), dtype="uint8")
    indptr_out = empty_like(indptr) if indptr_out is None else indptr_out
    _ops.segment_packbits(out, indptr_out, x, indptr, number)
    return out, indptr_out


def _check_block(op, block):
    if tuple(block) not in ((1, 128), (128, 128)):
        kind = NotImplementedError if len(block) == 2 and min(block) > 0 else ValueError
        raise kind(f"{op}: block is {tuple(block)}; accepted: (1, 128), (128, 128)")
