# SPDX-License-Identifier: Apache-2.0
"""Rotary position embedding of queries and keys: by position, by segments, by tables, after RMSNorm.

q, k        [n, heads, head_dim] f32, f16 or bf16, of one dtype; heads may differ in number; k may be None
q_out, k_out  optional; q and k themselves work in place. Each function gives (q_out, k_out)
rotary_dim  how many of a head's first elements turn, the rest is copied; 0: all
interleave  pairs are (2d, 2d + 1), else (d, d + rotary_dim / 2)
Index tensors are i32. Raises ValueError (shape, stride, scalars), NotImplementedError (dtype); nothing is written then.
"""

from . import _ops
from ._tensor import empty_like


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
