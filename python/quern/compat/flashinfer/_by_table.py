# SPDX-License-Identifier: Apache-2.0
"""FlashInfer's decodes whose requests are tables of pages. Tables and lengths are read on the host, so that no graph captures them."""

import torch

from ..._public import found
from .._check import integer, shape, tensors
from . import _run
from ._attention import attend, make_batch, positions, scales
from ._hints import check_flags, refuse
from ._products import ALL, kind
from ._tables import pages_of_table
from .page import is_hnd

_NAMES = {"kv_indices": "block_tables", "kv_last_page_len": "seq_lens", "kv_indptr": "block_tables"}


def _attend_by_table(op, q, caches, table, seq_lens, q_len, layout, sm_scale, window_left, numbers, names, **results):
    """Attends with q [requests * q_len, heads, dim] over pages; a request's last query sees all its keys. numbers: q's, k's and v's
    scales by the caller's names."""
    k, v = caches
    page_size, kv_heads = (k.shape[2], k.shape[1]) if layout == "HND" else (k.shape[1], k.shape[2])
    indptr, indices, last = pages_of_table(op, table, seq_lens, page_size)
    qo_indptr = torch.arange(len(indptr)) * q_len
    if len(q) != int(qo_indptr[-1]):
        raise ValueError(f"{op}: q has {len(q)} rows, needs {int(qo_indptr[-1])}: {q_len} of each request")
    batch = make_batch(op, qo_indptr, indptr, last, indices, (q.shape[1], kv_heads), (q.shape[2], v.shape[3]), page_size, (None, False),
                       (None, None, None), {}, renamed=names)
    batch.kv_indices = _run.index(indices).to(q.device)
    told = {}
    for (name, said), heads in zip(numbers.items(), (q.shape[1], kv_heads, kv_heads), strict=True):
        told |= scales(op, name, heads, **said)
    return attend(op, q, k, v, batch=batch, is_causal=True, window_left=window_left, layout=layout, renamed=names,
                  **positions(op, "NONE", None, None, None, sm_scale), **told, **results)


def _check_caches(op, names, q, caches, table, lens):
    tensors(op, dict(zip(names, (q, *caches, table, lens), strict=True)))
    for name, cache in zip(names[1:3], caches, strict=True):
        shape(op, name, cache, None, None, None, None)
    shape(op, names[3], table, None, None)


def cudnn_batch_decode_with_kv_cache(q, k_cache, v_cache, scale, workspace_buffer, *, max_sequence_kv, actual_seq_lens_kv=None,
                                     block_tables=None, is_cuda_graph_compatible=False, batch_offsets_q=None, batch_offsets_o=None,
                                     batch_offsets_k=None, batch_offsets_v=None, out=None, return_lse=False, lse=None, q_len_per_req=1,
                                     window_left=-1, sinks=None):
    """Attends with q [batch * q_len_per_req, heads, dim], causal, over pages [pages, kv heads, page_size, dim]. Returns a tensor of q's
    shape; with return_lse also [.., heads], base 2.

    scale               what scores are multiplied with
    actual_seq_lens_kv  [batch] keys, block_tables [batch, pages]: both are needed, and read on the host
    max_sequence_kv     at least the longest request's keys
    sinks               f32 [heads]
    workspace_buffer    changes nothing; is_cuda_graph_compatible False; batch_offsets_* None
    """
    op = "cudnn_batch_decode_with_kv_cache"
    refuse(op, is_cuda_graph_compatible=is_cuda_graph_compatible, batch_offsets_q=batch_offsets_q, batch_offsets_o=batch_offsets_o,
           batch_offsets_k=batch_offsets_k, batch_offsets_v=batch_offsets_v)
    for name, value in (("actual_seq_lens_kv", actual_seq_lens_kv), ("block_tables", block_tables)):
        if value is None:
            raise NotImplementedError(f"{op}: {name} is None; accepted: a tensor")
    tensors(op, {"workspace_buffer": workspace_buffer})
    _check_caches(op, ("q", "k_cache", "v_cache", "block_tables", "actual_seq_lens_kv"), q, (k_cache, v_cache), block_tables,
                  actual_seq_lens_kv)
    longest = int(actual_seq_lens_kv.max()) if actual_seq_lens_kv.numel() else 0
    if integer(op, "max_sequence_kv", max_sequence_kv, 0) < longest:
        raise ValueError(f"{op}: max_sequence_kv is {max_sequence_kv}, the longest request has {longest}")
    none = {"q_scale": {}, "k_scale": {}, "v_scale": {}}
    return _attend_by_table(op, q, (k_cache, v_cache), block_tables, actual_seq_lens_kv, integer(op, "q_len_per_req", q_len_per_req, 1),
                            "HND", scale, window_left, none, {**_NAMES, "kv_last_page_len": "actual_seq_lens_kv", "sm_scale": "scale"},
                            out=out, lse=lse, return_lse=return_lse, sinks=sinks)


def sm110_gqa_decode(q, kv, sequence_lengths, *, out=None, q_scale=1.0):
    """Attends with q [batch, heads, dim] over kv [batch, 2, kv heads, capacity, dim], of which sequence_lengths [batch] keys count.
    Returns a tensor of q's shape. Scores are multiplied with q_scale / sqrt(dim)."""
    op = "sm110_gqa_decode"
    tensors(op, {"q": q, "kv": kv, "sequence_lengths": sequence_lengths})
    shape(op, "q", q, None, None, None)
    shape(op, "kv", kv, len(q), 2, None, None, q.shape[2])
    shape(op, "sequence_lengths", sequence_lengths, len(q))
    table = torch.arange(len(q), dtype=torch.int32, device=q.device)[:, None]
    numbers = {"q_scale": {"q_scale": q_scale}, "k_scale": {}, "v_scale": {}}
    return _attend_by_table(op, q, kv.unbind(1), table, sequence_lengths, 1, "HND", None, -1, numbers,
                            {**_NAMES, "k": "kv", "v": "kv", "kv_last_page_len": "sequence_lengths"}, out=out)


def xqa(q, k_cache, v_cache, page_table, seq_lens, output, workspace_buffer, semaphores, num_kv_heads, page_size, sinks=None, q_scale=1.0,
        kv_scale=1.0, sliding_win_size=0, kv_layout="NHD", sm_count=None, enable_pdl=None, rcp_out_scale=1.0, q_seq_len=1, mask=None, *,
        q_cu_seq_lens=None, k_sf_cache=None, v_sf_cache=None):
    """Attends with q [batch, 1, heads, dim] over pages, and writes output, of q's shape and dtype, or bf16 for FP8.

    k_cache, v_cache  [pages, page_size, num_kv_heads, dim]; "HND": [pages, num_kv_heads, page_size, dim]
    page_table        [batch, pages], seq_lens [batch, 1] keys; both are read on the host
    sinks             f32 [num_kv_heads, heads / num_kv_heads]
    q_scale, kv_scale  numbers, or tensors of one; kv_scale is K's and V's
    sliding_win_size  how many keys a query sees, its own included; 0: all
    workspace_buffer, semaphores, sm_count, enable_pdl  change nothing; q_seq_len 1, mask None, rcp_out_scale 1
    """
    op = "xqa"
    check_flags(op, enable_pdl=enable_pdl)
    refuse(op, mask=mask, q_cu_seq_lens=q_cu_seq_lens, k_sf_cache=k_sf_cache, v_sf_cache=v_sf_cache,
           q_seq_len=None if q_seq_len == 1 else q_seq_len, rcp_out_scale=None if rcp_out_scale == 1 else rcp_out_scale)
    tensors(op, {"output": output, "workspace_buffer": workspace_buffer, "semaphores": semaphores})
    if sm_count is not None:
        integer(op, "sm_count", sm_count, 1)
    _check_caches(op, ("q", "k_cache", "v_cache", "page_table", "seq_lens"), q, (k_cache, v_cache), page_table, seq_lens)
    hnd = is_hnd(op, kv_layout)
    shape(op, "q", q, None, 1, None, None)
    shape(op, "output", output, *q.shape)
    has = (k_cache.shape[2], k_cache.shape[1]) if hnd else (k_cache.shape[1], k_cache.shape[2])
    for name, value, own in (("page_size", page_size, has[0]), ("num_kv_heads", num_kv_heads, has[1])):
        if value != own:
            raise ValueError(f"{op}: {name} is {found(value)}, k_cache has {own}")
    kind(op, "output", output, (q.dtype,) if q.dtype in ALL else (torch.bfloat16,))
    numbers = {"q_scale": {"q_scale": q_scale}, "k_scale": {"kv_scale": kv_scale}, "v_scale": {"kv_scale": kv_scale}}
    window = integer(op, "sliding_win_size", sliding_win_size, 0) - 1
    _attend_by_table(op, q[:, 0], (k_cache, v_cache), page_table, seq_lens.long(), 1, kv_layout, None, window, numbers,
                     {**_NAMES, "kv_indices": "page_table", "kv_indptr": "page_table", "k": "k_cache", "v": "v_cache", "out": "output"},
                     out=output[:, 0], sinks=None if sinks is None else sinks.reshape(-1))
