// SPDX-License-Identifier: Apache-2.0
// AOTriton's flash attention over quern's: dense attention, the search for a kernel, dropout's
// debug calls.
#include "aotriton.h"

// ---- dense

static qn_status attend_dense(qni_aotriton_call *c) {
    qn_attention_args args = {.struct_size = sizeof args,
                              .o = (DLTensor *)(uintptr_t)c->out, // which the caller gave as such
                              .q = c->q,
                              .k = c->k,
                              .v = c->v,
                              .layout = QN_HND,
                              .is_causal = c->is_causal != 0,
                              .is_top_left = 1,
                              .mask = qni_aotriton_is_there(c->b) ? c->b : nullptr,
                              .sm_scale = c->sm_scale,
                              .lse_base = QN_LSE_BASE_E};
    int64_t bytes;
    qni_aotriton_view lse;
    QN_TRY(qni_aotriton_read_operands(c, -1));
    QN_TRY(qni_aotriton_read_outputs(c, true));
    QN_TRY(qni_aotriton_read_b(c));
    QN_TRY(qni_aotriton_check_scalars(c));
    if (c->t[QNI_AOT_LSE].t)
        args.lse = qni_aotriton_view_lse(&lse, c);
    QN_TRY(qni_aotriton_under(c->op, qn_attention_workspace_bytes(&bytes, &args)));
    const bool is_given = c->ext && c->ext->workspace;
    if (!is_given && c->q->device.device_type == kDLCUDA)
        bytes = 0; // attention says whether it can do without
    QN_TRY(qni_aotriton_take_workspace(c, bytes, &args.workspace));
    return qni_aotriton_run(c, &args);
}

qn_status qn_aotriton_attn_fwd(const DLTensor *q, const DLTensor *k, const DLTensor *v,
                               const DLTensor *b, float sm_scale, DLTensor *softmax_lse,
                               DLTensor *out, float dropout_p, const DLTensor *philox_seed,
                               const DLTensor *philox_offset1, int64_t philox_offset2,
                               DLTensor *philox_seed_output, DLTensor *philox_offset_output,
                               const DLTensor *encoded_softmax, int32_t is_causal,
                               const DLTensor *atomic_for_causal, qn_stream *stream,
                               const qn_aotriton_ext *ext) {
    (void)atomic_for_causal;
    qni_aotriton_call c = {.op = "aotriton_attn_fwd",
                           .stream = stream,
                           .q = q,
                           .k = k,
                           .v = v,
                           .b = b,
                           .softmax_lse = softmax_lse,
                           .out = out,
                           .sm_scale = sm_scale,
                           .dropout_p = dropout_p,
                           .philox_seed = philox_seed,
                           .philox_offset1 = philox_offset1,
                           .philox_offset2 = philox_offset2,
                           .philox_seed_output = philox_seed_output,
                           .philox_offset_output = philox_offset_output,
                           .encoded_softmax = encoded_softmax,
                           .is_causal = is_causal,
                           .ext = ext};
    return attend_dense(&c);
}

qn_status qn_aotriton_attn_fwd_workspace_bytes(int64_t *bytes, const DLTensor *q, const DLTensor *k,
                                               const DLTensor *v) {
    const qn_attention_args args = {
        .struct_size = sizeof args, .q = q, .k = k, .v = v, .layout = QN_HND};
    return qni_aotriton_under("aotriton_attn_fwd_workspace_bytes",
                              qn_attention_workspace_bytes(bytes, &args));
}

// ---- is there a kernel?

/** Attends with one query to one key of f16, all zeros; o lies behind them in memory. */
static qn_status attend_to_one(qn_stream *stream, char *memory) {
    static const char zeros[256];
    int64_t shape[] = {1, 1, 1, 64}, bytes = sizeof zeros;
    const DLDataType u8 = qni_dl_dtype(QNI_U8);
    const DLTensor host = qni_host_tensor((void *)zeros, u8, 1, &bytes);
    DLTensor there = host, x = host;
    there.data = memory;
    there.device = x.device = stream->device->id;
    x.data = memory, x.dtype = qni_dl_dtype(QNI_F16), x.ndim = 4, x.shape = shape;
    DLTensor o = x;
    o.data = memory + sizeof zeros;
    QN_TRY(qn_copy(stream, &there, &host));
    QN_TRY(qn_attention(stream, &(qn_attention_args){
                                    .struct_size = sizeof(qn_attention_args),
                                    .o = &o,
                                    .q = &x,
                                    .k = &x,
                                    .v = &x,
                                }));
    return qn_stream_sync(stream);
}

qn_status qn_aotriton_check_gpu(qn_stream *stream) {
    const char *op = "aotriton_check_gpu";
    qn_stream *own = nullptr;
    void *memory = nullptr;
    qn_status st;
    if (!stream)
        return QN_FAIL(QN_E_INVALID, "%s: stream is null", op);
    QN_TRY_OUT(qni_aotriton_under(op, qn_stream_create(&own, stream->device)));
    QN_TRY_OUT(qni_aotriton_under(op, qn_malloc(stream->device, &memory, 512)));
    QN_TRY_OUT(qni_aotriton_under(op, attend_to_one(own, memory)));
out:
    qn_free(stream->device, memory);
    qn_stream_destroy(own);
    return st;
}

// ---- dropout

qn_status qn_aotriton_debug_fill_dropout_rng(DLTensor *r, uint64_t philox_seed,
                                             uint64_t philox_offset, qn_stream *stream) {
    return qni_aotriton_under("aotriton_debug_fill_dropout_rng",
                              qn_attention_dropout_rng(stream, r, philox_seed, philox_offset));
}

qn_status qn_aotriton_debug_fill_dropout_rng_tensor(DLTensor *r, const DLTensor *philox_seed,
                                                    const DLTensor *philox_offset,
                                                    qn_stream *stream) {
    const char *op = "aotriton_debug_fill_dropout_rng_tensor";
    uint64_t seed, offset;
    if (!stream)
        return QN_FAIL(QN_E_INVALID, "%s: stream is null", op);
    QN_TRY(qni_aotriton_read_number(stream, op, "philox_seed", philox_seed, &seed));
    QN_TRY(qni_aotriton_read_number(stream, op, "philox_offset", philox_offset, &offset));
    return qni_aotriton_under(op, qn_attention_dropout_rng(stream, r, seed, offset));
}

qn_status qn_aotriton_debug_simulate_encoded_softmax(DLTensor *r, float dropout_p,
                                                     const DLTensor *philox_seed,
                                                     const DLTensor *philox_offset1,
                                                     uint64_t philox_offset2, qn_stream *stream) {
    const char *op = "aotriton_debug_simulate_encoded_softmax";
    uint64_t seed, offset1;
    if (!stream)
        return QN_FAIL(QN_E_INVALID, "%s: stream is null", op);
    QN_TRY(qni_aotriton_read_number(stream, op, "philox_seed", philox_seed, &seed));
    QN_TRY(qni_aotriton_read_number(stream, op, "philox_offset1", philox_offset1, &offset1));
    return qni_aotriton_under(
        op, qn_attention_dropout_mask(stream, r, dropout_p, seed, offset1 + philox_offset2));
}
