// SPDX-License-Identifier: Apache-2.0
// Attention over dense, ragged and paged keys and values, by one definition; plans; merging of
// partial results.
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
// lse is stored as a logarithm of base 2, or of base e (lse_base). Sinks add e^sink_h to the
// denominator of softmax and to the sum in lse. A query that sees no key has zeros in o and
// -infinity in lse (with sinks: sink_h). Query i sees the keys j of its request that meet all
// conditions which the arguments set:
//
//   causal        j <= i + d,  d = kv_len - qo_len (the last query is level with the last key);
//                 is_top_left: d = 0
//   window_left   j >= i + d - window_left
//   window_right  j <= i + d + window_right
//   custom_mask   bit i * kv_len + j of the request's bits is set
//   mask          a boolean mask is true at [b, h, i, j]; an additive mask is not -infinity there
#ifndef QUERN_ATTENTION_H
#define QUERN_ATTENTION_H

#include <quern/kvcache.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef int32_t qn_pos_encoding;
enum {
    QN_POS_NONE = 0,
    /** q is rotated by its position kv_len - qo_len + i, k by j; head_dim is even, and elements d
     *  and d + head_dim / 2 are a pair. */
    QN_POS_ROPE_LLAMA = 1,
    /** With n the largest power of two <= num_qo_heads:
     *    slope_h = 2^(-8 (h + 1) / n) for h < n, 2^(-4 (2 (h + 1 - n) - 1) / n) for h >= n. */
    QN_POS_ALIBI = 2
};

typedef int32_t qn_lse_base;
enum { QN_LSE_BASE_2 = 0, QN_LSE_BASE_E = 1 };

/** Arguments of qn_attention. A member of zero means its default; tensors that do not apply are
 *  null. */
typedef struct qn_attention_args {
    size_t struct_size; /**< sizeof(qn_attention_args) */
    DLTensor *o;        /**< q's shape with v's head_dim; f32, f16 or bf16 */
    DLTensor *lse;      /**< optional, f32: q's shape without its last dimension */
    const DLTensor *q;
    const DLTensor *k, *v;      /**< one dtype and one number of heads; strides may differ */
    qn_kv_layout layout;        /**< layout of k and v, and of dense q, o and lse */
    const DLTensor *kv_indices; /**< i32 [pages in use]: k and v are pages; null: not paged */

    const void *plan; /**< what qn_attention_plan made, in host memory; null: q and k are dense */
    int64_t plan_bytes;
    /** u8 [plan_bytes] on the device, at a multiple of 8: a copy of the plan; CPU: optional. */
    const DLTensor *schedule;
    /** u8 at a multiple of 16, of workspace_bytes; null if those are 0. On Hopper, dense requests
     *  of many queries run without it, too: more slowly, with the same bits. */
    DLTensor *workspace;

    int32_t is_causal, is_top_left;
    int32_t has_window_left, has_window_right; /**< 1: window_left or window_right bounds keys */
    int64_t window_left, window_right;
    /** u8: a request's bits begin at a byte, the lowest bit first; is_causal is then ignored. */
    const DLTensor *custom_mask;
    /** bool or u8, or added to logits: f32, f16 or bf16. [query, key], [head, query, key] or
     *  [batch, head, query, key], each size 1 or full, any strides. Only for dense q and k, without
     *  is_causal and custom_mask. */
    const DLTensor *mask;
    qn_pos_encoding pos_encoding;
    float rope_scale, rope_theta;        /**< default 1 and 1e4 */
    float sm_scale;                      /**< default 1 / sqrt(head_dim) */
    float logits_soft_cap;               /**< default: no cap */
    float q_scale, k_scale, v_scale;     /**< default 1 */
    const DLTensor *q_scales;            /**< f32 [num_qo_heads], times q_scale */
    const DLTensor *k_scales, *v_scales; /**< f32 [num_kv_heads], times k_scale and v_scale */
    const DLTensor *sinks;               /**< f32 [num_qo_heads] */
    /** Probability, from 0 to below 1, that a weight is dropped; kept weights are multiplied by
     *  1 / (1 - dropout_p). lse is computed without dropout. */
    float dropout_p;
    uint64_t dropout_seed, dropout_offset; /**< see qn_attention_dropout_mask */
    qn_lse_base lse_base;
} qn_attention_args;

/** Computes attention, as the top of this header defines it.
 *
 *  q         dense: [batch, n, heads, head_dim] (QN_NHD) or [batch, heads, n, head_dim] (QN_HND);
 *            ragged, with a plan: [tokens, heads, head_dim] in either layout
 *  k, v      dense: as q; ragged: [tokens, heads, dim] (QN_HND: [heads, tokens, dim]); paged, with
 *            kv_indices: [pages, page_size, heads, dim] (QN_HND: [pages, heads, page_size, dim]).
 *            v's head_dim may differ from k's. A cache of [pages, 2, …] is passed as two views
 *  Types:    q, and k and v: f32, f16, bf16 or FP8; sums are f32, and o is rounded once. On
 *            gfx90a's matrix cores f16 values below 2^-14 count as zeros
 *  Shapes:   head_dim from 1 to 512; num_qo_heads a multiple of num_kv_heads; last dimensions
 *            contiguous, other strides any; fewer than 2^31 rows of queries, heads and chunks of
 *            keys
 *  Align:    element size
 *  Speed:    a GPU's matrix cores take q of f16, bf16 or FP8 with k and v of q's type or FP8; head
 *            dims that are multiples of 8 up to 256; rows that begin at multiples of 16 bytes (FP8:
 *            8); dropout with k and v of q's type; no QN_POS_ROPE_LLAMA. All other problems run,
 *            slowly, on attention.gpu_any_128 or attention.gpu_any_512
 *  Edge:     memory past a request's keys, and unused places of pages, may hold anything and reach
 *            no result. A key that causality, window or masks hide reaches no result if its v is
 *            finite (on some kernels a weight of 0 times an infinity is a NaN); its k may hold
 *            anything. Requests without queries or without keys are no errors. q has no more
 *            queries than the plan, unless the plan was made with is_for_graph: then o and lse are
 *            not written for queries behind the last request.
 *  Overlap:  o, lse and workspace overlap no other tensor.
 *  Bits:     a request has equal bits on every run, for any number of threads, whatever other
 *            requests are in the batch. Storage may change them: on Hopper dense requests of equal
 *            lengths have kernels of their own. Dropout is an exception, as it counts by the batch,
 *            and kv_chunk, if given, must not change. The bits of one query depend on how many
 *            queries its request has: requests of few queries go to other kernels, in other chunks.
 *            With QUERN_BATCH_INVARIANT=1, set for the plan as well, and kv_chunk 0, a query has
 *            equal bits alone, in a chunk and in its whole prompt, on one device; keys are then not
 *            cut into chunks, and decoding is slower.
 *  Async:    queued on stream, allocates nothing, can be captured; the plan's host copy may be
 *            freed when this function returns.
 *  Contents: the plan, and its requests' entries of kv_indices, are checked first: on the CPU
 *            always, on GPUs only with QUERN_VALIDATE=1, which waits for the stream and reads
 *            kv_indices back. On GPUs without QUERN_VALIDATE=1 only the plan's header is checked,
 *            and an entry out of range may make the GPU read stray memory.
 *  Errors:   QN_E_INVALID (null, shape, stride, scalars, masks that exclude each other, workspace
 *            too small, contents, a plan for other tensors), QN_E_UNSUPPORTED (dtype, head_dim,
 *            size, QN_POS_ALIBI with logits_soft_cap), QN_E_DEVICE.
 *  Source:   arXiv:1706.03762, arXiv:2205.14135; FlashInfer's and PyTorch's definitions where they
 *            agree. */
QN_API qn_status qn_attention(qn_stream *stream, const qn_attention_args *args);

/** Computes the bytes of workspace for arguments without a plan, often 0, from shapes and the type
 *  of q's device alone. On CUDA they may be 15 MB for dense prompts, whose last tiles are then
 *  shared by all multiprocessors of a Hopper card.
 *  Errors: QN_E_INVALID (null, shape, a plan is given), QN_E_UNSUPPORTED (size). */
QN_API qn_status qn_attention_workspace_bytes(int64_t *bytes, const qn_attention_args *args);

/** What a plan is made from. Arrays lie in host memory; zero and null mean the default. */
typedef struct qn_attention_plan_args {
    size_t struct_size; /**< sizeof(qn_attention_plan_args) */
    int64_t batches;
    const int32_t *qo_indptr; /**< [batches + 1]; null: dense q, qo_len queries a request */
    int64_t qo_len;
    /** [batches + 1]: where each request's tokens begin, or with page_size, its entries of
     *  kv_indices; null: dense k and v. */
    const int32_t *kv_indptr;
    /** [batches], 1 to page_size; ignored for a request without pages. */
    const int32_t *kv_last_page_len;
    const int32_t *kv_lens; /**< [batches]: keys in use of dense k and v; null: kv_len each */
    int64_t kv_len;
    int64_t page_size; /**< 0: not paged */
    int64_t num_qo_heads, num_kv_heads, head_dim_vo;
    /** Keys of a chunk. A workgroup sums up each chunk, and the chunks' results are merged. 0: the
     *  request's own lengths decide (with QUERN_BATCH_INVARIANT=1: one chunk); below 0: one
     *  chunk. */
    int64_t kv_chunk;
    int64_t max_kv_splits; /**< workgroups that share a request's chunks; 0: one for each chunk */
    int64_t q_tile; /**< rows of a workgroup: 16, 64, 128 or 256; 0: by lengths. Changes no bit */
    int64_t num_compute_units;      /**< of the device; helps to choose q_tile; 0: unknown */
    int64_t max_qo_len, max_kv_len; /**< lengths that dropout counts by; 0: the longest request's */
    /** 1: a graph captured with this plan takes later plans of any lengths. Launches are then as
     *  large as the device, not as this batch, and a merge of chunks runs even if none are cut. */
    int32_t is_for_graph;
} qn_attention_plan_args;

/** Makes a plan: the schedule of ragged, paged or padded attention. A plan depends on args and
 *  QUERN_BATCH_INVARIANT alone: equal arguments give equal bytes, which may be stored and sent.
 *
 *  plan             room for *plan_bytes bytes; null: only the sizes are written
 *  plan_bytes       in: room; out: bytes used
 *  workspace_bytes  out: workspace that qn_attention needs with this plan
 *  Graphs: a captured graph takes another plan that is written to the buffer of `schedule`.
 *    If the captured plan has is_for_graph, that is any plan whose plan_bytes and workspace_bytes
 *    fit into the captured schedule and workspace, and which has no more queries than q.
 *    Else it is a plan for a batch of the captured size, with sizes that are no larger.
 *  Errors: QN_E_INVALID (null, arrays that fall, last_page_len, heads, or room, with both sizes in
 *    the message). */
QN_API qn_status qn_attention_plan(void *plan, int64_t *plan_bytes, int64_t *workspace_bytes,
                                   const qn_attention_plan_args *args);

/** Merges two attention results of the same queries over different keys, a and b, into one over all
 *  of these keys. The weight of a result is base^lse.
 *
 *  v, v_a, v_b  [n, heads, head_dim], one dtype of f32, f16, bf16; last dimension contiguous
 *  s, s_a, s_b  [n, heads] f32, the lse; any strides
 *  Types:    sums are f32, and v is rounded once. Equal bits on every run.
 *  Align:    element size.
 *  Edge:     n == 0 is a no-op; if both lse are -infinity, v is zeros and s -infinity.
 *  Overlap:  v may be v_a if s is s_a (equal addresses and strides); apart from that, v and s
 *            overlap no other tensor.
 *  Async:    queued on stream.
 *  Errors:   QN_E_INVALID (null, shape, stride, overlap, lse_base), QN_E_UNSUPPORTED (dtype),
 *            QN_E_DEVICE.
 *  Source:   FlashInfer's merge_state. */
QN_API qn_status qn_merge_state(qn_stream *stream, DLTensor *v, DLTensor *s, const DLTensor *v_a,
                                const DLTensor *s_a, const DLTensor *v_b, const DLTensor *s_b,
                                qn_lse_base lse_base);
/** Merges any number of attention results of the same queries over different keys, in order.
 *
 *  v_states  [n, states, heads, head_dim]
 *  s_states  [n, states, heads] f32, the lse
 *  Edge:     without states, v is zeros and s -infinity.
 *  Overlap:  v and s overlap no other tensor.
 *  All else as in qn_merge_state.
 *  Source:   FlashInfer's merge_states. */
QN_API qn_status qn_merge_states(qn_stream *stream, DLTensor *v, DLTensor *s,
                                 const DLTensor *v_states, const DLTensor *s_states,
                                 qn_lse_base lse_base);

/** Tells which weights dropout keeps: writes 0.5 for a weight that is kept, -0.5 for one that is
 *  dropped.
 *
 *  r       [batch, heads, queries, keys] f32, f16 or bf16, written; last dimension contiguous,
 *          other strides any
 *  Random: the word of element (b, h, m, n) is lane n % 4 of Philox4x32-10 with key `seed` and
 *          counter
 *            offset + ((b heads + h) queries + m) ceil(keys / 4) + n / 4
 *          A weight is kept if its word, as i32, is above i32((dropout_p - 0.5) * 0xFFFFFFFF). With
 *          a plan, `queries` and `keys` are its max_qo_len and max_kv_len.
 *  Align:  element size.
 *  Async:  queued on stream.
 *  Errors: QN_E_INVALID (null, shape, stride, dropout_p outside 0 to below 1), QN_E_UNSUPPORTED
 *          (dtype), QN_E_DEVICE.
 *  Source: AOTriton's debug_simulate_encoded_softmax; doi:10.1145/2063384.2063405. */
QN_API qn_status qn_attention_dropout_mask(qn_stream *stream, DLTensor *r, float dropout_p,
                                           uint64_t seed, uint64_t offset);
/** Writes the random numbers by which dropout decides.
 *
 *  r   [batch, heads, queries, keys], written; last dimension contiguous, other strides any. i32:
 *      the word that qn_attention_dropout_mask compares. f32: word * 2.32830658e-10 + 0.5, product
 *      and sum rounded to f32: from 0 to 1, both included, and past either by 2^-24 at most
 *  All else as in qn_attention_dropout_mask.
 *  Source: AOTriton's debug_fill_dropout_rng. */
QN_API qn_status qn_attention_dropout_rng(qn_stream *stream, DLTensor *r, uint64_t seed,
                                          uint64_t offset);

#ifdef __cplusplus
}
#endif
#endif
