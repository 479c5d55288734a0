# SPDX-License-Identifier: Apache-2.0
"""AITER's names of dtypes. fp8 is e4m3fnuz on gfx942 and e4m3fn elsewhere, decided when this module is imported."""

import torch

from ..jit.utils.chip_info import get_gfx

fp8 = torch.float8_e4m3fnuz if get_gfx() == "gfx942" else torch.float8_e4m3fn
fp8_e8m0 = getattr(torch, "float8_e8m0fnu", torch.uint8)
fp4x2 = getattr(torch, "float4_e2m1fn_x2", torch.uint8)
i4x2 = getattr(torch, "int4", torch.uint8)
fp16 = torch.float16
bf16 = torch.bfloat16
fp32 = torch.float32
i8 = torch.int8
i16 = torch.int16
i32 = torch.int32
i64 = torch.int64
u8 = torch.uint8
u32 = torch.uint32
u64 = torch.uint64
d_dtypes = {name: value for name, value in globals().items() if isinstance(value, torch.dtype)}


def get_dtype_fp8() -> torch.dtype:
    """Returns fp8."""
    return fp8
