# SPDX-License-Identifier: Apache-2.0
"""AITER's rotary embeddings by tables of cosines and sines. input is [s, b, heads, dim] (thd forms: [tokens, heads, dim]); cos and
sin are [positions, 1, 1, r / 2], f32 or of input's dtype.

rotate_style            0: pairs are (d, d + r / 2); 1: (2d, 2d + 1)
reuse_freqs_front_part  True: a pair has one angle
nope_first              which of dim's elements turn: the last r; else the first r. The others stay
positions, offsets      [s, b], whose sum is a row of the tables; without positions row i is s = i
"""

from __future__ import annotations

import torch

from .... import _rope
from ...._public import flag
from .. import _check
from .._run import run

Tensor = torch.Tensor


def _table(op, name, table, rows):
    """Returns the tables' rows of the tokens, [tokens, r / 2]."""
    table = table.reshape(-1, table.shape[-1])
    if isinstance(rows, int):
        if len(table) < rows:
            raise ValueError(f"{op}: {name} has {len(table)} rows, needs {rows}")
        return table[:rows]
    return table[rows]


def _rows(op, shape, positions, offsets, tables):
    """Returns the row of each token, or their number where they are counted."""
    if positions is None:
        return None
    if positions.numel() != shape[0] * (shape[1] if len(shape) == 4 else 1):
        raise ValueError(f"{op}: positions has shape {list(positions.shape)}, needs {list(shape[:-2])}")
    rows = positions.reshape(-1).long()
    if offsets is not None:
        rows = rows + offsets.reshape(-1).long()
    if rows.device.type == "cpu" and rows.numel() and not 0 <= int(rows.min()) <= int(rows.max()) < tables:
        raise ValueError(f"{op}: positions have entries from {int(rows.min())} to {int(rows.max())}; accepted: 0 to {tables - 1}")
    return rows


def rotate(op, tensors, cos, sin, positions, offsets, rotate_style, reuse_freqs_front_part, nope_first):
    """Rotates tensors (name -> x, one or two) in place."""
    named = {**tensors, "cos": cos, "sin": sin, "positions": positions, "offsets": offsets}
    _check.tensors(op, named, none=("positions", "offsets"))
    _check.only(op, "two angles a pair", True, reuse_freqs_front_part=reuse_freqs_front_part)
    style, last = _check.integer(op, "rotate_style", rotate_style, 0, 1), flag(op, "nope_first", nope_first)
    first, r = next(iter(tensors.values())), 2 * cos.shape[-1]
    rows = _rows(op, first.shape, positions, offsets, cos.numel() // cos.shape[-1])
    if rows is None:
        rows = torch.arange(first.shape[0], device=first.device).repeat_interleave(first.shape[1])
        if first.shape[0] > cos.numel() // cos.shape[-1]:
            raise ValueError(f"{op}: cos has {cos.numel() // cos.shape[-1]} rows, needs {first.shape[0]}")
    cos, sin = _table(op, "cos", cos, rows), _table(op, "sin", sin, rows)
    flat = {name: x.reshape(-1, *x.shape[-2:]) for name, x in tensors.items()}
    for name, x in flat.items():
        if x.shape[-1] < r:
            raise ValueError(f"{op}: {name} has shape {list(x.shape)}, needs at least {r} elements, which cos turns")
    parts = [x[..., -r:] if last else x[..., :r] for x in flat.values()]
    names = [*tensors, "k"]
    run(op, _rope.qk_rmsnorm_rope, {"q": names[0], "k": names[1]}, parts[0], parts[1] if len(parts) > 1 else None, None, None, cos, sin,
        interleave=bool(style), q_out=parts[0], k_out=parts[1] if len(parts) > 1 else None)
    for name, x in tensors.items():
        if flat[name].data_ptr() != x.data_ptr():
            x.copy_(flat[name].view(x.shape))


def _copies(op, is_turned, **tensors):
    """Returns copies; is_turned: of [s, b, ..] whose memory is [b, s, ..]."""
    turned = flag(op, "transpose_output", is_turned)
    _check.tensors(op, tensors)
    return [x.transpose(0, 1).contiguous().transpose(0, 1) if turned else x.clone(memory_format=torch.contiguous_format)
            for x in tensors.values()]


def rope_cached_fwd(input: Tensor, cos: Tensor, sin: Tensor, rotate_style: int, reuse_freqs_front_part: bool, nope_first: bool,
                    transpose_output: bool = False) -> Tensor:
    """Returns input, rotated. transpose_output: its memory is [b, s, heads, dim]."""
    (out,) = _copies("rope_cached_fwd", transpose_output, input=input)
    rotate("rope_cached_fwd", {"input": out}, cos, sin, None, None, rotate_style, reuse_freqs_front_part, nope_first)
    return out


def rope_cached_2c_fwd(input_x: Tensor, input_y: Tensor, cos: Tensor, sin: Tensor, rotate_style: int, reuse_freqs_front_part: bool,
                       nope_first: bool, transpose_output: bool = False) -> tuple[Tensor, Tensor]:
    """Returns rope_cached_fwd of both."""
    x, y = _copies("rope_cached_2c_fwd", transpose_output, input_x=input_x, input_y=input_y)
    rotate("rope_cached_2c_fwd", {"input_x": x, "input_y": y}, cos, sin, None, None, rotate_style, reuse_freqs_front_part, nope_first)
    return x, y


def rope_cached_positions_fwd(input: Tensor, cos: Tensor, sin: Tensor, positions: Tensor, rotate_style: int,
                              reuse_freqs_front_part: bool, nope_first: bool, transpose_output: bool = False) -> Tensor:
    """Returns input, rotated by positions."""
    op = "rope_cached_positions_fwd"
    (out,) = _copies(op, transpose_output, input=input)
    rotate(op, {"input": out}, cos, sin, positions, None, rotate_style, reuse_freqs_front_part, nope_first)
    return out


def rope_cached_positions_2c_fwd(input_x: Tensor, input_y: Tensor, cos: Tensor, sin: Tensor, positions: Tensor, rotate_style: int,
                                 reuse_freqs_front_part: bool, nope_first: bool,
                                 transpose_output: bool = False) -> tuple[Tensor, Tensor]:
    """Returns rope_cached_positions_fwd of both."""
    op = "rope_cached_positions_2c_fwd"
    x, y = _copies(op, transpose_output, input_x=input_x, input_y=input_y)
    rotate(op, {"input_x": x, "input_y": y}, cos, sin, positions, None, rotate_style, reuse_freqs_front_part, nope_first)
    return x, y


def rope_cached_positions_fwd_inplace(input: Tensor, cos: Tensor, sin: Tensor, positions: Tensor, rotate_style: int,
                                      reuse_freqs_front_part: bool, nope_first: bool) -> None:
    """Rotates input in place."""
    rotate("rope_cached_positions_fwd_inplace", {"input": input}, cos, sin, positions, None, rotate_style, reuse_freqs_front_part,
           nope_first)


def rope_cached_positions_2c_fwd_inplace(input_x: Tensor, input_y: Tensor, cos: Tensor, sin: Tensor, positions: Tensor,
                                         rotate_style: int, reuse_freqs_front_part: bool, nope_first: bool) -> None:
    """Rotates both in place."""
    rotate("rope_cached_positions_2c_fwd_inplace", {"input_x": input_x, "input_y": input_y}, cos, sin, positions, None, rotate_style,
           reuse_freqs_front_part, nope_first)


def rope_cached_positions_offsets_fwd_inplace(input: Tensor, cos: Tensor, sin: Tensor, positions: Tensor, offsets: Tensor,
                                              rotate_style: int, reuse_freqs_front_part: bool, nope_first: bool) -> None:
    """Rotates input in place, by positions + offsets."""
    rotate("rope_cached_positions_offsets_fwd_inplace", {"input": input}, cos, sin, positions, offsets, rotate_style,
           reuse_freqs_front_part, nope_first)


def rope_cached_positions_offsets_2c_fwd_inplace(input_x: Tensor, input_y: Tensor, cos: Tensor, sin: Tensor, positions: Tensor,
                                                 offsets: Tensor, rotate_style: int, reuse_freqs_front_part: bool,
                                                 nope_first: bool) -> None:
    """Rotates both in place, by positions + offsets."""
    rotate("rope_cached_positions_offsets_2c_fwd_inplace", {"input_x": input_x, "input_y": input_y}, cos, sin, positions, offsets,
           rotate_style, reuse_freqs_front_part, nope_first)
