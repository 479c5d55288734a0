# SPDX-License-Identifier: Apache-2.0
"""What quern.compat.flashinfer's functions compute, by PyTorch's own operators: for SGLANG_DISABLE_FLASHINFER=1."""

import math

import torch
from torch.nn import functional


def _rms(total, weight, eps, shift=0.0):
    return total * torch.rsqrt(total.square().mean(-1, keepdim=True) + eps) * (weight.float() + shift)


def _to_fp8(value, scale, out):
    limit = torch.finfo(out.dtype).max
    out.copy_((value / scale).clamp(-limit, limit).to(out.dtype))


def rmsnorm(out, x, weight, eps):
    out.copy_(_rms(x.float(), weight, eps))


def gemma_rmsnorm(out, x, weight, eps):
    out.copy_(_rms(x.float(), weight, eps, 1.0))


def fused_add_rmsnorm(x, residual, weight, eps, shift=0.0):
    total = x.float() + residual.float()
    residual.copy_(total)
    x.copy_(_rms(total, weight, eps, shift))


def gemma_fused_add_rmsnorm(x, residual, weight, eps):
    fused_add_rmsnorm(x, residual, weight, eps, 1.0)


def layernorm(out, x, gamma, beta, eps):
    out.copy_(functional.layer_norm(x.float(), x.shape[-1:], gamma.float(), beta.float(), eps))


def rmsnorm_quant(out, x, weight, scale, eps):
    _to_fp8(_rms(x.float(), weight, eps), scale, out)


def fused_add_rmsnorm_quant(out, x, residual, weight, scale, eps):
    total = x.float() + residual.float()
    residual.copy_(total)
    _to_fp8(_rms(total, weight, eps), scale, out)


def layernorm_quant(out, x, gamma, beta, scale, eps):
    rounded = functional.layer_norm(x.float(), x.shape[-1:], gamma.float(), beta.float(), eps).to(x.dtype)
    _to_fp8(rounded.float(), scale, out)


def silu_and_mul(out, x):
    gate, up = x.float().chunk(2, -1)
    out.copy_(functional.silu(gate) * up)


def gelu_and_mul(out, x):
    gate, up = x.float().chunk(2, -1)
    out.copy_(functional.gelu(gate) * up)


def gelu_tanh_and_mul(out, x):
    gate, up = x.float().chunk(2, -1)
    out.copy_(functional.gelu(gate, approximate="tanh") * up)


# ---- rotary embedding

def _rotate(out, x, cos, sin, interleave):
    half, value = cos.shape[-1], x.float()
    first = slice(0, 2 * half, 2) if interleave else slice(0, half)
    second = slice(1, 2 * half, 2) if interleave else slice(half, 2 * half)
    result = value.clone()
    result[..., first] = value[..., first] * cos - value[..., second] * sin
    result[..., second] = value[..., second] * cos + value[..., first] * sin
    out.copy_(result)


def _by_angles(q_out, k_out, q, k, positions, frequencies, interleave):
    angles = positions.double()[:, None] * frequencies.to(positions.device)
    cos, sin = angles.cos().float()[:, None], angles.sin().float()[:, None]
    _rotate(q_out, q, cos, sin, interleave)
    _rotate(k_out, k, cos, sin, interleave)


def _frequencies(q, rotary_dim, theta):
    rotary_dim = rotary_dim or q.shape[-1]
    return theta ** (-torch.arange(0, rotary_dim, 2, dtype=torch.float64) / rotary_dim)


def _llama31(f, scale, low, high, old_context_len):
    s = (f * old_context_len / (2 * math.pi * (high - low)) - low / (high - low)).clamp(0, 1)
    return (1 - s) * f / scale + s * f


def _positions(indptr, offsets):
    lengths = (indptr[1:] - indptr[:-1]).long()
    starts = (offsets.long() - indptr[:-1].long()).repeat_interleave(lengths)
    return starts + torch.arange(len(starts), device=starts.device)


def apply_rope_pos_ids(q_out, k_out, q, k, pos_ids, rotary_dim, interleave, scale, theta):
    _by_angles(q_out, k_out, q, k, pos_ids, _frequencies(q, rotary_dim, theta) / scale, interleave)


def apply_rope(q_out, k_out, q, k, indptr, offsets, *options):
    apply_rope_pos_ids(q_out, k_out, q, k, _positions(indptr, offsets), *options)


def apply_llama31_rope_pos_ids(q_out, k_out, q, k, pos_ids, rotary_dim, interleave, scale, theta, *context):
    f = _llama31(_frequencies(q, rotary_dim, theta), scale, *context)
    _by_angles(q_out, k_out, q, k, pos_ids, f, interleave)


def apply_llama31_rope(q_out, k_out, q, k, indptr, offsets, *options):
    apply_llama31_rope_pos_ids(q_out, k_out, q, k, _positions(indptr, offsets), *options)


def apply_rope_with_cos_sin_cache(q_out, k_out, q, k, cache, positions, interleave):
    cos, sin = cache.float()[positions.long()][:, None].chunk(2, -1)
    _rotate(q_out, q, cos, sin, interleave)
    _rotate(k_out, k, cos, sin, interleave)


# ---- paged caches

def get_batch_indices_positions(batch_indices, positions, append_indptr, seq_lens):
    lengths = (append_indptr[1:] - append_indptr[:-1]).long()
    batch = torch.repeat_interleave(torch.arange(len(lengths), device=lengths.device), lengths)
    token = torch.arange(len(batch), device=lengths.device)
    batch_indices.fill_(-1)[:len(batch)] = batch
    positions.zero_()[:len(batch)] = seq_lens[batch] - append_indptr[1:][batch] + token


def _places(batch_indices, positions, page_size, kv_indices, kv_indptr):
    """The tokens that have a place, their pages and their places in these."""
    tokens = (batch_indices >= 0).nonzero()[:, 0]
    batch, position = batch_indices[tokens].long(), positions[tokens].long()
    return tokens, kv_indices[kv_indptr[batch].long() + position // page_size].long(), position % page_size


def append_paged_kv_cache(k_cache, v_cache, key, value, batch_indices, positions, kv_indices, kv_indptr, _last, is_hnd):
    for cache, new in ((k_cache, key), (v_cache, value)):
        pages = cache.transpose(1, 2) if is_hnd else cache
        tokens, page, place = _places(batch_indices, positions, pages.shape[1], kv_indices, kv_indptr)
        pages[page, place] = new[tokens]


def append_paged_mla_kv_cache(ckv_cache, kpe_cache, ckv, kpe, batch_indices, positions, kv_indices, kv_indptr, _last):
    for cache, new in ((ckv_cache, ckv), (kpe_cache, kpe)):
        tokens, page, place = _places(batch_indices, positions, cache.shape[1], kv_indices, kv_indptr)
        cache[page, place] = new[tokens]
