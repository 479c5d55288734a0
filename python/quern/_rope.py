# SPDX-License-Identifier: Apache-2.0
"""Rotary position embedding of queries and keys: by position, by segments, by tables, after RMSNorm, to FP8 and to a cache."""

from __future__ import annotations

from typing import Any

from . import _ops
from ._kvcache import is_hnd
from ._public import public
from ._tensor import dtype_name, empty_like, fp8_name
from ._types import A, Array, DType, Layout


def _outputs(q, k, q_out, k_out):
    if k is not None and k_out is None:
        k_out = empty_like(k)
    return (empty_like(q) if q_out is None else q_out), k_out


def _recorded(q_out, k_out, name, *inputs):
    """Returns the result of a call that autograd records; None: it need not."""
    return _ops.recorded(name, *inputs) if q_out is None and k_out is None else None


@public()
def apply_rope(q: A, k: A | None, indptr: Array, offsets: Array, rotary_dim: int = 0, interleave: bool = False,
               rope_scale: float = 1.0, rope_theta: float = 1e4, q_out: A | None = None,
               k_out: A | None = None) -> tuple[A, A | None]:
    """Rotates tokens in segments: token t of segment b, indptr[b] <= t < indptr[b + 1], stands at offsets[b] + t - indptr[b].

    q           [n, heads, head_dim] of f32, f16 or bf16, head_dim contiguous; n may be 0
    k           as q, with heads of its own; None: q alone
    indptr      i32 [segments + 1], from 0 to n, not falling
    offsets     i32 [segments]
    rotary_dim  how many of a head's first elements turn, an even number up to 512, the rest is copied; 0: all
    interleave  pairs are (2d, 2d + 1); else (d, d + rotary_dim / 2)
    rope_scale  frequencies are rope_theta^(-2d / rotary_dim) / rope_scale; above 0
    rope_theta  above 0
    q_out       as q, which it may be; None: a new one
    k_out       as k, which it may be; None: a new one

    Returns (q_out, k_out). indptr is checked on the CPU, and on a GPU with QUERN_VALIDATE=1. Raises ValueError (shape, stride,
    overlap, numbers, indices), NotImplementedError (dtype, device), TypeError (no array, no number); nothing is written then.

    >>> q, i32 = numpy.array([[[1, 0]]], numpy.float32), numpy.int32
    >>> quern.apply_rope(q, None, numpy.array([0, 1], i32), numpy.array([1], i32))[0].round(3)  # by one radian
    array([[[0.54 , 0.841]]], dtype=float32)
    """
    if (result := _recorded(q_out, k_out, "apply_rope", q, k, indptr, offsets,
                            rotary_dim, interleave, rope_scale, rope_theta)) is not None:
        return result
    q_out, k_out = _outputs(q, k, q_out, k_out)
    _ops.apply_rope(q_out, k_out, q, k, indptr, offsets, rotary_dim, interleave, rope_scale, rope_theta)
    return q_out, k_out


@public()
def apply_rope_pos_ids(q: A, k: A | None, pos_ids: Array, rotary_dim: int = 0, interleave: bool = False,
                       rope_scale: float = 1.0, rope_theta: float = 1e4, q_out: A | None = None,
                       k_out: A | None = None) -> tuple[A, A | None]:
    """Rotates tokens by position: token t stands at pos_ids[t].

    q           [n, heads, head_dim] of f32, f16 or bf16, head_dim contiguous; n may be 0
    k           as q, with heads of its own; None: q alone
    pos_ids     i32 [n], any numbers
    rotary_dim  how many of a head's first elements turn, an even number up to 512, the rest is copied; 0: all
    interleave  pairs are (2d, 2d + 1); else (d, d + rotary_dim / 2)
    rope_scale  frequencies are rope_theta^(-2d / rotary_dim) / rope_scale; above 0
    rope_theta  above 0
    q_out       as q, which it may be; None: a new one
    k_out       as k, which it may be; None: a new one

    Returns (q_out, k_out). Raises what apply_rope raises.

    >>> q = numpy.array([[[1, 0]]], numpy.float32)
    >>> quern.apply_rope_pos_ids(q, None, numpy.array([1], numpy.int32))[0].round(3)  # by one radian
    array([[[0.54 , 0.841]]], dtype=float32)
    """
    if (result := _recorded(q_out, k_out, "apply_rope_pos_ids", q, k, pos_ids,
                            rotary_dim, interleave, rope_scale, rope_theta)) is not None:
        return result
    q_out, k_out = _outputs(q, k, q_out, k_out)
    _ops.apply_rope_pos_ids(q_out, k_out, q, k, pos_ids, rotary_dim, interleave, rope_scale, rope_theta)
    return q_out, k_out


@public()
def apply_llama31_rope(q: A, k: A | None, indptr: Array, offsets: Array, rotary_dim: int = 0, interleave: bool = False,
                       rope_scale: float = 8.0, rope_theta: float = 5e5, low_freq_factor: float = 1.0,
                       high_freq_factor: float = 4.0, old_context_len: int = 8192, q_out: A | None = None,
                       k_out: A | None = None) -> tuple[A, A | None]:
    """Does apply_rope with Llama 3.1's frequencies: s f + (1 - s) f / rope_scale, s from 0 for slow pairs to 1 for fast ones.

    q                 [n, heads, head_dim] of f32, f16 or bf16, head_dim contiguous; n may be 0
    k                 as q, with heads of its own; None: q alone
    indptr            i32 [segments + 1], from 0 to n, not falling
    offsets           i32 [segments]
    rotary_dim        how many of a head's first elements turn, an even number up to 512, the rest is copied; 0: all
    interleave        pairs are (2d, 2d + 1); else (d, d + rotary_dim / 2)
    rope_scale        of slow pairs; above 0
    rope_theta        f = rope_theta^(-2d / rotary_dim); above 0
    low_freq_factor   pairs that turn less often than this in old_context_len are slow; above 0
    high_freq_factor  those that turn more often are fast; above low_freq_factor
    old_context_len   above 0
    q_out             as q, which it may be; None: a new one
    k_out             as k, which it may be; None: a new one

    Returns (q_out, k_out). indptr is checked on the CPU, and on a GPU with QUERN_VALIDATE=1. Raises what apply_rope raises.

    >>> q, i32 = numpy.array([[[1, 0]]], numpy.float32), numpy.int32
    >>> quern.apply_llama31_rope(q, None, numpy.array([0, 1], i32), numpy.array([1], i32))[0].round(3)
    array([[[0.54 , 0.841]]], dtype=float32)
    """
    if (result := _recorded(q_out, k_out, "apply_llama31_rope", q, k, indptr, offsets, rotary_dim,
                            interleave, rope_scale, rope_theta, low_freq_factor, high_freq_factor, old_context_len)) is not None:
        return result
    q_out, k_out = _outputs(q, k, q_out, k_out)
    _ops.apply_llama31_rope(q_out, k_out, q, k, indptr, offsets, rotary_dim, interleave, rope_scale, rope_theta,
                            low_freq_factor, high_freq_factor, old_context_len)
    return q_out, k_out


@public()
def apply_llama31_rope_pos_ids(q: A, k: A | None, pos_ids: Array, rotary_dim: int = 0, interleave: bool = False,
                               rope_scale: float = 8.0, rope_theta: float = 5e5, low_freq_factor: float = 1.0,
                               high_freq_factor: float = 4.0, old_context_len: int = 8192, q_out: A | None = None,
                               k_out: A | None = None) -> tuple[A, A | None]:
    """Does apply_rope_pos_ids with Llama 3.1's frequencies: s f + (1 - s) f / rope_scale, s from 0 for slow pairs to 1 for
    fast ones.

    q                 [n, heads, head_dim] of f32, f16 or bf16, head_dim contiguous; n may be 0
    k                 as q, with heads of its own; None: q alone
    pos_ids           i32 [n], any numbers
    rotary_dim        how many of a head's first elements turn, an even number up to 512, the rest is copied; 0: all
    interleave        pairs are (2d, 2d + 1); else (d, d + rotary_dim / 2)
    rope_scale        of slow pairs; above 0
    rope_theta        f = rope_theta^(-2d / rotary_dim); above 0
    low_freq_factor   pairs that turn less often than this in old_context_len are slow; above 0
    high_freq_factor  those that turn more often are fast; above low_freq_factor
    old_context_len   above 0
    q_out             as q, which it may be; None: a new one
    k_out             as k, which it may be; None: a new one

    Returns (q_out, k_out). Raises what apply_rope raises.

    >>> q = numpy.array([[[1, 0]]], numpy.float32)
    >>> quern.apply_llama31_rope_pos_ids(q, None, numpy.array([1], numpy.int32))[0].round(3)
    array([[[0.54 , 0.841]]], dtype=float32)
    """
    if (result := _recorded(q_out, k_out, "apply_llama31_rope_pos_ids", q, k, pos_ids, rotary_dim, interleave,
                            rope_scale, rope_theta, low_freq_factor, high_freq_factor, old_context_len)) is not None:
        return result
    q_out, k_out = _outputs(q, k, q_out, k_out)
    _ops.apply_llama31_rope_pos_ids(q_out, k_out, q, k, pos_ids, rotary_dim, interleave, rope_scale, rope_theta,
                                    low_freq_factor, high_freq_factor, old_context_len)
    return q_out, k_out


@public()
def apply_rope_with_cos_sin_cache(q: A, k: A | None, cos_sin_cache: Array, positions: Array, interleave: bool = False,
                                  q_out: A | None = None, k_out: A | None = None) -> tuple[A, A | None]:
    """Rotates tokens by a table of cosines and sines, whose width is the rotary_dim: token t by row positions[t].

    q              [n, heads, head_dim] of f32, f16 or bf16, head_dim contiguous; n may be 0
    k              as q, with heads of its own; None: q alone
    cos_sin_cache  f32 [max_position, rotary_dim]: in a row rotary_dim / 2 cosines, then as many sines
    positions      i32 [n], 0 to max_position - 1
    interleave     pairs are (2d, 2d + 1); else (d, d + rotary_dim / 2)
    q_out          as q, which it may be; None: a new one
    k_out          as k, which it may be; None: a new one

    Returns (q_out, k_out). positions are checked on the CPU, and on a GPU with QUERN_VALIDATE=1. Raises what apply_rope raises.

    >>> q, table = numpy.array([[[1, 2]]], numpy.float32), numpy.array([[0, 1]], numpy.float32)  # a quarter turn
    >>> quern.apply_rope_with_cos_sin_cache(q, None, table, numpy.array([0], numpy.int32))[0]
    array([[[-2.,  1.]]], dtype=float32)
    """
    if (result := _recorded(q_out, k_out, "apply_rope_with_cos_sin_cache", q, k,
                            cos_sin_cache, positions, interleave)) is not None:
        return result
    q_out, k_out = _outputs(q, k, q_out, k_out)
    _ops.apply_rope_with_cos_sin_cache(q_out, k_out, q, k, cos_sin_cache, positions, interleave)
    return q_out, k_out


@public()
def qk_rmsnorm_rope(q: A, k: A | None, q_weight: Array | None, k_weight: Array | None, cos: Array, sin: Array,
                    rotary_dim: int = 0, eps: float = 1e-6, interleave: bool = False, q_out: A | None = None,
                    k_out: A | None = None) -> tuple[A, A | None]:
    """Normalises each head by RMSNorm, then rotates it by tables with one row for each token, in one pass.

    q           [n, heads, head_dim] or [batch, n, heads, head_dim] of f32, f16 or bf16, head_dim contiguous
    k           as q, with heads of its own; None: q alone
    q_weight    [head_dim] of q's dtype or f32; None: q is not normalised
    k_weight    the weights of k's norm, as q_weight
    cos         [n, rotary_dim] or [n, rotary_dim / 2], f32 or q's dtype
    sin         as cos
    rotary_dim  how many of a head's first elements turn, an even number, the rest is copied; 0: all
    eps         finite, at least 0
    interleave  pairs are (2d, 2d + 1); else (d, d + rotary_dim / 2)
    q_out       as q, which it may be; None: a new one
    k_out       as k, which it may be; None: a new one

    Returns (q_out, k_out). Raises what apply_rope raises.

    >>> q, one, zero = (numpy.full((1, 1, 2), x, numpy.float32) for x in (3, 1, 0))
    >>> quern.qk_rmsnorm_rope(q, None, one[0, 0], None, zero[0], one[0])[0].round(3)
    array([[[-1.,  1.]]], dtype=float32)
    """
    if (result := _recorded(q_out, k_out, "qk_rmsnorm_rope", q, k, q_weight, k_weight,
                            cos, sin, rotary_dim, eps, interleave)) is not None:
        return result
    q_out, k_out = _outputs(q, k, q_out, k_out)
    _ops.qk_rmsnorm_rope(q_out, k_out, q, k, q_weight, k_weight, cos, sin, rotary_dim, eps, interleave)
    return q_out, k_out


def _like(x, out, dtype):
    return empty_like(x, dtype=dtype) if x is not None and out is None else out


@public()
def rope_quantize_fp8(q_rope: Array, k_rope: Array, cos_sin_cache: Array, pos_ids: Array, q_nope: Array | None = None,
                      k_nope: Array | None = None, quant_scale_q: float = 1.0, quant_scale_kv: float = 1.0,
                      interleave: bool = False, dtype: DType = "e4m3fn", q_rope_out: Array | None = None,
                      k_rope_out: Array | None = None, q_nope_out: Array | None = None,
                      k_nope_out: Array | None = None) -> tuple[Any, Any, Any | None, Any | None]:
    """Rotates q_rope and k_rope, multiplies all parts by their scales and rounds them to FP8, saturating.

    q_rope          [n, heads, rotary_dim] of f32, f16 or bf16; n may be 0
    k_rope          [n, heads, rotary_dim]; MLA's [n, rotary_dim]
    cos_sin_cache   f32 [max_position, rotary_dim], as in apply_rope_with_cos_sin_cache
    pos_ids         i32 [n], 0 to max_position - 1
    q_nope          what of q does not turn, [n, heads, any]; None: nothing
    k_nope          what of k does not turn, [n, heads, any], MLA's [n, any]; None: nothing
    quant_scale_q   by which q is multiplied; above 0
    quant_scale_kv  by which k is multiplied; above 0
    interleave      pairs are (2d, 2d + 1); else (d, d + rotary_dim / 2)
    dtype           of new results: e4m3fn, e4m3fnuz, e5m2 or e5m2fnuz
    q_rope_out      as q_rope, of an FP8 kind; None: a new one
    k_rope_out      as k_rope, of that kind
    q_nope_out      as q_nope, of that kind
    k_nope_out      as k_nope, of that kind

    Returns (q_rope_out, k_rope_out, q_nope_out, k_nope_out), with None for outputs without an input. pos_ids are checked on the
    CPU, and on a GPU with QUERN_VALIDATE=1. Raises what apply_rope raises, and ValueError for another dtype.

    >>> q, table = numpy.array([[[1, 2]]], numpy.float32), numpy.array([[0, 1]], numpy.float32)  # a quarter turn
    >>> q_out, *_ = quern.rope_quantize_fp8(q, q, table, numpy.array([0], numpy.int32), quant_scale_q=2.0)
    >>> q_out.astype(numpy.float32)
    array([[[-4.,  2.]]], dtype=float32)
    """
    dtype = fp8_name("rope_quantize_fp8", dtype)
    inputs = q_rope, k_rope, q_nope, k_nope
    given = q_rope_out, k_rope_out, q_nope_out, k_nope_out
    outputs = tuple(_like(x, out, dtype) for x, out in zip(inputs, given, strict=True))
    _ops.rope_quantize_fp8(*outputs, *inputs, cos_sin_cache, pos_ids, quant_scale_q, quant_scale_kv, interleave)
    return outputs


@public(is_hnd="layout")
def rope_quantize_fp8_append_paged_kv_cache(
        q_rope: Array, k_rope: Array, v: Array | None, cos_sin_cache: Array, pos_ids: Array, batch_indices: Array,
        positions: Array, kv_indices: Array, kv_indptr: Array, *, k_cache: Array | None = None,
        v_cache: Array | None = None, ckv_cache: Array | None = None, kpe_cache: Array | None = None,
        q_nope: Array | None = None, k_nope: Array | None = None, quant_scale_q: float = 1.0,
        quant_scale_kv: float = 1.0, interleave: bool = False, layout: Layout = "NHD", q_rope_out: Array | None = None,
        q_nope_out: Array | None = None) -> tuple[Any, Any | None]:
    """Does what rope_quantize_fp8 does and appends keys and values to a paged FP8 cache, in one pass: (q_rope_out, q_nope_out).

    q_rope          [n, heads, rotary_dim] of f32, f16 or bf16; n may be 0
    k_rope          [n, heads, rotary_dim]; MLA's [n, rotary_dim]
    v               [n, heads, head_dim]; MLA's None
    cos_sin_cache   f32 [max_position, rotary_dim], as in apply_rope_with_cos_sin_cache
    pos_ids         i32 [n], 0 to max_position - 1
    batch_indices   i32 [n], positions i32 [n], kv_indices i32 [pages in use], kv_indptr i32 [batches + 1]: where a token goes,
                    as in append_paged_kv_cache
    k_cache         [pages, page_size, heads, head_dim], with layout "HND" [pages, heads, page_size, head_dim], of an FP8 kind,
                    written; a head is k_rope's, then k_nope's elements
    v_cache         as k_cache, of v
    ckv_cache       MLA's, in k_cache's place: [pages, page_size, any], of k_nope, written
    kpe_cache       MLA's, in v_cache's place: [pages, page_size, rotary_dim], of k_rope, written
    q_nope          what of q does not turn, [n, heads, any]; None: nothing
    k_nope          what of k does not turn, [n, heads, any], MLA's [n, any]; None: nothing
    quant_scale_q   by which q is multiplied; above 0
    quant_scale_kv  by which k and v are multiplied; above 0
    interleave      pairs are (2d, 2d + 1); else (d, d + rotary_dim / 2)
    layout          "NHD" or "HND"
    q_rope_out      as q_rope, of the cache's kind; None: a new one
    q_nope_out      as q_nope, of the cache's kind; None: a new one

    Index arrays are checked on the CPU, and on a GPU with QUERN_VALIDATE=1. Raises what append_paged_kv_cache raises, and
    ValueError without a cache.

    >>> import ml_dtypes
    >>> cache = numpy.zeros((1, 4, 1, 2), ml_dtypes.float8_e4m3fn)
    >>> x, table, zero = numpy.ones((1, 1, 2), numpy.float32), numpy.array([[0, 1]], numpy.float32), numpy.zeros(1, numpy.int32)
    >>> q_out, _ = quern.rope_quantize_fp8_append_paged_kv_cache(
    ...     x, x, x, table, zero, zero, zero, zero, numpy.array([0, 1], numpy.int32), k_cache=cache, v_cache=cache.copy())
    >>> cache[0, 0].astype(numpy.float32)
    array([[-1.,  1.]], dtype=float32)
    """
    op = "rope_quantize_fp8_append_paged_kv_cache"
    cache = next((c for c in (k_cache, ckv_cache) if c is not None), None)
    if cache is None:
        raise ValueError(f"{op}: k_cache and ckv_cache are None; one of them is needed")
    kind = dtype_name(cache.dtype)
    q_rope_out, q_nope_out = _like(q_rope, q_rope_out, kind), _like(q_nope, q_nope_out, kind)
    _ops.rope_quantize_fp8_append_paged_kv_cache(
        q_rope_out, q_nope_out, k_cache, v_cache, ckv_cache, kpe_cache, q_rope, k_rope, q_nope, k_nope, v, cos_sin_cache,
        pos_ids, batch_indices, positions, kv_indices, kv_indptr, quant_scale_q, quant_scale_kv, interleave,
        is_hnd(op, layout))
    return q_rope_out, q_nope_out
