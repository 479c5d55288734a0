# SPDX-License-Identifier: Apache-2.0
"""FlashInfer's rotary embedding: q [n, q heads, head_dim], k [n, k heads, head_dim]."""

import torch

from ._run import index as _index
from ._run import run as _run
from .page import is_hnd as _is_hnd


def apply_rope_inplace(q, k, indptr, offsets, rotary_dim=None, interleave=False, rope_scale=1, rope_theta=1e4):
    """Token t of segment b stands at offsets[b] + t - indptr[b]."""
    _run("apply_rope", q, k, q, k, _index(indptr), _index(offsets), rotary_dim or 0, interleave, rope_scale, rope_theta)


def apply_rope(q, k, indptr, offsets, rotary_dim=None, interleave=False, rope_scale=1, rope_theta=1e4):
    """apply_rope_inplace into new tensors: (q_rope, k_rope)."""
    q_rope, k_rope = torch.empty_like(q), torch.empty_like(k)
    _run("apply_rope", q_rope, k_rope, q, k, _index(indptr), _index(offsets), rotary_dim or 0, interleave, rope_scale,
         rope_theta)
    return q_rope, k_rope


def apply_rope_pos_ids_inplace(q, k, pos_ids, rotary_dim=None, interleave=False, rope_scale=1, rope_theta=1e4):
    """Token t stands at pos_ids[t]."""
    _run("apply_rope_pos_ids", q, k, q, k, _index(pos_ids), rotary_dim or 0, interleave, rope_scale, rope_theta)


def apply_rope_pos_ids(q, k, pos_ids, rotary_dim=None, interleave=False, rope_scale=1, rope_theta=1e4):
    """apply_rope_pos_ids_inplace into new tensors: (q_rope, k_rope)."""
    q_rope, k_rope = torch.empty_like(q), torch.empty_like(k)
    _run("apply_rope_pos_ids", q_rope, k_rope, q, k, _index(pos_ids), rotary_dim or 0, interleave, rope_scale, rope_theta)
    return q_rope, k_rope


def apply_llama31_rope_inplace(q, k, indptr, offsets, rotary_dim=None, interleave=False, rope_scale=8, rope_theta=5e5,
                               low_freq_factor=1, high_freq_factor=4, old_context_len=8192):
    """apply_rope_inplace with Llama 3.1's frequencies."""
    _run("apply_llama31_rope", q, k, q, k, _index(indptr), _index(offsets), rotary_dim or 0, interleave, rope_scale,
         rope_theta, low_freq_factor, high_freq_factor, old_context_len)


def apply_llama31_rope(q, k, indptr, offsets, rotary_dim=None, interleave=False, rope_scale=8, rope_theta=5e5,
                       low_freq_factor=1, high_freq_factor=4, old_context_len=8192):
    """apply_rope with Llama 3.1's frequencies."""
    q_rope, k_rope = torch.empty_like(q), torch.empty_like(k)
    _run("apply_llama31_rope", q_rope, k_rope, q, k, _index(indptr), _index(offsets), rotary_dim or 0, interleave,
         rope_scale, rope_theta, low_freq_factor, high_freq_factor, old_context_len)
    return q_rope, k_rope


def apply_llama31_rope_pos_ids_inplace(q, k, pos_ids, rotary_dim=None, interleave=False, rope_scale=8, rope_theta=5e5,
                                       low_freq_factor=1, high_freq_factor=4, old_context_len=8192):
    """apply_rope_pos_ids_inplace with Llama 3.1's frequencies."""
    _run("apply_llama31_rope_pos_ids", q, k, q, k, _index(pos_ids), rotary_dim or 0, interleave, rope_scale, rope_theta,
         low_freq_factor, high_freq_factor, old_context_len)


def apply_llama31_rope_pos_ids(q, k, pos_ids, rotary_dim=None, interleave=False, rope_scale=8, rope_theta=5e5,
                               low_freq_factor=1, high_freq_factor=4, old_context_len=8192):
    """apply_rope_pos_ids with Llama 3.1's frequencies."""
    q_rope, k_rope = torch.empty_like(q), torch.empty_like(k)
    _run("apply_llama31_rope_pos_ids", q_rope, k_rope, q, k, _index(pos_ids), rotary_dim or 0, interleave, rope_scale,
         rope_theta, low_freq_factor, high_freq_factor, old_context_len)
    return q_rope, k_rope


def _check_cache(cos_sin_cache):
    if cos_sin_cache.dtype != torch.float32:
        raise ValueError("cos_sin_cache should be float32")


def _heads(t, head_size):
    return t.view(t.shape[0], -1, head_size)


def apply_rope_with_cos_sin_cache_inplace(positions, query, key, head_size, cos_sin_cache, is_neox=True):
    """query [n, q heads * head_size], key likewise; cos_sin_cache [positions, rotary_dim] f32, cosines then sines."""
    _check_cache(cos_sin_cache)
    q, k = _heads(query, head_size), _heads(key, head_size)
    _run("apply_rope_with_cos_sin_cache", q, k, q, k, cos_sin_cache, _index(positions), not is_neox)


def apply_rope_with_cos_sin_cache(positions, query, key, head_size, cos_sin_cache, is_neox=True):
    """apply_rope_with_cos_sin_cache_inplace into new tensors: (query_out, key_out)."""
    _check_cache(cos_sin_cache)
    query_out, key_out = torch.empty_like(query), torch.empty_like(key)
    _run("apply_rope_with_cos_sin_cache", _heads(query_out, head_size), _heads(key_out, head_size),
         _heads(query, head_size), _heads(key, head_size), cos_sin_cache, _index(positions), not is_neox)
    return query_out, key_out


# ---- to FP8

def _kind(given, outputs):
    """The dtype asked for, else that of the first output given, else e4m3fn."""
    return given or next((out.dtype for out in outputs if out is not None), torch.float8_e4m3fn)


def _nope_like(nope, rope):
    """FlashInfer takes None for a part without elements, and gives such a part back."""
    return rope.new_empty((*rope.shape[:-1], 0)) if nope is None else nope


def _or_none(part, like):
    return part if like.shape[-1] else None


def rope_quantize_fp8(q_rope, k_rope, q_nope, k_nope, cos_sin_cache, pos_ids, is_neox=True, quantize_dtype=None,
                      quant_scale_q=1.0, quant_scale_kv=1.0, q_rope_out=None, k_rope_out=None, q_nope_out=None,
                      k_nope_out=None, enable_pdl=False, backend="cuda"):
    """Rotates q_rope and k_rope, multiplies all by their scales, to FP8: (q_rope_out, k_rope_out, q_nope_out, k_nope_out).

    q_rope [n, q heads, r], k_rope [n, k heads, r] or [n, r] (MLA); the parts that do not turn alike, or None
    """
    _check_cache(cos_sin_cache)
    if backend not in ("cuda", "cutile"):
        raise ValueError(f"rope_quantize_fp8: backend is {backend!r}; accepted: 'cuda', 'cutile'")
    inputs = q_rope, k_rope, _nope_like(q_nope, q_rope), _nope_like(k_nope, k_rope)
    given = q_rope_out, k_rope_out, q_nope_out, k_nope_out
    kind = _kind(quantize_dtype, given)
    outputs = [torch.empty_like(x, dtype=kind) if out is None else out for x, out in zip(inputs, given, strict=True)]
    _run("rope_quantize_fp8", *(_or_none(out, x) for out, x in zip(outputs, inputs, strict=True)),
         *(_or_none(x, x) for x in inputs), cos_sin_cache, _index(pos_ids), quant_scale_q, quant_scale_kv, not is_neox)
    return tuple(outputs)


def mla_rope_quantize_fp8(q_rope, k_rope, q_nope, k_nope, cos_sin_cache, pos_ids, is_neox=True, quantize_dtype=None,
                          quant_scale_q=1.0, quant_scale_kv=1.0, q_rope_out=None, k_rope_out=None, q_nope_out=None,
                          k_nope_out=None, enable_pdl=False):
    """rope_quantize_fp8 with k_rope [n, r] and k_nope [n, any]."""
    return rope_quantize_fp8(q_rope, k_rope, q_nope, k_nope, cos_sin_cache, pos_ids, is_neox, quantize_dtype,
                             quant_scale_q, quant_scale_kv, q_rope_out, k_rope_out, q_nope_out, k_nope_out)


def _check_append(is_mla, v, caches, kind, page_size, hnd):
    if is_mla != (v is None):
        raise ValueError("MLA should not have V input (pass None)" if is_mla else "GQA/MHA expects a V tensor, but got None")
    if len(caches) != 2:
        raise ValueError(f"paged_kv_cache has {len(caches)} tensors, needs 2")
    for cache in caches:
        if cache.dtype != kind:
            raise ValueError(f"paged_kv_cache is of {cache.dtype}, needs {kind}")
        if cache.ndim != (3 if is_mla else 4):
            raise ValueError(f"paged_kv_cache has {cache.ndim} dimensions, needs {3 if is_mla else 4}")
        has = cache.shape[1 if is_mla or not hnd else 2]
        if has != page_size:
            raise ValueError(f"page_size is {page_size}; the pages of paged_kv_cache have {has} tokens")


def rope_quantize_fp8_append_paged_kv_cache(q_rope, k_rope, q_nope, k_nope, v, cos_sin_cache, pos_ids, paged_kv_cache,
                                            kv_indices, kv_indptr, batch_indices, positions, is_neox=True,
                                            quantize_dtype=None, quant_scale_q=1.0, quant_scale_kv=1.0, page_size=16,
                                            kv_layout="NHD", q_rope_out=None, q_nope_out=None, enable_pdl=False):
    """rope_quantize_fp8, keys and values going to a paged FP8 cache: (q_rope_out, q_nope_out).

    paged_kv_cache  (k, v) as append_paged_kv_cache has them, k's heads k_rope then k_nope; MLA: (ckv, kpe), v None
    """
    op = "rope_quantize_fp8_append_paged_kv_cache"
    _check_cache(cos_sin_cache)
    hnd, is_mla = _is_hnd(op, kv_layout), k_rope.ndim == 2
    q_nope, k_nope = _nope_like(q_nope, q_rope), _nope_like(k_nope, k_rope)
    kind = _kind(quantize_dtype, (q_rope_out, q_nope_out))
    _check_append(is_mla, v, paged_kv_cache, kind, page_size, hnd)
    q_rope_out = torch.empty_like(q_rope, dtype=kind) if q_rope_out is None else q_rope_out
    q_nope_out = torch.empty_like(q_nope, dtype=kind) if q_nope_out is None else q_nope_out
    caches = (None, None, *paged_kv_cache) if is_mla else (*paged_kv_cache, None, None)
    _run("rope_quantize_fp8_append_paged_kv_cache", q_rope_out, _or_none(q_nope_out, q_nope), *caches, q_rope, k_rope,
         _or_none(q_nope, q_nope), _or_none(k_nope, k_nope), v, cos_sin_cache, _index(pos_ids), _index(batch_indices),
         _index(positions), _index(kv_indices), _index(kv_indptr), quant_scale_q, quant_scale_kv, not is_neox, hnd)
    return q_rope_out, q_nope_out
