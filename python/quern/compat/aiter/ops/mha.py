# SPDX-License-Identifier: Apache-2.0
"""AITER's attention over dense, ragged and paged keys. Masks count from the bottom right; a query that sees no key gives zeros;
log-sum-exps are natural ones, [.., heads, queries]. Index arrays are read on the host, which waits for the device.

deterministic, how_v3_bf16_cvt, num_splits, max_seqlen_q, max_seqlen_k  hints
sink_ptr  [heads]: e^sink joins a query's denominator
"""

from __future__ import annotations

from typing import Any

import torch

from .... import _attention
from ...._public import flag, found
from .. import _check
from .._run import run
from ._attend import attend, compact, from_x_key, from_x_value, pages, planned, softmax, window

Tensor = torch.Tensor
Window = tuple[int, int] | tuple[int, int, int]
_ALIBI = "slopes of its own"
_PADDED = "padding between sequences"


def _check_common(op, dropout_p, alibi_slopes, return_attn_probs, **hints):
    _check.only(op, "for training", 0, dropout_p=dropout_p)
    _check.refuse(op, _ALIBI, alibi_slopes=alibi_slopes)
    _check.only(op, "for AITER's own tests", False, return_attn_probs=return_attn_probs)
    for name, value in hints.items():
        (_check.hints(op, **{name: value}) if name == "deterministic" else _check.integer(op, name, value, 0))


def _sinks(op, sink_ptr, heads):
    if sink_ptr is None:
        return None
    _check.shape(op, "sink_ptr", sink_ptr, heads)
    return sink_ptr.float()


def flash_attn_func(q: Tensor, k: Tensor, v: Tensor, dropout_p: float = 0.0, softmax_scale: float | None = None,
                    causal: bool = False, window_size: Window = (-1, -1, 0), bias: Tensor | None = None,
                    alibi_slopes: None = None, deterministic: bool = True, return_lse: bool = False, return_attn_probs: bool = False,
                    how_v3_bf16_cvt: int = 1, cu_seqlens_q: None = None, cu_seqlens_kv: None = None,
                    sink_ptr: Tensor | None = None, num_splits: int = 0) -> Any:
    """Returns attention of q [batch, n, heads, dim] over k, v [batch, m, kv heads, dim]: out, or (out, lse [batch, heads, n]).

    bias  [n, m], added to scores; not with causal
    """
    op = "flash_attn_func"
    _check_common(op, dropout_p, alibi_slopes, return_attn_probs, deterministic=deterministic, how_v3_bf16_cvt=how_v3_bf16_cvt,
                  num_splits=num_splits)
    _check.refuse(op, _PADDED, cu_seqlens_q=cu_seqlens_q, cu_seqlens_kv=cu_seqlens_kv)
    return _dense(op, q, k, v, softmax_scale, causal, window_size, bias, return_lse, sink_ptr)


def _dense(op, q, k, v, softmax_scale, causal, window_size, bias=None, return_lse=False, sink_ptr=None, **scales):
    _check.tensors(op, {"q": q, "k": k, "v": v, "bias": bias, "sink_ptr": sink_ptr}, none=("bias", "sink_ptr"))
    _check.shape(op, "q", q, None, None, None, None)
    causal, return_lse = flag(op, "causal", causal), flag(op, "return_lse", return_lse)
    if bias is not None and causal:
        raise NotImplementedError(f"{op}: bias is {found(bias)}; accepted with causal: None")
    result = run(op, _attention.attention, {"mask": "bias"}, q, k, v, is_causal=causal, mask=bias, return_lse=return_lse, lse_base="e",
                 sinks=_sinks(op, sink_ptr, q.shape[2]), **softmax(op, "softmax_scale", softmax_scale, "", 0.0),
                 **window(op, "window_size", window_size, causal), **scales)
    return (result[0], result[1].transpose(1, 2).contiguous()) if return_lse else result


def flash_attn_varlen_func(q: Tensor, k: Tensor, v: Tensor, cu_seqlens_q: Tensor, cu_seqlens_k: Tensor, max_seqlen_q: int,
                           max_seqlen_k: int, min_seqlen_q: int = 0, dropout_p: float = 0.0, softmax_scale: float | None = None,
                           logits_soft_cap: float = 0.0, causal: bool = False, window_size: Window = (-1, -1, 0), bias: None = None,
                           alibi_slopes: None = None, deterministic: bool = False, return_lse: bool = False,
                           return_attn_probs: bool = False, how_v3_bf16_cvt: int = 1, block_table: Tensor | None = None,
                           out: Tensor | None = None, cu_seqlens_q_padded: None = None, cu_seqlens_k_padded: None = None,
                           sink_ptr: Tensor | None = None) -> Any:
    """Returns attention of sequences one after another, q [tokens, heads, dim] and k, v [tokens, kv heads, dim]: out, or
    (out, lse [heads, tokens]).

    cu_seqlens_q, cu_seqlens_k  i32 [sequences + 1], where each begins
    min_seqlen_q                0 or 1, which skip nothing
    block_table                 i32 [sequences, pages]: k and v are pages [pages, size, kv heads, dim]
    out                         written and returned; None: a new one
    """
    op = "flash_attn_varlen_func"
    _check_common(op, dropout_p, alibi_slopes, return_attn_probs, deterministic=deterministic, how_v3_bf16_cvt=how_v3_bf16_cvt)
    _check.refuse(op, _PADDED, cu_seqlens_q_padded=cu_seqlens_q_padded, cu_seqlens_k_padded=cu_seqlens_k_padded)
    _check.refuse(op, "which is added to scores", bias=bias)
    return _ragged(op, q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, min_seqlen_q, softmax_scale, logits_soft_cap,
                   causal, window_size, sink_ptr, block_table, out, flag(op, "return_lse", return_lse))


def _ragged(op, q, k, v, cu_q, cu_k, max_q, max_k, min_q, softmax_scale, cap, causal, window_size, sink_ptr, block_table=None, out=None,
            return_lse=False, **scales):
    named = {"q": q, "k": k, "v": v, "out": out, "block_table": block_table, "sink_ptr": sink_ptr}
    _check.tensors(op, named, none=("out", "block_table", "sink_ptr"))
    _check.shape(op, "q", q, None, None, None)
    _check.integer(op, "max_seqlen_q", max_q, 0)
    _check.integer(op, "max_seqlen_k", max_k, 0)
    _check.integer(op, "min_seqlen_q", min_q, 0, 1)
    causal = flag(op, "causal", causal)
    names = {"qo_indptr": "cu_seqlens_q", "kv_indptr": "cu_seqlens_k"}
    options = {**softmax(op, "softmax_scale", softmax_scale, "logits_soft_cap", cap), **window(op, "window_size", window_size, causal),
               "is_causal": causal, "sinks": _sinks(op, sink_ptr, q.shape[1]), **scales}
    if block_table is None:
        return attend(op, out, q, k, v, planned(op, names, q, k, v, cu_q, cu_k), return_lse, **options)
    _check.shape(op, "k", k, None, None, None, None)
    indices, indptr, last = pages(op, "block_table", block_table, "cu_seqlens_k.diff()", cu_k.diff(), k.shape[1])
    return attend(op, out, q, k, v, planned(op, names, q, k, v, cu_q, indptr, last, k.shape[1]), return_lse, kv_indices=indices,
                  names={"kv_indices": "block_table"}, **options)


def _of_x_pages(op, k, v, dim, indices):
    """Returns (k, v, indices) of a copy of the pages in use, in quern's order."""
    x = 16 // k.element_size()
    _, heads, _, size, _ = k.shape
    _check.shape(op, "k", k, None, None, dim // x, None, x)
    _check.shape(op, "v", v, None, heads, size // x, None, x)
    numbers = torch.arange(len(indices), dtype=torch.int32, device=indices.device)
    return compact(k, indices, from_x_key), compact(v, indices, from_x_value), numbers


def mha_batch_prefill_func(q: Tensor, k: Tensor, v: Tensor, cu_seqlens_q: Tensor, kv_indptr: Tensor, kv_page_indices: Tensor,
                           max_seqlen_q: int, max_seqlen_k: int, dropout_p: float = 0.0, softmax_scale: float | None = None,
                           logits_soft_cap: float = 0.0, causal: bool = False, window_size: Window = (-1, -1),
                           alibi_slopes: None = None, deterministic: bool = False, return_lse: bool = False,
                           return_attn_probs: bool = False, out: Tensor | None = None, kv_last_page_lens: Tensor | None = None,
                           block_table: None = None, seqlen_k: None = None, q_descale: Tensor | None = None,
                           k_descale: Tensor | None = None, v_descale: Tensor | None = None, kv_block_descale: None = None,
                           sink_ptr: Tensor | None = None, sink_size: int = 0) -> Any:
    """Returns attention of ragged q [tokens, heads, dim] over pages: out, or (out, lse [heads, tokens]).

    k, v               [pages, size, kv heads, dim], or [tokens, kv heads, dim] of pages of one token, or, of which the pages in use are
                       copied, k [pages, kv heads, dim / x, size, x] and v [pages, kv heads, size / x, dim, x], x = 16 bytes of elements
    kv_indptr          i32 [requests + 1], where each one's pages begin in kv_page_indices
    kv_last_page_lens  i32 [requests]; None: pages are full
    q_descale, k_descale, v_descale  f32 [1] or [kv heads], of FP8
    """
    op = "mha_batch_prefill_func"
    _check_common(op, dropout_p, alibi_slopes, return_attn_probs, deterministic=deterministic)
    _check.refuse(op, "beside kv_indptr", block_table=block_table, seqlen_k=seqlen_k)
    _check.refuse(op, "a scale for each page", kv_block_descale=kv_block_descale)
    _check.only(op, "first keys that all queries see", 0, sink_size=sink_size)
    _check.tensors(op, {"q": q, "k": k, "v": v, "kv_page_indices": kv_page_indices, "out": out}, none=("out",))
    _check.shape(op, "q", q, None, None, None)
    for name, value in (("max_seqlen_q", max_seqlen_q), ("max_seqlen_k", max_seqlen_k)):
        _check.integer(op, name, value, 0)
    kv_indptr = kv_indptr.cpu()
    if k.ndim == 5:
        k, v, kv_page_indices = _of_x_pages(op, k, v, q.shape[2], kv_page_indices[:int(kv_indptr[-1])])
    k, v = (x.unsqueeze(1) if x.ndim == 3 else x for x in (k, v))
    _check.shape(op, "k", k, None, None, None, q.shape[2])
    size, causal = k.shape[1], flag(op, "causal", causal)
    last = torch.full((len(kv_indptr) - 1,), size, dtype=torch.int32) if kv_last_page_lens is None else kv_last_page_lens.cpu()
    names = {"qo_indptr": "cu_seqlens_q", "kv_last_page_len": "kv_last_page_lens"}
    return attend(op, out, q, k, v, planned(op, names, q, k, v, cu_seqlens_q, kv_indptr, last, size), flag(op, "return_lse", return_lse),
                  {"kv_indices": "kv_page_indices"}, kv_indices=kv_page_indices, is_causal=causal,
                  sinks=_sinks(op, sink_ptr, q.shape[1]), **_descales(op, q, k, q_descale, k_descale, v_descale),
                  **softmax(op, "softmax_scale", softmax_scale, "logits_soft_cap", logits_soft_cap),
                  **window(op, "window_size", window_size, causal))


def _descales(op, q, k, q_descale, k_descale, v_descale):
    heads = k.shape[-2]
    return {"q_scales": _check.scale(op, "q_descale", q_descale, q, q.shape[-2]),
            "k_scales": _check.scale(op, "k_descale", k_descale, q, heads),
            "v_scales": _check.scale(op, "v_descale", v_descale, q, heads)}


def flash_attn_fp8_pertensor_func(q: Tensor, k: Tensor, v: Tensor, q_descale: Tensor, k_descale: Tensor, v_descale: Tensor,
                                  causal: bool = False, window_size: Window = (-1, -1, 0), softmax_scale: float | None = None,
                                  sink_ptr: Tensor | None = None) -> Tensor:
    """Returns flash_attn_func of FP8 with scales f32 [1], in bf16."""
    op = "flash_attn_fp8_pertensor_func"
    _check.tensors(op, {"q": q, "k": k, "v": v})
    return _dense(op, q, k, v, softmax_scale, causal, window_size, None, False, sink_ptr, **_descales(op, q, k, q_descale, k_descale,
                                                                                                    v_descale))


def flash_attn_varlen_fp8_pertensor_func(q: Tensor, k: Tensor, v: Tensor, q_descale: Tensor, k_descale: Tensor, v_descale: Tensor,
                                         cu_seqlens_q: Tensor, cu_seqlens_k: Tensor, max_seqlen_q: int, max_seqlen_k: int,
                                         min_seqlen_q: int = 0, logits_soft_cap: float = 0.0, causal: bool = False,
                                         window_size: Window = (-1, -1, 0), softmax_scale: float | None = None,
                                         sink_ptr: Tensor | None = None) -> Tensor:
    """Returns flash_attn_varlen_func of FP8 with scales f32 [1], in bf16."""
    op = "flash_attn_varlen_fp8_pertensor_func"
    _check.tensors(op, {"q": q, "k": k, "v": v})
    return _ragged(op, q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, min_seqlen_q, softmax_scale, logits_soft_cap,
                   causal, window_size, sink_ptr, **_descales(op, q, k, q_descale, k_descale, v_descale))
