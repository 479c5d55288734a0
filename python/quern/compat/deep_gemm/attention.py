# SPDX-License-Identifier: Apache-2.0
"""DeepGEMM's scores of sparse attention's indexer: many heads of queries over one head of keys.

logits[i, j] = sum over heads of weights[i, h] * max(0, q[i, h] . kv[j] * scale[j])
"""

from __future__ import annotations

import torch

from . import _check
from ._run import run
from ._types import Pair, Tensor

_SM100_Q = "holds the scales of FP4 queries, which SM100's matrix cores take and no chip that quern serves"
_SM100_INDICES = "says which tokens share pages, and which DeepGEMM takes on SM100 alone"
_MOST = 1 << 26  # scores of heads that are held at a time


def _scores(op, q, keys, scale, weights, out):
    """Writes logits into out [keys, queries], a view. q [queries, heads, dim] and keys [n, dim] are FP8, scale [n] and weights
    [queries, heads] f32."""
    (count, heads, dim), n = q.shape, len(keys)
    step = max(1, _MOST // max(heads * n, 1))
    columns = -(-dim // 128)
    scale = scale[:, None].expand(n, columns).contiguous()
    for begin in range(0, count, step):
        rows = q[begin:begin + step].flatten(0, 1)
        ones = torch.ones(-(-len(rows) // 128), columns, dtype=torch.float32, device=q.device)
        part = torch.empty(n, len(rows), dtype=torch.float32, device=q.device)
        run(op, "gemm", {"a": "kv", "b": "q"}, keys, rows, scale_a=scale, scale_b=ones, out=part)
        part = part.unflatten(1, (-1, heads)).relu_().mul_(weights[begin:begin + step])
        out[:, begin:begin + step] = part.sum(-1)


def _empty_logits(like, rows, columns, dtype):
    """Returns [rows, columns] whose rows begin at multiples of 1024 bytes."""
    per_kib = 1024 // dtype.itemsize
    return torch.empty(rows, -(-max(columns, 1) // per_kib) * per_kib, dtype=dtype, device=like.device)[:, :columns]


def _check_common(op, q, kv, weights, logits_dtype):
    for name, x in (("q", q), ("kv", kv)):
        _check.dtype(op, name, x, _check.FP8)
    _check.dtype(op, "weights", weights, _check.D_TYPES)
    if logits_dtype not in _check.D_TYPES:
        raise NotImplementedError(f"{op}: logits_dtype is {logits_dtype}; accepted: torch.bfloat16, torch.float32")


def _without_scales(op, q):
    values, scale = _check.pair(op, "q", q)
    _check.refuse(op, _SM100_Q, **{"q[1]": scale})
    return values


def _mqa_logits(op, q, kv, weights, start, end, clean_logits, max_seqlen_k, logits_dtype):
    (kv, scale), most = _check.pair(op, "kv", kv), _check.integer(op, "max_seqlen_k", max_seqlen_k, 0)
    _check.hints(op, clean_logits=clean_logits)
    _check.tensors(op, {"q": q, "kv[0]": kv, "kv[1]": scale, "weights": weights, "cu_seq_len_k_start": start,
                        "cu_seq_len_k_end": end})
    _check.shape(op, "q", q, None, None, None)
    _check.shape(op, "kv[0]", kv, None, q.shape[2])
    _check.shape(op, "kv[1]", scale, len(kv))
    _check.dtype(op, "kv[1]", scale, (torch.float32,))
    _check.shape(op, "weights", weights, *q.shape[:2])
    for name, x in (("cu_seq_len_k_start", start), ("cu_seq_len_k_end", end)):
        _check.shape(op, name, x, len(q))
        _check.dtype(op, name, x, (torch.int32,))
    _check_common(op, q, kv, weights, logits_dtype)
    if most and clean_logits:
        raise ValueError(f"{op}: clean_logits is True; accepted with max_seqlen_k, which is {most}: False")
    logits = _empty_logits(q, len(q), len(kv), logits_dtype)
    _scores(op, q, kv, scale, weights, logits.T)
    at = torch.arange(len(kv), device=q.device)
    if clean_logits:
        logits.masked_fill_((at < start[:, None]) | (at >= end[:, None]), -torch.inf)
    if not most:
        return logits
    compact = _empty_logits(q, len(q), most, logits_dtype)
    at = start[:, None].long() + torch.arange(most, device=q.device)
    return compact.copy_(logits.gather(1, at.clamp(0, max(len(kv) - 1, 0)))) if len(kv) else compact.fill_(-torch.inf)


def fp8_fp4_mqa_logits(q: tuple[Tensor, Tensor | None], kv: Pair, weights: Tensor, cu_seq_len_k_start: Tensor,
                       cu_seq_len_k_end: Tensor, clean_logits: bool = True, max_seqlen_k: int = 0,
                       logits_dtype: torch.dtype = torch.float32) -> Tensor:
    """Returns logits [queries, keys] for keys from cu_seq_len_k_start[i] up to cu_seq_len_k_end[i], without it.

    q             (e4m3fn or e4m3fnuz [queries, heads, dim], None)
    kv            (e4m3fn or e4m3fnuz [keys, dim], f32 [keys]: the scale of each key)
    weights       f32 or bf16 [queries, heads]
    cu_seq_len_k_start, cu_seq_len_k_end  i32 [queries]
    clean_logits  all other logits are minus infinity; False: they are of no meaning
    max_seqlen_k  not 0: the result is [queries, max_seqlen_k] and begins with key cu_seq_len_k_start[i]; clean_logits is False
    logits_dtype  f32 or bf16

    Raises ValueError (shape), NotImplementedError (dtype; FP4), TypeError (no tensor), RuntimeError (gradients).
    """
    op = "fp8_fp4_mqa_logits"
    return _mqa_logits(op, _without_scales(op, q), kv, weights, cu_seq_len_k_start, cu_seq_len_k_end, clean_logits, max_seqlen_k,
                       logits_dtype)


def fp8_mqa_logits(q: Tensor, kv: Pair, weights: Tensor, cu_seq_len_k_start: Tensor, cu_seq_len_k_end: Tensor,
                   clean_logits: bool = True, max_seqlen_k: int = 0) -> Tensor:
    """Returns fp8_fp4_mqa_logits of q [queries, heads, dim], in f32."""
    return _mqa_logits("fp8_mqa_logits", q, kv, weights, cu_seq_len_k_start, cu_seq_len_k_end, clean_logits, max_seqlen_k,
                       torch.float32)


# ---- paged

def get_paged_mqa_logits_metadata(context_lens: Tensor, block_kv: int, num_sms: int, indices: Tensor | None = None) -> Tensor:
    """Returns a schedule i32 [num_sms + 1, 2] for fp8_paged_mqa_logits: zeros, as quern needs none.

    context_lens  i32 [batch, next_n]
    block_kv      keys of a page, 1 or above: a hint, as is context_lens
    indices       None
    """
    op = "get_paged_mqa_logits_metadata"
    _check.refuse(op, _SM100_INDICES, indices=indices)
    _check.tensors(op, {"context_lens": context_lens})
    _check.shape(op, "context_lens", context_lens, None, None)
    _check.dtype(op, "context_lens", context_lens, (torch.int32,))
    _check.integer(op, "block_kv", block_kv, 1)
    return context_lens.new_zeros(_check.integer(op, "num_sms", num_sms, 1) + 1, 2)


def _check_paged(op, q, cache, weights, context_lens, block_table, schedule_meta):
    _check.tensors(op, {"q": q, "kv_cache": cache, "weights": weights, "context_lens": context_lens, "block_table": block_table,
                        "schedule_meta": schedule_meta})
    _check.shape(op, "q", q, None, None, None, None)
    batch, next_n, heads, dim = q.shape
    _check.shape(op, "kv_cache", cache, None, None, 1, dim + 4)
    _check.dtype(op, "kv_cache", cache, (torch.uint8,))
    if cache.stride()[1:] != (dim + 4, dim + 4, 1) and cache.stride()[1::2] != (dim + 4, 1):
        raise ValueError(f"{op}: kv_cache has strides {list(cache.stride())}, needs contiguous pages")
    _check.shape(op, "weights", weights, batch * next_n, heads)
    _check.shape(op, "context_lens", context_lens, batch, next_n)
    _check.shape(op, "block_table", block_table, batch, None)
    _check.shape(op, "schedule_meta", schedule_meta, None, 2)
    for name, x in (("context_lens", context_lens), ("block_table", block_table), ("schedule_meta", schedule_meta)):
        _check.dtype(op, name, x, (torch.int32,))


def _paged(op, q, cache, weights, context_lens, block_table, schedule_meta, max_context_len, clean_logits, logits_dtype):
    _check.hints(op, clean_logits=clean_logits)
    most = _check.integer(op, "max_context_len", max_context_len, 0)
    _check_paged(op, q, cache, weights, context_lens, block_table, schedule_meta)
    _check_common(op, q, q, weights, logits_dtype)
    (batch, next_n, _, dim), size = q.shape, cache.shape[1]
    if most > block_table.shape[1] * size:
        raise ValueError(f"{op}: max_context_len is {most}; accepted: up to {block_table.shape[1] * size}, for which "
                         "block_table has pages")
    logits = _empty_logits(q, batch * next_n, most, logits_dtype)
    for i in range(batch):
        # Of a page, all values come first, then all scales. Pages beyond a request's length may be any number.
        page = cache[block_table[i, :-(-most // max(size, 1))].long().clamp(0, len(cache) - 1)].flatten(1)
        values = page[:, :size * dim].contiguous().view(q.dtype).view(-1, dim)[:most]
        scale = page[:, size * dim:].contiguous().view(torch.float32).view(-1)[:most]
        rows = slice(i * next_n, (i + 1) * next_n)
        _scores(op, q[i], values, scale, weights[rows], logits[rows].T)
    if clean_logits:
        at = torch.arange(most, device=q.device)
        logits.masked_fill_(at >= context_lens.reshape(-1, 1), -torch.inf)
    return logits


def fp8_fp4_paged_mqa_logits(q: tuple[Tensor, Tensor | None], kv_cache: Tensor, weights: Tensor, context_lens: Tensor,
                             block_table: Tensor, schedule_meta: Tensor, max_context_len: int, clean_logits: bool = False,
                             logits_dtype: torch.dtype = torch.float32, indices: Tensor | None = None) -> Tensor:
    """Returns logits [batch * next_n, max_context_len] of keys in pages; those from context_lens[b, i] on are of no meaning.

    q                (e4m3fn or e4m3fnuz [batch, next_n, heads, dim], None)
    kv_cache         u8 [pages, size, 1, dim + 4]: in a page the values of all its keys, of q's dtype, then their f32 scales
    weights          f32 or bf16 [batch * next_n, heads]
    context_lens     i32 [batch, next_n], the keys that each query sees
    block_table      i32 [batch, at least max_context_len / size], the pages of each request
    schedule_meta    i32 [.., 2], from get_paged_mqa_logits_metadata: a hint, which changes nothing
    clean_logits     logits from context_lens[b, i] on are minus infinity
    logits_dtype     f32 or bf16
    indices          None

    Raises what fp8_fp4_mqa_logits raises. All max_context_len keys are computed, so that nothing is read on the host.
    """
    op = "fp8_fp4_paged_mqa_logits"
    _check.refuse(op, _SM100_INDICES, indices=indices)
    return _paged(op, _without_scales(op, q), kv_cache, weights, context_lens, block_table, schedule_meta, max_context_len,
                  clean_logits, logits_dtype)


def fp8_paged_mqa_logits(q: Tensor, kv_cache: Tensor, weights: Tensor, context_lens: Tensor, block_table: Tensor,
                         schedule_meta: Tensor, max_context_len: int, clean_logits: bool = False,
                         indices: Tensor | None = None) -> Tensor:
    """Returns fp8_fp4_paged_mqa_logits of q [batch, next_n, heads, dim], in f32."""
    _check.refuse("fp8_paged_mqa_logits", _SM100_INDICES, indices=indices)
    return _paged("fp8_paged_mqa_logits", q, kv_cache, weights, context_lens, block_table, schedule_meta, max_context_len,
                  clean_logits, torch.float32)
