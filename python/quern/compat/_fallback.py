# SPDX-License-Identifier: Apache-2.0
"""Ops by PyTorch's own operators: in FlashInfer's place with SGLANG_DISABLE_FLASHINFER=1, and where a kernel would be slow."""

import math

import torch
from torch.nn import functional

from ._fallback_sampling import (chain_speculative_sampling, sample, softmax, top_k_mask_logits,  # noqa: F401
                                 top_k_renorm_probs, top_p_renorm_probs)


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
    gamma, beta = (None if t is None else t.float() for t in (gamma, beta))
    out.copy_(functional.layer_norm(x.float(), x.shape[-1:], gamma, beta, eps))


def adaptive_layernorm(out, x, scale, shift, eps):
    norm = functional.layer_norm(x.float(), x.shape[-1:], eps=eps)
    out.copy_(norm * (1 + scale.float()[:, None]) + shift.float()[:, None])


def gated_residual_layernorm(out, x, residual, gate, scale, shift, eps):
    total = residual.float() + gate.float()[:, None] * x.float()
    residual.copy_(total)
    adaptive_layernorm(out, total, scale, shift, eps)


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

def _turned(x, cos, sin, interleave):
    half, value = cos.shape[-1], x.float()
    first = slice(0, 2 * half, 2) if interleave else slice(0, half)
    second = slice(1, 2 * half, 2) if interleave else slice(half, 2 * half)
    result = value.clone()
    result[..., first] = value[..., first] * cos - value[..., second] * sin
    result[..., second] = value[..., second] * cos + value[..., first] * sin
    return result


def _rotate(out, x, cos, sin, interleave):
    out.copy_(_turned(x, cos, sin, interleave))


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


def qk_rmsnorm_rope(q_out, k_out, q, k, q_weight, k_weight, cos, sin, rotary_dim, eps, interleave):
    """Takes cos and sin [tokens, rotary_dim], of which a pair's first is read, or [tokens, rotary_dim / 2]."""
    if cos.shape[-1] == (rotary_dim or q.shape[-1]):
        cos, sin = (t[:, ::2] if interleave else t.chunk(2, -1)[0] for t in (cos, sin))
    cos, sin = cos.float()[:, None], sin.float()[:, None]
    for out, x, weight in ((q_out, q, q_weight), (k_out, k, k_weight)):
        _rotate(out, x if weight is None else _rms(x.float(), weight, eps), cos, sin, interleave)


def _scaled(out, value, scale):
    """Writes value * scale into out as FP8; the other ops divide."""
    limit = torch.finfo(out.dtype).max
    out.copy_((value.float() * scale).clamp(-limit, limit).to(out.dtype))


def rope_quantize_fp8(q_out, k_out, q_nope_out, k_nope_out, q, k, q_nope, k_nope, cache, pos_ids, scale_q, scale_kv,
                      interleave):
    for out, x, scale in ((q_out, q, scale_q), (k_out, k, scale_kv)):
        cos, sin = cache.float()[pos_ids.long()].view(len(pos_ids), *[1] * (x.ndim - 2), -1).chunk(2, -1)
        _scaled(out, _turned(x, cos, sin, interleave), scale)
    for out, x, scale in ((q_nope_out, q_nope, scale_q), (k_nope_out, k_nope, scale_kv)):
        if x is not None:
            _scaled(out, x, scale)


def rope_quantize_fp8_append_paged_kv_cache(q_out, q_nope_out, k_cache, v_cache, ckv_cache, kpe_cache, q, k, q_nope, k_nope, v,
                                            cache, pos_ids, batch_indices, positions, kv_indices, kv_indptr, scale_q,
                                            scale_kv, interleave, is_hnd):
    k_new = torch.empty_like(k, dtype=q_out.dtype)
    nope_new = None if k_nope is None else torch.empty_like(k_nope, dtype=q_out.dtype)
    rope_quantize_fp8(q_out, k_new, q_nope_out, nope_new, q, k, q_nope, k_nope, cache, pos_ids, scale_q, scale_kv, interleave)
    pages = batch_indices, positions, kv_indices, kv_indptr, None
    if v is None:
        append_paged_mla_kv_cache(ckv_cache, kpe_cache, nope_new, k_new, *pages)
        return
    v_new = torch.empty_like(v, dtype=q_out.dtype)
    _scaled(v_new, v, scale_kv)
    k_new = k_new if nope_new is None else torch.cat([k_new, nope_new], -1)
    append_paged_kv_cache(k_cache, v_cache, k_new, v_new, *pages, is_hnd)


# ---- paged caches

def get_batch_indices_positions(batch_indices, positions, append_indptr, seq_lens):
    lengths = (append_indptr[1:] - append_indptr[:-1]).long()
    batch = torch.repeat_interleave(torch.arange(len(lengths), device=lengths.device), lengths)
    token = torch.arange(len(batch), device=lengths.device)
    batch_indices.fill_(-1)[:len(batch)] = batch
    positions.zero_()[:len(batch)] = seq_lens[batch] - append_indptr[1:][batch] + token


def _places(batch_indices, positions, page_size, kv_indices, kv_indptr):
    """Returns the tokens that have a place, their pages, and their places in the pages."""
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


# ---- bits

def packbits(out, x, order):
    bits = torch.zeros(len(out) * 8, dtype=torch.int32, device=x.device)
    bits[:len(x)] = x != 0
    weights = 2 ** torch.arange(8, device=x.device)
    out.copy_((bits.view(-1, 8) * (weights if order else weights.flip(0))).sum(-1))


def segment_packbits(out, indptr_out, x, indptr, order):
    lengths = (indptr[1:] - indptr[:-1]).long()
    indptr_out.zero_()[1:] = ((lengths + 7) // 8).cumsum(0)
    segment = torch.repeat_interleave(torch.arange(len(lengths), device=x.device), lengths)
    begin, total = int(indptr[0]), int(indptr_out[-1])
    place = indptr_out[segment].long() * 8 + torch.arange(len(segment), device=x.device) + begin - indptr[segment].long()
    bits = torch.zeros(total * 8, dtype=torch.uint8, device=x.device)
    bits[place] = (x[begin:begin + len(segment)] != 0).to(torch.uint8)
    packbits(out[:total], bits, order)
