# SPDX-License-Identifier: Apache-2.0
"""FlashInfer's rotary embedding: q [n, q heads, head_dim], k [n, k heads, head_dim]."""

import torch

from ..._public import flag as _flag
from ._hints import check_backend as _check_backend
from ._hints import check_flags as _check_flags
from ._run import index as _index
from ._run import run as _run
from .page import is_hnd as _is_hnd


def _rotate(op, q, k, places, rotary_dim, interleave, *numbers):
    """Returns (q_rope, k_rope) by op's native op; functions in place and on new tensors have one native op."""
    if rotary_dim == 0:  # None in C
        raise ValueError(f"{op}: rotary_dim is 0; accepted: None, even numbers from 2 to head_dim, {q.shape[-1]}")
    native = op.removesuffix("_inplace")
    q_rope, k_rope = (q, k) if native != op else (torch.empty_like(q), torch.empty_like(k))
    _run(native, q_rope, k_rope, q, k, *map(_index, places), rotary_dim or 0, _flag(op, "interleave", interleave), *numbers, op=op)
    return q_rope, k_rope


def apply_rope_inplace(q, k, indptr, offsets, rotary_dim=None, interleave=False, rope_scale=1, rope_theta=1e4):
    """Rotates q and k in place; token t of segment b stands at offsets[b] + t - indptr[b]."""
    _rotate("apply_rope_inplace", q, k, (indptr, offsets), rotary_dim, interleave, rope_scale, rope_theta)


def apply_rope(q, k, indptr, offsets, rotary_dim=None, interleave=False, rope_scale=1, rope_theta=1e4):
    """Computes apply_rope_inplace into new tensors. Returns (q_rope, k_rope)."""
    return _rotate("apply_rope", q, k, (indptr, offsets), rotary_dim, interleave, rope_scale, rope_theta)


def apply_rope_pos_ids_inplace(q, k, pos_ids, rotary_dim=None, interleave=False, rope_scale=1, rope_theta=1e4):
    """Rotates q and k in place; token t stands at pos_ids[t]."""
    _rotate("apply_rope_pos_ids_inplace", q, k, (pos_ids,), rotary_dim, interleave, rope_scale, rope_theta)


def apply_rope_pos_ids(q, k, pos_ids, rotary_dim=None, interleave=False, rope_scale=1, rope_theta=1e4):
    """Computes apply_rope_pos_ids_inplace into new tensors. Returns (q_rope, k_rope)."""
    return _rotate("apply_rope_pos_ids", q, k, (pos_ids,), rotary_dim, interleave, rope_scale, rope_theta)


def apply_llama31_rope_inplace(q, k, indptr, offsets, rotary_dim=None, interleave=False, rope_scale=8, rope_theta=5e5,
                               low_freq_factor=1, high_freq_factor=4, old_context_len=8192):
    """Computes apply_rope_inplace with Llama 3.1's frequencies."""
    _rotate("apply_llama31_rope_inplace", q, k, (indptr, offsets), rotary_dim, interleave, rope_scale, rope_theta, low_freq_factor,
            high_freq_factor, old_context_len)


def apply_llama31_rope(q, k, indptr, offsets, rotary_dim=None, interleave=False, rope_scale=8, rope_theta=5e5,
                       low_freq_factor=1, high_freq_factor=4, old_context_len=8192):
    """Computes apply_rope with Llama 3.1's frequencies."""
    return _rotate("apply_llama31_rope", q, k, (indptr, offsets), rotary_dim, interleave, rope_scale, rope_theta, low_freq_factor,
                   high_freq_factor, old_context_len)


def apply_llama31_rope_pos_ids_inplace(q, k, pos_ids, rotary_dim=None, interleave=False, rope_scale=8, rope_theta=5e5,
                                       low_freq_factor=1, high_freq_factor=4, old_context_len=8192):
    """Computes apply_rope_pos_ids_inplace with Llama 3.1's frequencies."""
    _rotate("apply_llama31_rope_pos_ids_inplace", q, k, (pos_ids,), rotary_dim, interleave, rope_scale, rope_theta,
            low_freq_factor, high_freq_factor, old_context_len)


def apply_llama31_rope_pos_ids(q, k, pos_ids, rotary_dim=None, interleave=False, rope_scale=8, rope_theta=5e5,
                               low_freq_factor=1, high_freq_factor=4, old_context_len=8192):
    """Computes apply_rope_pos_ids with Llama 3.1's frequencies."""
    return _rotate("apply_llama31_rope_pos_ids", q, k, (pos_ids,), rotary_dim, interleave, rope_scale, rope_theta, low_freq_factor,
                   high_freq_factor, old_context_len)


def _check_cache(op, cos_sin_cache):
    if cos_sin_cache.dtype != torch.float32:
        raise ValueError(f"{op}: cos_sin_cache should be float32; found {cos_sin_cache.dtype}")


def _heads(op, head_size, **tensors):
    """Returns each tensor [n, heads * head_size] as [n, heads, head_size]."""
    for name, t in tensors.items():
        if head_size < 1 or t.shape[-1] % head_size:
            raise ValueError(f"{op}: head_size is {head_size}; accepted: what divides the rows of {name}, {t.shape[-1]}")
    return [t.view(t.shape[0], -1, head_size) for t in tensors.values()]


def apply_rope_with_cos_sin_cache_inplace(positions, query, key, head_size, cos_sin_cache, is_neox=True):
    """Rotates query and key [n, heads * head_size] in place; cos_sin_cache is [positions, rotary_dim] f32, cosines then
    sines."""
    op = "apply_rope_with_cos_sin_cache_inplace"
    _check_cache(op, cos_sin_cache)
    q, k = _heads(op, head_size, query=query, key=key)
    _run("apply_rope_with_cos_sin_cache", q, k, q, k, cos_sin_cache, _index(positions), not _flag(op, "is_neox", is_neox), op=op,
         q="query", k="key")


def apply_rope_with_cos_sin_cache(positions, query, key, head_size, cos_sin_cache, is_neox=True):
    """Computes apply_rope_with_cos_sin_cache_inplace into new tensors. Returns (query_out, key_out)."""
    op = "apply_rope_with_cos_sin_cache"
    _check_cache(op, cos_sin_cache)
    query_out, key_out = torch.empty_like(query), torch.empty_like(key)
    q, k, q_out, k_out = _heads(op, head_size, query=query, key=key, query_out=query_out, key_out=key_out)
    _run(op, q_out, k_out, q, k, cos_sin_cache, _index(positions), not _flag(op, "is_neox", is_neox), q="query", k="key")
    return query_out, key_out


# ---- to FP8

def _kind(given, outputs):
    """Returns the dtype asked for, else that of the first output given, else e4m3fn."""
    return given or next((out.dtype for out in outputs if out is not None), torch.float8_e4m3fn)


def _nope_like(nope, rope):
    """Returns nope, or an empty part like rope for None: FlashInfer takes None for a part without elements, and returns
    such a part."""
    return rope.new_empty((*rope.shape[:-1], 0)) if nope is None else nope


def _output(op, name, out, like, kind):
    """Returns the output that was given, or a new one."""
    if out is None:
        return torch.empty_like(like, dtype=kind)
    if out.dtype != kind:
        raise ValueError(f"{op}: {name} has dtype {out.dtype}, needs that of the other outputs and of quantize_dtype: {kind}")
    return out


def _or_none(part, like):
    return part if like.shape[-1] else None


def rope_quantize_fp8(q_rope, k_rope, q_nope, k_nope, cos_sin_cache, pos_ids, is_neox=True, quantize_dtype=None,
                      quant_scale_q=1.0, quant_scale_kv=1.0, q_rope_out=None, k_rope_out=None, q_nope_out=None,
                      k_nope_out=None, enable_pdl=False, backend="cuda"):
    """Rotates q_rope and k_rope and turns all parts, times their scales, into FP8. Returns (q_rope_out, k_rope_out,
    q_nope_out, k_nope_out).

    q_rope [n, q heads, r], k_rope [n, k heads, r] or [n, r] (MLA); the nope parts have such shapes, or are None
    """
    _check_backend("rope_quantize_fp8", backend, ("cuda",))
    return _quantized("rope_quantize_fp8", q_rope, k_rope, q_nope, k_nope, cos_sin_cache, pos_ids, is_neox, quantize_dtype,
                      quant_scale_q, quant_scale_kv, (q_rope_out, k_rope_out, q_nope_out, k_nope_out), enable_pdl)


def _quantized(op, q_rope, k_rope, q_nope, k_nope, cos_sin_cache, pos_ids, is_neox, quantize_dtype, quant_scale_q, quant_scale_kv,
               given, enable_pdl):
    """Computes rope_quantize_fp8. given: the outputs, each a tensor or None."""
    _check_cache(op, cos_sin_cache)
    _check_flags(op, enable_pdl=enable_pdl)
    inputs = q_rope, k_rope, _nope_like(q_nope, q_rope), _nope_like(k_nope, k_rope)
    kind = _kind(quantize_dtype, given)
    names = "q_rope_out", "k_rope_out", "q_nope_out", "k_nope_out"
    outputs = [_output(op, name, out, x, kind) for name, out, x in zip(names, given, inputs, strict=True)]
    _run("rope_quantize_fp8", *(_or_none(out, x) for out, x in zip(outputs, inputs, strict=True)),
         *(_or_none(x, x) for x in inputs), cos_sin_cache, _index(pos_ids), quant_scale_q, quant_scale_kv,
         not _flag(op, "is_neox", is_neox), op=op)
    return tuple(outputs)


def mla_rope_quantize_fp8(q_rope, k_rope, q_nope, k_nope, cos_sin_cache, pos_ids, is_neox=True, quantize_dtype=None,
                          quant_scale_q=1.0, quant_scale_kv=1.0, q_rope_out=None, k_rope_out=None, q_nope_out=None,
                          k_nope_out=None, enable_pdl=False):
    """Computes rope_quantize_fp8 with k_rope [n, r] and k_nope [n, any]."""
    return _quantized("mla_rope_quantize_fp8", q_rope, k_rope, q_nope, k_nope, cos_sin_cache, pos_ids, is_neox, quantize_dtype,
                      quant_scale_q, quant_scale_kv, (q_rope_out, k_rope_out, q_nope_out, k_nope_out), enable_pdl)


def _check_append(op, is_mla, v, caches, kind, page_size, hnd):
    if is_mla != (v is None):
        raise ValueError(f"{op}: " + ("MLA should not have V input (pass None)" if is_mla else "GQA/MHA expects a V tensor, but got None"))
    if len(caches) != 2:
        raise ValueError(f"{op}: paged_kv_cache has {len(caches)} tensors, needs 2")
    for cache in caches:
        if cache.dtype != kind:
            raise ValueError(f"{op}: paged_kv_cache is of {cache.dtype}, needs {kind}")
        if cache.ndim != (3 if is_mla else 4):
            raise ValueError(f"{op}: paged_kv_cache has {cache.ndim} dimensions, needs {3 if is_mla else 4}")
        has = cache.shape[1 if is_mla or not hnd else 2]
        if has != page_size:
            raise ValueError(f"{op}: page_size is {page_size}; the pages of paged_kv_cache have {has} tokens")


def rope_quantize_fp8_append_paged_kv_cache(q_rope, k_rope, q_nope, k_nope, v, cos_sin_cache, pos_ids, paged_kv_cache,
                                            kv_indices, kv_indptr, batch_indices, positions, is_neox=True,
                                            quantize_dtype=None, quant_scale_q=1.0, quant_scale_kv=1.0, page_size=16,
                                            kv_layout="NHD", q_rope_out=None, q_nope_out=None, enable_pdl=False):
    """Computes rope_quantize_fp8 and writes keys and values to a paged FP8 cache. Returns (q_rope_out, q_nope_out).

    paged_kv_cache  (k, v) as append_paged_kv_cache has them, k's heads k_rope then k_nope; MLA: (ckv, kpe), v None
    """
    op = "rope_quantize_fp8_append_paged_kv_cache"
    _check_cache(op, cos_sin_cache)
    _check_flags(op, enable_pdl=enable_pdl)
    hnd, is_mla = _is_hnd(op, kv_layout), k_rope.ndim == 2
    q_nope, k_nope = _nope_like(q_nope, q_rope), _nope_like(k_nope, k_rope)
    kind = _kind(quantize_dtype, (q_rope_out, q_nope_out))
    _check_append(op, is_mla, v, paged_kv_cache, kind, page_size, hnd)
    q_rope_out = _output(op, "q_rope_out", q_rope_out, q_rope, kind)
    q_nope_out = _output(op, "q_nope_out", q_nope_out, q_nope, kind)
    caches = (None, None, *paged_kv_cache) if is_mla else (*paged_kv_cache, None, None)
    cache_names = dict(zip(("k_cache", "v_cache", "ckv_cache", "kpe_cache"), ("paged_kv_cache[0]", "paged_kv_cache[1]") * 2, strict=True))
    _run("rope_quantize_fp8_append_paged_kv_cache", q_rope_out, _or_none(q_nope_out, q_nope), *caches, q_rope, k_rope,
         _or_none(q_nope, q_nope), _or_none(k_nope, k_nope), v, cos_sin_cache, _index(pos_ids), _index(batch_indices),
         _index(positions), _index(kv_indices), _index(kv_indptr), quant_scale_q, quant_scale_kv,
         not _flag(op, "is_neox", is_neox), hnd, **cache_names)
    return q_rope_out, q_nope_out
