# SPDX-License-Identifier: Apache-2.0
"""FlashInfer's functions on paged caches of keys and values."""

import torch

from ._run import UnknownWord
from ._run import index as _index
from ._run import run as _run


def get_seq_lens(kv_indptr, kv_last_page_len, page_size):
    """Returns each sequence's length, from its pages."""
    return (kv_indptr[1:] - kv_indptr[:-1] - 1).clamp(min=0) * page_size + kv_last_page_len


def get_batch_indices_positions(append_indptr, seq_lens, nnz, batch_indices=None, positions=None):
    """Returns (batch_indices, positions), int32: the sequence of each of nnz new tokens and its place there; -1 and 0
    for none."""
    if batch_indices is None:
        batch_indices = torch.empty(nnz, dtype=torch.int32, device=append_indptr.device)
    if positions is None:
        positions = torch.empty(nnz, dtype=torch.int32, device=append_indptr.device)
    for name, given in (("batch_indices", batch_indices), ("positions", positions)):
        if tuple(given.shape) != (nnz,):
            raise ValueError(f"get_batch_indices_positions: {name} has shape {list(given.shape)}, needs [{nnz}]")
    _run("get_batch_indices_positions", batch_indices, positions, _index(append_indptr), _index(seq_lens))
    return batch_indices, positions


def is_hnd(op, kv_layout):
    """Returns whether the layout is "HND"; raises UnknownWord for a word that is neither layout."""
    if kv_layout not in ("NHD", "HND"):
        raise UnknownWord(f"{op}: kv_layout is {kv_layout!r}; accepted: 'NHD', 'HND'")
    return kv_layout == "HND"


def append_paged_kv_cache(append_key, append_value, batch_indices, positions, paged_kv_cache, kv_indices, kv_indptr,
                          kv_last_page_len, kv_layout="NHD"):
    """Writes new tokens [n, heads, head_dim] to their pages.

    paged_kv_cache  (k, v), each [pages, page_size, heads, head_dim] (NHD) or [pages, heads, page_size, head_dim] (HND),
                    or one tensor with a dimension of 2 after the first
    """
    hnd = is_hnd("append_paged_kv_cache", kv_layout)
    k_cache, v_cache = paged_kv_cache if isinstance(paged_kv_cache, (tuple, list)) else paged_kv_cache.unbind(1)
    _run("append_paged_kv_cache", k_cache, v_cache, append_key, append_value, _index(batch_indices), _index(positions),
         _index(kv_indices), _index(kv_indptr), _index(kv_last_page_len), hnd, k_cache="paged_kv_cache[0]",
         v_cache="paged_kv_cache[1]")


def append_paged_mla_kv_cache(append_ckv, append_kpe, batch_indices, positions, ckv_cache, kpe_cache, kv_indices, kv_indptr,
                              kv_last_page_len):
    """Writes MLA's new tokens, [n, dim] each, to caches [pages, page_size, dim]."""
    _run("append_paged_mla_kv_cache", ckv_cache, kpe_cache, append_ckv, append_kpe, _index(batch_indices),
         _index(positions), _index(kv_indices), _index(kv_indptr), _index(kv_last_page_len))
