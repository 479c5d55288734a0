# SPDX-License-Identifier: Apache-2.0
"""Multi-head latent attention (MLA) over paged caches of compressed keys and values."""

from __future__ import annotations

from typing import Any, Literal, overload

from . import _ops
from ._attention import LSE_BASES, AttentionPlan, choice, new_output, scheduled
from ._public import flag, public
from ._tensor import dims, empty_like
from ._types import A, Array, DType, LseBase


@overload
def mla_decode(q_nope: A, q_pe: Array, ckv: Array, kpe: Array, *, plan: AttentionPlan, kv_indices: Array, sm_scale: float,
               return_lse: Literal[False] = False, is_causal: bool = ..., q_scale: float = ..., kv_scale: float = ...,
               q_scales: Array | None = ..., kv_scales: Array | None = ..., ckv_scales: Array | None = ..., lse_base: LseBase = ...,
               dtype: DType | None = ..., out: A | None = ..., lse: Array | None = ..., workspace: Array | None = ...) -> A: ...


@overload
def mla_decode(q_nope: A, q_pe: Array, ckv: Array, kpe: Array, *, plan: AttentionPlan, kv_indices: Array, sm_scale: float,
               return_lse: bool, is_causal: bool = ..., q_scale: float = ..., kv_scale: float = ...,
               q_scales: Array | None = ..., kv_scales: Array | None = ..., ckv_scales: Array | None = ..., lse_base: LseBase = ...,
               dtype: DType | None = ..., out: A | None = ..., lse: Array | None = ..., workspace: Array | None = ...) -> tuple[A, Any]: ...


@public(o="out")
def mla_decode(q_nope: Array, q_pe: Array, ckv: Array, kpe: Array, *, plan: AttentionPlan, kv_indices: Array, sm_scale: float,
               is_causal: bool = False, q_scale: float = 1.0, kv_scale: float = 1.0, q_scales: Array | None = None,
               kv_scales: Array | None = None, ckv_scales: Array | None = None, lse_base: LseBase = 2, return_lse: bool = False,
               dtype: DType | None = None, out: Array | None = None, lse: Array | None = None, workspace: Array | None = None) -> Any:
    """Computes softmax(sm_scale (q_nope ckv^T + q_pe kpe^T)) ckv, with the up-projections absorbed into q and the result: out, or
    (out, lse) with return_lse. All heads share the keys.

    q_nope      [tokens, heads, dim] of f32, f16, bf16 or FP8, dim up to 512; any strides but the last, so that q_nope and q_pe
                may be views of one array, and ckv and kpe of one cache
    q_pe        [tokens, heads, rope_dim] of q_nope's dtype, rope_dim up to 64
    ckv         [pages, page_size, dim] of f32, f16, bf16 or FP8
    kpe         [pages, page_size, rope_dim] of ckv's dtype; with ckv_scales of f32, f16 or bf16
    plan        an AttentionPlan with num_kv_heads 1 and head_dim_vo dim, of q's heads and the caches' page_size
    kv_indices  i32: the requests' pages, one after another; checked on the CPU, and on a GPU with QUERN_VALIDATE=1
    sm_scale    above 0; often 1 / sqrt(head_dim) of the heads before the absorption: 192 ** -0.5 in DeepSeek's models
    is_causal   query i sees keys up to i + kv_len - qo_len
    q_scale     of FP8 q; above 0
    kv_scale    of FP8 caches; above 0
    q_scales    f32 [heads], a further scale for each head
    kv_scales   f32 [1], a further scale of both caches
    ckv_scales  f32 [pages, page_size, ceil(dim / 128)], of FP8 ckv: a scale for each 128 elements, as quantize_and_cache_mla writes
                them ("fp8_ds_mla"); slow on GPUs
    lse_base    2 or "e": of lse
    return_lse  whether the result is (out, lse)
    dtype       of a new out: f32, f16 or bf16; None: q_nope's, bf16 for FP8
    out         [tokens, heads, dim]; None: a new one
    lse         f32 [tokens, heads], -infinity for a query that sees no key; written if it is given; None: a new one if it is
                returned
    workspace   u8 of plan.workspace_bytes at least; None: made as needed

    A query that sees no key gives zeros. Raises ValueError (shape, stride, overlap, numbers, a plan for other arrays, indices),
    NotImplementedError (dtype, dim above 512, rope_dim above 64, device), TypeError (no array, no number); nothing is written
    then.

    >>> q, cache = numpy.zeros((1, 2, 6), numpy.float32), numpy.arange(24, dtype=numpy.float32).reshape(2, 2, 6)
    >>> plan = quern.attention_plan(2, 1, 4, qo_indptr=[0, 1], kv_indptr=[0, 2], kv_last_page_len=[1], page_size=2)
    >>> quern.mla_decode(q[..., :4], q[..., 4:], cache[..., :4], cache[..., 4:], plan=plan,
    ...                  kv_indices=numpy.array([1, 0], numpy.int32), sm_scale=0.5)[0, 0].round()
    array([10., 11., 12., 13.], dtype=float32)
    """
    out = new_output("mla_decode", q_nope, lambda: dims("mla_decode", "q_nope", q_nope, 3), dtype, out)
    return_lse = flag("mla_decode", "return_lse", return_lse)
    if return_lse and lse is None:
        lse = empty_like(q_nope, shape=tuple(q_nope.shape[:-1]), dtype="f32")
    host, schedule, workspace = scheduled(plan, q_nope, workspace)
    _ops.mla_decode(out, lse, q_nope, q_pe, ckv, kpe, ckv_scales, kv_indices, host, schedule, workspace, q_scales, kv_scales,
                    flag("mla_decode", "is_causal", is_causal), choice("mla_decode", "lse_base", lse_base, LSE_BASES), sm_scale,
                    q_scale, kv_scale)
    return (out, lse) if return_lse else out
