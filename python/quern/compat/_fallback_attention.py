# SPDX-License-Identifier: Apache-2.0
"""Computes what quern.compat.flashinfer's attention computes by PyTorch's own operators, for
SGLANG_DISABLE_FLASHINFER=1, and where a kernel would be slow."""

import math

import torch


def _rotate(x, positions, theta, scale):
    """Rotates pairs (d, d + D / 2) of x [n, heads, D]."""
    half = x.shape[-1] // 2
    angle = positions[:, None, None] * theta ** (-torch.arange(half, device=x.device) / half) / scale
    first, second = x[..., :half], x[..., half:]
    return torch.cat([first * angle.cos() - second * angle.sin(), second * angle.cos() + first * angle.sin()], -1)


def _slopes(heads, device):
    n = 2 ** int(math.log2(heads))
    return torch.tensor([2.0 ** (-8 * (h + 1) / n) if h < n else 2.0 ** (-4 * (2 * (h + 1 - n) - 1) / n) for h in range(heads)],
                        device=device)


def _scores(q, k, distance, o):
    """Returns the scores [heads, n, kv_len] before masks."""
    if o["pos_encoding"] == "rope_llama":
        n, kv_len = len(q), len(k)
        q = _rotate(q, torch.arange(kv_len - n, kv_len, device=q.device), o["rope_theta"], o["rope_scale"])
        k = _rotate(k, torch.arange(kv_len, device=q.device), o["rope_theta"], o["rope_scale"])
    scale = q.shape[-1] ** -0.5 if o["sm_scale"] is None else o["sm_scale"]
    x = torch.einsum("nhd,mhd->hnm", q, k) * (scale * o.get("q_scale", 1.0) * o.get("k_scale", 1.0))
    if o["pos_encoding"] == "alibi":
        x = x + _slopes(len(x), q.device)[:, None, None] * distance
    cap = o["logits_soft_cap"]
    return cap * torch.tanh(x / cap) if cap else x


def _bits(packed, begin, n, kv_len):
    """Returns a request's mask, and the byte after it."""
    end = begin + (n * kv_len + 7) // 8
    bits = (packed[begin:end, None] >> torch.arange(8, dtype=torch.uint8, device=packed.device)) & 1
    return bits.reshape(-1)[:n * kv_len].reshape(n, kv_len).bool(), end


def _request(q, k, v, mask, o):
    """Returns (out, base-2 lse) of one request, in f32."""
    q, k, v = (t.float() if o.get(name) is None else t.float() * o[name][:, None]
               for t, name in ((q, "q_scales"), (k, "k_scales"), (v, "v_scales")))
    group = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
    n, kv_len = len(q), len(k)
    distance = torch.arange(kv_len, device=q.device) - (torch.arange(n, device=q.device)[:, None] + kv_len - n)
    seen = mask if mask is not None else distance <= 0 if o.get("is_causal") else torch.ones_like(distance, dtype=torch.bool)
    if o["window_left"] >= 0:
        seen = seen & (distance >= -o["window_left"])
    if o.get("window_right", -1) >= 0:
        seen = seen & (distance <= o["window_right"])
    x = _scores(q, k, distance, o).masked_fill(~seen, -torch.inf)
    if o.get("sinks") is not None:
        x = torch.cat([x, o["sinks"].float()[:, None, None].expand(-1, n, 1)], -1)
        v = torch.cat([v, torch.zeros_like(v[:1])]) if kv_len else torch.zeros(1, *v.shape[1:], device=v.device)
    weights = x.softmax(-1).nan_to_num(0)
    lse = x.logsumexp(-1).T / math.log(2) if x.shape[-1] else torch.full((n, x.shape[0]), -torch.inf, device=q.device)
    return torch.einsum("hnm,mhd->nhd", weights, v) * o.get("v_scale", 1.0), lse


def _take(cache, pages):
    """Returns cache[pages], which PyTorch before 2.7 cannot index if the cache is FP8."""
    return cache.view(torch.uint8)[pages].view(cache.dtype) if cache.dtype.itemsize == 1 else cache[pages]


def _keys(batch, b, caches, is_hnd):
    """Returns k and v of a request, [kv_len, heads, dim]."""
    begin, end = int(batch.kv_indptr[b]), int(batch.kv_indptr[b + 1])
    if not batch.page_size:
        return [(t.transpose(0, 1) if is_hnd else t)[begin:end] for t in caches]
    pages = batch.kv_indices[begin:end].long()
    kv_len = (end - begin - 1) * batch.page_size + int(batch.last_page_len[b]) if end > begin else 0
    chosen = [_take(t, pages).transpose(1, 2) if is_hnd else _take(t, pages) for t in caches]
    return [t.reshape(-1, *t.shape[2:])[:kv_len] for t in chosen]


def attention(out, lse, q, k, v, batch, custom_mask=None, layout="NHD", **options):
    """Computes quern's attention into out and lse, for a batch or one request."""
    at = 0
    for b in range(1 if batch is None else len(batch.qo_indptr) - 1):
        rows = slice(None) if batch is None else slice(int(batch.qo_indptr[b]), int(batch.qo_indptr[b + 1]))
        keys = (k, v) if batch is None else _keys(batch, b, (k, v), layout == "HND")
        mask = None
        if custom_mask is not None:
            mask, at = _bits(custom_mask, at, len(q[rows]), len(keys[0]))
        result, result_lse = _request(q[rows], *keys, mask, options)
        out[rows] = result.to(out.dtype)
        if lse is not None:
            lse[rows] = result_lse * (math.log(2) if options.get("lse_base") == "e" else 1)


def merge_states(v_states, s_states):
    """Merges states [n, states, heads, dim] and [n, states, heads]. Returns (v, s)."""
    if v_states.shape[1] == 0:
        return torch.zeros_like(v_states[:, 0:0].sum(1)), torch.full_like(s_states[:, 0:0].sum(1), -torch.inf)
    top = s_states.amax(1, keepdim=True)
    weights = torch.exp2(s_states - torch.where(top.isfinite(), top, 0))
    total = weights.sum(1)
    v = (v_states.float() * weights[..., None]).sum(1) / torch.where(total == 0, 1, total)[..., None]
    return v.to(v_states.dtype), total.log2() + torch.where(top.isfinite(), top, 0)[:, 0]
