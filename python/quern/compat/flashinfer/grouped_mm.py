# SPDX-License-Identifier: Apache-2.0
"""FlashInfer's products of groups of rows with a matrix for each group: out[rows of g] = a[rows of g] b[g]^T.

a is [rows, k], b [groups, n, k], m_indptr i32 [groups + 1] says where groups begin, from 0 on and without gaps. Results are bf16 or f16.
backend and tactic change nothing.
"""

import torch

from .._check import tensors
from ._products import FP8, SIXTEEN, groups_of, hints, kind, of_groups, one_number, result
from .quantization.fp4_quantization import wide
from .quantization.fp8_quantization import dequantized
from .tllm_enums import SfLayout

_OWN = "cudnn", "cake"


def _out(op, out, a, b, out_dtype):
    return result(op, out, (len(a), b.shape[1]), out_dtype if out is None else out.dtype, a.device, SIXTEEN)


def grouped_mm_bf16(a, b, m_indptr, out=None, out_dtype=torch.bfloat16, *, backend="cudnn", tactic=-1):
    """Returns the products of a and b of bf16 or f16. out's dtype, if it is given, counts in place of out_dtype."""
    op = "grouped_mm_bf16"
    hints(op, backend, _OWN, tactic)
    groups_of(op, a, b, m_indptr)
    for name, x in (("a", a), ("b", b)):
        kind(op, name, x, SIXTEEN)
    return of_groups(op, {}, a, b, m_indptr, _out(op, out, a, b, out_dtype))


def grouped_mm_fp8(a, b, m_indptr, alpha=None, out=None, out_dtype=torch.bfloat16, *, backend="cudnn", tactic=-1):
    """Returns alpha, a number or a tensor of one, times the products of a and b of FP8."""
    op = "grouped_mm_fp8"
    hints(op, backend, ("cudnn",), tactic)
    groups_of(op, a, b, m_indptr)
    for name, x in (("a", a), ("b", b)):
        kind(op, name, x, FP8)
    scale = one_number(op, "alpha", alpha, a.device)
    return of_groups(op, {"scale_a": "alpha"}, a, b, m_indptr, _out(op, out, a, b, out_dtype), scale_a=scale)


def grouped_mm_mxfp8(a, b, a_descale, b_descale, m_indptr, out=None, out_dtype=torch.bfloat16, *, backend="cudnn", tactic=-1):
    """Returns the products of a and b of FP8 with a power of two for each 32 of k. a_descale and b_descale are u8, in tiles of 128 x 4:
    of all rows of a, and of each matrix of b, whose sizes tiles divide, or padded. Both are multiplied out in bf16 first, exactly."""
    op = "grouped_mm_mxfp8"
    hints(op, backend, ("cudnn",), tactic)
    groups_of(op, a, b, m_indptr)
    for name, x in (("a", a), ("b", b)):
        kind(op, name, x, FP8)
    wide = [dequantized(op, name, x, scale, SfLayout.layout_128x4, torch.bfloat16, x.shape[:-2])
            for name, x, scale in (("a_descale", a, a_descale), ("b_descale", b, b_descale))]
    return of_groups(op, {}, *wide, m_indptr, _out(op, out, a, b, out_dtype))


def grouped_mm_fp4(a, b, a_descale, b_descale, m_indptr, alpha=None, out=None, out_dtype=torch.bfloat16, block_size=16, *,
                   backend="cudnn", tactic=-1):
    """Returns alpha times the products of a u8 [rows, k / 2] and b u8 [groups, n, k / 2] of e2m1, with scales for each block_size columns:
    16, e4m3fn, or 32, UE8M0. a_descale and b_descale lie as grouped_mm_mxfp8's. Both are multiplied out in bf16 first, exactly."""
    op = "grouped_mm_fp4"
    hints(op, backend, ("cudnn",), tactic)
    groups_of(op, a, b, m_indptr)
    if block_size not in (16, 32):
        raise ValueError(f"{op}: block_size is {block_size!r}; accepted: 16, 32")
    tensors(op, {"a": a, "a_descale": a_descale, "b_descale": b_descale})
    operands = [wide(op, name, x, scale, SfLayout.layout_128x4, block_size == 32, torch.bfloat16, x.shape[:-2])
                for name, x, scale in (("a_descale", a, a_descale), ("b_descale", b, b_descale))]
    scale = one_number(op, "alpha", alpha, a.device)
    return of_groups(op, {"scale_a": "alpha"}, *operands, m_indptr, _out(op, out, a, b, out_dtype), scale_a=scale)
