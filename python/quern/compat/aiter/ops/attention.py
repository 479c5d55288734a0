# SPDX-License-Identifier: Apache-2.0
"""AITER's attention over paged caches, for decoding. All write to out and return it. Lengths and block tables are read on the host,
which waits for the device.

workspace_buffer, exp_sums, max_logits, tmp_out, partition_size, max_num_partitions, max_context_len and the like change nothing
k_scale, v_scale  a number, or f32 [1] or [kv heads], of FP8 caches
kv_cache_dtype    "auto"; "fp8", "fp8_e4m3": a cache of bytes is of AITER's dtypes.fp8
"""

from __future__ import annotations

from typing import Any

import torch

from ...._public import found
from .. import _check
from .._absent import PERSISTENT, absent
from ._attend import attend, compact, from_x_key, from_x_value, pages, planned, softmax

Tensor = torch.Tensor
Scale = Tensor | float | None
_SLOPES = "slopes of its own"
_OUT_SCALE = "which makes the result FP8"


def _queries(op, query, batches, cu_query_lens, mtp):
    """Returns where each request's queries begin."""
    if cu_query_lens is None:
        _check.only(op, "which needs cu_query_lens", 1, mtp=mtp)
        _check.shape(op, "query", query, batches, None, None)
        return torch.arange(batches + 1, dtype=torch.int32)
    _check.integer(op, "mtp", mtp, 1)
    _check.shape(op, "query", query, None, None, None)
    if cu_query_lens.shape == (batches,):  # vLLM leaves out where the last one's end
        return torch.cat([cu_query_lens, cu_query_lens.new_full((1,), len(query))])
    return cu_query_lens


def _paged(op, out, query, key, value, qo, paging, k_scale, v_scale, options, names, layout="NHD", window=0, q_scale=None):
    """Attends by (kv_indices, kv_indptr, last_page_len), pages being NHD or HND."""
    indices, indptr, last = paging
    size, heads = (key.shape[1], key.shape[2]) if layout == "NHD" else (key.shape[2], key.shape[1])
    k, v = (key, value) if layout == "NHD" else (key.transpose(1, 2), value.transpose(1, 2))
    plan = planned(op, names, query, k, v, qo, indptr, last, size)
    scales = {"q_scales": _check.scale(op, "q_scale", q_scale, query, query.shape[1])}
    if key.dtype in _check.FP8:
        scales |= {"k_scales": _check.scale(op, "k_scale", k_scale, query, heads),
                   "v_scales": _check.scale(op, "v_scale", v_scale, query, heads)}
    return attend(op, out, query, k, v, plan, names={"k": "key_cache", "v": "value_cache", "q": "query", **names}, kv_indices=indices,
                  is_causal=True, window_left=window - 1 if window else -1, **scales, **options)


def _check_layout(op, layout):
    if layout not in ("NHD", "HND"):
        raise ValueError(f"{op}: kv_cache_layout is {found(layout)}; accepted: 'NHD', 'HND'")


def paged_attention_v1(out: Tensor, workspace_buffer: Tensor, query: Tensor, key_cache: Tensor, value_cache: Tensor, scale: float,
                       block_tables: Tensor, cu_query_lens: Tensor | None, context_lens: Tensor, max_context_len: int,
                       alibi_slopes: None, kv_cache_dtype: str, kv_cache_layout: str, logits_soft_cap: float, k_scale: Scale,
                       v_scale: Scale, fp8_out_scale: None = None, partition_size: int = 256, mtp: int = 1,
                       sliding_window: int = 0) -> Tensor:
    """Computes attention of query [requests, heads, dim] over pages of any strides.

    key_cache, value_cache  [blocks, size, kv heads, dim], with kv_cache_layout "HND" [blocks, kv heads, size, dim]
    block_tables            i32 [requests, blocks]; context_lens i32 [requests]
    cu_query_lens           i32 [requests + 1], where each request's queries begin, or [requests] without the end; None: one each, and
                            mtp is 1
    sliding_window          how many last keys a query sees; 0: all
    """
    op = "paged_attention_v1"
    _check.tensors(op, {"out": out, "query": query, "key_cache": key_cache, "value_cache": value_cache, "block_tables": block_tables})
    _check.refuse(op, _SLOPES, alibi_slopes=alibi_slopes)
    _check.refuse(op, _OUT_SCALE, fp8_out_scale=fp8_out_scale)
    _check_layout(op, kv_cache_layout)
    _check.integer(op, "partition_size", partition_size, 1)
    key_cache, value_cache = _check.fp8_values(op, kv_cache_dtype, key_cache=key_cache, value_cache=value_cache)
    _check.shape(op, "key_cache", key_cache, None, None, None, None)
    size = key_cache.shape[1 if kv_cache_layout == "NHD" else 2]
    paging = pages(op, "block_tables", block_tables, "context_lens", context_lens, size)
    return _paged(op, out, query, key_cache, value_cache, _queries(op, query, len(block_tables), cu_query_lens, mtp), paging, k_scale,
                  v_scale, softmax(op, "scale", scale, "logits_soft_cap", logits_soft_cap),
                  {"qo_indptr": "cu_query_lens", "kv_indices": "block_tables"}, kv_cache_layout,
                  _check.integer(op, "sliding_window", sliding_window, 0))


def paged_attention_ragged(out: Tensor, workspace_buffer: Tensor, query: Tensor, key_cache: Tensor, value_cache: Tensor, scale: float,
                           kv_indptr: Tensor, kv_page_indices: Tensor, kv_last_page_lens: Tensor, block_size: int,
                           max_num_partitions: int, alibi_slopes: None, kv_cache_dtype: str, kv_cache_layout: str,
                           logits_soft_cap: float, k_scale: Scale, v_scale: Scale, fp8_out_scale: None = None,
                           partition_size: int = 256, mtp: int = 1) -> Tensor:
    """Computes paged_attention_v1 of pages that kv_page_indices lists, request i's from kv_indptr[i] on. block_size is the
    caches' own."""
    op = "paged_attention_ragged"
    _check.tensors(op, {"out": out, "query": query, "key_cache": key_cache, "value_cache": value_cache,
                        "kv_page_indices": kv_page_indices})
    _check.refuse(op, _SLOPES, alibi_slopes=alibi_slopes)
    _check.refuse(op, _OUT_SCALE, fp8_out_scale=fp8_out_scale)
    _check_layout(op, kv_cache_layout)
    _check.integer(op, "partition_size", partition_size, 1)
    key_cache, value_cache = _check.fp8_values(op, kv_cache_dtype, key_cache=key_cache, value_cache=value_cache)
    _check.shape(op, "key_cache", key_cache, None, None, None, None)
    size = key_cache.shape[1 if kv_cache_layout == "NHD" else 2]
    _check.integer(op, "block_size", block_size, size, size)
    return _paged(op, out, query, key_cache, value_cache, _queries(op, query, len(kv_indptr) - 1, None, mtp),
                  (kv_page_indices, kv_indptr, kv_last_page_lens.cpu()), k_scale, v_scale,
                  softmax(op, "scale", scale, "logits_soft_cap", logits_soft_cap),
                  {"kv_indices": "kv_page_indices", "kv_last_page_len": "kv_last_page_lens"}, kv_cache_layout)


# ---- caches in AITER's own layouts

def _own_layout(op, out, query, key, value, qo, block_tables, lens, scale, k_scale, v_scale, names, q_scale=None):
    """Attends over a copy of the pages in use, K [blocks, heads, dim / x, size, x] and V [blocks, heads, dim, size] or
    [blocks, heads, size / x, dim, x]."""
    _check.shape(op, names["k"], key, None, None, None, None, None)
    indices, indptr, last = pages(op, "block_tables", block_tables, "context_lens", lens, key.shape[3])
    if value.ndim not in (4, 5):
        raise ValueError(f"{op}: {names['v']} has shape {list(value.shape)}, needs 4 or 5 dimensions")
    key, value = compact(key, indices, from_x_key), compact(value, indices, from_x_value)
    numbers = torch.arange(len(indices), dtype=torch.int32, device=query.device)
    return _paged(op, out, query, key, value, qo, (numbers, indptr, last), k_scale, v_scale, softmax(op, "scale", scale, "", 0.0), names,
                  q_scale=q_scale)


def paged_attention_rocm(out: Tensor, exp_sums: Tensor, max_logits: Tensor, tmp_out: Tensor, query: Tensor, key_cache: Tensor,
                         value_cache: Tensor, num_kv_heads: int, scale: float, block_tables: Tensor, context_lens: Tensor,
                         block_size: int, max_context_len: int, alibi_slopes: None, kv_cache_dtype: str, k_scale: Scale,
                         v_scale: Scale, fp8_out_scale: None = None, partition_size: int = 256, mtp: int = 1,
                         q_scale: Scale = None) -> Tensor:
    """Computes attention over caches K [blocks, kv heads, dim / x, size, x], V [blocks, kv heads, dim, size], x = 16 bytes of
    elements. Pages in use are copied. num_kv_heads and block_size are the caches' own; mtp is 1."""
    op = "paged_attention_rocm"
    _check.tensors(op, {"out": out, "query": query, "key_cache": key_cache, "value_cache": value_cache, "block_tables": block_tables})
    _check.refuse(op, _SLOPES, alibi_slopes=alibi_slopes)
    _check.refuse(op, _OUT_SCALE, fp8_out_scale=fp8_out_scale)
    key_cache, value_cache = _check.fp8_values(op, kv_cache_dtype, key_cache=key_cache, value_cache=value_cache)
    _check.shape(op, "key_cache", key_cache, None, num_kv_heads, None, block_size, None)
    qo = _queries(op, query, len(block_tables), None, mtp)
    return _own_layout(op, out, query, key_cache, value_cache, qo, block_tables, context_lens, scale, k_scale, v_scale,
                       {"k": "key_cache", "v": "value_cache"}, q_scale)


_PER_TOKEN = "scales for each token"


def _per_tensor(op, **scales):
    for name, scale in scales.items():
        if isinstance(scale, torch.Tensor) and scale.numel() > 1:
            raise NotImplementedError(f"{op}: {name} is {found(scale)} of {scale.numel()}, {_PER_TOKEN}; accepted: None, one number")


def _asm(op, Q, K, V, block_tables, context_lens, scale, k_scale, v_scale, out_, qo_indptr, max_qlen):
    _check.tensors(op, {"Q": Q, "K": K, "V": V, "block_tables": block_tables, "out_": out_}, none=("out_",))
    _per_tensor(op, K_QScale=k_scale, V_QScale=v_scale)
    qo = _queries(op, Q, len(block_tables), qo_indptr, max_qlen)
    return _own_layout(op, torch.empty_like(Q) if out_ is None else out_, Q, K, V, qo, block_tables, context_lens, scale, k_scale, v_scale,
                       {"k": "K", "v": "V", "q": "Q", "out": "out_"})


def pa_fwd_asm(Q: Tensor, K: Tensor, V: Tensor, block_tables: Tensor, context_lens: Tensor, block_tables_stride0: int,
               max_qlen: int = 1, K_QScale: Scale = None, V_QScale: Scale = None, out_: Tensor | None = None,
               qo_indptr: Tensor | None = None, high_precision: int | None = 1, kernelName: str | None = None) -> Tensor:
    """Returns attention over paged_attention_rocm's caches, or V [blocks, kv heads, size / x, dim, x], scores times
    1 / sqrt(dim). K_QScale, V_QScale: None or one number each; block_tables_stride0, high_precision and kernelName change nothing."""
    return _asm("pa_fwd_asm", Q, K, V, block_tables, context_lens, None, K_QScale, V_QScale, out_, qo_indptr, max_qlen)


def paged_attention_common(Q: Tensor, K: Tensor, V: Tensor, exp_sums: Any, max_logits: Any, tmp_out: Any, block_tables: Tensor,
                           context_lens: Tensor, block_tables_stride0: int, scale: float, max_qlen: int = 1, max_seq_len: int = 1,
                           K_QScale_hip: Scale = None, V_QScale_hip: Scale = None, K_QScale_asm: Scale = None,
                           V_QScale_asm: Scale = None, out_: Tensor | None = None, qo_indptr: Tensor | None = None,
                           high_precision: int | None = 1, kernelName: str | None = None, kv_cache_dtype: str = "auto",
                           kv_cache_tensor_dtype: torch.dtype | None = None) -> Tensor:
    """Returns pa_fwd_asm with that scale. Of the scales of keys those of _hip are read, one number each; the _asm ones, which say the
    same of each token, change nothing."""
    op = "paged_attention_common"
    K, V = _check.fp8_values(op, kv_cache_dtype, K=K, V=V)
    return _asm(op, Q, K, V, block_tables, context_lens, scale, K_QScale_hip, V_QScale_hip, out_, qo_indptr, max_qlen)


# ---- schedules, which quern does not need

_TINY = (1, torch.uint64), (1, torch.int32), (1, torch.int32), (1, torch.int32), (1, torch.int32), (1, torch.int32)


def get_mla_metadata_info_v1(batch_size: int, max_seqlen_qo: int, num_head_qo: int, q_dtype: torch.dtype, kv_dtype: torch.dtype,
                             is_sparse: bool = False, fast_mode: bool = True, num_kv_splits: int = 32,
                             intra_batch_mode: bool = False, max_split_per_batch: int = -1) -> tuple[tuple[int, torch.dtype], ...]:
    """Returns six (shape, dtype) of get_mla_metadata_v1's buffers: one element each, whatever the arguments."""
    return _TINY


def get_mla_metadata_v1(seqlens_qo_indptr: Tensor, seqlens_kv_indptr: Tensor, kv_last_page_lens: Tensor, num_heads_per_head_k: int,
                        num_heads_k: int, is_causal: bool, work_metadata_ptrs: Tensor, work_info_set: Tensor, work_indptr: Tensor,
                        reduce_indptr: Tensor, reduce_final_map: Tensor, reduce_partial_map: Tensor, page_size: int = 1,
                        kv_granularity: int = 16, max_seqlen_qo: int = -1, uni_seqlen_qo: int = -1, fast_mode: bool = True,
                        topk: int = -1, max_split_per_batch: int = -1, intra_batch_mode: bool = False, is_cp_round_robin: bool = False,
                        mla_version: int = 0, dtype_q_nope: torch.dtype | None = None, dtype_q_rope: torch.dtype | None = None,
                        dtype_kv_nope: torch.dtype | None = None, dtype_kv_rope: torch.dtype | None = None,
                        dtype_q: torch.dtype | None = None, dtype_kv: torch.dtype | None = None) -> None:
    """Writes nothing: mla_decode_fwd needs no schedule. is_cp_round_robin is False and topk -1."""
    _check.only("get_mla_metadata_v1", "over several GPUs", False, is_cp_round_robin=is_cp_round_robin)
    _check.only("get_mla_metadata_v1", "sparse attention", -1, topk=topk)


get_ps_metadata_info_v1 = absent("get_ps_metadata_info_v1", PERSISTENT)
get_ps_metadata_v1 = absent("get_ps_metadata_v1", PERSISTENT)
mla_prefill_ps_asm_fwd = absent("mla_prefill_ps_asm_fwd", PERSISTENT)
mla_reduce_v1 = absent("mla_reduce_v1", PERSISTENT)

# Engines call these two through torch.ops.aiter.
_library = torch.library.Library("aiter", "FRAGMENT")
_library.define("paged_attention_v1(Tensor(a!) out, Tensor workspace_buffer, Tensor query, Tensor key_cache, Tensor value_cache, "
                "float scale, Tensor block_tables, Tensor? cu_query_lens, Tensor context_lens, int max_context_len, "
                "Tensor? alibi_slopes, str kv_cache_dtype, str kv_cache_layout, float logits_soft_cap, Tensor? k_scale, "
                "Tensor? v_scale, Tensor? fp8_out_scale=None, int partition_size=256, int mtp=1, int sliding_window=0) -> Tensor(a!)")
_library.impl("paged_attention_v1", paged_attention_v1, "CompositeExplicitAutograd")
_library.define("paged_attention_ragged(Tensor(a!) out, Tensor workspace_buffer, Tensor query, Tensor key_cache, Tensor value_cache, "
                "float scale, Tensor kv_indptr, Tensor kv_page_indices, Tensor kv_last_page_lens, int block_size, "
                "int max_num_partitions, Tensor? alibi_slopes, str kv_cache_dtype, str kv_cache_layout, float logits_soft_cap, "
                "Tensor? k_scale, Tensor? v_scale, Tensor? fp8_out_scale=None, int partition_size=256, int mtp=1) -> Tensor(a!)")
_library.impl("paged_attention_ragged", paged_attention_ragged, "CompositeExplicitAutograd")
