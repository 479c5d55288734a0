// SPDX-License-Identifier: Apache-2.0
// Multi-head latent attention (MLA) over paged caches, with the up-projections absorbed into q and
// o: all heads share one key of two parts, and its first part is the value, too.
//
// For request b, query i of qo_len, head h and key j of kv_len:
//
//   x_j = q_scale kv_scale sm_scale (<q_nope_i,h, ckv_j> + <q_pe_i,h, kpe_j>)
//   o_i,h = kv_scale sum_j softmax(x)_j ckv_j,  lse_i,h = log sum_j e^x_j
//
// over the keys that i sees: all, or with is_causal those with j <= i + kv_len - qo_len, so that
// the last query is level with the last key. A query that sees no key has zeros in o and -infinity
// in lse. lse is stored as a logarithm of base 2, or of base e (lse_base).
//
// With ckv_scales element d of ckv_j counts times the scale of its group, floor(d / 128).
//
// A prompt without the absorption is qn_attention, with a head_dim of 192 in q and k and of 128 in
// v.
#ifndef QUERN_MLA_H
#define QUERN_MLA_H

#include <quern/attention.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Arguments of qn_mla_decode. A member of zero means its default; tensors that do not apply are
 *  null. */
typedef struct qn_mla_args {
    size_t struct_size;     /**< sizeof(qn_mla_args) */
    DLTensor *o;            /**< [tokens, heads, dim] of f32, f16 or bf16 */
    DLTensor *lse;          /**< optional, f32 [tokens, heads] */
    const DLTensor *q_nope; /**< [tokens, heads, dim], 512 in DeepSeek's models */
    const DLTensor *q_pe;   /**< [tokens, heads, rope_dim], 64 in DeepSeek's models */
    const DLTensor *ckv;    /**< [pages, page_size, dim] */
    const DLTensor *kpe;    /**< [pages, page_size, rope_dim] */
    /** f32 [pages, page_size, ceil(dim / 128)], last dimension contiguous, of FP8 ckv beside kpe of
     *  f32, f16 or bf16; null: none, and kpe has ckv's dtype. */
    const DLTensor *ckv_scales;
    const DLTensor *kv_indices; /**< i32: the requests' pages, one after another */
    const void *plan;           /**< of qn_attention_plan, in host memory */
    int64_t plan_bytes;
    /** u8 [plan_bytes] on the device, at a multiple of 8: a copy of the plan; CPU: optional. */
    const DLTensor *schedule;
    DLTensor *workspace; /**< u8 at a multiple of 16, of workspace_bytes; null if those are 0 */
    int32_t is_causal;
    /** Needed, above 0: often 1 / sqrt(head_dim) of the heads before the absorption, 1 / sqrt(192)
     *  in DeepSeek's models. */
    float sm_scale;
    float q_scale, kv_scale;   /**< above 0, default 1 */
    const DLTensor *q_scales;  /**< f32 [heads], times q_scale */
    const DLTensor *kv_scales; /**< f32 [1], times kv_scale */
    qn_lse_base lse_base;
} qn_mla_args;

/** Computes MLA for a few new tokens of each request, as the top of this header defines it.
 *
 *  q_nope, q_pe  last dimensions contiguous, other strides any: one tensor of 576 elements a head
 *                is passed as two views, and so is one cache of 576 elements a token
 *                (qn_concat_and_cache_mla). With ckv_scales, ckv, its scales and kpe may be views
 *                of one memory, as qn_quantize_and_cache_mla writes them ("fp8_ds_mla")
 *  plan          made with qo_indptr, kv_indptr, kv_last_page_len and page_size, num_qo_heads of q,
 *                num_kv_heads 1, head_dim_vo dim. Partial results of a chunk take 4 (dim + 1) bytes
 *                for each query and head; with many heads kv_chunk may well be longer than its
 *                default
 *  Types:    q_nope and q_pe, and ckv and kpe: f32, f16, bf16 or FP8; sums are f32, and o is
 *            rounded once. On gfx90a's matrix cores f16 values below 2^-14 count as zeros
 *  Speed:    AMD's matrix cores take q of f16 or bf16 with caches of q's type or FP8; dims that are
 *            multiples of 8; rows that begin at multiples of 16 bytes (FP8: 8). gfx942 and gfx950
 *            have faster kernels for 512 + 64 elements of bf16 or their own e4m3, which take q of
 *            that e4m3 as well. Hopper's take 512 +
 *            64 elements of bf16, of f16, or of bf16 with caches of e4m3fn, rows at multiples of 16
 *            bytes. All other problems run, slowly, on mla.gpu_any, as do all on NVIDIA's other
 *            cards; with ckv_scales on mla.gpu_groups, likewise
 *  Shapes:   dim from 1 to 512, rope_dim from 1 to 64, pages of any size, any number of queries;
 *            fewer than 2^30 rows of queries and heads
 *  Align:    element size
 *  Edge:     memory past a request's keys, and unused places of pages, may hold anything and reach
 *            no result. A key that causality hides reaches no result if its ckv is finite.
 *            Requests without queries or without keys are no errors. q has as many tokens as the
 *            plan, unless the plan was made with is_for_graph: then it may have more, and o and lse
 *            are not written for these.
 *  Overlap:  o, lse and workspace overlap no other tensor.
 *  Bits:     a request has equal bits on every run, for any number of threads, whatever other
 *            requests are in the batch. QUERN_BATCH_INVARIANT is as for qn_attention.
 *  Async:    queued on stream, allocates nothing, can be captured; the plan's host copy may be
 *            freed when this function returns.
 *  Contents: as for qn_attention: the plan and kv_indices are checked on the CPU, and on GPUs with
 *            QUERN_VALIDATE=1.
 *  Errors:   QN_E_INVALID (null, shape, stride, scalars, workspace too small, contents, a plan for
 *            other tensors), QN_E_UNSUPPORTED (dtype, dim, size), QN_E_DEVICE.
 *  Source:   arXiv:2405.04434; FlashInfer's BatchMLAPagedAttentionWrapper. */
QN_API qn_status qn_mla_decode(qn_stream *stream, const qn_mla_args *args);

#ifdef __cplusplus
}
#endif
#endif
