// SPDX-License-Identifier: Apache-2.0
// Rotary position embedding of queries and keys: by position, by segments, by tables; after
// RMSNorm; to FP8.
//
// A head's first rotary_dim elements turn in pairs, pair d by an angle a_d: y0 = x0 cos a_d - x1
// sin a_d, y1 = x1 cos a_d + x0 sin a_d. Pairs are (d, d + rotary_dim / 2), or with `interleave`
// (2d, 2d + 1). The others are copied. In all of these, unless the function says otherwise:
//
//  q, k, q_out, k_out
//            [n, heads, head_dim], last dimension contiguous, other strides any that keep rows
//            apart (views of a packed qkv tensor, say); f32, f16 or bf16, all of one dtype; heads
//            of q and k may differ in number. k and k_out may be null together: then q alone
//  positions, pos_ids, indptr, offsets  i32, contiguous; i64 is an error
//  Align:    element size; faster when everything begins at 16 bytes, head_dim and rotary_dim are
//            multiples of 16 and strides of 8.
//  Types:    f32 throughout, rounded once to nearest, ties to even. The same bits on every run,
//            whatever else is in the batch.
//  Angles:   computed as position times frequency modulo one turn, in integers: cosines and sines
//            are within 2^-21 at every position from -2^31 to 2^31.
//  Edge:     n == 0 and no heads are no-ops. A NaN stays in its pair (after RMSNorm: in its head).
//            RMSNorm of a head of zeros gives zeros, also where eps is 0.
//  Overlap:  an output may be its own input (same address and strides); otherwise no two tensors
//            that are written, and none that is written and one that is read, may overlap.
//  Async:    queued on stream.
//  Contents: index tensors' values are checked first: on the CPU always, on GPUs with
//  QUERN_VALIDATE=1, which waits for
//            the stream and reads them back. Without it a value out of range may have a GPU read
//            and write stray memory.
//  Errors:   QN_E_INVALID (null, shape, stride, scalars, contents), QN_E_UNSUPPORTED (dtype).
#ifndef QUERN_ROPE_H
#define QUERN_ROPE_H

#include <quern/kvcache.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Zero means the default. Frequencies are f_d = theta^(-2d / rotary_dim) / scale. */
typedef struct qn_rope_options {
    size_t struct_size;      /**< sizeof(qn_rope_options) */
    int64_t rotary_dim;      /**< even, at most head_dim (the default) and 512 */
    float rope_scale;        /**< 1; Llama 3.1: 8 */
    float rope_theta;        /**< 1e4; Llama 3.1: 5e5 */
    int32_t interleave;      /**< 0: pairs are half a rotary_dim apart */
    float low_freq_factor;   /**< Llama 3.1 only: 1 */
    float high_freq_factor;  /**< Llama 3.1 only: 4; above low_freq_factor */
    int64_t old_context_len; /**< Llama 3.1 only: 8192 */
} qn_rope_options;

/** Token t of segment b, indptr[b] <= t < indptr[b + 1], stands at offsets[b] + t - indptr[b].
 *  Tokens of no segment are not written.
 *
 *  indptr   [segments + 1], from 0 to n, not decreasing, as is checked (Contents)
 *  offsets  [segments]
 *  options  null: the defaults
 *  Source: arXiv:2104.09864; FlashInfer's apply_rope. */
QN_API qn_status qn_apply_rope(qn_stream *stream, DLTensor *q_out, DLTensor *k_out,
                               const DLTensor *q, const DLTensor *k, const DLTensor *indptr,
                               const DLTensor *offsets, const qn_rope_options *options);
/** Token t stands at pos_ids[t]; pos_ids: [n], any values. */
QN_API qn_status qn_apply_rope_pos_ids(qn_stream *stream, DLTensor *q_out, DLTensor *k_out,
                                       const DLTensor *q, const DLTensor *k,
                                       const DLTensor *pos_ids, const qn_rope_options *options);

/** The same with Llama 3.1's frequencies: s f_d + (1 - s) f_d / scale for f_d = theta^(-2d /
 *  rotary_dim) and s = clamp(f_d old_context_len / (2 pi (high - low)) - low / (high - low), 0,
 *  1). */
QN_API qn_status qn_apply_llama31_rope(qn_stream *stream, DLTensor *q_out, DLTensor *k_out,
                                       const DLTensor *q, const DLTensor *k, const DLTensor *indptr,
                                       const DLTensor *offsets, const qn_rope_options *options);
/** The same by positions: token t stands at pos_ids[t]; pos_ids: [n], any values. */
QN_API qn_status qn_apply_llama31_rope_pos_ids(qn_stream *stream, DLTensor *q_out, DLTensor *k_out,
                                               const DLTensor *q, const DLTensor *k,
                                               const DLTensor *pos_ids,
                                               const qn_rope_options *options);

/** Cosines and sines from a table; rotary_dim is its width.
 *
 *  cos_sin_cache  [max_position, rotary_dim] f32, contiguous: a row has rotary_dim / 2 cosines,
 *                 then as many sines
 *  positions      [n], from 0 to max_position - 1, as is checked (Contents)
 *  interleave     0: NeoX's pairs, half a rotary_dim apart
 *  Source: FlashInfer's apply_rope_with_cos_sin_cache. */
QN_API qn_status qn_apply_rope_with_cos_sin_cache(qn_stream *stream, DLTensor *q_out,
                                                  DLTensor *k_out, const DLTensor *q,
                                                  const DLTensor *k, const DLTensor *cos_sin_cache,
                                                  const DLTensor *positions, int32_t interleave);

typedef struct qn_qk_rmsnorm_rope_args {
    size_t struct_size; /**< sizeof(qn_qk_rmsnorm_rope_args) */
    DLTensor *q_out, *k_out;
    const DLTensor *q, *k;               /**< [n, heads, head_dim] or [batch, n, heads, head_dim] */
    const DLTensor *q_weight, *k_weight; /**< [head_dim] of q's dtype; all null: no norm */
    const DLTensor *cos, *sin; /**< [n, rotary_dim] or [n, rotary_dim / 2], f32 or q's dtype */
    int64_t rotary_dim;        /**< 0: head_dim */
    float eps;
    int32_t interleave;
} qn_qk_rmsnorm_rope_args;

/** RMSNorm of each head, then rotation by tables that have a row a token, as diffusion transformers
 *  have (FLUX: of three axes) and as transformers' apply_rotary_pos_emb takes: norm and rotation in
 *  one pass, unrounded between.
 *
 *  cos, sin  last dimension contiguous, the same strides; the batches share them. Tables of
 *            rotary_dim have each pair's value at both its elements, of which the first is read
 *  Source: attention of diffusers' FluxTransformer2DModel and transformers' Qwen3. */
QN_API qn_status qn_qk_rmsnorm_rope(qn_stream *stream, const qn_qk_rmsnorm_rope_args *args);

typedef struct qn_rope_quantize_args {
    size_t struct_size; /**< sizeof(qn_rope_quantize_args) */
    DLTensor *q_rope_out, *k_rope_out, *q_nope_out, *k_nope_out; /**< FP8, all of one kind */
    const DLTensor *q_rope, *k_rope; /**< [n, heads, rotary_dim]; MLA's k: [n, rotary_dim] */
    const DLTensor *q_nope, *k_nope; /**< [n, heads, any] (MLA's k: [n, any]), or null: none */
    const DLTensor *cos_sin_cache, *pos_ids; /**< as in qn_apply_rope_with_cos_sin_cache */
    float quant_scale_q, quant_scale_kv;     /**< 0: 1 */
    int32_t interleave;
} qn_rope_quantize_args;

/** Rotates q_rope and k_rope, then multiplies all by their scales and stores them as FP8,
 *  saturated, a NaN the kind's NaN. Outputs have their inputs' shapes; pos_ids are checked
 *  (Contents). Source: FlashInfer's rope_quantize_fp8 and mla_rope_quantize_fp8. */
QN_API qn_status qn_rope_quantize_fp8(qn_stream *stream, const qn_rope_quantize_args *args);

typedef struct qn_rope_quantize_append_args {
    size_t struct_size; /**< sizeof(qn_rope_quantize_append_args) */
    DLTensor *q_rope_out, *q_nope_out;
    DLTensor *k_cache, *v_cache;     /**< heads of k_cache: rotary_dim elements, then k_nope's */
    DLTensor *ckv_cache, *kpe_cache; /**< instead, MLA: k_nope and k_rope; then v is null */
    const DLTensor *q_rope, *k_rope, *q_nope, *k_nope, *v;
    const DLTensor *cos_sin_cache, *pos_ids;
    const DLTensor *batch_indices, *positions, *kv_indices,
        *kv_indptr; /**< qn_append_paged_kv_cache's */
    float quant_scale_q, quant_scale_kv;
    int32_t interleave;
    qn_kv_layout kv_layout; /**< of k_cache and v_cache; MLA's caches have one order */
} qn_rope_quantize_append_args;

/** The same, keys and values going to a paged FP8 cache in the same pass. batch_indices, positions,
 *  kv_indices and kv_indptr are checked as by qn_append_paged_kv_cache. Source: FlashInfer's
 *  rope_quantize_fp8_append_paged_kv_cache. */
QN_API qn_status qn_rope_quantize_fp8_append_paged_kv_cache(
    qn_stream *stream, const qn_rope_quantize_append_args *args);

#ifdef __cplusplus
}
#endif
#endif
