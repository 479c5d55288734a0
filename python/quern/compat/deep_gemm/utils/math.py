# SPDX-License-Identifier: Apache-2.0
"""DeepGEMM's arithmetic on sizes and scales, and its casts to FP8 and FP4, in PyTorch's operators."""

import torch

from ...._scales import ceil_to_ue8m0 as _ceil_matrix
from ...._scales import pack_ue8m0_to_int as _pack
from ...._scales import unpack_ue8m0_from_int
from ...._public import flag
from .. import _check

_E2M1 = 0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0
_SMALLEST_AMAX, _FP8_MAX, _FP4_MAX = 1e-4, 448.0, 6.0


def ceil_div(x: int, y: int) -> int:
    """Returns x / y rounded up."""
    return (x + y - 1) // y


cell_div = ceil_div  # its name in DeepGEMM's first release


def align(x: int, y: int) -> int:
    """Returns x rounded up to a multiple of y."""
    return ceil_div(x, y) * y


def ceil_to_ue8m0(x: torch.Tensor) -> torch.Tensor:
    """Returns magnitudes of x, of any shape, rounded up to powers of two from 2^-126 to 2^127, in f32."""
    _check.tensors("ceil_to_ue8m0", {"x": x})
    return _ceil_matrix(x.abs().float().reshape(1, -1)).view(x.shape)


def pack_ue8m0_to_int(x: torch.Tensor) -> torch.Tensor:
    """Packs powers of two f32 [.., n] as UE8M0, i32 [.., n / 4]; n is a multiple of 4. Other numbers are a ValueError on the CPU."""
    op = "pack_ue8m0_to_int"
    _check.tensors(op, {"x": x})
    _check.dtype(op, "x", x, (torch.float32,))
    bits = x.contiguous().view(torch.int32)
    if x.device.type == "cpu" and bool(((bits < 0) | (bits & 0x7FFFFF != 0)).any()):
        raise ValueError(f"{op}: x has numbers that are no powers of two; accepted: powers of two, which ceil_to_ue8m0 gives")
    columns = x.shape[-1] if x.ndim else 1
    return _pack(x.reshape(-1, columns)).view(*x.shape[:-1], columns // 4)


def _scales(op, amax, largest, use_ue8m0):
    """Returns the scales by which magnitudes up to amax fit below the largest."""
    scale = amax.float().clamp(_SMALLEST_AMAX) / largest
    return ceil_to_ue8m0(scale) if flag(op, "use_ue8m0", use_ue8m0) else scale


def _check_matrix(op, x, gran_k=1):
    _check.tensors(op, {"x": x})
    _check.shape(op, "x", x, None, None)
    _check.integer(op, "gran_k", gran_k, 1)


def _padded(x, rows, columns):
    m, n = x.shape
    return torch.nn.functional.pad(x, (0, align(n, columns) - n, 0, align(m, rows) - m))


def _cast(op, x, rows, columns, use_ue8m0):
    """Casts x [m, n] to e4m3fn by blocks. Returns values [m, n] and scales [ceil(m / rows), ceil(n / columns)]."""
    m, n = x.shape
    padded = _padded(x, rows, columns)
    blocks = padded.view(len(padded) // rows, rows, padded.shape[1] // columns, columns)
    scale = _scales(op, blocks.abs().float().amax((1, 3), keepdim=True), _FP8_MAX, use_ue8m0)
    values = (blocks * (1.0 / scale)).to(torch.float8_e4m3fn)
    return values.view(padded.shape)[:m, :n].contiguous(), scale[:, 0, :, 0]


def per_token_cast_to_fp8(x: torch.Tensor, use_ue8m0: bool, gran_k: int = 128,
                          use_packed_ue8m0: bool = False) -> "tuple[torch.Tensor, torch.Tensor]":
    """Casts x [m, n] to e4m3fn with a scale for each gran_k of a row: values, and scales [m, ceil(n / gran_k)]. use_ue8m0: scales
    are rounded up to powers of two; use_packed_ue8m0: and packed, four to an i32."""
    op = "per_token_cast_to_fp8"
    _check_matrix(op, x, gran_k)
    values, scale = _cast(op, x, 1, gran_k, use_ue8m0)
    return values, _packed(op, scale, use_ue8m0, use_packed_ue8m0)


def _packed(op, scale, use_ue8m0, use_packed_ue8m0):
    if not flag(op, "use_packed_ue8m0", use_packed_ue8m0):
        return scale
    if not use_ue8m0:
        raise ValueError(f"{op}: use_packed_ue8m0 is True; accepted without use_ue8m0: False")
    return pack_ue8m0_to_int(scale)


def per_channel_cast_to_fp8(x: torch.Tensor, use_ue8m0: bool, gran_k: int = 128) -> "tuple[torch.Tensor, torch.Tensor]":
    """Casts x [m, n] to e4m3fn with a scale for each gran_k of a column: values, and scales [m / gran_k, n]."""
    op = "per_channel_cast_to_fp8"
    _check_matrix(op, x, gran_k)
    if len(x) % gran_k:
        raise ValueError(f"{op}: x has {len(x)} rows, needs a multiple of gran_k, {gran_k}")
    return _cast(op, x, gran_k, 1, use_ue8m0)


def per_block_cast_to_fp8(x: torch.Tensor, use_ue8m0: bool, gran_k: int = 128) -> "tuple[torch.Tensor, torch.Tensor]":
    """Casts x [m, n] to e4m3fn with a scale for each gran_k x gran_k: values, and scales [ceil(m / gran_k), ceil(n / gran_k)]."""
    _check_matrix("per_block_cast_to_fp8", x, gran_k)
    return _cast("per_block_cast_to_fp8", x, gran_k, gran_k, use_ue8m0)


def per_custom_dims_cast_to_fp8(x: torch.Tensor, dims: "tuple[int, ...]",
                                use_ue8m0: bool) -> "tuple[torch.Tensor, torch.Tensor]":
    """Casts x to e4m3fn with a scale for each index of the dimensions `dims`: values, and scales without dimensions of one."""
    op = "per_custom_dims_cast_to_fp8"
    _check.tensors(op, {"x": x})
    kept = {_check.integer(op, "dims", dim, 0, x.ndim - 1) for dim in dims}
    scale = _scales(op, x.abs().float().amax([i for i in range(x.ndim) if i not in kept], keepdim=True), _FP8_MAX, use_ue8m0)
    return (x * (1.0 / scale)).to(torch.float8_e4m3fn), scale.squeeze()


# ---- FP4, two numbers of e2m1 to a byte, the first one in the low half

def _join(codes):
    return codes[..., ::2] | codes[..., 1::2] << 4


def _split(packed):
    return torch.stack([packed & 15, packed >> 4 & 15], -1).flatten(-2)


def per_token_cast_to_fp4(x: torch.Tensor, use_ue8m0: bool, gran_k: int = 128,
                          use_packed_ue8m0: bool = False) -> "tuple[torch.Tensor, torch.Tensor]":
    """Casts x [m, n], n even, to packed e2m1, i8 [m, n / 2], with scales as per_token_cast_to_fp8 has them; packed scales are
    filled up with ones."""
    op = "per_token_cast_to_fp4"
    _check_matrix(op, x, gran_k)
    if x.shape[1] % 2:
        raise ValueError(f"{op}: x has {x.shape[1]} columns, needs an even number")
    groups = _padded(x, 1, gran_k).unflatten(1, (-1, gran_k))
    scale = _scales(op, groups.abs().float().amax(2), _FP4_MAX, use_ue8m0)
    scaled = (groups * (1.0 / scale[:, :, None])).flatten(1)[:, :x.shape[1]]
    middles = torch.tensor([(low + high) / 2 for low, high in zip(_E2M1, _E2M1[1:], strict=False)], device=x.device)
    codes = torch.bucketize(scaled.abs().float(), middles).to(torch.int8)  # a tie goes to the smaller one
    codes |= ((scaled < 0) & (codes != 0)).to(torch.int8) << 3
    if use_packed_ue8m0:
        scale = torch.nn.functional.pad(scale, (0, -scale.shape[1] % 4), value=1.0)
    return _join(codes).contiguous(), _packed(op, scale, use_ue8m0, use_packed_ue8m0)


def transpose_packed_fp4(a: torch.Tensor) -> torch.Tensor:
    """Turns packed e2m1 i8 [m, n / 2], m even, into [n, m / 2]."""
    op = "transpose_packed_fp4"
    _check.tensors(op, {"a": a})
    _check.shape(op, "a", a, None, None)
    _check_codes(op, "a", a)
    if len(a) % 2:
        raise ValueError(f"{op}: a has {len(a)} rows, needs an even number")
    return _join(_split(a).T.contiguous()).contiguous()


def _check_codes(op, name, x):
    if x.dtype != torch.int8:
        raise NotImplementedError(f"{op}: {name} has dtype {x.dtype}; accepted: torch.int8, which holds two e2m1 numbers")


def cast_back_from_fp4(packed: torch.Tensor, sf: torch.Tensor, gran_k: int = 128, use_packed_ue8m0: bool = False) -> torch.Tensor:
    """Computes the inverse of per_token_cast_to_fp4, in f32."""
    op = "cast_back_from_fp4"
    _check.tensors(op, {"packed": packed, "sf": sf})
    _check.shape(op, "packed", packed, None, None)
    _check_codes(op, "packed", packed)
    _check.integer(op, "gran_k", gran_k, 1)
    _check.shape(op, "sf", sf, len(packed), None)
    is_packed = flag(op, "use_packed_ue8m0", use_packed_ue8m0)
    if sf.dtype != (torch.int32 if is_packed else torch.float32):
        raise NotImplementedError(f"{op}: sf has dtype {sf.dtype}; accepted with use_packed_ue8m0={is_packed}: "
                                  f"{'torch.int32' if is_packed else 'torch.float32'}")
    sf, codes = unpack_ue8m0_from_int(sf) if is_packed else sf, _split(packed)
    if sf.shape[1] * gran_k < codes.shape[1]:
        raise ValueError(f"{op}: sf has scales for {sf.shape[1] * gran_k} columns, needs {codes.shape[1]}")
    values = torch.tensor(_E2M1, device=packed.device)[(codes & 7).long()]
    group = torch.arange(codes.shape[1], device=packed.device) // gran_k
    return torch.where(codes & 8 != 0, -values, values) * sf[:, group]
