# SPDX-License-Identifier: Apache-2.0
"""Layouts of block scales: matrices [rows, columns], or stacks of them, in tiles."""

import torch

from ..tllm_enums import SfLayout

_ROWS = {SfLayout.layout_128x4: 128, SfLayout.layout_8x4: 8, SfLayout.layout_linear: 1}


def padded(layout, rows, columns):
    """Returns the sizes with whole tiles."""
    if layout == SfLayout.layout_linear:
        return rows, columns
    return -(-rows // _ROWS[layout]) * _ROWS[layout], -(-columns // 4) * 4


def swizzle(layout, scale):
    """Returns scale [.., rows, columns] in tiles, padded with zeros: [.., all]. Of 128 rows, row 32 i + j lies at 4 j + i."""
    if layout == SfLayout.layout_linear:
        return scale.flatten(-2)
    *lead, rows, columns = scale.shape
    rows_p, columns_p = padded(layout, rows, columns)
    whole = scale.new_zeros(*lead, rows_p, columns_p)
    whole[..., :rows, :columns] = scale
    if layout == SfLayout.layout_8x4:
        return whole.unflatten(-1, (-1, 4)).unflatten(-3, (-1, 8)).transpose(-3, -2).flatten(-4)
    tiles = whole.unflatten(-1, (-1, 4)).unflatten(-3, (-1, 4, 32))  # [.., tile, i, j, column tile, 4]
    return tiles.movedim((-2, -3, -4), (-4, -3, -2)).flatten(-5)


def unswizzle(layout, scale, rows, columns):
    """Returns what swizzle made, [.., all], as [.., rows, columns]."""
    rows_p, columns_p = padded(layout, rows, columns)
    if layout == SfLayout.layout_linear:
        return scale.unflatten(-1, (rows, columns))
    if layout == SfLayout.layout_8x4:
        tiles = scale.unflatten(-1, (rows_p // 8, columns_p // 4, 8, 4)).transpose(-3, -2)
        return tiles.flatten(-4, -3).flatten(-2)[..., :rows, :columns]
    tiles = scale.unflatten(-1, (rows_p // 128, columns_p // 4, 32, 4, 4)).movedim((-4, -3, -2), (-2, -3, -4))
    return tiles.flatten(-5, -3).flatten(-2)[..., :rows, :columns]


def of_bytes(op, name, scale, layout, rows, columns, lead=()):
    """Returns a caller's scales of one byte each, in any shape of the right size, as [*lead, rows, columns]."""
    rows_p, columns_p = padded(layout, rows, columns)
    count = rows_p * columns_p
    for size in lead:
        count *= size
    if scale.dtype.itemsize != 1 or scale.numel() != count:
        raise ValueError(f"{op}: {name} has shape {list(scale.shape)} of {scale.dtype}, needs {count} bytes: {rows} x {columns} scales in "
                         f"{layout.name}")
    return unswizzle(layout, scale.reshape(*lead, rows_p * columns_p), rows, columns)


def powers_of_two(codes):
    """Returns UE8M0 as f32: 2^(code - 127), exactly; 255 is NaN."""
    bits = codes.view(torch.uint8).to(torch.int32)
    values = torch.where(bits == 0, 0x00400000, bits << 23).view(torch.float32)
    return torch.where(bits == 255, torch.nan, values)
