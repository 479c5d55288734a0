# SPDX-License-Identifier: Apache-2.0
"""Rotary position embedding of queries and keys: by position, by segments, by tables, after RMSNorm, to FP8 and to a cache.

q, k        [n, heads, head_dim] f32, f16 or bf16, of one dtype; heads may differ in number; k may be None
q_out, k_out  optional; q and k themselves work in place. Each function gives (q_out, k_out)
rotary_dim  how many of a head's first elements turn, the rest is copied; 0: all
interleave  pairs are (2d, 2d + 1), else (d, d + rotary_dim / 2)
Index tensors are i32. Raises ValueError (shape, stride, scalars), NotImplementedError (dtype); nothing is written then.
"""

from . import _ops
from ._kvcache import is_hnd
from ._tensor import empty_like, fp8_name


def _outputs(q, k, q_out, k_out):
    if k is not None and k_out is None:
        k_out = empty_like(k)
    return (empty_like(q) if q_out is None else q_out), k_out


def apply_rope(q, k, indptr, offsets, rotary_dim=0, interleave=False, rope_scale=1.0, rope_theta=1e4, q_out=None,
               k_out=None):
    """Token t of segment b, indptr[b] <= t < indptr[b + 1], stands at offsets[b] + t - indptr[b].

    indptr [segments + 1], offsets [segments]. Frequencies are rope_theta^(-2d / rotary_dim) / rope_scale.
    """
    q_out, k_out = _outputs(q, k, q_out, k_out)
    _ops.apply_rope(q_out, k_out, q, k, indptr, offsets, rotary_dim, interleave, rope_scale, rope_theta)
    return q_out, k_out


def apply_rope_pos_ids(q, k, pos_ids, rotary_dim=0, interleave=False, rope_scale=1.0, rope_theta=1e4, q_out=None,
                       k_out=None):
    """Token t stands at pos_ids[t]."""
    q_out, k_out = _outputs(q, k, q_out, k_out)
    _ops.apply_rope_pos_ids(q_out, k_out, q, k, pos_ids, rotary_dim, interleave, rope_scale, rope_theta)
    return q_out, k_out


def apply_llama31_rope(q, k, indptr, offsets, rotary_dim=0, interleave=False, rope_scale=8.0, rope_theta=5e5,
                       low_freq_factor=1.0, high_freq_factor=4.0, old_context_len=8192, q_out=None, k_out=None):
    """apply_rope with Llama 3.1's frequencies."""
    q_out, k_out = _outputs(q, k, q_out, k_out)
    _ops.apply_llama31_rope(q_out, k_out, q, k, indptr, offsets, rotary_dim, interleave, rope_scale, rope_theta,
                            low_freq_factor, high_freq_factor, old_context_len)
    return q_out, k_out


def apply_llama31_rope_pos_ids(q, k, pos_ids, rotary_dim=0, interleave=False, rope_scale=8.0, rope_theta=5e5,
                               low_freq_factor=1.0, high_freq_factor=4.0, old_context_len=8192, q_out=None, k_out=None):
    """apply_rope_pos_ids with Llama 3.1's frequencies."""
    q_out, k_out = _outputs(q, k, q_out, k_out)
    _ops.apply_llama31_rope_pos_ids(q_out, k_out, q, k, pos_ids, rotary_dim, interleave, rope_scale, rope_theta,
                                    low_freq_factor, high_freq_factor, old_context_len)
    return q_out, k_out


def apply_rope_with_cos_sin_cache(q, k, cos_sin_cache, positions, interleave=False, q_out=None, k_out=None):
    """Cosines and sines from a table [max_position, rotary_dim] f32: rotary_dim / 2 cosines, then as many sines, a row."""
    q_out, k_out = _outputs(q, k, q_out, k_out)
    _ops.apply_rope_with_cos_sin_cache(q_out, k_out, q, k, cos_sin_cache, positions, interleave)
    return q_out, k_out


def qk_rmsnorm_rope(q, k, q_weight, k_weight, cos, sin, rotary_dim=0, eps=1e-6, interleave=False, q_out=None, k_out=None):
    """RMSNorm of each head, then rotation by tables with a row a token, in one pass; weights of None: no norm.

    q, k      [n, heads, head_dim] or [batch, n, heads, head_dim]
    cos, sin  [n, rotary_dim] or [n, rotary_dim / 2], f32 or q's dtype
    """
    q_out, k_out = _outputs(q, k, q_out, k_out)
    _ops.qk_rmsnorm_rope(q_out, k_out, q, k, q_weight, k_weight, cos, sin, rotary_dim, eps, interleave)
    return q_out, k_out


def _like(x, out, dtype):
    return empty_like(x, dtype=dtype) if x is not None and out is None else out


def rope_quantize_fp8(q_rope, k_rope, cos_sin_cache, pos_ids, q_nope=None, k_nope=None, quant_scale_q=1.0, quant_scale_kv=1.0,
                      interleave=False, dtype="e4m3fn", q_rope_out=None, k_rope_out=None, q_nope_out=None, k_nope_out=None):
    """Rotates q_rope and k_rope, multiplies all by their scales, rounds to FP8: (q_rope_out, k_rope_out, q_nope_out, k_nope_out).

    q_rope, k_rope  [n, heads, rotary_dim]; MLA's k_rope [n, rotary_dim]
    q_nope, k_nope  what does not turn, [n, heads, any]; MLA's k_nope [n, any]; or None, as their results are then
    cos_sin_cache   [max_position, rotary_dim] f32, pos_ids [n]: apply_rope_with_cos_sin_cache's
    dtype           of new results, an FP8 kind; what is beyond its range saturates
    """
    dtype = fp8_name(dtype)
    inputs = q_rope, k_rope, q_nope, k_nope
    given = q_rope_out, k_rope_out, q_nope_out, k_nope_out
    outputs = tuple(_like(x, out, dtype) for x, out in zip(inputs, given, strict=True))
    _ops.rope_quantize_fp8(*outputs, *inputs, cos_sin_cache, pos_ids, quant_scale_q, quant_scale_kv, interleave)
    return outputs


def rope_quantize_fp8_append_paged_kv_cache(q_rope, k_rope, v, cos_sin_cache, pos_ids, batch_indices, positions, kv_indices,
                                            kv_indptr, *, k_cache=None, v_cache=None, ckv_cache=None, kpe_cache=None,
                                            q_nope=None, k_nope=None, quant_scale_q=1.0, quant_scale_kv=1.0,
                                            interleave=False, layout="NHD", q_rope_out=None, q_nope_out=None):
    """rope_quantize_fp8 with keys and values going to a paged FP8 cache in the same pass: (q_rope_out, q_nope_out).

    k_cache, v_cache      as in append_paged_kv_cache, with its index tensors; k_cache's heads are k_rope's, then k_nope's elements
    ckv_cache, kpe_cache  instead, MLA: k_nope [n, any] and k_rope [n, rotary_dim] go there, and v is None
    """
    op = "rope_quantize_fp8_append_paged_kv_cache"
    cache = next((c for c in (k_cache, ckv_cache) if c is not None), None)
    if cache is None:
        raise ValueError(f"{op}: k_cache and ckv_cache are None; one of them is needed")
    q_rope_out, q_nope_out = _like(q_rope, q_rope_out, cache.dtype), _like(q_nope, q_nope_out, cache.dtype)
    _ops.rope_quantize_fp8_append_paged_kv_cache(
        q_rope_out, q_nope_out, k_cache, v_cache, ckv_cache, kpe_cache, q_rope, k_rope, q_nope, k_nope, v, cos_sin_cache,
        pos_ids, batch_indices, positions, kv_indices, kv_indptr, quant_scale_q, quant_scale_kv, interleave,
        is_hnd(op, layout))
    return q_rope_out, q_nope_out
