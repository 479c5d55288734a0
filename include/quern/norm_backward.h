// SPDX-License-Identifier: Apache-2.0
// The backward pass of RMSNorm and LayerNorm: gradients of a scalar loss by what a norm reads, from
// its gradient by what the norm wrote.
//
// With t a row that was normalised, m its mean (RMSNorm: 0), r = 1 / sqrt(mean((t - m)^2) + eps),
// n = (t - m) r, and g = d_out (weight + 1 if adds_one):
//
//   dx      = d_sum + r (g - mean(g) - n mean(g n))     without mean(g) for RMSNorm
//   dweight = sum of d_out n, dbeta = sum of d_out      over all rows
//
// For qn_fused_add_rmsnorm t is the residual that the call wrote, and dx the gradient by x and by
// the residual that it read, as t is their sum.
//
// For qn_adaptive_layernorm weight is scale, with adds_one, and dweight and dbeta are the gradients
// by scale and shift. All three have a row for each batch, and sums are over the rows of a batch.
// For qn_gated_residual_layernorm t is the residual that the call wrote, dx the gradient by the one
// that it read, `gated` the call's x, and
//
//   d_gated = gate dx, dgate = sum of dx gated
#ifndef QUERN_NORM_BACKWARD_H
#define QUERN_NORM_BACKWARD_H

#include <quern/norm.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Arguments of qn_norm_backward. Tensors that do not apply are null. */
typedef struct qn_norm_backward_args {
    size_t struct_size;    /**< sizeof(qn_norm_backward_args) */
    DLTensor *dx;          /**< written: x's shape and dtype */
    DLTensor *dweight;     /**< written: as weight, of x's dtype or f32; null: not asked for */
    DLTensor *dbeta;       /**< LayerNorm's, as dweight; null: not asked for */
    const DLTensor *d_out; /**< the loss's gradient by the norm's result: x's shape and dtype */
    const DLTensor *x;     /**< what was normalised: [n, h] or [n, heads, h] of f32, f16 or bf16 */
    /** [h], or of x [batch, n, h] also [batch, h]; of x's dtype or f32; null: ones. */
    const DLTensor *weight;
    /** Null, or as x: what is added to dx, which is the gradient by qn_fused_add_rmsnorm's new
     *  residual. */
    const DLTensor *d_sum;
    DLTensor *workspace;    /**< u8 at a multiple of 16, of qn_norm_backward_workspace_bytes */
    float eps;              /**< as in the forward pass */
    int32_t subtracts_mean; /**< 0: RMSNorm, 1: LayerNorm */
    int32_t adds_one;       /**< 1: weight stands for 1 + weight, as Gemma's does; else 0 */
    DLTensor *d_gated;      /**< written: as dx, needs gate; null: not asked for */
    DLTensor *dgate;        /**< written: as dweight, needs gated; null: not asked for */
    const DLTensor *gate;   /**< of weight's shape and dtype; null without d_gated */
    const DLTensor *gated;  /**< as x; null without dgate */
} qn_norm_backward_args;

/** Computes the gradients, as the top of this header defines them.
 *
 *  x, dx, d_out, d_sum, gated, d_gated  last dimension contiguous, other strides any that keep rows
 *            apart
 *  weight, gate, dweight, dbeta, dgate  all [h], or all [batch, h] where x is [batch, n, h]; rows
 *            contiguous, weight's and gate's row stride any, 0 too
 *  Types:    sums and products are f32, and results are rounded once, to nearest, ties to even
 *  Align:    element size; faster when all tensors begin at multiples of 16 bytes, h and strides
 *            are multiples of 8, and h is at most 16384 (f32, or with a gate: 8192).
 *  Edge:     n == 0 gives zeros in dweight, dbeta and dgate; h is at least 1. Finite values of x
 *            may be of any size. A row of zeros (LayerNorm: of equal elements) with an eps of 0 has
 *            a dx of d_sum, or zeros. A NaN makes its row of dx NaN, and all that it is summed
 *            into.
 *  Bits:     equal on every run of one device, for any number of threads: no atomics, and sums in
 *            an order that the shape alone decides. A row of dx has equal bits whatever else is in
 *            the batch.
 *  Overlap:  what is written overlaps no other tensor.
 *  Async:    queued on stream, allocates nothing on a GPU, can be captured.
 *  Errors:   QN_E_INVALID (null, shape, stride, overlap, eps, a workspace too small, dweight
 *            without a weight, dbeta of RMSNorm, gate without d_gated or dgate without gated or
 *            the reverse, flags other than 0 and 1), QN_E_UNSUPPORTED (dtype), QN_E_MEMORY (on
 *            the CPU).
 *  Source:   the derivatives of arXiv:1910.07467 and arXiv:1607.06450. */
QN_API qn_status qn_norm_backward(qn_stream *stream, const qn_norm_backward_args *args);

/** Computes the bytes of workspace from x's shape, the device's type, and which of dweight, dbeta
 *  and dgate are asked for, with how many dimensions; other tensors play no part.
 *  Errors: those of qn_norm_backward that concern these. */
QN_API qn_status qn_norm_backward_workspace_bytes(int64_t *bytes, qn_stream *stream,
                                                  const qn_norm_backward_args *args);

#ifdef __cplusplus
}
#endif
#endif
