# SPDX-License-Identifier: Apache-2.0
"""Rotary embeddings of ragged tokens [tokens, heads, dim]; ops.rope tells of the parameters. Of tables that are as wide as a head the
first half counts, as in AITER."""

from __future__ import annotations

import torch

from ....ops.rope import rotate

Tensor = torch.Tensor


def _front(x, *tables):
    """Returns tables' first half, where they are as wide as a head of x."""
    return [t[..., :t.shape[-1] // 2] if t.ndim and x.ndim and t.shape[-1] == x.shape[-1] else t for t in tables]


def rope_cached_thd_positions_2c_fwd_inplace(x: Tensor, y: Tensor, cos: Tensor, sin: Tensor, positions: Tensor, rotate_style: int,
                                             reuse_freqs_front_part: bool, nope_first: bool,
                                             transpose_output: bool = False) -> tuple[Tensor, Tensor]:
    """Rotates x and y in place by positions [tokens], and returns them. transpose_output changes nothing in place."""
    rotate("rope_cached_thd_positions_2c_fwd_inplace", {"x": x, "y": y}, *_front(x, cos, sin), positions, None, rotate_style,
           reuse_freqs_front_part, nope_first)
    return x, y


def rope_cached_thd_positions_offsets_2c_fwd_inplace(x: Tensor, y: Tensor, cos: Tensor, sin: Tensor, positions: Tensor,
                                                     offsets: Tensor, rotate_style: int, reuse_freqs_front_part: bool,
                                                     nope_first: bool, transpose_output: bool = False) -> tuple[Tensor, Tensor]:
    """Rotates x and y in place by positions + offsets, [tokens] each, and returns them."""
    rotate("rope_cached_thd_positions_offsets_2c_fwd_inplace", {"x": x, "y": y}, *_front(x, cos, sin), positions, offsets, rotate_style,
           reuse_freqs_front_part, nope_first)
    return x, y
