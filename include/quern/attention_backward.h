// SPDX-License-Identifier: Apache-2.0
// The backward pass of attention: gradients of a scalar loss by q, k and v, from its gradient by o.
//
// With p_ij the softmax weights of qn_attention, m_ij dropout's factor of each (0 or
// 1 / (1 - dropout_p); 1 without dropout), x_ij the scores before the soft cap, s the product of
// all scales of q and k with sm_scale, and t that of v's scales:
//
//   dp_ij = t m_ij <d_o_i, v_j>
//   D_i   = <d_o_i, o_i>  (the sum of p_ij dp_ij over j)
//   ds_ij = p_ij (dp_ij - D_i)                      = the gradient of an additive mask
//   dx_ij = ds_ij (1 - tanh(x_ij / cap)^2)          (logits_soft_cap; else ds_ij)
//   dq_i  = s sum_j dx_ij k_j
//   dk_j  = s sum_i dx_ij q_i,  dv_j = t sum_i p_ij m_ij d_o_i   over all heads that share the key
//   dsink_h = -sum_i e^(sink_h - lse_i) D_i
//
// A query that sees no key has zeros in dq, and adds nothing to the other gradients.
#ifndef QUERN_ATTENTION_BACKWARD_H
#define QUERN_ATTENTION_BACKWARD_H

#include <quern/attention.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Arguments of qn_attention_backward. Tensors that do not apply are null. */
typedef struct qn_attention_backward_args {
    size_t struct_size; /**< sizeof(qn_attention_backward_args) */
    /** The call of qn_attention whose gradients are asked for: the same tensors, masks, scalars and
     *  dropout's numbers. Its o and lse, which is needed, hold what that call wrote. Its workspace
     *  and its plan's chunks play no part. */
    const qn_attention_args *forward;
    const DLTensor *d_o; /**< the loss's gradient by o: o's shape and dtype */
    DLTensor *dq;        /**< q's shape; f32, f16 or bf16 */
    DLTensor *dk, *dv;   /**< k's and v's shapes; f32, f16 or bf16 */
    /** The gradient by an additive mask, of the mask's shape: f32, f16 or bf16, summed over the
     *  dimensions of 1 that the mask repeats. Null: not asked for. */
    DLTensor *dmask;
    DLTensor *dsinks;    /**< f32 [num_qo_heads]; null: not asked for */
    DLTensor *workspace; /**< u8 at a multiple of 16, of qn_attention_backward_workspace_bytes */
} qn_attention_backward_args;

/** Computes the gradients, as the top of this header defines them. Memory grows with the number of
 *  tokens, never with its square.
 *
 *  forward   dense or ragged q, k and v, without pages; no QN_POS_ROPE_LLAMA. A plan must be none
 *            that was made with is_for_graph
 *  d_o, dq, dk, dv  any strides but that of the last dimension, which is contiguous; layouts are
 *            forward's
 *  Types:    q, k, v, o: f32, f16 or bf16. Sums are f32, and results are rounded once
 *  Shapes:   as for qn_attention
 *  Align:    element size
 *  Edge:     rows of q, d_o, k and v that a call uses must be finite, those that masks hide from
 *            each other too: a weight of 0 times an infinity is a NaN. Rows of no request and keys
 *            behind a request's may hold anything; dq, dk and dv are not written there
 *  Overlap:  what is written overlaps no other tensor.
 *  Bits:     equal on every run, for any number of threads, whatever other requests are in the
 *            batch (with dropout the batch counts, as for qn_attention): sums have a fixed
 *            order.
 *  Async:    queued on stream, allocates nothing on a GPU, can be captured.
 *  Errors:   QN_E_INVALID (null, shape, stride, overlap, workspace too small, what is wrong of
 *            forward; dmask without an additive mask, dsinks without sinks), QN_E_UNSUPPORTED
 *            (dtype, pages, rotation, size), QN_E_MEMORY (on the CPU), QN_E_DEVICE.
 *  Source:   arXiv:2205.14135, appendix B; arXiv:2307.08691. */
QN_API qn_status qn_attention_backward(qn_stream *stream, const qn_attention_backward_args *args);

/** Computes the bytes of workspace from the tensors' shapes and the device's type.
 *  Errors: those of qn_attention_backward that concern these. */
QN_API qn_status qn_attention_backward_workspace_bytes(int64_t *bytes, qn_stream *stream,
                                                       const qn_attention_backward_args *args);

#ifdef __cplusplus
}
#endif
#endif
