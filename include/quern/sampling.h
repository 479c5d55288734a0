// SPDX-License-Identifier: Apache-2.0
// Sampling of tokens from logits and from probabilities; filters, penalties, speculative sampling.
//
// In all functions of this header:
//
//  logits     [rows, vocab], f32, f16 or bf16; last dimension contiguous, any row stride
//  probs      likewise, each from 0 to below 2; a row's sum need not be 1
//  vocab      1 to 2^22
//  temperature, top_k, top_p, min_p and the like are one number for all rows, or a vector with an
//             entry for each row of the result, which then counts: f32, of top_k i32
//  Weights:   With m the row's largest logit, a logit x weighs exp((x - m) / temperature); a
//             probability weighs itself. The exponential is a fixed chain of f32 operations, with a
//             relative error of 2^-22 and below 2^-100 equal to 0. A weight is rounded to a whole
//             number of 2^-40. Sums are exact, so that tokens and probabilities have equal bits on
//             every device, in every batch.
//  top_k      keeps the k largest elements; of vocab or more: all
//  top_p      keeps the elements above which there is less than top_p of the mass; 1: all
//  min_p      keeps the elements that weigh at least min_p times the largest weight, of what the
//             other filters leave; 0: all
//             All elements that equal the last kept one are kept.
//  Random:    A row draws a word of 64 bits, from Philox 4x32-10 with the key `seed` and the
//             counter (offset, subsequence), 64 bits each. The subsequence is the row's index in
//             the result; where seeds have an entry for each row, it is 0, so that a row's token
//             does not depend on its place in the batch. The word, divided by 2^64, times the kept
//             mass picks the token in whose share of the running sum, from token 0 on, it lies.
//  Edge:      A row is degenerate if it holds a NaN, or a probability not from 0 to below 2; if all
//             its logits are minus infinity or no weight counts; if, on a GPU, a parameter of its
//             own or its index is out of range. Its token is 0, and `valid` says 0. Logits of plus
//             infinity share all the mass. No rows: a no-op.
//  Contents:  the values of vectors are checked first: on the CPU always, on GPUs only with
//             QUERN_VALIDATE=1, which waits for the stream and reads them back.
//  Passes:    Tokens of unfiltered logits and probabilities take two passes over a row, the greedy
//             token one on a GPU, softmax three, as its sum must know the largest logit. top_k and
//             top_p on a GPU take three more each, one for each digit of a radix select.
//  Overlap:   a tensor that is written overlaps no other, unless a function says so.
//  Async:     queued on stream.
//  Errors:    QN_E_INVALID (null, shape, stride, overlap, number, contents), QN_E_UNSUPPORTED
//             (dtype).
//  Source:    FlashInfer's sampling functions, which find the same sets by rejection; vLLM's
//             penalties; arXiv:2302.01318.
#ifndef QUERN_SAMPLING_H
#define QUERN_SAMPLING_H

#include <quern/core.h>

#ifdef __cplusplus
extern "C" {
#endif

/** The probabilities of logits: softmax(logits / temperature).
 *  probs         [rows, vocab], f32, written; any row stride. A row that holds a NaN becomes NaNs,
 *                a row of minus infinities zeros
 *  temperatures  [rows] or null: `temperature` counts; 2^-100 to 2^100 */
QN_API qn_status qn_softmax(qn_stream *stream, DLTensor *probs, const DLTensor *logits,
                            const DLTensor *temperatures, float temperature);

/** Whether top_p counts its mass among what top_k keeps, or among all elements. */
typedef enum qn_filter_order { QN_TOP_K_FIRST = 0, QN_JOINT = 1 } qn_filter_order;

typedef struct qn_sample_args {
    size_t struct_size;     /**< sizeof(qn_sample_args) */
    DLTensor *out;          /**< i32 [batch], written */
    DLTensor *valid;        /**< bool or u8 [batch], written: 0 for a degenerate row; or null */
    const DLTensor *logits; /**< [rows, vocab]; or null, if probs is not */
    const DLTensor *probs;
    const DLTensor *indices; /**< i32 [batch]: each result's row; null: batch is rows */
    const DLTensor *temperatures, *top_ks, *top_ps, *min_ps; /**< [batch] or null */
    float temperature;                                       /**< of logits alone; 0: 1 */
    int64_t top_k;                                           /**< 0: no filter */
    float top_p;                                             /**< 0: no filter */
    float min_p;
    qn_filter_order order;
    const DLTensor *seeds, *offsets; /**< i64 [1] or [batch]; null: these numbers: */
    int64_t seed, offset;
} qn_sample_args;

/** Samples a token for each row of `out`. */
QN_API qn_status qn_sample(qn_stream *stream, const qn_sample_args *args);

/** The greedy token of each row: the first of the largest logits.
 *  out    i32 [rows], written
 *  valid  bool or u8 [rows], written, or null */
QN_API qn_status qn_sample_greedy(qn_stream *stream, DLTensor *out, DLTensor *valid,
                                  const DLTensor *logits);

/** Keeps the top_k largest probabilities, zeroes the others, and divides by the sum of the kept
 *  ones. A top_k of vocab or more copies the row.
 *  out     [rows, vocab], of probs' dtype, written; any row stride. A row that holds a NaN, or a
 *          probability not from 0 to below 2, becomes NaNs; a row without mass zeros
 *  top_ks  i32 [rows] or null: `top_k` counts; 1 or more */
QN_API qn_status qn_top_k_renorm_probs(qn_stream *stream, DLTensor *out, const DLTensor *probs,
                                       const DLTensor *top_ks, int64_t top_k);
/** The same with the elements that top_p keeps; a top_p of 1 copies the row.
 *  top_ps  f32 [rows] or null: `top_p` counts; above 0, up to 1 */
QN_API qn_status qn_top_p_renorm_probs(qn_stream *stream, DLTensor *out, const DLTensor *probs,
                                       const DLTensor *top_ps, float top_p);
/** Keeps the top_k largest logits; all others become minus infinity. A top_k of vocab or more
 *  copies the row; a row that holds a NaN becomes NaNs.
 *  out     [rows, vocab], of logits' dtype, written; any row stride
 *  top_ks  i32 [rows] or null: `top_k` counts; 1 or more */
QN_API qn_status qn_top_k_mask_logits(qn_stream *stream, DLTensor *out, const DLTensor *logits,
                                      const DLTensor *top_ks, int64_t top_k);

typedef struct qn_penalties_args {
    size_t struct_size; /**< sizeof(qn_penalties_args) */
    DLTensor *out;      /**< [rows, vocab] of logits' dtype, written; may be logits itself */
    const DLTensor *logits;
    const DLTensor *counts; /**< i32 [rows, vocab], how often each token was sent; or null: never */
    const DLTensor *in_prompt; /**< bool or u8 [rows, vocab], or null: no token */
    const DLTensor *repetitions, *presences, *frequencies; /**< f32 [rows] or null */
    float repetition;                                      /**< 0: 1 */
    float presence, frequency;
} qn_penalties_args;

/** Applies penalties in f32, each step rounded, the result to out's dtype: a logit of a token that
 *  was sent or is in the prompt is divided by `repetition` if it is above 0, else multiplied by it;
 *  frequency * counts is subtracted; and presence, if the token was sent.
 *  repetition           above 0, finite
 *  presence, frequency  finite */
QN_API qn_status qn_apply_penalties(qn_stream *stream, const qn_penalties_args *args);

typedef struct qn_chain_speculative_sampling_args {
    size_t struct_size;              /**< sizeof(qn_chain_speculative_sampling_args) */
    DLTensor *out;                   /**< i32 [batch, n + 1], written */
    DLTensor *accepted, *sent;       /**< i32 [batch], added to; or null */
    const DLTensor *draft_probs;     /**< f32 [batch, n, vocab] */
    const DLTensor *draft_ids;       /**< i32 [batch, n], from 0 to vocab - 1 (see Contents) */
    const DLTensor *target_probs;    /**< f32 [batch, n + 1, vocab] */
    const DLTensor *seeds, *offsets; /**< as in qn_sample_args */
    int64_t seed, offset;
} qn_chain_speculative_sampling_args;

/** Speculative sampling of a chain of n drafted tokens; all tensors are contiguous. Draft i is
 *  accepted if u * draft_probs < target_probs at its token, where u is the upper 24 bits of word 0
 *  at counter offset + i, divided by 2^24. Drafts up to the first that is not accepted go to out;
 *  then a token that is drawn from what target_probs has more than draft_probs there (if nothing is
 *  more, or all drafts were accepted, from target_probs), by the word at offset + n; then -1.
 *  accepted counts all drafts that would be accepted, sent those that went to out. A draft id out
 *  of range, on a GPU, is not accepted. A token that has no mass to be drawn from is 0. */
QN_API qn_status qn_chain_speculative_sampling(qn_stream *stream,
                                               const qn_chain_speculative_sampling_args *args);

#ifdef __cplusplus
}
#endif
#endif
