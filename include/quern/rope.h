// SPDX-License-Identifier: Apache-2.0
// Rotary position embedding of queries and keys: by position, by segments, by tables; after
// RMSNorm; to FP8.
//
// The first rotary_dim elements of a head turn in pairs, pair d by an angle a_d:
//
//   y0 = x0 cos a_d - x1 sin a_d
//   y1 = x1 cos a_d + x0 sin a_d
//
// Pair d is elements (d, d + rotary_dim / 2), or with `interleave` elements (2d, 2d + 1). A head's
// elements behind the first rotary_dim are copied. In all functions of this header, unless a
// function says otherwise:
//
//  q, k, q_out, k_out
//            [n, heads, head_dim], last dimension contiguous, other strides any that keep rows
//            apart (views of a packed qkv tensor, say); f32, f16 or bf16, all of one dtype; q and k
//            may differ in their number of heads. If k and k_out are null, only q is rotated
//  positions, pos_ids, indptr, offsets  i32, contiguous; i64 is an error
//  Align:    element size; faster when all tensors begin at multiples of 16 bytes, head_dim and
//            rotary_dim are multiples of 16, and strides are multiples of 8.
//  Types:    Sums and products are f32, and results are rounded once, to nearest, ties to even. A
//            token has equal bits on every run, whatever else is in the batch.
//  Angles:   position times frequency modulo one turn, computed in integers: cosines and sines are
//            within 2^-21 at every position from -2^31 to 2^31.
//  Edge:     n == 0 and no heads are no-ops. A NaN stays in its pair (after RMSNorm: in its head).
//            RMSNorm of a head of zeros gives zeros, even if eps is 0.
//  Overlap:  an output may be its own input (equal address and strides). Apart from that, a tensor
//            that is written overlaps no other tensor.
//  Async:    queued on stream.
//  Contents: the values of index tensors are checked first: on the CPU always, on GPUs only with
//            QUERN_VALIDATE=1, which waits for the stream and reads the values back. On GPUs
//            without QUERN_VALIDATE=1 a value out of range may make the GPU read and write stray
//            memory.
//  Errors:   QN_E_INVALID (null, shape, stride, scalars, contents), QN_E_UNSUPPORTED (dtype).
#ifndef QUERN_ROPE_H
#define QUERN_ROPE_H

#include <quern/kvcache.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Options of rotation; a member of zero means its default. Pair d has the frequency
 *  f_d = rope_theta^(-2d / rotary_dim) / rope_scale. */
typedef struct qn_rope_options {
    size_t struct_size;      /**< sizeof(qn_rope_options) */
    int64_t rotary_dim;      /**< even, at most head_dim (the default) and 512 */
    float rope_scale;        /**< default 1; Llama 3.1: 8 */
    float rope_theta;        /**< default 1e4; Llama 3.1: 5e5 */
    int32_t interleave;      /**< 0: elements of a pair are rotary_dim / 2 apart; 1: neighbours */
    float low_freq_factor;   /**< Llama 3.1 only; default 1 */
    float high_freq_factor;  /**< Llama 3.1 only; default 4; above low_freq_factor */
    int64_t old_context_len; /**< Llama 3.1 only; default 8192 */
} qn_rope_options;

/** Rotates by segments: token t of segment b, with indptr[b] <= t < indptr[b + 1], has the position
 *  offsets[b] + t - indptr[b]. Tokens of no segment are not written.
 *
 *  indptr   [segments + 1], from 0 to n, not decreasing, as is checked (see Contents)
 *  offsets  [segments]
 *  options  null: the defaults
 *  Source: arXiv:2104.09864; FlashInfer's apply_rope. */
QN_API qn_status qn_apply_rope(qn_stream *stream, DLTensor *q_out, DLTensor *k_out,
                               const DLTensor *q, const DLTensor *k, const DLTensor *indptr,
                               const DLTensor *offsets, const qn_rope_options *options);
/** Rotates by positions: token t has the position pos_ids[t].
 *
 *  pos_ids  [n], any values
 *  options  null: the defaults
 *  Source: FlashInfer's apply_rope_pos_ids. */
QN_API qn_status qn_apply_rope_pos_ids(qn_stream *stream, DLTensor *q_out, DLTensor *k_out,
                                       const DLTensor *q, const DLTensor *k,
                                       const DLTensor *pos_ids, const qn_rope_options *options);

/** qn_apply_rope with Llama 3.1's frequencies. With low and high for the two freq_factors:
 *
 *    frequency = s f_d + (1 - s) f_d / rope_scale,  f_d = rope_theta^(-2d / rotary_dim)
 *    s = clamp(f_d old_context_len / (2 pi (high - low)) - low / (high - low), 0, 1)
 *
 *  Source: FlashInfer's apply_llama31_rope. */
QN_API qn_status qn_apply_llama31_rope(qn_stream *stream, DLTensor *q_out, DLTensor *k_out,
                                       const DLTensor *q, const DLTensor *k, const DLTensor *indptr,
                                       const DLTensor *offsets, const qn_rope_options *options);
/** qn_apply_rope_pos_ids with Llama 3.1's frequencies, which are those of qn_apply_llama31_rope.
 *  Source: FlashInfer's apply_llama31_rope_pos_ids. */
QN_API qn_status qn_apply_llama31_rope_pos_ids(qn_stream *stream, DLTensor *q_out, DLTensor *k_out,
                                               const DLTensor *q, const DLTensor *k,
                                               const DLTensor *pos_ids,
                                               const qn_rope_options *options);

/** Rotates with cosines and sines from a table, whose width is rotary_dim.
 *
 *  cos_sin_cache  [max_position, rotary_dim] f32, contiguous: a row has rotary_dim / 2 cosines,
 *                 then rotary_dim / 2 sines
 *  positions      [n], from 0 to max_position - 1, as is checked (see Contents)
 *  interleave     0: elements of a pair are rotary_dim / 2 apart (NeoX); 1: neighbours
 *  Source: FlashInfer's apply_rope_with_cos_sin_cache. */
QN_API qn_status qn_apply_rope_with_cos_sin_cache(qn_stream *stream, DLTensor *q_out,
                                                  DLTensor *k_out, const DLTensor *q,
                                                  const DLTensor *k, const DLTensor *cos_sin_cache,
                                                  const DLTensor *positions, int32_t interleave);

typedef struct qn_qk_rmsnorm_rope_args {
    size_t struct_size; /**< sizeof(qn_qk_rmsnorm_rope_args) */
    DLTensor *q_out, *k_out;
    const DLTensor *q, *k;               /**< [n, heads, head_dim] or [batch, n, heads, head_dim] */
    const DLTensor *q_weight, *k_weight; /**< [head_dim] of q's dtype; both null: no norm */
    const DLTensor *cos, *sin; /**< [n, rotary_dim] or [n, rotary_dim / 2], f32 or q's dtype */
    int64_t rotary_dim;        /**< 0: head_dim */
    float eps;
    int32_t interleave;
} qn_qk_rmsnorm_rope_args;

/** RMSNorm of each head, then rotation, in one pass without rounding in between. The tables cos and
 *  sin have a row for each token, as in diffusion transformers (FLUX: of three axes) and in
 *  transformers' apply_rotary_pos_emb.
 *
 *  cos, sin  last dimension contiguous, equal strides in both; all batches share them. A table
 *            rotary_dim wide holds each pair's value at both elements of the pair; the value at the
 *            first element is read
 *  Source: attention of diffusers' FluxTransformer2DModel and transformers' Qwen3. */
QN_API qn_status qn_qk_rmsnorm_rope(qn_stream *stream, const qn_qk_rmsnorm_rope_args *args);

typedef struct qn_rope_quantize_args {
    size_t struct_size; /**< sizeof(qn_rope_quantize_args) */
    DLTensor *q_rope_out, *k_rope_out, *q_nope_out, *k_nope_out; /**< FP8, all of one kind */
    const DLTensor *q_rope, *k_rope; /**< [n, heads, rotary_dim]; MLA's k: [n, rotary_dim] */
    const DLTensor *q_nope, *k_nope; /**< [n, heads, any] (MLA's k: [n, any]), or null: none */
    const DLTensor *cos_sin_cache, *pos_ids; /**< as in qn_apply_rope_with_cos_sin_cache */
    float quant_scale_q, quant_scale_kv;     /**< default 1 */
    int32_t interleave;
} qn_rope_quantize_args;

/** Rotates q_rope and k_rope, multiplies q by quant_scale_q and k by quant_scale_kv, and stores
 *  all as FP8, saturated; a NaN becomes the kind's NaN. Outputs have their inputs' shapes; pos_ids
 *  are checked (see Contents).
 *  Source: FlashInfer's rope_quantize_fp8 and mla_rope_quantize_fp8. */
QN_API qn_status qn_rope_quantize_fp8(qn_stream *stream, const qn_rope_quantize_args *args);

typedef struct qn_rope_quantize_append_args {
    size_t struct_size; /**< sizeof(qn_rope_quantize_append_args) */
    DLTensor *q_rope_out, *q_nope_out;
    DLTensor *k_cache, *v_cache;     /**< heads of k_cache: rotary_dim elements, then k_nope's */
    DLTensor *ckv_cache, *kpe_cache; /**< MLA: k_nope and k_rope go here; v is null */
    const DLTensor *q_rope, *k_rope, *q_nope, *k_nope, *v;
    const DLTensor *cos_sin_cache, *pos_ids;
    const DLTensor *batch_indices, *positions, *kv_indices,
        *kv_indptr; /**< qn_append_paged_kv_cache's */
    float quant_scale_q, quant_scale_kv;
    int32_t interleave;
    qn_kv_layout kv_layout; /**< of k_cache and v_cache; MLA's caches have one order */
} qn_rope_quantize_append_args;

/** qn_rope_quantize_fp8 that also appends keys and values to a paged FP8 cache, in one pass.
 *  batch_indices, positions, kv_indices and kv_indptr mean what they mean in
 *  qn_append_paged_kv_cache, and are checked as there.
 *  Source: FlashInfer's rope_quantize_fp8_append_paged_kv_cache. */
QN_API qn_status qn_rope_quantize_fp8_append_paged_kv_cache(
    qn_stream *stream, const qn_rope_quantize_append_args *args);

#ifdef __cplusplus
}
#endif
#endif
