# SPDX-License-Identifier: Apache-2.0
"""What tests of quern.compat.aiter share: definitions in f64, and how far a result may be from them."""

import torch
from deep_gemm_tools import BF16, F8, F8Z, F32

F16 = torch.float16
UNIT = {BF16: 2**-8, F16: 2**-11, F32: 2**-24, F8: 2**-4, F8Z: 2**-4}
TINY = {BF16: 2.0**-134, F16: 2.0**-25, F32: 2.0**-150, F8: 2.0**-10, F8Z: 2.0**-11}


def near(got, want, terms, spread=0.0):
    """Checks a result that was rounded once from f32 sums of so many terms. spread: their size, if they may cancel."""
    want = want.double()
    tolerance = UNIT[got.dtype] * want.abs() + 2 * (terms + 8) * 2**-24 * (want.abs() + spread) + TINY[got.dtype]
    error = (got.double() - want).abs()
    assert got.shape == want.shape and bool((error <= tolerance).all()), float((error / tolerance).nan_to_num(9e9).max())


def rms(x, weight, eps, gemma=False):
    x = x.double()
    return x / (x.square().mean(-1, keepdim=True) + eps).sqrt() * (weight.double() + gemma)


def layer(x, weight, bias, eps):
    centred = x.double() - x.double().mean(-1, keepdim=True)
    return centred / (centred.square().mean(-1, keepdim=True) + eps).sqrt() * weight.double() + bias.double()


def dequantised(q, scale, want, group, terms):
    """Checks FP8 or int8 and their scales: each scale is its group's largest value / max of the kind, and no value is more than half a
    step and what the sum's rounding adds from it. want: f64 [rows, columns]; scale [rows, groups]."""
    most = 127 if q.dtype == torch.int8 else torch.finfo(q.dtype).max
    columns = want.shape[1]
    padded = torch.nn.functional.pad(want, (0, -columns % group)).view(len(want), -1, group)
    amax = padded.abs().amax(-1)
    slack = 2 * (terms + 12) * 2**-24
    assert scale.dtype == F32 and bool(((scale.double() * most - amax).abs() <= slack * amax + 1e-9).all())
    whole = scale.double().repeat_interleave(group, 1)[:, :columns]
    step = 0.5 if q.dtype == torch.int8 else 2.0**-4 * (want / whole).abs() + TINY[q.dtype]
    error = (q.double() * whole - want).abs()
    assert bool((error <= whole * step + 2 * slack * (want.abs() + amax.repeat_interleave(group, 1)[:, :columns])).all())


def attend(q, k, v, scale=None, causal=False, left=-1, right=-1, cap=0.0, sinks=None, bias=None):
    """Returns (out, natural lse [n, heads], the size of scores) of one request in f64: q [n, heads, dim], k, v [m, kv heads, dim]."""
    q, k, v = q.double(), k.double(), v.double()
    k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], 1) for x in (k, v))
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    x = torch.einsum("nhd,mhd->hnm", q, k) * scale
    size = 1 + float((torch.einsum("nhd,mhd->hnm", q.abs(), k.abs()) * scale).amax()) if x.numel() else 1.0
    x = cap * torch.tanh(x / cap) if cap else x
    x = x if bias is None else x + bias.double()
    distance = torch.arange(len(k)) - (torch.arange(len(q))[:, None] + len(k) - len(q))
    hidden = torch.zeros_like(distance, dtype=torch.bool)
    hidden |= (distance > 0) if causal else hidden
    hidden |= (distance < -left) if left >= 0 else hidden
    hidden |= (distance > right) if right >= 0 else hidden
    x = x.masked_fill(hidden, -torch.inf)
    if sinks is not None:
        x = torch.cat([x, sinks.double()[:, None, None].expand(-1, len(q), 1)], -1)
        v = torch.cat([v, torch.zeros_like(v[:1])])
    return torch.einsum("hnm,mhd->nhd", x.softmax(-1).nan_to_num(0), v), x.logsumexp(-1).T, size


def attended(got, lse, want, q, v):
    """Checks (out, lse [n, heads]) against attend's; weights may be rounded to q's kind."""
    exact, exact_lse, size = want
    bound = UNIT[got.dtype] * exact.abs() + 4 * max(UNIT[q.dtype] if q.dtype != F32 else 0, 2**-20) * v.double().abs().max()
    assert got.shape == exact.shape and bool(((got.double() - exact).abs() <= bound).all())
    if lse is not None:  # which has the rounding of scores, and of their sum
        assert bool(((lse.double() - exact_lse).abs() <= 2 * (q.shape[-1] + len(v)) * 2**-24 * size)[exact_lse.isfinite()].all())
        assert torch.equal(lse.isfinite(), exact_lse.isfinite())
