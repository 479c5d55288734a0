# SPDX-License-Identifier: Apache-2.0
"""What tests of quern.compat.deep_gemm share: matrices with scales, and products in f64 with a bound on their error."""

import torch

F8, F8Z, BF16, F32 = torch.float8_e4m3fn, torch.float8_e4m3fnuz, torch.bfloat16, torch.float32
_UNIT = {BF16: 2**-8, F32: 2**-24}


def randn(*shape, dtype=F32, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed + 7 * len(shape))).to(dtype)


def rand(*shape):
    return torch.rand(*shape, generator=torch.Generator().manual_seed(len(shape)))


def ints(*values):
    return torch.tensor(values, dtype=torch.int32)


def quantised(*shape, gran=(1, 128), seed=0, dtype=F8, powers=False):
    """Returns FP8 values of the shape [.., mn, k], and random scales for blocks of that size."""
    *lead, mn, k = shape
    scale = torch.rand(*lead, -(-mn // gran[0]), -(-k // gran[1]), generator=torch.Generator().manual_seed(seed)) + 0.25
    scale = torch.exp2(torch.randint(-3, 4, scale.shape, generator=torch.Generator().manual_seed(seed)).float()) if powers else scale
    return randn(*shape, seed=seed).to(dtype), scale


def plain(pair, gran=(1, 128)):
    """Returns what FP8 values with scales stand for, in f64; bf16 as it is."""
    if isinstance(pair, torch.Tensor):
        return pair.double()
    values, scale = pair
    *_, mn, k = values.shape
    whole = scale.double().repeat_interleave(gran[0], -2)[..., :mn, :].repeat_interleave(gran[1], -1)[..., :k]
    return values.double() * whole


def close(got, a, b, c=None):
    """Checks got = c + a b^T within the bound of a sum in f32 that is rounded once."""
    added = 0 if c is None else c.double()
    want, size = added + a @ b.mT, abs(added) + a.abs() @ b.abs().mT
    tolerance = _UNIT[got.dtype] * want.abs() + 2 * (a.shape[-1] + 2) * 2**-24 * size
    error = (got.double() - want).abs()
    assert got.shape == want.shape and not (error > tolerance).any() and not got.isnan().any(), (error / tolerance).max()


def turn(pair):
    """Returns a matrix, or values and scales, the other way round, each contiguous."""
    if isinstance(pair, torch.Tensor):
        return pair.mT.contiguous()
    return tuple(x.mT.contiguous() for x in pair)
