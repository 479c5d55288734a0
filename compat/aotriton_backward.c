// SPDX-License-Identifier: Apache-2.0
// The gradients of AOTriton's dense attention over quern's.
#include "aotriton.h"

/** The calls of quern that a call stands for. They must not be moved, as they point into
 *  themselves. */
typedef struct calls {
    qn_attention_args forward;
    qn_attention_backward_args backward;
    qni_aotriton_view lse;
} calls;

/** Reads the forward pass's tensors, and fills in what the workspace's size depends on. */
static qn_status read_forward(qni_aotriton_call *c, calls *to) {
    QN_TRY(qni_aotriton_read_operands(c, -1));
    QN_TRY(qni_aotriton_read_outputs(c, false));
    to->forward = (qn_attention_args){.struct_size = sizeof to->forward,
                                      .o = (DLTensor *)(uintptr_t)c->out, // which is only read
                                      .q = c->q,
                                      .k = c->k,
                                      .v = c->v,
                                      .layout = QN_HND,
                                      .is_causal = c->is_causal != 0,
                                      .is_top_left = 1,
                                      .lse = qni_aotriton_view_lse(&to->lse, c),
                                      .lse_base = QN_LSE_BASE_E};
    to->backward = (qn_attention_backward_args){.struct_size = sizeof to->backward,
                                                .forward = &to->forward,
                                                .d_o = c->dout,
                                                .dq = c->dq,
                                                .dk = c->dk,
                                                .dv = c->dv};
    return QN_OK;
}

static qn_status run(qni_aotriton_call *c) {
    calls to;
    int64_t bytes;
    QN_TRY(read_forward(c, &to));
    QN_TRY(qni_aotriton_read_b(c));
    QN_TRY(qni_aotriton_read_gradients(c));
    QN_TRY(qni_aotriton_check_scalars(c));
    to.forward.sm_scale = c->sm_scale;
    to.forward.mask = qni_aotriton_is_there(c->b) ? c->b : nullptr;
    to.backward.dmask = qni_aotriton_is_there(c->db) ? c->db : nullptr;
    QN_TRY(qni_aotriton_under(
        c->op, qn_attention_backward_workspace_bytes(&bytes, c->stream, &to.backward)));
    QN_TRY(qni_aotriton_take_workspace(c, bytes, &to.backward.workspace));
    return qni_aotriton_run_backward(c, &to.forward, &to.backward);
}

qn_status qn_aotriton_attn_bwd(const DLTensor *q, const DLTensor *k, const DLTensor *v,
                               const DLTensor *b, float sm_scale, const DLTensor *out,
                               const DLTensor *dout, DLTensor *dq, DLTensor *dk, DLTensor *dv,
                               DLTensor *db, const DLTensor *softmax_lse, const DLTensor *delta,
                               float dropout_p, const DLTensor *philox_seed,
                               const DLTensor *philox_offset1, int64_t philox_offset2,
                               int32_t is_causal, qn_stream *stream, const qn_aotriton_ext *ext) {
    (void)delta;
    qni_aotriton_call c = {QNI_AOTRITON_BACKWARD("aotriton_attn_bwd")};
    return run(&c);
}

qn_status qn_aotriton_attn_bwd_fused(const DLTensor *q, const DLTensor *k, const DLTensor *v,
                                     const DLTensor *b, float sm_scale, const DLTensor *out,
                                     const DLTensor *dout, DLTensor *dq, DLTensor *dk, DLTensor *dv,
                                     DLTensor *db, const DLTensor *softmax_lse, float dropout_p,
                                     const DLTensor *philox_seed, const DLTensor *philox_offset1,
                                     int64_t philox_offset2, int32_t is_causal, qn_stream *stream,
                                     const qn_aotriton_ext *ext) {
    qni_aotriton_call c = {QNI_AOTRITON_BACKWARD("aotriton_attn_bwd_fused")};
    return run(&c);
}

qn_status qn_aotriton_attn_bwd_workspace_bytes(qn_stream *stream, int64_t *bytes, const DLTensor *q,
                                               const DLTensor *k, const DLTensor *v,
                                               const DLTensor *out, const DLTensor *softmax_lse) {
    qni_aotriton_call c = {.op = "aotriton_attn_bwd_workspace_bytes",
                           .stream = stream,
                           .q = q,
                           .k = k,
                           .v = v,
                           .out = out,
                           .softmax_lse = softmax_lse};
    calls to;
    if (!bytes)
        return QN_FAIL(QN_E_INVALID, "%s: bytes is null", c.op);
    QN_TRY(read_forward(&c, &to));
    return qni_aotriton_under(c.op,
                              qn_attention_backward_workspace_bytes(bytes, stream, &to.backward));
}
