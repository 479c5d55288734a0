# SPDX-License-Identifier: Apache-2.0
"""FlashInfer's quantisation to MXFP8: e4m3fn with a power of two, UE8M0, for each 32 columns."""

import torch

from .... import _quantize
from ..._check import shape, tensors
from .. import _run
from .._hints import check_backend, check_flags
from ..tllm_enums import SfLayout, member
from ._layouts import of_bytes, powers_of_two, swizzle

GROUP = 32
_LEAST = 1e-30  # of the largest magnitudes; a group of zeros has this one's scale


def layout_of(op, is_sf_swizzled_layout, sf_swizzle_layout):
    check_flags(op, is_sf_swizzled_layout=is_sf_swizzled_layout)
    if sf_swizzle_layout is not None:
        return member(op, "sf_swizzle_layout", SfLayout, sf_swizzle_layout)
    return SfLayout.layout_128x4 if is_sf_swizzled_layout else SfLayout.layout_linear


def quantized(op, name, x, columns=None):
    """Returns (e4m3fn, UE8M0 bytes by rows) of x [rows, columns]; more columns than x has are zeros."""
    if x.shape[-1] % GROUP:
        raise ValueError(f"{op}: {name} has {x.shape[-1]} columns; accepted: multiples of {GROUP}")
    columns = x.shape[1] if columns is None else columns
    q = torch.zeros(len(x), columns, dtype=torch.uint8, device=x.device).view(torch.float8_e4m3fn)
    scale = torch.empty(len(x), x.shape[1] // GROUP, dtype=torch.float32, device=x.device)
    _run.call(op, _quantize.quantize_groups, {"x": name}, x, GROUP, eps=_LEAST, round_scale=True, q=q[:, :x.shape[1]], scale=scale)
    codes = torch.zeros(len(x), columns // GROUP, dtype=torch.uint8, device=x.device)
    codes[:, :x.shape[1] // GROUP] = (scale.view(torch.int32) >> 23).to(torch.uint8)
    return q, codes


def mxfp8_quantize(input, is_sf_swizzled_layout=True, alignment=32, enable_pdl=None, backend="cuda", sf_swizzle_layout=None):
    """Returns (e4m3fn of input's shape, with its columns padded by zeros to a multiple of alignment; scales u8, one after another).

    input  [.., columns] of f32, f16 or bf16, columns a multiple of 32; a stack of matrices is one matrix
    sf_swizzle_layout  where scales lie; None: in tiles of 128 x 4 with is_sf_swizzled_layout, else by rows
    """
    op = "mxfp8_quantize"
    check_flags(op, enable_pdl=enable_pdl)
    check_backend(op, backend, ("cuda", "cute-dsl"))
    tensors(op, {"input": input})
    if isinstance(alignment, bool) or not isinstance(alignment, int) or alignment < GROUP or alignment % GROUP:
        raise ValueError(f"{op}: alignment is {alignment!r}; accepted: multiples of {GROUP}")
    layout = layout_of(op, is_sf_swizzled_layout, sf_swizzle_layout)
    columns = -(-input.shape[-1] // alignment) * alignment
    q, codes = quantized(op, "input", input.reshape(-1, input.shape[-1]), columns)
    return q.reshape(*input.shape[:-1], columns), swizzle(layout, codes)


def mxfp8_dequantize_host(input, scale_tensor, is_sf_swizzled_layout=True, sf_swizzle_layout=None):
    """Returns, in f32, what mxfp8_quantize gave as input [rows, columns] and scale_tensor."""
    op = "mxfp8_dequantize_host"
    tensors(op, {"input": input, "scale_tensor": scale_tensor})
    shape(op, "input", input, None, None)
    values = input if input.dtype == torch.float8_e4m3fn else input.view(torch.float8_e4m3fn)
    layout = layout_of(op, is_sf_swizzled_layout, sf_swizzle_layout)
    return dequantized(op, "scale_tensor", values, scale_tensor, layout, torch.float32)


def dequantized(op, name, values, scale, layout, dtype, lead=()):
    """Returns values [*lead, rows, columns] of FP8 times the scales of their groups of 32, which bf16 and f32 hold exactly unless the
    product is out of bf16's range."""
    if values.shape[-1] % GROUP:
        raise ValueError(f"{op}: the values of {name} have {values.shape[-1]} columns; accepted: multiples of {GROUP}")
    codes = of_bytes(op, name, scale, layout, values.shape[-2], values.shape[-1] // GROUP, lead)
    scaled = values.float().unflatten(-1, (-1, GROUP)) * powers_of_two(codes)[..., None]
    return scaled.flatten(-2).to(dtype)


def mxfp8_grouped_quantize(a, mask, backend="cutile"):
    """Returns (e4m3fn [rows, columns, groups], scales u8 [32, 4, row tiles, 4, column tiles, groups]) of a [groups, rows, columns], both
    views of memory whose groups lie one after another, scales in tiles of 128 x 4. Columns are padded to a multiple of 128. Rows from
    mask[g] on are quantised as well."""
    op = "mxfp8_grouped_quantize"
    check_backend(op, backend, ("cutile", "cake"))
    tensors(op, {"a": a, "mask": mask})
    shape(op, "a", a, None, None, None)
    shape(op, "mask", mask, len(a))
    if mask.dtype != torch.int32:
        raise ValueError(f"{op}: mask has dtype {mask.dtype}, needs torch.int32")
    groups, rows, _ = a.shape
    columns = -(-a.shape[2] // 128) * 128
    q, codes = quantized(op, "a", a.flatten(0, 1), columns)
    tiles = swizzle(SfLayout.layout_128x4, codes.reshape(groups, rows, -1)).unflatten(-1, (-(-rows // 128), columns // 128, 32, 4, 4))
    return q.reshape(groups, rows, columns).permute(1, 2, 0), tiles.permute(3, 4, 1, 5, 2, 0)
