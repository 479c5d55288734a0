# SPDX-License-Identifier: Apache-2.0
"""FlashInfer's quantisation to FP4, e2m1, by PyTorch's operators: NVFP4 has an e4m3fn scale for each 16 columns and one for the tensor,
MXFP4 a power of two for each 32. Two numbers are a byte, the first in its lower half."""

import torch

from ...._public import flag, found
from ..._check import shape, tensors
from .. import activation as _activation
from .._absent import absent
from .._experts import shuffled_rows
from .._hints import check_backend, check_flags, refuse
from .._products import ALL, kind, one_number
from ..page import is_hnd
from ..tllm_enums import SfLayout, member
from ._layouts import of_bytes, padded, powers_of_two, swizzle
from .nvfp4_quantization_utils import _UNSET, refuse_search

_VALUES = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
_DOWN, _UP = (0.25, 1.25, 2.5, 5.0), (0.75, 1.75, 3.5)  # halves between values, which go to the even code


def packed(x):
    """Returns x [.., columns] in f32 as e2m1, u8 [.., columns / 2]: the nearest, of two the even code, saturating."""
    top = x.abs()
    codes = sum((top > edge).to(torch.uint8) for edge in _DOWN) + sum((top >= edge).to(torch.uint8) for edge in _UP)
    codes = codes | (torch.signbit(x).to(torch.uint8) << 3)
    return codes[..., 0::2] | (codes[..., 1::2] << 4)


def unpacked(codes):
    """Returns e2m1, u8 [.., columns / 2], in f32 [.., columns]."""
    values = torch.tensor((*_VALUES, *(-v for v in _VALUES)), dtype=torch.float32, device=codes.device)
    codes = codes.view(torch.uint8)
    return values[torch.stack([codes & 15, codes >> 4], -1).long()].flatten(-2)


def _blocks(op, name, x, size):
    if x.shape[-1] % size:
        raise ValueError(f"{op}: {name} has {x.shape[-1]} columns; accepted: multiples of {size}")
    return x.float().unflatten(-1, (-1, size))


def nvfp4(op, name, x, factor):
    """Returns (e2m1, e4m3fn scales as bytes, by rows) of x [.., columns] times factor, f32 [1]."""
    parts = _blocks(op, name, x, 16)
    scale = factor * (parts.abs().amax(-1, keepdim=True) * (1 / 6))
    scale = scale.clamp(max=448).to(torch.float8_e4m3fn)
    wide = scale.float()
    inner = parts * (factor / torch.where(wide == 0, 1, wide))
    return packed(torch.where(wide == 0, 0, inner).flatten(-2)), scale.squeeze(-1).view(torch.uint8)


def mxfp4(op, name, x):
    """Returns (e2m1, UE8M0 bytes by rows) of x; a scale is the power of two from amax / 6 up."""
    parts = _blocks(op, name, x, 32)
    bits = (parts.abs().amax(-1) * (1 / 6)).view(torch.int32)
    codes = ((bits >> 23) + (bits & 0x7FFFFF != 0)).clamp(max=254).to(torch.uint8)
    return packed((parts / powers_of_two(codes)[..., None]).flatten(-2)), codes


def wide(op, name, codes, scale, layout, is_mx, dtype, lead=()):
    """Returns e2m1 codes [*lead, rows, columns / 2] times their scales, which bf16 and f32 hold exactly."""
    size = 32 if is_mx else 16
    values = _blocks(op, name, unpacked(codes), size)
    given = of_bytes(op, name, scale, layout, values.shape[-3], values.shape[-2], lead).contiguous()
    scales = powers_of_two(given) if is_mx else given.view(torch.float8_e4m3fn).float()
    return (values * scales[..., None]).flatten(-2).to(dtype)


def _rows(x):
    return x.reshape(-1, x.shape[-1])


def _shaped(layout, scale):
    """Returns scales [rows, columns] in their layout, as a matrix of whole tiles."""
    return swizzle(layout, scale).reshape(padded(layout, *scale.shape))


def _layout(op, swizzled, eight):
    check_flags(op, is_sf_swizzled_layout=swizzled, is_sf_8x4_layout=eight)
    if eight and not swizzled:
        raise ValueError(f"{op}: is_sf_8x4_layout is True; accepted without is_sf_swizzled_layout: False")
    return SfLayout.layout_8x4 if eight else SfLayout.layout_128x4 if swizzled else SfLayout.layout_linear


def _check_input(op, **named):
    tensors(op, named)
    for name, x in named.items():
        kind(op, name, x, ALL)


# ---- to FP4

def fp4_quantize(input, global_scale=None, sf_vec_size=16, sf_use_ue8m0=False, is_sf_swizzled_layout=True, is_sf_8x4_layout=False,
                 is_global_scale_inversed=False, enable_pdl=None, backend="cuda", nvfp4_4over6=_UNSET):
    """Returns (u8 [.., columns / 2], scales u8 [rows, scales], in whole tiles) of input [.., columns]; a stack of matrices is one.

    global_scale  what scales are multiplied with, f32 [1]; None: 1. is_global_scale_inversed: what they are divided by. NVFP4's alone
    sf_vec_size, sf_use_ue8m0  16, False: NVFP4; 32, True: MXFP4
    """
    op = "fp4_quantize"
    check_flags(op, enable_pdl=enable_pdl)
    check_backend(op, backend, ("cuda", "cute-dsl"))
    refuse_search(op, nvfp4_4over6)
    _check_input(op, input=input)
    layout = _layout(op, is_sf_swizzled_layout, is_sf_8x4_layout)
    is_mx = flag(op, "sf_use_ue8m0", sf_use_ue8m0)
    if sf_vec_size != (32 if is_mx else 16):
        raise ValueError(f"{op}: sf_vec_size is {found(sf_vec_size)}; accepted with sf_use_ue8m0 {is_mx}: {32 if is_mx else 16}")
    inverse = flag(op, "is_global_scale_inversed", is_global_scale_inversed)
    if is_mx:
        if global_scale is not None or inverse:
            raise NotImplementedError(f"{op}: global_scale is {found(global_scale)}; accepted with sf_use_ue8m0: None")
        codes, scale = mxfp4(op, "input", _rows(input))
    else:
        factor = one_number(op, "global_scale", 1.0 if global_scale is None else global_scale, input.device)
        codes, scale = nvfp4(op, "input", _rows(input), 1 / factor if inverse else factor)
    return codes.reshape(*input.shape[:-1], -1), _shaped(layout, scale)


def nvfp4_quantize(a, a_global_sf, sfLayout=SfLayout.layout_128x4, do_shuffle=False, sf_vec_size=16, enable_pdl=None, backend="cuda",
                   per_token_activation=False, expanded_idx_to_permuted_idx=None, out_scale=None, nvfp4_4over6=_UNSET):
    """Returns fp4_quantize of a [.., columns] as NVFP4, with a_global_sf, a number or a tensor of one. do_shuffle: the rows of both are
    those of shuffle_matrix_a with a tile of 128."""
    op = "nvfp4_quantize"
    check_flags(op, enable_pdl=enable_pdl)
    check_backend(op, backend, ("cuda", "cute-dsl"))
    refuse(op, per_token_activation=per_token_activation, expanded_idx_to_permuted_idx=expanded_idx_to_permuted_idx, out_scale=out_scale)
    refuse_search(op, nvfp4_4over6)
    _check_input(op, a=a)
    layout = member(op, "sfLayout", SfLayout, sfLayout)
    if sf_vec_size != 16:
        raise NotImplementedError(f"{op}: sf_vec_size is {found(sf_vec_size)}; accepted: 16")
    codes, scale = nvfp4(op, "a", _rows(a), one_number(op, "a_global_sf", a_global_sf, a.device))
    if not flag(op, "do_shuffle", do_shuffle):
        return codes.reshape(*a.shape[:-1], -1), _shaped(layout, scale)
    if layout != SfLayout.layout_128x4:
        raise ValueError(f"{op}: sfLayout is {layout!r}; accepted with do_shuffle: SfLayout.layout_128x4")
    return shuffle_matrix_a(codes, 128), _shaped(layout, shuffle_matrix_a(scale, 128))


def nvfp4_batched_quantize(a, a_global_sf, sf_vec_size=16, nvfp4_4over6=_UNSET):
    """Returns (u8 [batches, rows, columns / 2], scales u8 [batches, all], in tiles of 128 x 4) of a [batches, rows, columns] as NVFP4."""
    op = "nvfp4_batched_quantize"
    refuse_search(op, nvfp4_4over6)
    _check_input(op, a=a)
    shape(op, "a", a, None, None, None)
    if sf_vec_size != 16:
        raise NotImplementedError(f"{op}: sf_vec_size is {found(sf_vec_size)}; accepted: 16")
    codes, scale = nvfp4(op, "a", a, one_number(op, "a_global_sf", a_global_sf, a.device))
    return codes, swizzle(SfLayout.layout_128x4, scale)


def silu_and_mul_nvfp4_quantize(input, global_scale, sf_vec_size=16, is_sf_swizzled_layout=True, is_sf_8x4_layout=False, enable_pdl=None,
                                nvfp4_4over6=_UNSET):
    """Returns fp4_quantize of silu_and_mul(input [rows, 2 h]), rounded to input's dtype, as NVFP4."""
    op = "silu_and_mul_nvfp4_quantize"
    refuse_search(op, nvfp4_4over6)
    check_flags(op, enable_pdl=enable_pdl)
    _check_input(op, input=input)
    layout = _layout(op, is_sf_swizzled_layout, is_sf_8x4_layout)
    if sf_vec_size != 16:
        raise NotImplementedError(f"{op}: sf_vec_size is {found(sf_vec_size)}; accepted: 16")
    h = _activation.silu_and_mul(input)
    codes, scale = nvfp4(op, "input", _rows(h), one_number(op, "global_scale", global_scale, input.device))
    return codes.reshape(*h.shape[:-1], -1), _shaped(layout, scale)


def mxfp4_quantize(a, backend="cuda", enable_pdl=None, sfLayout=SfLayout.layout_128x4):
    """Returns fp4_quantize of a [.., columns] as MXFP4."""
    op = "mxfp4_quantize"
    check_flags(op, enable_pdl=enable_pdl)
    check_backend(op, backend, ("cuda", "cute-dsl"))
    _check_input(op, a=a)
    codes, scale = mxfp4(op, "a", _rows(a))
    return codes.reshape(*a.shape[:-1], -1), _shaped(member(op, "sfLayout", SfLayout, sfLayout), scale)


# ---- from FP4

def _check_codes(op, name, codes):
    tensors(op, {name: codes})
    shape(op, name, codes, None, None)
    if codes.dtype.itemsize != 1:
        raise ValueError(f"{op}: {name} has dtype {codes.dtype}, needs torch.uint8")


def e2m1_and_ufp8sf_scale_to_float(e2m1_tensor, ufp8_scale_tensor, global_scale_tensor=None, sf_vec_size=16, ufp8_type=1,
                                   is_sf_swizzled_layout=True, is_sf_8x4_layout=False):
    """Returns, in f32 on the CPU, e2m1_tensor u8 [rows, columns / 2] times its scales and global_scale_tensor. ufp8_type 1: e4m3fn, of 16
    columns; 0: UE8M0, of 32."""
    op = "e2m1_and_ufp8sf_scale_to_float"
    layout = _layout(op, is_sf_swizzled_layout, is_sf_8x4_layout)
    if ufp8_type not in (0, 1):
        raise ValueError(f"{op}: ufp8_type is {found(ufp8_type)}; accepted: 0, 1")
    if sf_vec_size != (16 if ufp8_type else 32):
        raise NotImplementedError(f"{op}: sf_vec_size is {found(sf_vec_size)}; accepted with ufp8_type {ufp8_type}: "
                                  f"{16 if ufp8_type else 32}")
    _check_codes(op, "e2m1_tensor", e2m1_tensor)
    tensors(op, {"ufp8_scale_tensor": ufp8_scale_tensor})
    result = wide(op, "ufp8_scale_tensor", e2m1_tensor.cpu(), ufp8_scale_tensor.cpu(), layout, ufp8_type == 0, torch.float32)
    factor = one_number(op, "global_scale_tensor", global_scale_tensor, result.device)
    return result if factor is None else result * factor


def mxfp4_dequantize(a_fp4, a_sf, sfLayout=SfLayout.layout_128x4):
    """Returns, in f32 on the CPU, what mxfp4_quantize gave."""
    op = "mxfp4_dequantize"
    _check_codes(op, "a_fp4", a_fp4)
    tensors(op, {"a_sf": a_sf})
    return wide(op, "a_sf", a_fp4.cpu(), a_sf.cpu(), member(op, "sfLayout", SfLayout, sfLayout), True, torch.float32)


def mxfp4_dequantize_host(weight, scale, group_size=32):
    """Returns, in f32, weight u8 [rows, columns / 2] times scale, UE8M0 u8 [rows, columns / 32] by rows."""
    op = "mxfp4_dequantize_host"
    if group_size != 32:
        raise NotImplementedError(f"{op}: group_size is {found(group_size)}; accepted: 32")
    _check_codes(op, "weight", weight)
    tensors(op, {"weight": weight, "scale": scale})
    return wide(op, "scale", weight, scale, SfLayout.layout_linear, True, torch.float32)


# ---- caches

def nvfp4_kv_quantize(input, global_scale):
    """Returns (u8 [rows, columns / 2], scales u8 [rows, columns / 16]) of input [rows, columns] / global_scale as NVFP4, by rows."""
    op = "nvfp4_kv_quantize"
    _check_input(op, input=input)
    shape(op, "input", input, None, None)
    return nvfp4(op, "input", input, 1 / one_number(op, "global_scale", global_scale, input.device))


def nvfp4_kv_dequantize(fp4_data, block_scales, global_scale, output_dtype=torch.bfloat16):
    """Returns, of bf16, f16 or f32, global_scale times what nvfp4_kv_quantize gave."""
    op = "nvfp4_kv_dequantize"
    _check_codes(op, "fp4_data", fp4_data)
    tensors(op, {"fp4_data": fp4_data, "block_scales": block_scales})
    kind(op, "output_dtype", output_dtype, ALL)
    values = wide(op, "block_scales", fp4_data, block_scales, SfLayout.layout_linear, False, torch.float32)
    return (values * one_number(op, "global_scale", global_scale, values.device)).to(output_dtype)


def nvfp4_kv_dequantize_paged(paged_kv_cache, kv_cache_sf, block_tables, seq_lens, k_scale, v_scale, output_k, output_v, kv_layout="NHD"):
    """Writes the keys and values of requests to output_k and output_v [batch, most, heads, head_dim]; behind a request's keys nothing.

    paged_kv_cache  u8 (k, v), each [pages, page_size, heads, head_dim / 2] ("HND": [pages, heads, page_size, head_dim / 2]), or one tensor
                    with a dimension of 2 after the first; kv_cache_sf likewise, head_dim / 16 e4m3fn scales
    block_tables    [batch, pages], seq_lens [batch]; k_scale and v_scale are tensors of one
    """
    op = "nvfp4_kv_dequantize_paged"
    hnd = is_hnd(op, kv_layout)
    tensors(op, {"block_tables": block_tables, "seq_lens": seq_lens, "output_k": output_k, "output_v": output_v})
    shape(op, "block_tables", block_tables, len(output_k), None)
    shape(op, "seq_lens", seq_lens, len(output_k))
    pairs = [x if isinstance(x, (tuple, list)) else x.unbind(1) for x in (paged_kv_cache, kv_cache_sf)]
    for i, (name, out, factor) in enumerate((("output_k", output_k, k_scale), ("output_v", output_v, v_scale))):
        shape(op, name, out, None, output_k.shape[1], None, None)
        codes, scale = (pair[i].view(torch.uint8).transpose(1, 2) if hnd else pair[i].view(torch.uint8) for pair in pairs)
        shape(op, f"paged_kv_cache[{i}]", codes, None, None, out.shape[2], out.shape[3] // 2)
        shape(op, f"kv_cache_sf[{i}]", scale, *codes.shape[:3], out.shape[3] // 16)
        values = unpacked(codes).unflatten(-1, (-1, 16)) * scale.contiguous().view(torch.float8_e4m3fn).float()[..., None]
        values = values.flatten(-2) * one_number(op, ("k_scale", "v_scale")[i], factor, values.device)
        at = torch.arange(out.shape[1], device=out.device)
        page = block_tables.long().gather(1, (at // codes.shape[1]).clamp(max=block_tables.shape[1] - 1).expand(len(out), -1))
        tokens = values[page.clamp(0, len(codes) - 1), at % codes.shape[1]]
        out.copy_(torch.where((at < seq_lens[:, None])[..., None, None], tokens.to(out.dtype), out))


# ---- rows and tiles

def block_scale_interleave(unswizzled_sf):
    """Returns scales u8 or bf16 [rows, columns], or [experts, rows, columns], in tiles of 128 x 4, one after another."""
    op = "block_scale_interleave"
    tensors(op, {"unswizzled_sf": unswizzled_sf})
    kind(op, "unswizzled_sf", unswizzled_sf, (torch.uint8, torch.bfloat16))
    if unswizzled_sf.ndim not in (2, 3):
        raise ValueError(f"{op}: unswizzled_sf has {unswizzled_sf.ndim} dimensions, needs 2 or 3")
    return swizzle(SfLayout.layout_128x4, unswizzled_sf).flatten()


nvfp4_block_scale_interleave = block_scale_interleave


def shuffle_matrix_a(input_tensor, epilogue_tile_m):
    """Returns a copy of input_tensor [rows, ..] with its rows in the order of TensorRT-LLM's kernels: in blocks of 32, or of 16 if
    epilogue_tile_m is no multiple of 128."""
    op = "shuffle_matrix_a"
    tensors(op, {"input_tensor": input_tensor})
    if isinstance(epilogue_tile_m, bool) or not isinstance(epilogue_tile_m, int) or epilogue_tile_m < 1:
        raise ValueError(f"{op}: epilogue_tile_m is {found(epilogue_tile_m)}; accepted: an integer of 1 or above")
    block = 16 if epilogue_tile_m % 128 else 32
    if not input_tensor.ndim or len(input_tensor) % block:
        raise ValueError(f"{op}: input_tensor has shape {list(input_tensor.shape)}; accepted: a multiple of {block} rows")
    rows = shuffled_rows(len(input_tensor), epilogue_tile_m, input_tensor.device)
    return input_tensor.view(torch.uint8)[rows].view(input_tensor.dtype) if input_tensor.dtype.itemsize == 1 else input_tensor[rows]


def shuffle_matrix_sf_a(input_tensor, epilogue_tile_m, num_elts_per_sf=16):
    """Returns block_scale_interleave of shuffle_matrix_a of scales u8 [rows, columns]. num_elts_per_sf, 16 or 32, changes nothing."""
    op = "shuffle_matrix_sf_a"
    if num_elts_per_sf not in (16, 32):
        raise ValueError(f"{op}: num_elts_per_sf is {found(num_elts_per_sf)}; accepted: 16, 32")
    return block_scale_interleave(shuffle_matrix_a(input_tensor, epilogue_tile_m))


_GROUPED = "quern has no experts of FP4 weights; choose a model in bf16 or FP8, or set VLLM_USE_FLASHINFER_MOE_FP4=0"
scaled_fp4_grouped_quantize = absent("scaled_fp4_grouped_quantize", _GROUPED)
nvfp4_quantize_paged_kv_cache = absent("nvfp4_quantize_paged_kv_cache",
                                       "it orders scales for TensorRT-LLM's attention, which quern has not; choose a cache of bf16 or FP8")
get_fp4_quantization_module = absent("get_fp4_quantization_module", "quern builds no modules; call the functions themselves")
