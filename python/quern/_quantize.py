# SPDX-License-Identifier: Apache-2.0
"""FP8 and int8 by blocks, rows, groups and tensors, its inverse, conversion between the e4m3 encodings; bits of truth values.

Raises ValueError (shape, stride, eps), NotImplementedError (dtype, block, device); nothing is written then.
"""

from . import _ops
from ._native import ffi
from ._tensor import empty_like, fp8_name


def quantize_fp8(x, block=(1, 128), dtype="e4m3fn", eps=1e-4, q=None, scale=None):
    """x [rows, cols] by blocks: (q, scale), scale = max(amax, eps) / max of the kind, q = x / scale, saturating.

    block  (1, 128), a token's group, or (128, 128), a block of weights; the last ones may be partial
    dtype  the FP8 kind of a new q: e4m3fn, e4m3fnuz, e5m2, e5m2fnuz
    scale  [ceil(rows / block rows), ceil(cols / block columns)] f32
    """
    rows, cols = x.shape
    q = empty_like(x, dtype=fp8_name(dtype)) if q is None else q
    if scale is None:
        _check_block("quantize_fp8", block)
        scale = empty_like(x, shape=(-(-rows // block[0]), -(-cols // block[1])), dtype="float32")
    _ops.quantize_fp8(q, scale, x, block[0], block[1], eps)
    return q, scale


def dequantize_fp8(q, scale, block=(1, 128), dtype="f32", out=None):
    """q * scale, rounded once to dtype (f32, f16, bf16)."""
    out = empty_like(q, dtype=dtype) if out is None else out
    _ops.dequantize_fp8(out, q, scale, block[0], block[1])
    return out


def quantize_groups(x, group=128, dtype="e4m3fn", eps=1e-10, round_scale=False, packed=False, q=None, scale=None):
    """x [rows, cols] along its rows: (q, scale), scale = max(amax, eps) / max of the kind, q = x / scale, saturating.

    group        columns of a scale; 0: the whole row
    dtype        of a new q: an FP8 kind, or "i8"
    round_scale  scales are rounded up to powers of two
    packed       a new scale is UE8M0, four to an i32, [rows, ceil(groups / 4)]; else f32 [rows, groups]. A scale that is
                 given says this itself, and may be column-major
    """
    if group < 0:
        raise ValueError(f"quantize_groups: group is {group}; accepted: 0 or more")
    rows, cols = x.shape
    q = empty_like(x, dtype=dtype) if q is None else q
    if scale is None:
        groups = -(-cols // group) if group else 1
        scale = empty_like(x, shape=(rows, -(-groups // 4) if packed else groups), dtype="int32" if packed else "float32")
    _ops.quantize_groups(q, scale, x, group, round_scale, eps)
    return q, scale


def quantize_static(x, scale, dtype="e4m3fn", q=None):
    """q = x / scale for one scale, [1] f32 on x's device; dtype an FP8 kind or "i8"."""
    q = empty_like(x, dtype=dtype) if q is None else q
    _ops.quantize_static(q, x, scale)
    return q


def quantize_tensor(x, dtype="e4m3fn", eps=1e-10, q=None, scale=None):
    """One scale for all of x [rows, cols], found and written: (q, scale), scale [1] f32."""
    q = empty_like(x, dtype=dtype) if q is None else q
    scale = empty_like(x, shape=(1,), dtype="float32") if scale is None else scale
    workspace = empty_like(x, shape=(ffi.quantize_tensor_workspace(),), dtype="uint8")
    _ops.quantize_tensor(q, scale, x, workspace, eps)
    return q, scale


def convert_fp8(q, scale, dtype, allow_rounding=False, out=None, scale_out=None):
    """e4m3fn to e4m3fnuz, always exact, or back, exact block by block or, if allowed, rounded: (out, scale_out). CPU only.

    scale  [rows, ceil(cols / 128)] or [ceil(rows / 128), ceil(cols / 128)] f32, which says what the blocks are
    dtype  "e4m3fn" or "e4m3fnuz": the one that q is not
    Raises NotImplementedError where a block is inexact and allow_rounding is false.
    """
    out = empty_like(q, dtype=fp8_name(dtype)) if out is None else out
    scale_out = empty_like(scale) if scale_out is None else scale_out
    _ops.convert_fp8(out, scale_out, q, scale, allow_rounding)
    return out, scale_out


_BIT_ORDERS = {"big": 0, "little": 1}


def _bit_order(op, order):
    if order not in _BIT_ORDERS:
        raise ValueError(f"{op}: order is {order!r}; accepted: {', '.join(map(repr, _BIT_ORDERS))}")
    return _BIT_ORDERS[order]


def packbits(x, order="big", out=None):
    """Truth values x [n], bool or u8, eight to a byte, as numpy.packbits does: u8 [ceil(n / 8)].

    order  "big": the first value in a byte's highest bit; "little": in its lowest
    """
    number = _bit_order("packbits", order)
    out = empty_like(x, shape=(-(-x.shape[0] // 8),), dtype="uint8") if out is None else out
    _ops.packbits(out, x, number)
    return out


def segment_packbits(x, indptr, order="big", out=None, indptr_out=None):
    """packbits of each segment x[indptr[i]:indptr[i + 1]] into bytes of its own: (out, indptr_out).

    indptr      [segments + 1] i32
    out         u8, at least n // 8 + segments, which a new one has; the first indptr_out[-1] are written
    indptr_out  [segments + 1] i32: segment i's bytes are out[indptr_out[i]:indptr_out[i + 1]]
    """
    number = _bit_order("segment_packbits", order)
    if out is None:
        out = empty_like(x, shape=(x.shape[0] // 8 + max(indptr.shape[0] - 1, 0),), dtype="uint8")
    indptr_out = empty_like(indptr) if indptr_out is None else indptr_out
    _ops.segment_packbits(out, indptr_out, x, indptr, number)
    return out, indptr_out


def _check_block(op, block):
    if len(block) != 2 or min(block) < 1:
        raise ValueError(f"{op}: block is {block}; accepted: (1, 128), (128, 128)")
