# SPDX-License-Identifier: Apache-2.0
"""AITER's products of FP8 and int8: XQ [m, k] times WQ [n, k] transposed, with f32 sums. Weights that shuffle_weight put in AITER's
order are copied back at each call.

dtype   of the result: bf16, f16 or f32
splitK  a hint, as is check
"""

from __future__ import annotations

import torch

from .... import _gemm
from ...._public import flag
from .. import _check
from .._absent import FP4, absent
from .._run import run
from .shuffle import unshuffled

Tensor = torch.Tensor
BF16 = torch.bfloat16
_OUT = torch.bfloat16, torch.float16, torch.float32
_KINDS = (*_check.FP8, torch.int8)


def blockscale(op, names, x, w, x_scale, w_scale, dtype, out, is_shuffled, is_turned):
    """Returns the product with scales of 1 x 128 of x and 128 x 128 of w. names: op's of x, w, x_scale, w_scale, out. is_turned:
    contiguous scales of x [m, groups] have their bytes as [groups, m]."""
    named = dict(zip(names, (x, w, x_scale, w_scale, out), strict=True))
    _check.tensors(op, named, none=(names[4],))
    _check.shape(op, names[0], x, None, None)
    (m, k), blocks = x.shape, -(-x.shape[1] // 128)
    _check.shape(op, names[1], w, None, k)
    n = w.shape[0]
    _check.shape(op, names[2], x_scale, m, blocks)
    _check.shape(op, names[3], w_scale, -(-n // 128), blocks)
    for name, t in zip(names[:2], (x, w), strict=True):
        _check.dtype(op, name, t, _check.FP8)
    _check.dtype(op, "dtype", dtype, _OUT)
    if out is not None:
        _check.shape(op, names[4], out, m, n)
        _check.dtype(op, names[4], out, (dtype,))
    if is_turned and x_scale.is_contiguous():
        x_scale = x_scale.view(blocks, m).T
    w = unshuffled(op, names[1], w) if is_shuffled else w
    out = torch.empty(m, n, dtype=dtype, device=x.device) if out is None else out
    return run(op, _gemm.gemm, dict(zip(("a", "b", "scale_a", "scale_b", "out"), names, strict=True)), x, w, scale_a=x_scale.float(),
               scale_b=w_scale.float(), out=out)


_NAMES = "XQ", "WQ", "x_scale", "w_scale", "out"


def gemm_a8w8_blockscale(XQ: Tensor, WQ: Tensor, x_scale: Tensor, w_scale: Tensor, dtype: torch.dtype = BF16,
                         isBpreshuffled: bool = False) -> Tensor:
    """Returns the product of FP8 with f32 scales x_scale [m, ceil(k / 128)] and w_scale [ceil(n / 128), ceil(k / 128)].

    isBpreshuffled  whether WQ comes from shuffle_weight
    """
    op = "gemm_a8w8_blockscale"
    return blockscale(op, _NAMES, XQ, WQ, x_scale, w_scale, dtype, None, flag(op, "isBpreshuffled", isBpreshuffled), False)


def gemm_a8w8_blockscale_bpreshuffle(XQ: Tensor, WQ: Tensor, x_scale: Tensor, w_scale: Tensor, dtype: torch.dtype = BF16,
                                     out: Tensor | None = None) -> Tensor:
    """Returns gemm_a8w8_blockscale of a WQ from shuffle_weight.

    x_scale  [m, groups]: contiguous, its bytes lie as [groups, m] (transpose_scale=True gives them so); with other strides as they say
    out      [m, n] of dtype; None: a new one
    """
    return blockscale("gemm_a8w8_blockscale_bpreshuffle", _NAMES, XQ, WQ, x_scale, w_scale, dtype, out, True, True)


# ---- a scale for each row

def _of_rows(op, name, scale, rows):
    if scale.numel() != rows:
        raise ValueError(f"{op}: {name} has {scale.numel()} entries, needs {rows}")
    return scale.reshape(rows, 1).float()


def _by_rows(op, XQ, WQ, x_scale, w_scale, bias, dtype, is_shuffled):
    _check.tensors(op, {"XQ": XQ, "WQ": WQ, "x_scale": x_scale, "w_scale": w_scale, "bias": bias}, none=("bias",))
    _check.shape(op, "XQ", XQ, None, None)
    _check.shape(op, "WQ", WQ, None, None if is_shuffled else XQ.shape[1])
    for name, t in (("XQ", XQ), ("WQ", WQ)):
        _check.dtype(op, name, t, _KINDS)
    _check.dtype(op, "dtype", dtype, _OUT)
    x_scale, w_scale = _of_rows(op, "x_scale", x_scale, len(XQ)), _of_rows(op, "w_scale", w_scale, len(WQ))
    if bias is not None:
        if bias.numel() != len(WQ):
            raise ValueError(f"{op}: bias has {bias.numel()} entries, needs {len(WQ)}")
        bias = bias.reshape(-1).float()
    if is_shuffled:
        if WQ.shape[1] < XQ.shape[1]:
            raise ValueError(f"{op}: WQ has shape {list(WQ.shape)}, needs at least {XQ.shape[1]} columns")
        WQ = unshuffled(op, "WQ", WQ)[:, :XQ.shape[1]]  # columns that were added to it are zeros
    out = torch.empty(len(XQ), len(WQ), dtype=dtype, device=XQ.device)
    return run(op, _gemm.gemm, {"a": "XQ", "b": "WQ", "scale_a": "x_scale", "scale_b": "w_scale"}, XQ, WQ, scale_a=x_scale,
               scale_b=w_scale, bias=bias, out=out)


def _check_split(op, split):
    if split is not None:
        _check.integer(op, "splitK", split, -1)


def gemm_a8w8(XQ: Tensor, WQ: Tensor, x_scale: Tensor, w_scale: Tensor, bias: Tensor | None = None, dtype: torch.dtype = BF16,
              splitK: int | None = None) -> Tensor:
    """Returns the product of FP8 or int8 with f32 scales for each row, x_scale [m, 1] and w_scale [n, 1] or [1, n], and bias [n]."""
    _check_split("gemm_a8w8", splitK)
    return _by_rows("gemm_a8w8", XQ, WQ, x_scale, w_scale, bias, dtype, False)


def gemm_a8w8_CK(XQ: Tensor, WQ: Tensor, x_scale: Tensor, w_scale: Tensor, bias: Tensor | None = None, dtype: torch.dtype = BF16,
                 splitK: int | None = None) -> Tensor:
    """Returns gemm_a8w8."""
    _check_split("gemm_a8w8_CK", splitK)
    return _by_rows("gemm_a8w8_CK", XQ, WQ, x_scale, w_scale, bias, dtype, False)


def gemm_a8w8_bpreshuffle(XQ: Tensor, WQ: Tensor, x_scale: Tensor, w_scale: Tensor, bias: Tensor | None = None,
                          dtype: torch.dtype = BF16, check: bool = False) -> Tensor:
    """Returns gemm_a8w8 of a WQ from shuffle_weight, which may have more columns than XQ, of zeros."""
    _check.hints("gemm_a8w8_bpreshuffle", check=check)
    return _by_rows("gemm_a8w8_bpreshuffle", XQ, WQ, x_scale, w_scale, bias, dtype, True)


def get_GEMM_config_with_quant_type(M: int, N: int, K: int, q_dtype_w: torch.dtype, tuned_file: str | None = None) -> None:
    """Returns None: no size is tuned. The arguments change nothing."""


def get_CKGEMM_config(M: int, N: int, K: int, tuned_file: str | None = None) -> None:
    """Returns None: no size is tuned. The arguments change nothing."""


gemm_a8w8_ASM = absent("gemm_a8w8_ASM", "quern does not read weights in the order (32, 16); call gemm_a8w8_bpreshuffle")
flatmm_a8w8_blockscale_ASM = absent("flatmm_a8w8_blockscale_ASM", "quern does not read its order of weights; call gemm_a8w8_blockscale")
gemm_a4w4 = absent("gemm_a4w4", FP4)
