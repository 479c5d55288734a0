# SPDX-License-Identifier: Apache-2.0
"""Attention of prompts and decodes alike over paged caches."""

from __future__ import annotations

import torch

from ......_public import found
from .... import _check
from ..._attend import attend, pages, planned, softmax, window

Tensor = torch.Tensor


def _descale(op, name, scale, requests, heads, like):
    """Returns f32 [heads] of a number, [1] or [requests, heads] whose rows are equal."""
    if isinstance(scale, torch.Tensor) and scale.numel() > 1:
        if scale.numel() != requests * heads:
            raise ValueError(f"{op}: {name} has shape {list(scale.shape)}, needs [{requests}, {heads}] or [1]")
        scale = scale.reshape(requests, heads)
        if not bool((scale == scale[:1]).all()):
            raise NotImplementedError(f"{op}: {name} is {found(scale)} of several rows; accepted: rows that are equal")
        scale = scale[0]
    return _check.scale(op, name, scale, like, heads)


def unified_attention(q: Tensor, k: Tensor, v: Tensor, out: Tensor, cu_seqlens_q: Tensor, max_seqlen_q: int, seqused_k: Tensor,
                      max_seqlen_k: int, softmax_scale: float, causal: bool, window_size: tuple[int, int], block_table: Tensor,
                      softcap: float, q_descale: Tensor | None, k_descale: Tensor | None, v_descale: Tensor | None,
                      q_scales: None = None, alibi_slopes: None = None, output_scale: None = None, qq_bias: None = None,
                      sinks: Tensor | None = None, shuffled_kv_cache: bool = False, skip_reduce: bool = False) -> None:
    """Writes to out causal attention of ragged q [tokens, heads, dim] over pages k, v [blocks, size, kv heads, dim].

    seqused_k    i32 [requests], keys of each; block_table i32 [requests, blocks]; both are read on the host, as cu_seqlens_q is
    window_size  (left, right), of which the left counts; -1: no bound
    q_descale, k_descale, v_descale  f32 [1] or [requests, kv heads] of equal rows, of FP8; None: 1
    sinks        [heads]: e^sink joins a query's denominator
    max_seqlen_q, max_seqlen_k  hints
    """
    op = "unified_attention"
    _check.tensors(op, {"out": out, "q": q, "k": k, "v": v, "block_table": block_table, "sinks": sinks}, none=("sinks",))
    _check.only(op, "which AITER refuses, too", True, causal=causal)
    _check.refuse(op, "which quern's attention lacks", q_scales=q_scales, alibi_slopes=alibi_slopes, output_scale=output_scale,
                  qq_bias=qq_bias)
    _check.only(op, "another order of keys; set VLLM_ROCM_SHUFFLE_KV_CACHE_LAYOUT=0", False, shuffled_kv_cache=shuffled_kv_cache)
    _check.only(op, "partial results", False, skip_reduce=skip_reduce)
    _check.integer(op, "max_seqlen_q", max_seqlen_q, 0)
    _check.integer(op, "max_seqlen_k", max_seqlen_k, 0)
    _check.shape(op, "k", k, None, None, None, None)
    indices, indptr, last = pages(op, "block_table", block_table, "seqused_k", seqused_k, k.shape[1])
    heads, requests = k.shape[2], len(block_table)
    if sinks is not None:
        _check.shape(op, "sinks", sinks, q.shape[1])
    plan = planned(op, {"qo_indptr": "cu_seqlens_q"}, q, k, v, cu_seqlens_q, indptr, last, k.shape[1])
    attend(op, out, q, k, v, plan, names={"kv_indices": "block_table"}, kv_indices=indices, is_causal=True,
           sinks=None if sinks is None else sinks.float(), q_scales=_check.scale(op, "q_descale", q_descale, q, q.shape[1]),
           k_scales=_descale(op, "k_descale", k_descale, requests, heads, q),
           v_scales=_descale(op, "v_descale", v_descale, requests, heads, q),
           **softmax(op, "softmax_scale", softmax_scale, "softcap", softcap), **window(op, "window_size", window_size, True))
