# SPDX-License-Identifier: Apache-2.0
"""What AITER's attention functions share: windows, scales, plans from indices, pages from block tables, the call itself."""

import torch

from .... import _attention
from ...._public import found
from .. import _check
from .._run import run

_NEED = "accepted: two or three integers, -1 for no bound"


def window(op, name, value, causal):
    """Returns quern's options for a window (left, right[, sinks])."""
    if not isinstance(value, (tuple, list)) or len(value) not in (2, 3) or not all(isinstance(n, int) for n in value):
        raise ValueError(f"{op}: {name} is {found(value)}; {_NEED}")
    if len(value) == 3 and value[2]:
        raise NotImplementedError(f"{op}: {name}[2] is {value[2]}, first keys that all queries see; accepted: 0")
    return {"window_left": max(value[0], -1), "window_right": -1 if causal else max(value[1], -1)}


def softmax(op, name, scale, cap_name, cap):
    """Returns quern's options for the scale and the cap of scores."""
    return {"sm_scale": None if scale is None else _check.number(op, name, scale),
            "logits_soft_cap": _check.number(op, cap_name, 0.0 if cap is None else cap)}


def plan(op, names, q, k, v, qo, kv, last=None, page_size=0):
    """Plans a ragged batch, or with page_size a paged one. The arrays are read on the host."""
    return run(op, _attention.attention_plan, names, q.shape[-2], k.shape[-2], v.shape[-1], qo_indptr=qo, kv_indptr=kv,
               kv_last_page_len=last, page_size=page_size)


def attend(op, out, q, k, v, planned, return_lse=False, names=None, **options):
    """Runs attention, of those queries alone that the plan has. Returns out, or (out, natural lse [heads, tokens])."""
    tokens = planned[1]
    out = torch.zeros((*q.shape[:-1], v.shape[-1]), dtype=torch.bfloat16 if q.dtype in _check.FP8 else q.dtype,
                      device=q.device) if out is None else out
    lse = torch.full(q.shape[:-1], -torch.inf, dtype=torch.float32, device=q.device) if return_lse else None
    run(op, _attention.attention, names or {}, q[:tokens], k, v, plan=planned[0], out=out[:tokens],
        lse=None if lse is None else lse[:tokens],
        lse_base="e", **options)
    return (out, lse.T.contiguous()) if return_lse else out


def planned(op, names, q, k, v, qo, kv, last=None, page_size=0):
    """Returns (plan, its number of queries)."""
    qo = qo.cpu()
    return plan(op, names, q, k, v, qo, kv.cpu(), last, page_size), int(qo[-1]) if len(qo) else 0


def pages(op, table_name, block_table, lens_name, lens, page_size):
    """Returns (kv_indices on the table's device, kv_indptr, last_page_len), of requests' first pages in a table's rows."""
    _check.shape(op, table_name, block_table, None, None)
    _check.shape(op, lens_name, lens, len(block_table))
    lens = lens.cpu().to(torch.int32)
    counts = (lens + page_size - 1) // page_size
    if len(lens) and (int(lens.min()) < 0 or int(counts.max()) > block_table.shape[1]):
        raise ValueError(f"{op}: {lens_name} has entries from {int(lens.min())} to {int(lens.max())}; accepted: 0 to "
                         f"{block_table.shape[1] * page_size}, for which {table_name} has pages")
    indptr = torch.zeros(len(lens) + 1, dtype=torch.int32)
    indptr[1:] = counts.cumsum(0)
    is_used = torch.arange(block_table.shape[1]) < counts[:, None]
    indices = block_table[is_used.to(block_table.device)].to(torch.int32)
    return indices, indptr, lens - (counts - 1).clamp(min=0) * page_size


def compact(cache, indices, order):
    """Returns a copy [pages in use, page_size, heads, dim] of pages in another order, and their new numbers."""
    chosen = cache.view(torch.uint8)[indices.long()].view(cache.dtype) if cache.dtype.itemsize == 1 else cache[indices.long()]
    return order(chosen)


def from_x_key(page):
    """[n, heads, dim / x, size, x] -> [n, size, heads, dim]"""
    n, heads, parts, size, x = page.shape
    return page.permute(0, 3, 1, 2, 4).reshape(n, size, heads, parts * x).contiguous()


def from_x_value(page):
    """[n, heads, dim, size], or [n, heads, size / x, dim, x] -> [n, size, heads, dim]"""
    if page.ndim == 4:
        return page.permute(0, 3, 1, 2).contiguous()
    n, heads, parts, dim, x = page.shape
    return page.permute(0, 2, 4, 1, 3).reshape(n, parts * x, heads, dim).contiguous()
