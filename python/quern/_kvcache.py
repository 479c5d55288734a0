# SPDX-License-Identifier: Apache-2.0
"""Writes to paged key-value caches, and the index vectors that go with them.

A cache is [pages, page_size, heads, head_dim] (layout "NHD") or [pages, heads, page_size, head_dim] ("HND"); MLA's is
[pages, page_size, dim]. New tokens are [n, heads, head_dim], MLA's [n, dim], of the cache's dtype. Index tensors are i32.
Raises ValueError (shape, stride, index values: on GPUs with QUERN_VALIDATE=1), NotImplementedError (dtype); nothing is written then.
"""

from . import _ops
from ._tensor import empty_like


def is_hnd(op, layout):
    """Whether that is the layout; ValueError for none of the two."""
    if layout not in ("NHD", "HND"):
        raise ValueError(f"{op}: layout is {layout!r}; accepted: 'NHD', 'HND'")
    return layout == "HND"


def append_paged_kv_cache(k_cache, v_cache, append_key, append_value, batch_indices, positions, kv_indices, kv_indptr,
                          kv_last_page_len=None, layout="NHD"):
    """Token t goes to place positions[t] % page_size of page kv_indices[kv_indptr[b] + positions[t] / page_size].

    b = batch_indices[t]; one below 0 leaves the token out. kv_indptr [batches + 1], kv_last_page_len [batches] or None.
    """
    _ops.append_paged_kv_cache(k_cache, v_cache, append_key, append_value, batch_indices, positions, kv_indices, kv_indptr,
                               kv_last_page_len, is_hnd("append_paged_kv_cache", layout))


def append_paged_mla_kv_cache(ckv_cache, kpe_cache, append_ckv, append_kpe, batch_indices, positions, kv_indices, kv_indptr,
                              kv_last_page_len=None):
    """The same for MLA's caches of compressed keys and values, and of rotated keys."""
    _ops.append_paged_mla_kv_cache(ckv_cache, kpe_cache, append_ckv, append_kpe, batch_indices, positions, kv_indices,
                                   kv_indptr, kv_last_page_len)


def reshape_and_cache(k_cache, v_cache, key, value, slot_mapping, k_scale=None, v_scale=None, layout="NHD"):
    """Token t goes to slot slot_mapping[t] = page * page_size + place; one below 0 leaves it out.

    k_scale, v_scale  one f32 each: an FP8 cache then gets x / scale. None: bits are copied
    """
    _ops.reshape_and_cache(k_cache, v_cache, key, value, slot_mapping, k_scale, v_scale,
                           is_hnd("reshape_and_cache", layout))


def concat_and_cache_mla(kv_cache, kv_c, k_pe, slot_mapping, scale=None):
    """Token t's kv_c [dim] and k_pe [rope_dim] go, one behind the other, to slot slot_mapping[t] of one MLA cache.

    kv_cache  [pages, page_size, dim + rope_dim]
    scale     one f32: an FP8 cache then gets x / scale. None: bits are copied
    """
    _ops.concat_and_cache_mla(kv_cache, kv_c, k_pe, slot_mapping, scale)


def get_seq_lens(kv_indptr, kv_last_page_len, page_size, seq_lens=None):
    """Each sequence's length, i32 [batches], from its pages: kv_indptr [batches + 1], kv_last_page_len [batches]."""
    seq_lens = empty_like(kv_last_page_len) if seq_lens is None else seq_lens
    _ops.get_seq_lens(seq_lens, kv_indptr, kv_last_page_len, page_size)
    return seq_lens


def get_batch_indices_positions(append_indptr, seq_lens, nnz, batch_indices=None, positions=None):
    """For each of nnz new tokens its sequence and its place in it: (batch_indices, positions), -1 and 0 for those of none.

    append_indptr [batches + 1]; seq_lens [batches], with the new tokens
    """
    batch_indices = empty_like(append_indptr, shape=(nnz,)) if batch_indices is None else batch_indices
    positions = empty_like(append_indptr, shape=(nnz,)) if positions is None else positions
    _ops.get_batch_indices_positions(batch_indices, positions, append_indptr, seq_lens)
    return batch_indices, positions
