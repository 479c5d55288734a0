# SPDX-License-Identifier: Apache-2.0
"""Writes to paged key-value caches, and the index vectors that go with them."""

from __future__ import annotations

from typing import Any

from . import _ops
from ._public import found, public
from ._tensor import choose_dtype, dims, empty_like
from ._types import Array, DType, Layout


def is_hnd(op, layout):
    """Returns whether the layout is "HND". Raises ValueError if it is neither "HND" nor "NHD"."""
    if layout not in ("NHD", "HND"):
        raise ValueError(f"{op}: layout is {found(layout)}; accepted: 'NHD', 'HND'")
    return layout == "HND"


@public(is_hnd="layout")
def append_paged_kv_cache(k_cache: Array, v_cache: Array, append_key: Array, append_value: Array, batch_indices: Array,
                          positions: Array, kv_indices: Array, kv_indptr: Array, kv_last_page_len: Array | None = None,
                          layout: Layout = "NHD") -> None:
    """Writes new tokens to paged caches of keys and values.

    Token t goes to place positions[t] % page_size of page kv_indices[kv_indptr[b] + positions[t] / page_size], where
    b = batch_indices[t].

    k_cache           [pages, page_size, heads, head_dim], with layout "HND" [pages, heads, page_size, head_dim]; written
    v_cache           as k_cache; head_dim may differ
    append_key        [n, heads, head_dim] of the cache's dtype; n may be 0
    append_value      as append_key
    batch_indices     i32 [n]; a number below 0 leaves the token out
    positions         i32 [n]
    kv_indices        i32 [pages in use]
    kv_indptr         i32 [batches + 1]: where each sequence's pages begin in kv_indices
    kv_last_page_len  i32 [batches], or None; looked at where indices are checked
    layout            "NHD" or "HND"

    Index arrays are checked on the CPU, and on a GPU with QUERN_VALIDATE=1: an index out of range is a ValueError. Unchecked, it
    makes the op write elsewhere. Returns None. Raises ValueError (shape, stride, overlap, indices, layout), NotImplementedError
    (dtype, device), TypeError (no array); nothing is written then.

    >>> cache, new, i32 = numpy.zeros((2, 4, 1, 2), numpy.float32), numpy.ones((1, 1, 2), numpy.float32), numpy.int32
    >>> quern.append_paged_kv_cache(cache, cache.copy(), new, new, numpy.array([0], i32), numpy.array([5], i32),
    ...                             numpy.array([0, 1], i32), numpy.array([0, 2], i32))
    >>> numpy.argwhere(cache)[:, :2].tolist()
    [[1, 1], [1, 1]]
    """
    _ops.append_paged_kv_cache(k_cache, v_cache, append_key, append_value, batch_indices, positions, kv_indices, kv_indptr,
                               kv_last_page_len, is_hnd("append_paged_kv_cache", layout))


@public()
def append_paged_mla_kv_cache(ckv_cache: Array, kpe_cache: Array, append_ckv: Array, append_kpe: Array, batch_indices: Array,
                              positions: Array, kv_indices: Array, kv_indptr: Array,
                              kv_last_page_len: Array | None = None) -> None:
    """Does what append_paged_kv_cache does for MLA's caches: one of compressed keys and values, one of rotated keys.

    ckv_cache         [pages, page_size, dim], written
    kpe_cache         [pages, page_size, rope_dim] of ckv_cache's dtype, written
    append_ckv        [n, dim] of the cache's dtype; n may be 0
    append_kpe        [n, rope_dim]
    batch_indices     i32 [n]; a number below 0 leaves the token out
    positions         i32 [n]
    kv_indices        i32 [pages in use]
    kv_indptr         i32 [batches + 1]: where each sequence's pages begin in kv_indices
    kv_last_page_len  i32 [batches], or None; looked at where indices are checked

    Index arrays are checked on the CPU, and on a GPU with QUERN_VALIDATE=1. Returns None. Raises what append_paged_kv_cache
    raises.

    >>> ckv, kpe, i32 = numpy.zeros((2, 4, 8), numpy.float32), numpy.zeros((2, 4, 2), numpy.float32), numpy.int32
    >>> quern.append_paged_mla_kv_cache(ckv, kpe, ckv[0, :1] + 1, kpe[0, :1] + 1, numpy.array([0], i32), numpy.array([5], i32),
    ...                                 numpy.array([0, 1], i32), numpy.array([0, 2], i32))
    >>> ckv[1, 1].sum(), kpe[1, 1].sum()
    (np.float32(8.0), np.float32(2.0))
    """
    _ops.append_paged_mla_kv_cache(ckv_cache, kpe_cache, append_ckv, append_kpe, batch_indices, positions, kv_indices,
                                   kv_indptr, kv_last_page_len)


@public(is_hnd="layout")
def reshape_and_cache(k_cache: Array, v_cache: Array, key: Array, value: Array, slot_mapping: Array,
                      k_scale: Array | None = None, v_scale: Array | None = None, layout: Layout = "NHD") -> None:
    """Writes new token t to slot slot_mapping[t] = page * page_size + place of k_cache and v_cache.

    k_cache       [pages, page_size, heads, head_dim], with layout "HND" [pages, heads, page_size, head_dim]; written
    v_cache       as k_cache; head_dim may differ
    key           [n, heads, head_dim]; n may be 0
    value         as key
    slot_mapping  i32 [n]; a number below 0 leaves the token out
    k_scale       [1] f32: an FP8 cache gets key / k_scale; None: bits are copied, and key has the cache's dtype
    v_scale       [1] f32: an FP8 cache gets value / v_scale; given if and only if k_scale is
    layout        "NHD" or "HND"

    slot_mapping is checked on the CPU, and on a GPU with QUERN_VALIDATE=1; scales with QUERN_VALIDATE=1. Returns None.
    Raises what append_paged_kv_cache raises.

    >>> cache, new = numpy.zeros((2, 4, 1, 2), numpy.float32), numpy.ones((1, 1, 2), numpy.float32)
    >>> quern.reshape_and_cache(cache, cache.copy(), new, new, numpy.array([5], numpy.int32))
    >>> numpy.argwhere(cache)[:, :2].tolist()
    [[1, 1], [1, 1]]
    """
    _ops.reshape_and_cache(k_cache, v_cache, key, value, slot_mapping, k_scale, v_scale,
                           is_hnd("reshape_and_cache", layout))


@public()
def concat_and_cache_mla(kv_cache: Array, kv_c: Array, k_pe: Array, slot_mapping: Array, scale: Array | None = None) -> None:
    """Writes new token t's kv_c, and k_pe behind it, to slot slot_mapping[t] of one MLA cache.

    kv_cache      [pages, page_size, dim + rope_dim], written
    kv_c          [n, dim]; n may be 0
    k_pe          [n, rope_dim]
    slot_mapping  i32 [n]; a number below 0 leaves the token out
    scale         [1] f32: an FP8 cache gets x / scale; None: bits are copied, and x has the cache's dtype

    slot_mapping is checked on the CPU, and on a GPU with QUERN_VALIDATE=1; scale with QUERN_VALIDATE=1. Returns None. Raises what
    append_paged_kv_cache raises.

    >>> cache, new = numpy.zeros((2, 4, 3), numpy.float32), numpy.ones((1, 3), numpy.float32)
    >>> quern.concat_and_cache_mla(cache, new[:, :2], new[:, 2:], numpy.array([5], numpy.int32))
    >>> cache[1, 1]
    array([1., 1., 1.], dtype=float32)
    """
    _ops.concat_and_cache_mla(kv_cache, kv_c, k_pe, slot_mapping, scale)


@public()
def quantize_and_cache_mla(ckv_cache: Array, scale_cache: Array, kpe_cache: Array, kv_c: Array, k_pe: Array, slot_mapping: Array) -> None:
    """Writes new token t to slot slot_mapping[t] of an MLA cache of FP8 with a scale for each 128 elements: vLLM's "fp8_ds_mla".

    ckv_cache     [pages, page_size, dim] of an FP8 kind, written: codes and scales are those of quantize_groups(kv_c, 128)
    scale_cache   f32 [pages, page_size, ceil(dim / 128)], written
    kpe_cache     [pages, page_size, rope_dim] of k_pe's dtype, written: k_pe is copied
    kv_c          [n, dim] of f32, f16 or bf16; n may be 0
    k_pe          [n, rope_dim] of kv_c's dtype
    slot_mapping  i32 [n]; a number below 0 leaves the token out

    The caches may be views of one memory, as fp8_ds_mla's tokens of 656 bytes are: 512 codes, 4 scales, 64 elements of bf16.
    mla_decode (ckv_scales) and gather_paged_mla_kv_cache (scales) read them. slot_mapping is checked on the CPU, and on a GPU with
    QUERN_VALIDATE=1. Returns None. Raises what append_paged_kv_cache raises.

    >>> import ml_dtypes
    >>> memory = numpy.zeros((2, 4, 656), numpy.uint8)
    >>> cache = memory[..., :512].view(ml_dtypes.float8_e4m3fn), memory[..., 512:528].view(numpy.float32), memory[..., 528:].view(ml_dtypes.bfloat16)
    >>> new = numpy.ones((1, 512), ml_dtypes.bfloat16)
    >>> quern.quantize_and_cache_mla(*cache, new, new[:, :64], numpy.array([5], numpy.int32))
    >>> float(cache[0][1, 1, 0] * cache[1][1, 1, 0]), float(cache[2][1, 1].sum())
    (1.0, 64.0)
    """
    _ops.quantize_and_cache_mla(ckv_cache, scale_cache, kpe_cache, kv_c, k_pe, slot_mapping)


@public()
def gather_paged_mla_kv_cache(cache: Array, slot_mapping: Array | None = None, scale: Array | None = None, *,
                              scales: Array | None = None, batch_indices: Array | None = None, positions: Array | None = None,
                              kv_indices: Array | None = None, kv_indptr: Array | None = None, kv_last_page_len: Array | None = None,
                              dtype: DType | None = None, out: Array | None = None) -> Any:
    """Reads tokens of an MLA cache into rows that lie together: out [n, dim]. Row t gets what appending wrote for token t.

    cache             [pages, page_size, dim]: all of a token's row, or a part of it as a view
    slot_mapping      i32 [n]: page * page_size + place; a number below 0 leaves row t as it is. None: the four others are given
    scale             [1] f32: cache is of FP8, and out is code * scale; None beside scales: bits are copied
    scales            f32 [pages, page_size, ceil(dim / 128)]: likewise, with a scale for each 128 elements, as quantize_and_cache_mla
                      writes them; given without scale
    batch_indices     i32 [n], as in append_paged_kv_cache, as are the next ones; get_batch_indices_positions makes these two
    positions         i32 [n]
    kv_indices        i32 [pages in use]
    kv_indptr         i32 [batches + 1]
    kv_last_page_len  i32 [batches], or None; looked at where indices are checked
    dtype             of a new out: f32, f16 or bf16 with scale or scales; None: bf16 with one of these, else the cache's
    out               [n, dim]; None: a new one, in which rows that are left may hold anything

    Index arrays are checked on the CPU, and on a GPU with QUERN_VALIDATE=1; scale with QUERN_VALIDATE=1. Raises what
    append_paged_kv_cache raises; nothing is written then.

    >>> cache = numpy.arange(8, dtype=numpy.float32).reshape(2, 2, 2)
    >>> quern.gather_paged_mla_kv_cache(cache, numpy.array([3, 0], numpy.int32))
    array([[6., 7.],
           [0., 1.]], dtype=float32)
    """
    op = "gather_paged_mla_kv_cache"
    if out is None:
        places = batch_indices if slot_mapping is None else slot_mapping
        if places is None:
            raise ValueError(f"{op}: slot_mapping and batch_indices are None; accepted: one of them given")
        name = choose_dtype(op, dtype, ("float32", "float16", "bfloat16")) if dtype is not None else None
        shape = dims(op, "slot_mapping" if slot_mapping is not None else "batch_indices", places, 1)[0], dims(op, "cache", cache, 3)[2]
        out = empty_like(cache, shape=shape, dtype=name or ("bf16" if scale is not None or scales is not None else None))
    elif dtype is not None:
        raise ValueError(f"{op}: dtype is {found(dtype)}; accepted beside out: None")
    _ops.gather_paged_mla_kv_cache(out, cache, scale, scales, slot_mapping, batch_indices, positions, kv_indices, kv_indptr, kv_last_page_len)
    return out


@public()
def get_seq_lens(kv_indptr: Array, kv_last_page_len: Array, page_size: int, seq_lens: Array | None = None) -> Any:
    """Computes the length of each sequence from its pages: i32 [batches].

    kv_indptr         i32 [batches + 1]: where each sequence's pages begin
    kv_last_page_len  i32 [batches]: tokens in its last page
    page_size         tokens of a page, 1 or above
    seq_lens          i32 [batches]; None: a new one

    Returns seq_lens; 0 for a sequence without pages. kv_indptr and kv_last_page_len are checked on the CPU, and on a GPU with
    QUERN_VALIDATE=1. Raises ValueError (shape, overlap, page_size, indices), NotImplementedError (dtype, device), TypeError (no
    array, no integer); nothing is written then.

    >>> quern.get_seq_lens(numpy.array([0, 2, 3], numpy.int32), numpy.array([4, 9], numpy.int32), 16)
    array([20,  9], dtype=int32)
    """
    seq_lens = empty_like(kv_last_page_len) if seq_lens is None else seq_lens
    _ops.get_seq_lens(seq_lens, kv_indptr, kv_last_page_len, page_size)
    return seq_lens


@public()
def get_batch_indices_positions(append_indptr: Array, seq_lens: Array, nnz: int, batch_indices: Array | None = None,
                                positions: Array | None = None) -> tuple[Any, Any]:
    """Computes each new token's sequence and its place there: (batch_indices, positions); -1 and 0 for tokens of no sequence.

    append_indptr  i32 [batches + 1]: where each sequence's new tokens begin
    seq_lens       i32 [batches]: each sequence's length, with the new tokens
    nnz            the number of new tokens, at least 0
    batch_indices  i32 [nnz]; None: a new one
    positions      i32 [nnz]; None: a new one

    append_indptr and seq_lens are checked on the CPU, and on a GPU with QUERN_VALIDATE=1. Raises ValueError (shape, overlap, nnz,
    indices), NotImplementedError (dtype, device), TypeError (no array, no integer); nothing is written then.

    >>> quern.get_batch_indices_positions(numpy.array([0, 1, 3], numpy.int32), numpy.array([20, 9], numpy.int32), 3)
    (array([0, 1, 1], dtype=int32), array([19,  7,  8], dtype=int32))
    """
    op = "get_batch_indices_positions"
    if nnz < 0:
        raise ValueError(f"{op}: nnz is {nnz}; accepted: 0 or above")
    batch_indices = empty_like(append_indptr, shape=(nnz,)) if batch_indices is None else batch_indices
    positions = empty_like(append_indptr, shape=(nnz,)) if positions is None else positions
    for name, given in (("batch_indices", batch_indices), ("positions", positions)):
        if tuple(given.shape) != (nnz,):
            raise ValueError(f"{op}: {name} has shape {list(given.shape)}, needs [{nnz}], of nnz")
    _ops.get_batch_indices_positions(batch_indices, positions, append_indptr, seq_lens)
    return batch_indices, positions
