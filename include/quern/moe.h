// SPDX-License-Identifier: Apache-2.0
// Mixtures of experts: which experts a token goes to, and with what weights; the rows of experts,
// one expert behind the other, and the way back from them.
//
// A pair is a token and one of its experts: pair t * top_k + j is token t and expert ids[t, j].
// Where experts compute, each pair has a row.
//
// In all functions of this header, unless a function says otherwise:
//
//  Align:    element size
//  Overlap:  a tensor that is written overlaps no other tensor.
//  Async:    queued on stream.
//  Contents: the values of logits and indices are checked first: on the CPU always, on GPUs only
//            with QUERN_VALIDATE=1, which waits for the stream and reads the values back. Without
//            it a GPU takes an index out of range for -1.
//  Bits:     equal on every device, from run to run, for any number of threads, and whatever else
//            is in the batch.
//  Errors:   QN_E_INVALID (null, shape, stride, overlap, contents, numbers), QN_E_UNSUPPORTED
//            (dtype), QN_E_DEVICE; nothing is written then.
#ifndef QUERN_MOE_H
#define QUERN_MOE_H

#include <quern/core.h>

#ifdef __cplusplus
extern "C" {
#endif

/** How logits become scores. */
typedef enum qn_moe_scoring {
    QN_MOE_SOFTMAX = 0,
    QN_MOE_SIGMOID = 1,
} qn_moe_scoring;

/** Arguments of qn_moe_route; zero-initialise, then set what applies. */
typedef struct qn_moe_route_args {
    size_t struct_size;     /**< sizeof(qn_moe_route_args) */
    DLTensor *weights;      /**< written */
    DLTensor *ids;          /**< written */
    const DLTensor *logits; /**< the gate's results */
    const DLTensor *bias;   /**< added to scores for the choice alone; null: none */
    qn_moe_scoring scoring;
    int64_t groups;         /**< groups of experts, 1 to 64; 0 means 1 */
    int64_t topk_groups;    /**< groups that a token may take experts from; 0 means all */
    int32_t renormalize;    /**< 1: a token's weights are divided by their sum */
    float scaling;          /**< multiplies weights, above 0 and finite; 0 means 1 */
    int64_t shared_experts; /**< experts that every token goes to, behind the chosen ones */
    float shared_weight;    /**< their weight, above 0 and finite; 0 means 1 */
} qn_moe_route_args;

/** Chooses top_k experts for each token, the best first.
 *
 *    s[t,e] = softmax(logits[t,:])[e], or 1 / (1 + exp(-logits[t,e]))
 *    c[t,e] = s[t,e] + bias[e]
 *    ids[t,:top_k] = the experts of the top_k largest c[t,:]; of equal ones the lower comes first
 *    weights[t,j] = scaling s[t,ids[t,j]], with renormalize / (1e-20 + sum of the chosen s)
 *
 *  With groups, experts are split into groups of neighbours, and only those of the topk_groups best
 *  groups are chosen from. A group's score is the sum of its two largest c if there is a bias (of a
 *  group of one expert, its c), else its largest c; of equal groups the lower is better.
 *  DeepSeek-V3 has 256 experts in 8 groups of which a token takes 4, and 8 experts.
 *
 *  weights  [tokens, top_k + shared_experts]  f32, columns contiguous, any row stride
 *  ids      [tokens, top_k + shared_experts]  i32, likewise. The last shared_experts columns are
 *           experts, experts + 1, …, with weight shared_weight
 *  logits   [tokens, experts]  f32, f16 or bf16, likewise; without NaNs (see Contents)
 *  bias     [experts]  f32, f16 or bf16, contiguous
 *  top_k    1 to the experts of the groups that are taken; groups divides experts
 *  Types:   scores are f32, and their sums have one order, so that every device chooses alike. With
 *           u = 2^-24 and d the largest logit less this one, a sigmoid's relative error is at most
 *           6u, a softmax's (24 + d + experts / 16) u, and a weight's twice the largest of the
 *           chosen scores' and (top_k + 4) u; a sigmoid of less than 2^-125, and a softmax with d
 *           above 87, may be 0.
 *  Edge:    no tokens: a no-op. A score that is NaN (a softmax's, if the largest logit is an
 *           infinity) comes behind all others. On GPUs up to 2048 experts are supported.
 *  Source:  fused_topk, grouped_topk and topk_softmax of vLLM and SGLang; biased_grouped_topk of
 *           AITER. */
QN_API qn_status qn_moe_route(qn_stream *stream, const qn_moe_route_args *args);

/** Returns how many rows qn_moe_sort needs for `pairs` pairs: as many as there can be with padding.
 *  alignment 0 means 128. Returns -1 for a number below 0, or if 63 bits do not hold the result. */
QN_API int64_t qn_moe_sort_rows(int64_t pairs, int64_t experts, int64_t alignment);

/** Arguments of qn_moe_sort; zero-initialise, then set what applies. Outputs that are null are not
 *  wanted. */
typedef struct qn_moe_sort_args {
    size_t struct_size;         /**< sizeof(qn_moe_sort_args) */
    const DLTensor *ids;        /**< the experts of pairs */
    const DLTensor *expert_map; /**< where some experts are elsewhere: this device's number of each
                                     expert, -1: none; null: ids are this device's numbers */
    int64_t experts;            /**< this device's */
    int64_t alignment;          /**< an expert's rows begin at a multiple of it; 0 means 128 */
    DLTensor *ends;             /**< written, never null */
    DLTensor *row_of_pair;      /**< written */
    DLTensor *pair_of_row;      /**< written */
    DLTensor *expert_of_row;    /**< written */
    DLTensor *expert_of_block;  /**< written */
    DLTensor *num_rows;         /**< written */
} qn_moe_sort_args;

/** Gives each pair a row: experts in order, the pairs of an expert in theirs. Pairs of id -1, or of
 *  an expert that is elsewhere, get none.
 *
 *  ids              [tokens, top_k]  columns contiguous, any row stride; -1 or an expert's number
 *  expert_map       [any]  -1 to experts - 1
 *  ends             [experts]  where an expert's rows end; of one without rows, where they would
 *                   begin. It is the group_layout of QN_GEMM_GROUPED_ENDS with m_alignment
 *  row_of_pair      [tokens, top_k]  as ids; -1: the pair has no row
 *  pair_of_row      [rows]  tokens * top_k: padding. vLLM's sorted_token_ids
 *  expert_of_row    [rows]  -1: padding. It is the group_layout of QN_GEMM_GROUPED_INDEX,
 *                   DeepGEMM's m_indices, if alignment is 128
 *  expert_of_block  [rows / alignment]  the expert of each alignment rows; -1: they are all padding
 *  num_rows         [1]  rows of all experts, with their padding: the multiple of alignment from
 *                   which on all rows are padding
 *  rows is what qn_moe_sort_rows tells, or more. All tensors are i32, contiguous but for ids and
 *  row_of_pair.
 *  Edge:    no pairs: there is padding alone. On GPUs up to 2048 experts are supported.
 *  Source:  moe_align_block_size of vLLM and SGLang; DeepGEMM's contiguous layouts. */
QN_API qn_status qn_moe_sort(qn_stream *stream, const qn_moe_sort_args *args);

/** Copies each pair's token to the pair's row: out[r,:] = x[pair_of_row[r] / top_k,:].
 *
 *  out          [rows, n]  x's dtype, columns contiguous. Rows of padding, which are those of pairs
 *               outside 0..tokens * top_k - 1, keep their bytes
 *  scale_out    [rows, groups]  f32, any strides that keep elements apart; null with scale
 *  x            [tokens, n]  f32, f16, bf16, FP8 of any kind or i8, columns contiguous
 *  scale        [tokens, groups]  f32, any strides: x's scales, which are copied along; null: none
 *  pair_of_row  [rows]  i32, as qn_moe_sort writes it
 *  top_k        1 or more
 *  Align:    element size; fast if rows of x and out are multiples of 16 bytes and begin there. */
QN_API qn_status qn_moe_permute(qn_stream *stream, DLTensor *out, DLTensor *scale_out,
                                const DLTensor *x, const DLTensor *scale,
                                const DLTensor *pair_of_row, int64_t top_k);

/** What acts on the halves of an expert's first product, gate and up. */
typedef enum qn_moe_function {
    QN_MOE_SILU = 0,      /**< silu(gate) up */
    QN_MOE_GELU = 1,      /**< gelu(gate) up, by erf */
    QN_MOE_GELU_TANH = 2, /**< gelu_tanh(gate) up */
    QN_MOE_SWIGLU = 3,    /**< gate / (1 + exp(-alpha gate)) (up + 1), as in gpt-oss */
} qn_moe_function;

/** Arguments of qn_moe_activate; zero-initialise, then set what applies. */
typedef struct qn_moe_activate_args {
    size_t struct_size; /**< sizeof(qn_moe_activate_args) */
    DLTensor *out;      /**< written */
    DLTensor *scale;    /**< out of FP8: written; else null */
    const DLTensor *x;
    const DLTensor *expert_of_row; /**< rows below 0 are left alone; null: none is */
    qn_moe_function function;
    float limit;            /**< above 0; 0 or infinity: none. gpt-oss has 7 */
    float alpha;            /**< of QN_MOE_SWIGLU, above 0 and finite; 0 means 1.702. Else 0 */
    int32_t is_interleaved; /**< 1: gate and up alternate in x; 0: they are its halves */
    float scale_eps;        /**< smallest amax of scale; 0 means 1e-10 */
} qn_moe_activate_args;

/** Acts on rows of experts: gate is min(gate, limit), up is up within -limit and limit.
 *
 *  out            [rows, h]  x's dtype, or FP8 of any kind, columns contiguous
 *  scale          [rows, ceil(h / 128)]  f32, any strides that keep elements apart: of out's groups
 *                 of 128, as qn_quantize_groups computes them from the result in f32, with eps
 *                 scale_eps, which is 1e-30 or more and finite
 *  x              [rows, 2 h]  f32, f16 or bf16, columns contiguous
 *  expert_of_row  [rows]  i32, as qn_moe_sort writes it
 *  Types:   as in quern/activation.h. QN_MOE_SWIGLU has silu's error with three half units of its
 *           exponent in place of two, and 2 2^-24 more.
 *  Bits:    a row's are equal on every run of one device, whatever else is in the batch.
 *  Align:   element size; faster if rows begin at multiples of 16 bytes and h is a multiple of
 *  8. */
QN_API qn_status qn_moe_activate(qn_stream *stream, const qn_moe_activate_args *args);

/** Adds up what a token's experts made of it, in the order of the token's pairs:
 *
 *    out[t,:] = addend[t,:] + sum_j weights[t,j] x[row_of_pair[t,j],:]
 *
 *  out          [tokens, n]  f32, f16 or bf16, columns contiguous
 *  x            [rows, n]  f32, f16 or bf16, columns contiguous
 *  weights      [tokens, top_k]  f32, columns contiguous; null: 1
 *  row_of_pair  [tokens, top_k]  i32, likewise; -1: the pair does not count. null: pair p's row is
 *               p, and rows is a multiple of tokens
 *  addend       [tokens, n]  out's dtype, columns contiguous; may be out itself: what shared
 *               experts made of the token, or a residual. null: 0
 *  Types:    sums are f32, by fused multiply-adds from 0 on, then the addend; rounded once.
 *  Align:    element size; fast if rows begin at multiples of 16 bytes. */
QN_API qn_status qn_moe_sum(qn_stream *stream, DLTensor *out, const DLTensor *x,
                            const DLTensor *weights, const DLTensor *row_of_pair,
                            const DLTensor *addend);

/** Arguments of qn_fused_moe; zero-initialise, then set what applies. */
typedef struct qn_fused_moe_args {
    size_t struct_size; /**< sizeof(qn_fused_moe_args) */
    DLTensor *out;      /**< written */
    const DLTensor *x;
    const DLTensor *x_scale;    /**< x of FP8: its scales; else null */
    const DLTensor *w1;         /**< first weights, of gate and up */
    const DLTensor *w2;         /**< second weights */
    const DLTensor *w1_scale;   /**< null: 1 */
    const DLTensor *w2_scale;   /**< null: 1 */
    const DLTensor *bias1;      /**< null: none */
    const DLTensor *bias2;      /**< null: none */
    const DLTensor *weights;    /**< of a token's experts */
    const DLTensor *ids;        /**< a token's experts */
    const DLTensor *expert_map; /**< as in qn_moe_sort; null: ids are w1's experts */
    const DLTensor *addend;     /**< what shared experts made of the tokens; null: 0 */
    DLTensor *workspace;        /**< overwritten */
    qn_moe_function function;
    float limit;            /**< as in qn_moe_activate */
    float alpha;            /**< as in qn_moe_activate */
    int32_t is_interleaved; /**< 1: rows of w1 are gate, up, gate, up, …; 0: gates, then ups */
    int32_t w_is_packed;    /**< 1: weights and their scales come from qn_gemm_pack */
    int64_t inner;          /**< packed weights: the rows of up, without w1's padding; else 0 */
} qn_fused_moe_args;

/** Computes a layer of experts: each token's experts, their weighted sum, and the addend.
 *
 *    h[t,j,:] = function(x[t,:] w1[ids[t,j]]^T + bias1[ids[t,j]])
 *    out[t,:] = addend[t,:] + sum_j weights[t,j] (h[t,j,:] w2[ids[t,j]]^T + bias2[ids[t,j]])
 *
 *  It is qn_moe_sort with alignment 1, qn_quantize_groups and qn_moe_permute,
 *  qn_gemm_grouped_contiguous by ends, qn_moe_activate, the second product and qn_moe_sum, and has
 *  their errors and bits.
 *
 *  out        [tokens, hidden]  bf16, f16 or f32, columns contiguous
 *  x          [tokens, hidden]  bf16, f16 or FP8, columns contiguous. With w1 of FP8, x of 16 bits
 *             is quantised to w1's kind by 1 x 128, with eps 1e-10
 *  x_scale    [tokens, ceil(hidden / 128) or 1]  f32, any strides
 *  w1         [experts, 2 inner, hidden]  of the types that qn_gemm takes, strides as b's there
 *  w2         [experts, hidden, inner]  likewise. If it is of FP8, h is quantised to its kind by
 *             1 x 128
 *  w1_scale, w2_scale  as scale_b of qn_gemm_grouped_contiguous: [experts, ceil(rows / 128),
 *             ceil(columns / 128)], [experts] and so on
 *  bias1      [experts, 2 inner]  bf16 or f32, columns contiguous; in the order of w1's rows
 *  bias2      [experts, hidden]  likewise
 *  weights    [tokens, top_k]  f32, columns contiguous
 *  ids        [tokens, top_k]  i32, likewise; -1 to experts - 1, or what expert_map tells
 *  addend     [tokens, hidden]  out's dtype, columns contiguous; may be out itself
 *  workspace  u8, contiguous, at least as long as qn_fused_moe_workspace tells, at a multiple of
 *  256 Types:    products are f32; with is_interleaved, QN_MOE_SILU and no limit the first one's
 *            epilogue acts on them, else they are rounded to x's type (x of FP8: bf16) first, and
 *            so are the second ones.
 *  Bits:     a token's are equal from run to run, for any number of threads, and whatever else is
 *            in the batch.
 *  Edge:     no tokens: a no-op. A token without experts here gets its addend, or 0.
 *  Source:   fused_experts of vLLM and SGLang, fused_moe of AITER. */
QN_API qn_status qn_fused_moe(qn_stream *stream, const qn_fused_moe_args *args);
/** Returns the bytes of workspace that are enough for qn_fused_moe with such sizes, whatever the
 *  types; inner is half of w1's rows. Returns -1 for a number below 0, or for 2^53 bytes
 *  and more. */
QN_API int64_t qn_fused_moe_workspace(int64_t tokens, int64_t top_k, int64_t hidden, int64_t inner,
                                      int64_t experts);

#ifdef __cplusplus
}
#endif
#endif
