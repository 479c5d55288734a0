# SPDX-License-Identifier: Apache-2.0
"""AITER's order of weights for its matrix kernels: tiles of 16 rows, and 32 columns as two of 16 bytes or more of them, one
after another."""

from __future__ import annotations

import torch

from ...._public import found
from .. import _check
from .._absent import FP4, absent

Tensor = torch.Tensor


def _check_layout(op, x, layout):
    if tuple(layout) != (16, 16):
        raise NotImplementedError(f"{op}: layout is {tuple(layout)}; accepted: (16, 16)")
    if x.ndim < 2 or x.shape[-2] % 16 or x.shape[-1] % 32:
        raise ValueError(f"{op}: x has shape {list(x.shape)}, needs [.., multiple of 16, multiple of 32]")
    return 16 // x.element_size()


def shuffle_weight(x: Tensor, layout: tuple[int, int] = (16, 16), use_int4: bool = False, is_guinterleave: bool = False,
                   gate_up: bool = False, pad_k_to: int = 0) -> Tensor:
    """Returns x [.., n, k] in AITER's order, of x's shape, with is_shuffled True. n is a multiple of 16, k of 32.

    layout    (16, 16)
    use_int4, is_guinterleave  False; gate_up, which acts with is_guinterleave alone, changes nothing
    pad_k_to  0
    """
    op = "shuffle_weight"
    _check.tensors(op, {"x": x})
    _check.only(op, "an order for int4 or FP4", False, use_int4=use_int4, is_guinterleave=is_guinterleave)
    _check.only(op, "which pads columns", 0, pad_k_to=pad_k_to)
    _check.hints(op, gate_up=gate_up)
    of_16_bytes = _check_layout(op, x, layout)
    bits = x.contiguous().view(torch.uint8).view(-1, x.shape[-2] // 16, 16, x.shape[-1] // 32, 32 // of_16_bytes, 16)
    result = bits.permute(0, 1, 3, 4, 2, 5).contiguous().view(x.dtype).view(x.shape)
    result.is_shuffled = True
    return result


def unshuffled(op, name, x):
    """Returns what shuffle_weight got: a copy, made at each call."""
    if x.ndim < 2 or x.shape[-2] % 16 or x.shape[-1] % 32:
        raise ValueError(f"{op}: {name} has shape {list(x.shape)}, needs [.., multiple of 16, multiple of 32], as shuffle_weight gives")
    _check.contiguous(op, **{name: x})
    bits = x.view(torch.uint8).view(-1, x.shape[-2] // 16, x.shape[-1] // 32, 32 * x.element_size() // 16, 16, 16)
    return bits.permute(0, 1, 4, 2, 3, 5).contiguous().view(x.dtype).view(x.shape)


def shuffle_scale(src: Tensor | None, experts_cnt: int | None = None, is_guinterleave: bool = False,
                  gate_up: bool = False) -> Tensor | None:
    """Returns src, None or f32, whose order stays. Scales of one byte, which go with FP4, are not served."""
    op = "shuffle_scale"
    _check.hints(op, is_guinterleave=is_guinterleave, gate_up=gate_up)
    if experts_cnt is not None:
        _check.integer(op, "experts_cnt", experts_cnt, 1)
    if src is not None and not (isinstance(src, torch.Tensor) and src.dtype == torch.float32):
        raise NotImplementedError(f"{op}: src is {getattr(src, 'dtype', found(src))}; accepted: None, f32; {FP4}")
    return src


def moe_shuffle_weight(src: Tensor, experts_cnt: int | None = None, is_guinterleave: bool = False, gate_up: bool = False,
                       layout: tuple[int, int] = (16, 16)) -> Tensor:
    """Returns shuffle_weight(src). experts_cnt changes nothing."""
    if experts_cnt is not None:
        _check.integer("moe_shuffle_weight", "experts_cnt", experts_cnt, 1)
    return shuffle_weight(src, layout, is_guinterleave=is_guinterleave, gate_up=gate_up)


moe_shuffle_scale = shuffle_scale
shuffle_weight_a16w4 = absent("shuffle_weight_a16w4", FP4)
shuffle_scale_a16w4 = absent("shuffle_scale_a16w4", FP4)
