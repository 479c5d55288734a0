# SPDX-License-Identifier: Apache-2.0
"""Rotary embeddings of ragged tokens [tokens, heads, dim]; ops.rope tells of the parameters."""

from __future__ import annotations

import torch

from ....ops.rope import rotate

Tensor = torch.Tensor


def rope_cached_thd_positions_2c_fwd_inplace(x: Tensor, y: Tensor, cos: Tensor, sin: Tensor, positions: Tensor, rotate_style: int,
                                             reuse_freqs_front_part: bool, nope_first: bool,
                                             transpose_output: bool = False) -> tuple[Tensor, Tensor]:
    """Rotates x and y in place by positions [tokens], and returns them. transpose_output changes nothing in place."""
    rotate("rope_cached_thd_positions_2c_fwd_inplace", {"x": x, "y": y}, cos, sin, positions, None, rotate_style,
           reuse_freqs_front_part, nope_first)
    return x, y


def rope_cached_thd_positions_offsets_2c_fwd_inplace(x: Tensor, y: Tensor, cos: Tensor, sin: Tensor, positions: Tensor,
                                                     offsets: Tensor, rotate_style: int, reuse_freqs_front_part: bool,
                                                     nope_first: bool, transpose_output: bool = False) -> tuple[Tensor, Tensor]:
    """Rotates x and y in place by positions + offsets, [tokens] each, and returns them."""
    rotate("rope_cached_thd_positions_offsets_2c_fwd_inplace", {"x": x, "y": y}, cos, sin, positions, offsets, rotate_style,
           reuse_freqs_front_part, nope_first)
    return x, y
