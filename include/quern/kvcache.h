// SPDX-License-Identifier: Apache-2.0
// Writes to paged key-value caches, reads MLA caches, and the index vectors that go with them.
//
// A cache is a tensor of pages: [pages, page_size, heads, head_dim] (QN_NHD) or [pages, heads,
// page_size, head_dim] (QN_HND). An MLA cache has no heads: [pages, page_size, dim]. A cache's last
// dimension is contiguous; its other strides are any that keep elements apart. In all functions of
// this header, unless a function says otherwise:
//
//  new tokens  [n, heads, head_dim], or [n, dim] for an MLA cache: last dimension contiguous, other
//              strides any
//  indices     i32, contiguous vectors; i64 is an error
//  Types:    f32, f16, bf16 and the FP8 kinds; cache and new tokens have one dtype, and every bit
//            is copied
//  Align:    element size; faster when all tensors begin at multiples of 16 bytes and rows are
//            multiples of 16 bytes
//  Edge:     n == 0 is a no-op. Places in the cache that no token goes to keep their bytes. Two
//            tokens for one place are the caller's mistake: either may end up there.
//  Overlap:  no cache may overlap another tensor.
//  Async:    queued on stream.
//  Contents: the values of index tensors are checked first: on the CPU always, on GPUs only with
//            QUERN_VALIDATE=1, which waits for the stream and reads the values back. On GPUs
//            without QUERN_VALIDATE=1 a value out of range may make the GPU read and write stray
//            memory.
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
    const DLTensor *kv_indices; /**< [total pages]: the pages of sequence 0, of sequence 1, … */
    const DLTensor *kv_indptr;  /**< [batches + 1]: where each sequence's pages begin */
    const DLTensor *kv_last_page_len; /**< [batches] or null; used by QUERN_VALIDATE=1 alone */
    qn_kv_layout kv_layout;
} qn_append_paged_kv_cache_args;

/** Writes the keys and values of new tokens to a paged cache. With b = batch_indices[t], token t
 *  goes to place positions[t] % page_size of this page:
 *
 *    kv_indices[kv_indptr[b] + positions[t] / page_size]
 *
 *  Checked (see Contents): kv_indptr never falls and ends within kv_indices; each token's sequence,
 *  its position within the sequence's pages, and its page; with QUERN_VALIDATE=1 also all of
 *  kv_indices and kv_last_page_len.
 *  Source: FlashInfer's append_paged_kv_cache. */
QN_API qn_status qn_append_paged_kv_cache(qn_stream *stream,
                                          const qn_append_paged_kv_cache_args *args);

typedef struct qn_append_paged_mla_kv_cache_args {
    size_t struct_size; /**< sizeof(qn_append_paged_mla_kv_cache_args) */
    DLTensor *ckv_cache, *kpe_cache;
    const DLTensor *append_ckv, *append_kpe;
    const DLTensor *batch_indices, *positions, *kv_indices, *kv_indptr, *kv_last_page_len;
} qn_append_paged_mla_kv_cache_args;

/** Writes new tokens to the two paged caches of MLA: compressed keys and values to ckv_cache,
 *  rotated keys to kpe_cache (dim 512 and 64 in DeepSeek's models). Places and checks are those of
 *  qn_append_paged_kv_cache. Source: FlashInfer's append_paged_mla_kv_cache. */
QN_API qn_status qn_append_paged_mla_kv_cache(qn_stream *stream,
                                              const qn_append_paged_mla_kv_cache_args *args);

typedef struct qn_reshape_and_cache_args {
    size_t struct_size; /**< sizeof(qn_reshape_and_cache_args) */
    DLTensor *k_cache, *v_cache;
    const DLTensor *key, *value;
    /** [n]: page * page_size + place, checked (see Contents); below 0: the token is left out. */
    const DLTensor *slot_mapping;
    /** One f32 each, on the device, above 0 and finite, which QUERN_VALIDATE=1 checks; null: new
     *  tokens are copied, not quantised. */
    const DLTensor *k_scale, *v_scale;
    qn_kv_layout kv_layout;
} qn_reshape_and_cache_args;

/** Writes the keys and values of new tokens to a paged cache: token t goes to slot slot_mapping[t].
 *  With scales, the caches are of an FP8 kind, and key and value are f32, f16 or bf16. An element x
 *  is then stored as fp8(x * (1 / scale)), saturated; a NaN becomes the kind's NaN.
 *  Source: reshape_and_cache_flash of the serving engines. */
QN_API qn_status qn_reshape_and_cache(qn_stream *stream, const qn_reshape_and_cache_args *args);

/** Writes new tokens to an MLA cache that has all of a token in one row: slot slot_mapping[t] gets
 *  token t's compressed keys and values, then its rotated keys.
 *
 *  kv_cache      [pages, page_size, dim + rope_dim], written (512 + 64 in DeepSeek's models)
 *  kv_c, k_pe    [n, dim], [n, rope_dim]
 *  slot_mapping  [n]: page * page_size + place, checked (see Contents); below 0: the token is left
 *                out
 *  scale         null: kv_c and k_pe have the cache's dtype and are copied. Else one f32, on the
 *                device: they are quantised to FP8 as in qn_reshape_and_cache
 *  Source: concat_and_cache_mla of the serving engines. */
QN_API qn_status qn_concat_and_cache_mla(qn_stream *stream, DLTensor *kv_cache,
                                         const DLTensor *kv_c, const DLTensor *k_pe,
                                         const DLTensor *slot_mapping, const DLTensor *scale);

typedef struct qn_quantize_and_cache_mla_args {
    size_t struct_size;    /**< sizeof(qn_quantize_and_cache_mla_args) */
    DLTensor *ckv_cache;   /**< [pages, page_size, dim] of an FP8 kind, written */
    DLTensor *scale_cache; /**< f32 [pages, page_size, ceil(dim / 128)], written */
    DLTensor *kpe_cache;   /**< [pages, page_size, rope_dim] of k_pe's dtype, written */
    const DLTensor *kv_c;  /**< [n, dim] of f32, f16 or bf16 */
    const DLTensor *k_pe;  /**< [n, rope_dim] of kv_c's dtype */
    /** [n]: page * page_size + place, checked (see Contents); below 0: the token is left out. */
    const DLTensor *slot_mapping;
} qn_quantize_and_cache_mla_args;

/** Writes new tokens to an MLA cache whose compressed keys and values are FP8 with a scale for each
 *  128 elements, and whose rotated keys are not quantised: "fp8_ds_mla" of vLLM. Codes and scales
 *  have the bits that qn_quantize_groups gives kv_c with groups of 128 and its default eps; k_pe is
 *  copied.
 *
 *  The caches may be views of one memory: a token of fp8_ds_mla has 656 bytes, 512 codes, 4 scales
 *  and 64 elements of bf16, so that ckv_cache begins at byte 0 with rows 656 elements apart,
 *  scale_cache at byte 512 with rows 164 apart, and kpe_cache at byte 528 with rows 328 apart.
 *  qn_mla_decode (ckv_scales) and qn_gather_paged_mla_kv_cache (scales) read them.
 *
 *  Errors: also QN_E_INVALID for caches of different pages.
 *  Source: concat_and_cache_mla of vLLM with fp8_ds_mla. */
QN_API qn_status qn_quantize_and_cache_mla(qn_stream *stream,
                                           const qn_quantize_and_cache_mla_args *args);

typedef struct qn_gather_paged_mla_kv_cache_args {
    size_t struct_size;     /**< sizeof(qn_gather_paged_mla_kv_cache_args) */
    DLTensor *out;          /**< [n, dim], written */
    const DLTensor *cache;  /**< [pages, page_size, dim]: all of a token's row, or a part of it */
    const DLTensor *scale;  /**< of all codes; null beside scales: bits are copied */
    const DLTensor *scales; /**< of groups of codes; null, or scale is */
    /** Either [n]: page * page_size + place, below 0: the row is left as it is; or the four
     *  others, as for appending. */
    const DLTensor *slot_mapping;
    const DLTensor *batch_indices, *positions, *kv_indices, *kv_indptr;
    const DLTensor *kv_last_page_len; /**< null, or as for appending; null with slot_mapping */
} qn_gather_paged_mla_kv_cache_args;

/** Reads tokens of an MLA cache into rows that lie together: row t gets what appending wrote, or
 *  would write, for token t. A prompt's chunk attends to what came before it by such rows, expanded
 *  to keys and values. qn_get_batch_indices_positions tells batch_indices and positions of a part
 *  of each sequence.
 *
 *  out     last dimension contiguous, any row stride. Without scale of cache's dtype; with scale
 *          f32, f16 or bf16. Rows of tokens that are nowhere are left as they are
 *  cache   as for appending, but only read
 *  scale   one f32 on the device: the cache is of an FP8 kind, and out is code * scale in f32,
 *          rounded once; a NaN stays one. Above 0 and finite, which QUERN_VALIDATE=1 checks
 *  scales  f32 [pages, page_size, ceil(dim / 128)], last dimension contiguous: likewise, with a
 *          scale for each 128 elements of a token, as qn_quantize_and_cache_mla writes them; any
 *          numbers
 *  Errors: also QN_E_INVALID for slot_mapping beside other index tensors, and for scale beside
 *          scales.
 *  Source: gather_and_maybe_dequant_cache of vLLM. */
QN_API qn_status qn_gather_paged_mla_kv_cache(qn_stream *stream,
                                              const qn_gather_paged_mla_kv_cache_args *args);

/** Computes each sequence's length from its number of pages: (pages - 1) * page_size +
 *  kv_last_page_len. A sequence without pages counts as one of one page.
 *
 *  seq_lens          [batches], written
 *  kv_indptr         [batches + 1]: where each sequence's pages begin; never falls, as is checked
 *                    (see Contents)
 *  kv_last_page_len  [batches]
 *  page_size         1 to 2^31 - 1
 *  Source: FlashInfer's get_seq_lens. */
QN_API qn_status qn_get_seq_lens(qn_stream *stream, DLTensor *seq_lens, const DLTensor *kv_indptr,
                                 const DLTensor *kv_last_page_len, int64_t page_size);

/** Computes the batch index and the position of each of nnz new tokens. New tokens
 *  append_indptr[b] .. append_indptr[b + 1] - 1 are the last tokens of sequence b. A token of no
 *  sequence gets batch index -1, which appending leaves out, and position 0.
 *
 *  batch_indices, positions  [nnz], written
 *  append_indptr  [batches + 1], from 0 to nnz, never falls, as is checked (see Contents)
 *  seq_lens       [batches]: lengths that include the new tokens
 *  Source: FlashInfer's get_batch_indices_positions. */
QN_API qn_status qn_get_batch_indices_positions(qn_stream *stream, DLTensor *batch_indices,
                                                DLTensor *positions, const DLTensor *append_indptr,
                                                const DLTensor *seq_lens);

#ifdef __cplusplus
}
#endif
#endif
