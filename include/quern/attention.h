// SPDX-License-Identifier: Apache-2.0
// Attention: one definition over dense, ragged and paged keys and values; plans; merging of partial
// results.
//
// For request b, query i of qo_len, head h (kv head h / (num_qo_heads / num_kv_heads)) and key j of
// kv_len:
//
//   x_j = q_scale k_scale sm_scale <q_i, k_j>        (QN_POS_ROPE_LLAMA: both rotated first)
//   x_j += slope_h (j - i)                           (QN_POS_ALIBI)
//   x_j = cap tanh(x_j / cap)                        (logits_soft_cap)
//   x_j += mask[b, h, i, j]                          (an additive mask)
//   o_i = v_scale sum_j softmax(x)_j v_j,  lse_i = log sum_j e^x_j     over the keys that i sees
//
// Sinks add e^sink_h to the denominator, in lse too. A query that sees no key gives zeros and
// -infinity (with a sink: the sink). A query sees all keys of its request that causality, window
// and masks leave it:
//
//   causal        j <= i + d,  d = kv_len - qo_len (the last query is level with the last key);
//                 is_top_left: d = 0
//   window_left   j >= i + d - window_left;   window_right   j <= i + d + window_right
//   custom_mask   bit i * kv_len + j of the request's piece is set
//   mask          a boolean one is true there; an additive one's -infinity hides a key
#ifndef QUERN_ATTENTION_H
#define QUERN_ATTENTION_H

#include <quern/kvcache.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef int32_t qn_pos_encoding;
enum {
    QN_POS_NONE = 0,
    /** q is turned by position kv_len - qo_len + i, k by j; halves of an even head_dim are
     *  pairs. */
    QN_POS_ROPE_LLAMA = 1,
    /** For n the largest power of two <= heads, slope_h is 2^(-8 (h + 1) / n), for h >= n 2^(-4 (2
     *  (h + 1 - n) - 1) / n). */
    QN_POS_ALIBI = 2
};

typedef int32_t qn_lse_base;
enum { QN_LSE_BASE_2 = 0, QN_LSE_BASE_E = 1 };

/** Everything zero means the default; optional tensors are null. */
typedef struct qn_attention_args {
    size_t struct_size; /**< sizeof(qn_attention_args) */
    DLTensor *o;        /**< as q, with v's head_dim; f32, f16 or bf16 */
    DLTensor *lse;      /**< optional, f32: as q without its last dimension */
    const DLTensor *q;
    const DLTensor *k, *v;      /**< of one dtype and head count; strides of their own */
    qn_kv_layout layout;        /**< of k and v, and of dense q, o and lse */
    const DLTensor *kv_indices; /**< [pages in use] i32: k and v are pages */

    const void *plan; /**< what qn_attention_plan made, in host memory; null: q and k are dense */
    int64_t plan_bytes;
    /** [plan_bytes] u8 on the device, at a multiple of 8: a copy of the plan; CPU: optional. */
    const DLTensor *schedule;
    DLTensor *workspace; /**< u8 at a multiple of 16, as large as was told; null where that is 0 */

    int32_t is_causal, is_top_left;
    int32_t has_window_left, has_window_right; /**< 1: the window's side is a bound */
    int64_t window_left, window_right;
    /** u8: a request's bits begin at a byte, lowest first; is_causal is ignored. */
    const DLTensor *custom_mask;
    /** bool or u8, else f32, f16 or bf16, added; [(batch,) (head,) query, key], each of them 1 or
     *  whole, any strides; dense q and k alone, without is_causal and custom_mask. */
    const DLTensor *mask;
    qn_pos_encoding pos_encoding;
    float rope_scale, rope_theta;        /**< 1 and 1e4 */
    float sm_scale;                      /**< 1 / sqrt(head_dim) */
    float logits_soft_cap;               /**< off */
    float q_scale, k_scale, v_scale;     /**< 1 */
    const DLTensor *q_scales;            /**< f32 [num_qo_heads], beside q_scale */
    const DLTensor *k_scales, *v_scales; /**< f32 [num_kv_heads] */
    const DLTensor *sinks;               /**< f32 [num_qo_heads] */
    /** Weights are dropped with this probability, from 0 to below 1, the others times 1 / (1 - p);
     *  lse is of all. */
    float dropout_p;
    uint64_t dropout_seed, dropout_offset; /**< see qn_attention_dropout_mask */
    qn_lse_base lse_base;
} qn_attention_args;

/** Attention.
 *
 *  q         dense [batch, n, heads, head_dim] (QN_NHD) or [batch, heads, n, head_dim] (QN_HND);
 *            ragged, with a plan, [tokens, heads, head_dim] in either layout
 *  k, v      dense as q; ragged [tokens, heads, dim] (QN_HND: [heads, tokens, dim]); with
 *            kv_indices pages [pages, page_size, heads, dim] (QN_HND: [pages, heads, page_size,
 *            dim]). v's head_dim may be another. A cache of [pages, 2, …] is two views of it
 *  Types:    q f32, f16, bf16 or FP8; k and v f32, f16, bf16 or FP8; sums in f32; o rounded once.
 *            On gfx90a's matrix cores f16 values below 2^-14 count as zeros
 *  Shapes:   head_dim from 1 to 512; num_qo_heads a multiple of num_kv_heads; last dimensions
 *            contiguous, other strides any; fewer than 2^31 rows of queries, heads and chunks of
 *            keys
 *  Align:    element size
 *  Speed:    a GPU's matrix cores take q of f16, bf16 or FP8 with k and v of q's type or FP8; head
 *            dims that are multiples of 8 up to 256; rows that begin at multiples of 16 bytes (FP8:
 *            8); no dropout, no QN_POS_ROPE_LLAMA. All else runs, slowly, on attention.gpu_any
 *  Edge:     what lies past a request's keys, and in pages' unused places, reaches no result,
 *            whatever it holds; nor does a key that causality, window or masks hide, if its v is
 *            finite (a weight of 0 times an infinity is a NaN on some kernels); its k may hold
 *            anything. Requests without queries or without keys are no errors. q has no more
 *            queries than the plan; with is_for_graph it may, and those behind the last request are
 *            not written.
 *  Overlap:  o, lse and workspace overlap nothing.
 *  Bits:     of a request the same on every run, for any number of threads, whatever other requests
 *            are in the batch (a plan of kv_chunk of one's own: as long as that does not change;
 *            dropout counts by the batch). Of a query they depend on how many its request has: few
 *            go to other kernels, in other chunks. With QUERN_BATCH_INVARIANT=1, where the plan is
 *            made too, and kv_chunk 0 they do not: a token's are the same alone, in a chunk and in
 *            its prompt, on one device. Keys are then not cut, and decoding is slower.
 *  Async:    queued on stream, allocates nothing, can be captured; the plan's host copy may go when
 *            this returns.
 *  Contents: all of a plan and its requests' entries of kv_indices are checked first: on the CPU
 *  always, on GPUs with
 *            QUERN_VALIDATE=1, which waits for the stream and reads kv_indices back; else on a GPU
 *            a plan's header alone, and an entry out of range may have it read stray memory.
 *  Errors:   QN_E_INVALID (null, shape, stride, scalars, masks that exclude each other, workspace
 *            too small, contents, a plan for other tensors), QN_E_UNSUPPORTED (dtype, head_dim,
 *            size, QN_POS_ALIBI with logits_soft_cap), QN_E_DEVICE.
 *  Source:   arXiv:1706.03762, arXiv:2205.14135; FlashInfer's and PyTorch's definitions where they
 *            agree. */
QN_API qn_status qn_attention(qn_stream *stream, const qn_attention_args *args);

/** Bytes of workspace that these arguments need without a plan; 0 is common. Looks at shapes alone.
 *  Errors: QN_E_INVALID (null, shape, a plan is given), QN_E_UNSUPPORTED (size). */
QN_API qn_status qn_attention_workspace_bytes(int64_t *bytes, const qn_attention_args *args);

/** What a plan is made from: host arrays. Zero and null mean the default. */
typedef struct qn_attention_plan_args {
    size_t struct_size; /**< sizeof(qn_attention_plan_args) */
    int64_t batches;
    const int32_t *qo_indptr; /**< [batches + 1], or null: dense q of qo_len queries each */
    int64_t qo_len;
    /** [batches + 1] tokens, with page_size places in kv_indices; or null: dense k and v. */
    const int32_t *kv_indptr;
    /** [batches], 1 to page_size; ignored where a request has no pages. */
    const int32_t *kv_last_page_len;
    const int32_t *kv_lens; /**< [batches] dense: keys in use; null: kv_len each */
    int64_t kv_len;
    int64_t page_size; /**< 0: not paged */
    int64_t num_qo_heads, num_kv_heads, head_dim_vo;
    /** Keys are summed up in chunks of this many, each by a workgroup of its own, and the chunks
     *  merged. 0: by the request's own lengths, with QUERN_BATCH_INVARIANT=1 one chunk; below 0:
     *  one chunk. */
    int64_t kv_chunk;
    int64_t max_kv_splits; /**< workgroups that share a request's chunks; 0: one each */
    int64_t q_tile; /**< rows of a workgroup: 16, 64, 128 or 256; 0: by lengths. Changes no bit */
    int64_t num_compute_units;      /**< of the device, for q_tile; 0: unknown */
    int64_t max_qo_len, max_kv_len; /**< that dropout counts by; 0: the longest request's */
    /** 1: a graph captured with this plan takes later plans of any lengths. Launches are as large
     *  as the device, not as this batch, and partial results are merged even if it has none. */
    int32_t is_for_graph;
} qn_attention_plan_args;

/** Makes the schedule of ragged, paged or padded attention. Pure: no device, no clock, no memory of
 *  its own; the same arguments (and QUERN_BATCH_INVARIANT) give the same bytes, which may be stored
 *  and sent.
 *
 *  plan             room for *plan_bytes bytes; null: only the sizes are told
 *  plan_bytes       in: room; out: bytes used
 *  workspace_bytes  out: of qn_attention with this plan A captured graph takes another plan through
 *  the same device buffers: with is_for_graph any whose plan_bytes and workspace_bytes fit the
 *  buffers that schedule and workspace lie in (workspace: as large as the captured tensor was), of
 *  no more queries than q has; without, one of the same batch whose sizes are no larger. Errors:
 *  QN_E_INVALID (null, arrays that fall, last_page_len, heads, room: with both sizes in the
 *  message). */
QN_API qn_status qn_attention_plan(void *plan, int64_t *plan_bytes, int64_t *workspace_bytes,
                                   const qn_attention_plan_args *args);

/** Merges two results over different keys of the same queries: weights are base^lse.
 *
 *  v, v_a, v_b  [n, heads, head_dim], one dtype of f32, f16, bf16; last dimension contiguous
 *  s, s_a, s_b  [n, heads] f32, the lse; any strides
 *  Types:    sums in f32; v rounded once. The same bits on every run.
 *  Align:    element size.
 *  Edge:     n == 0 is a no-op; both -infinity: zeros and -infinity.
 *  Overlap:  v may be v_a and s s_a, together (same address and strides): in place; nothing else
 *            overlaps.
 *  Async:    queued on stream.
 *  Errors:   QN_E_INVALID (null, shape, stride, overlap, lse_base), QN_E_UNSUPPORTED (dtype),
 *            QN_E_DEVICE.
 *  Source:   FlashInfer's merge_state. */
QN_API qn_status qn_merge_state(qn_stream *stream, DLTensor *v, DLTensor *s, const DLTensor *v_a,
                                const DLTensor *s_a, const DLTensor *v_b, const DLTensor *s_b,
                                qn_lse_base lse_base);
/** Merges states: v_states [n, states, heads, head_dim], s_states [n, states, heads], in order. No
 *  states: zeros and -infinity. Not in place; all else as qn_merge_state. Source: FlashInfer's
 *  merge_states. */
QN_API qn_status qn_merge_states(qn_stream *stream, DLTensor *v, DLTensor *s,
                                 const DLTensor *v_states, const DLTensor *s_states,
                                 qn_lse_base lse_base);

/** What dropout does to each weight: 0.5 where it is kept, -0.5 where it is dropped.
 *
 *  r   [batch, heads, queries, keys] f32, f16 or bf16, written; last dimension contiguous, other
 *      strides any
 *  Element (b, h, m, n) has lane n % 4 of Philox4x32-10 with key `seed` and counter offset + ((b
 *  heads + h) queries + m) ceil(keys / 4) + n / 4; it is kept if that, as i32, is above i32((p -
 *  0.5) * 0xFFFFFFFF). With a plan, queries and keys are its max_qo_len and max_kv_len. Align:
 *  element size. Async:  queued on stream. Errors: QN_E_INVALID (null, shape, stride, dropout_p
 *  outside 0 to below 1), QN_E_UNSUPPORTED (dtype), QN_E_DEVICE. Source: AOTriton's
 *  debug_simulate_encoded_softmax; doi:10.1145/2063384.2063405. */
QN_API qn_status qn_attention_dropout_mask(qn_stream *stream, DLTensor *r, float dropout_p,
                                           uint64_t seed, uint64_t offset);
/** The random numbers by which dropout decides.
 *
 *  r   [batch, heads, queries, keys], written; last dimension contiguous, other strides any. i32:
 *      the word that qn_attention_dropout_mask compares. f32: word * 2.32830658e-10 + 0.5, each
 *      rounded to f32: from 0 to 1, either of which it reaches and may pass by 2^-24
 *  All else as qn_attention_dropout_mask.
 *  Source: AOTriton's debug_fill_dropout_rng. */
QN_API qn_status qn_attention_dropout_rng(qn_stream *stream, DLTensor *r, uint64_t seed,
                                          uint64_t offset);

#ifdef __cplusplus
}
#endif
#endif
