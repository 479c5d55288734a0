// SPDX-License-Identifier: Apache-2.0
// Writes to paged key-value caches, and the index vectors that go with them.
//
// A cache is a tensor of pages: [pages, page_size, heads, head_dim] (QN_NHD) or [pages, heads,
// page_size, head_dim] (QN_HND), any strides that keep elements apart, last dimension contiguous;
// an MLA cache has no heads: [pages, page_size, dim]. In all of these:
//
//  new tokens  [n, heads, head_dim], MLA's [n, dim]: last dimension contiguous, other strides any
//  indices     i32, contiguous vectors; i64 is an error
//  Types:    f32, f16, bf16 and the FP8 kinds; cache and new tokens of one dtype: every bit is
//            copied
//  Align:    element size; faster when everything begins at 16 bytes and rows are multiples of 16
//            bytes
//  Edge:     n == 0 is a no-op. Whatever no token goes to keeps its bytes. Two tokens for one place
//            are the caller's mistake: either may end up there.
//  Overlap:  no cache may overlap anything else.
//  Async:    queued on stream.
//  Contents: index tensors' values are checked first: on the CPU always, on GPUs with
//  QUERN_VALIDATE=1, which waits for
//            the stream and reads them back. Without it a value out of range may have a GPU read
//            and write stray memory.
//  Errors:   QN_E_INVALID (null, shape, stride, contents), QN_E_UNSUPPORTED (dtype).
#ifndef QUERN_KVCACHE_H
#define QUERN_KVCACHE_H

#include <quern/core.h>

#ifdef __cplusplus
extern "C" {
#endif

/** The order of a cache's dimensions. */
typedef int32_t qn_kv_layout;
enum { QN_NHD = 0, QN_HND = 1 };

typedef struct qn_append_paged_kv_cache_args {
    size_t struct_size; /**< sizeof(qn_append_paged_kv_cache_args) */
    DLTensor *k_cache, *v_cache;
    const DLTensor *append_key, *append_value;
    const DLTensor *batch_indices,
        *positions;             /**< [n]; a batch index below 0: the token is left out */
    const DLTensor *kv_indices; /**< [total pages]: every sequence's pages, one behind the other */
    const DLTensor *kv_indptr;  /**< [batches + 1]: where each one's pages begin */
    const DLTensor *kv_last_page_len; /**< [batches] or null; used by QUERN_VALIDATE=1 alone */
    qn_kv_layout kv_layout;
} qn_append_paged_kv_cache_args;

/** Token t goes to place positions[t] % page_size of page kv_indices[kv_indptr[b] + positions[t] /
 *  page_size], b = batch_indices[t]. Checked (Contents): kv_indptr never falls and ends within
 *  kv_indices, each token's sequence, its position in that sequence's pages, and its page; with
 *  QUERN_VALIDATE=1 all of kv_indices and kv_last_page_len, too. Source: FlashInfer's
 *  append_paged_kv_cache. */
QN_API qn_status qn_append_paged_kv_cache(qn_stream *stream,
                                          const qn_append_paged_kv_cache_args *args);

typedef struct qn_append_paged_mla_kv_cache_args {
    size_t struct_size; /**< sizeof(qn_append_paged_mla_kv_cache_args) */
    DLTensor *ckv_cache, *kpe_cache;
    const DLTensor *append_ckv, *append_kpe;
    const DLTensor *batch_indices, *positions, *kv_indices, *kv_indptr, *kv_last_page_len;
} qn_append_paged_mla_kv_cache_args;

/** The same for MLA's caches: compressed keys and values beside rotated keys (512 and 64 in
 *  DeepSeek's models). Checked (Contents) as above. Source: FlashInfer's
 *  append_paged_mla_kv_cache. */
QN_API qn_status qn_append_paged_mla_kv_cache(qn_stream *stream,
                                              const qn_append_paged_mla_kv_cache_args *args);

typedef struct qn_reshape_and_cache_args {
    size_t struct_size; /**< sizeof(qn_reshape_and_cache_args) */
    DLTensor *k_cache, *v_cache;
    const DLTensor *key, *value;
    const DLTensor
        *slot_mapping; /**< [n]: page * page_size + place, checked (Contents); below 0: the token
                            is left out */
    const DLTensor *k_scale, *v_scale; /**< one f32 each, on the device, above 0 and finite, which
                                            QUERN_VALIDATE=1 checks; null: no FP8 */
    qn_kv_layout kv_layout;
} qn_reshape_and_cache_args;

/** Token t goes to slot slot_mapping[t]. With scales, the caches are of an FP8 kind and key and
 *  value f32, f16 or bf16: what is stored is fp8(x * (1 / scale)), saturated, a NaN the kind's NaN.
 *  Source: reshape_and_cache_flash of the serving engines. */
QN_API qn_status qn_reshape_and_cache(qn_stream *stream, const qn_reshape_and_cache_args *args);

/** Token t's compressed keys and values, then its rotated keys, go to slot slot_mapping[t] of one
 *  MLA cache.
 *
 *  kv_cache      [pages, page_size, dim + rope_dim], written (512 + 64 in DeepSeek's models)
 *  kv_c, k_pe    [n, dim], [n, rope_dim]
 *  slot_mapping  [n]: page * page_size + place, checked (Contents); below 0: the token is left out
 *  scale         null: of the cache's dtype, copied; or one f32, on the device: to FP8, as in
 *                qn_reshape_and_cache
 *  Source: concat_and_cache_mla of the serving engines. */
QN_API qn_status qn_concat_and_cache_mla(qn_stream *stream, DLTensor *kv_cache,
                                         const DLTensor *kv_c, const DLTensor *k_pe,
                                         const DLTensor *slot_mapping, const DLTensor *scale);

/** Each sequence's length, from its pages: (pages - 1) * page_size + kv_last_page_len, 0 pages
 *  counting as 1.
 *
 *  seq_lens          [batches], written
 *  kv_indptr         [batches + 1]: where each sequence's pages begin; never falls, as is checked
 *                    (Contents)
 *  kv_last_page_len  [batches]
 *  page_size         1 to 2^31 - 1
 *  Source: FlashInfer's get_seq_lens. */
QN_API qn_status qn_get_seq_lens(qn_stream *stream, DLTensor *seq_lens, const DLTensor *kv_indptr,
                                 const DLTensor *kv_last_page_len, int64_t page_size);

/** For each of nnz new tokens, of which append_indptr[b] .. append_indptr[b + 1] - 1 are sequence
 *  b's last: its batch index and its position. Tokens of no sequence get -1 and 0, which appending
 *  leaves out.
 *
 *  batch_indices, positions  [nnz], written
 *  append_indptr  [batches + 1], from 0 to nnz, never falls, as is checked (Contents)
 *  seq_lens       [batches], with the new tokens
 *  Source: FlashInfer's get_batch_indices_positions. */
QN_API qn_status qn_get_batch_indices_positions(qn_stream *stream, DLTensor *batch_indices,
                                                DLTensor *positions, const DLTensor *append_indptr,
                                                const DLTensor *seq_lens);

#ifdef __cplusplus
}
#endif
#endif
