# SPDX-License-Identifier: Apache-2.0
"""Lists of the pages that requests use, from other descriptions of them. All read the device's arrays on the host."""

import torch

from ._attention import on_host


def used_pages(op, kv_indptr, kv_indices, kv_len_arr, page_size):
    """Returns (indptr, indices, last_page_len) of the pages that the lengths need; the caller may have given more."""
    begin, lens = on_host(kv_indptr).long(), on_host(kv_len_arr).long()
    if len(begin) != len(lens) + 1:
        raise ValueError(f"{op}: kv_indptr has {len(begin)} entries, kv_len_arr {len(lens)}; accepted: one more")
    given, needed = begin[1:] - begin[:-1], (lens + page_size - 1) // page_size
    for b in torch.nonzero((lens < 0) | (needed > given)).flatten()[:1].tolist():
        raise ValueError(f"{op}: kv_len_arr[{b}] is {int(lens[b])}; accepted: 0 to {int(given[b])} pages of {page_size}")
    last = torch.where(needed > 0, lens - (needed - 1) * page_size, 0)
    if torch.equal(given, needed):
        return kv_indptr, kv_indices, last
    indptr = _offsets(needed)
    chosen = torch.arange(int(indptr[-1])) + torch.repeat_interleave(begin[:-1] - indptr[:-1], needed)
    return indptr, kv_indices[chosen.to(kv_indices.device)], last


def pages_of_table(op, block_tables, seq_lens, page_size):
    """Returns (indptr, indices, last_page_len) of the pages in block_tables [batch, pages] that seq_lens [batch] need."""
    lens, (batch, most) = on_host(seq_lens.reshape(-1)).long(), block_tables.shape
    if len(lens) != batch:
        raise ValueError(f"{op}: block_tables has {batch} rows, seq_lens {len(lens)} entries; accepted: as many")
    needed = (lens + page_size - 1) // page_size
    for b in torch.nonzero((lens < 0) | (needed > most)).flatten()[:1].tolist():
        raise ValueError(f"{op}: seq_lens[{b}] is {int(lens[b])}; accepted: 0 to {most} pages of {page_size}")
    is_used = torch.arange(most) < needed[:, None]
    return _offsets(needed), block_tables[is_used.to(block_tables.device)], torch.where(needed > 0, lens - (needed - 1) * page_size, 0)


def _offsets(counts):
    return torch.cat([torch.zeros(1, dtype=torch.int64), counts.cumsum(0)])
