// SPDX-License-Identifier: Apache-2.0
// The backward pass of gated activations: gradients of a scalar loss by gate and up, from its
// gradient by f(min(gate, limit)) * clamp(up, -limit, limit), which qn_act_and_mul computes:
//
//   dgate = d_out clamp(up, -limit, limit) f'(gate)    0 where gate > limit
//   dup   = d_out f(min(gate, limit))                  0 where up is outside -limit to limit
//
// with f' = s + x s (1 - s), s = 1 / (1 + exp(-x)), for silu; Phi(x) + x phi(x) for gelu, where Phi
// and phi are the normal distribution and its density; and the derivative of gelu_tanh's formula.
#ifndef QUERN_ACTIVATION_BACKWARD_H
#define QUERN_ACTIVATION_BACKWARD_H

#include <quern/activation.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Computes the gradients of qn_act_and_mul; with a limit of 0 those of qn_silu_and_mul,
 *  qn_gelu_and_mul and qn_gelu_tanh_and_mul.
 *
 *  dx        [..., 2 h], written: dgate, then dup; x's shape and dtype
 *  d_out     [..., h], of x's dtype
 *  x         [..., 2 h], 1 to 8 dimensions, as the forward pass read it: f32, f16 or bf16
 *            all three: last dimension contiguous, other strides any that fold into two dimensions
 *  limit     above 0; 0 or infinity: no limit
 *  Types:    sums and products are f32, and results are rounded once, to nearest, ties to even.
 *            With u = 2^-24 and e the relative error of s (of Phi) that activation.h states for f,
 *            f' is off by at most e times the magnitudes of its two terms, 4 |x| u s and 8 u of
 *            both terms. Values of exp below 2^-124, and bf16 results below 2^-126, may be 0. A row
 *            has equal bits on every run of one device, whatever else is in the batch.
 *  Edge:     no rows, or h == 0: a no-op. A NaN stays in its element. f' of an infinity is NaN, as
 *            the formulas say.
 *  Align:    element size; faster when all tensors begin at multiples of 16 bytes and h and strides
 *            are multiples of 8.
 *  Overlap:  dx overlaps no other tensor.
 *  Async:    queued on stream.
 *  Errors:   QN_E_INVALID (null, shape, stride, overlap, function, limit), QN_E_UNSUPPORTED (dtype,
 *            strides).
 *  Source:   the derivatives of arXiv:2002.05202's functions. */
QN_API qn_status qn_activation_backward(qn_stream *stream, DLTensor *dx, const DLTensor *d_out,
                                        const DLTensor *x, qn_activation function, float limit);

#ifdef __cplusplus
}
#endif
#endif
