# SPDX-License-Identifier: Apache-2.0
"""Block-scaled FP8: quantisation, its inverse, and conversion between the two e4m3 encodings.

Raises ValueError (shape, stride, eps), NotImplementedError (dtype, block, device); nothing is written then.
"""

from . import _ops
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


def _check_block(op, block):
    if len(block) != 2 or min(block) < 1:
        raise ValueError(f"{op}: block is {block}; accepted: (1, 128), (128, 128)")
