// SPDX-License-Identifier: Apache-2.0
// Attention for Python: the many arguments of one call, its workspace, and plans from host arrays.
#include "ffi.h"

#define T(i) ffi_tensor(&args[i])
#define I(i) args[i].v_int64
#define F(i) ffi_number(&args[i])

static void *data_of(const DLTensor *t) {
    return t ? (char *)t->data + t->byte_offset : nullptr;
}

/** Makes the arguments from the parameters of ops.def's line `attention`. A window below 0 is no
 *  bound. */
static qn_attention_args make_args(const TVMFFIAny *args) {
    const DLTensor *plan = T(6);
    return (qn_attention_args){.struct_size = sizeof(qn_attention_args),
                               .o = T(0),
                               .lse = T(1),
                               .q = T(2),
                               .k = T(3),
                               .v = T(4),
                               .kv_indices = T(5),
                               .plan = data_of(plan),
                               .plan_bytes = plan && plan->ndim == 1 ? plan->shape[0] : 0,
                               .schedule = T(7),
                               .workspace = T(8),
                               .custom_mask = T(9),
                               .mask = T(10),
                               .q_scales = T(11),
                               .k_scales = T(12),
                               .v_scales = T(13),
                               .sinks = T(14),
                               .layout = I(15) ? QN_HND : QN_NHD,
                               .is_causal = I(16) != 0,
                               .is_top_left = I(17) != 0,
                               .has_window_left = I(18) >= 0,
                               .window_left = I(18),
                               .has_window_right = I(19) >= 0,
                               .window_right = I(19),
                               .pos_encoding = (qn_pos_encoding)I(20),
                               .lse_base = (qn_lse_base)I(21),
                               .dropout_seed = (uint64_t)I(22),
                               .dropout_offset = (uint64_t)I(23),
                               .rope_scale = F(24),
                               .rope_theta = F(25),
                               .sm_scale = F(26),
                               .logits_soft_cap = F(27),
                               .q_scale = F(28),
                               .k_scale = F(29),
                               .v_scale = F(30),
                               .dropout_p = F(31)};
}

qn_status ffi_attention(qn_stream *stream, const TVMFFIAny *args) {
    const qn_attention_args a = make_args(args);
    return qn_attention(stream, &a);
}

enum { BACKWARD_FORWARD = 7 }; // where the parameters of attention's own call begin

static qn_attention_backward_args make_backward_args(const TVMFFIAny *args,
                                                     const qn_attention_args *forward) {
    return (qn_attention_backward_args){.struct_size = sizeof(qn_attention_backward_args),
                                        .forward = forward,
                                        .dq = T(0),
                                        .dk = T(1),
                                        .dv = T(2),
                                        .dmask = T(3),
                                        .dsinks = T(4),
                                        .workspace = T(5),
                                        .d_o = T(6)};
}

qn_status ffi_attention_backward(qn_stream *stream, const TVMFFIAny *args) {
    const qn_attention_args forward = make_args(args + BACKWARD_FORWARD);
    const qn_attention_backward_args a = make_backward_args(args, &forward);
    return qn_attention_backward(stream, &a);
}

qn_status ffi_mla_decode(qn_stream *stream, const TVMFFIAny *args) {
    const DLTensor *plan = T(8);
    const qn_mla_args a = {.struct_size = sizeof a,
                           .o = T(0),
                           .lse = T(1),
                           .q_nope = T(2),
                           .q_pe = T(3),
                           .ckv = T(4),
                           .kpe = T(5),
                           .ckv_scales = T(6),
                           .kv_indices = T(7),
                           .plan = data_of(plan),
                           .plan_bytes = plan && plan->ndim == 1 ? plan->shape[0] : 0,
                           .schedule = T(9),
                           .workspace = T(10),
                           .q_scales = T(11),
                           .kv_scales = T(12),
                           .is_causal = I(13) != 0,
                           .lse_base = (qn_lse_base)I(14),
                           .sm_scale = F(15),
                           .q_scale = F(16),
                           .kv_scale = F(17)};
    return qn_mla_decode(stream, &a);
}

/** attention_workspace_bytes(the arguments of attention) -> bytes that they need, by shapes
 *  alone */
FFI_FUNCTION(attention_workspace_bytes) {
    int64_t bytes;
    if (ffi_check_args("attention", FFI_ATTENTION_PARAMETERS, args, count) != 0)
        return -1;
    const qn_attention_args a = make_args(args);
    const qn_status status = qn_attention_workspace_bytes(&bytes, &a);
    if (status != QN_OK)
        return ffi_finish(status);
    *result = (TVMFFIAny){.type_index = kTVMFFIInt, .v_int64 = bytes};
    return 0;
}

/** attention_backward_workspace_bytes(the arguments of attention_backward) -> bytes that they
 *  need */
FFI_FUNCTION(attention_backward_workspace_bytes) {
    qn_stream *stream;
    int64_t bytes;
    if (ffi_check_args("attention_backward", FFI_ATTENTION_BACKWARD_PARAMETERS, args, count) != 0)
        return -1;
    const qn_attention_args forward = make_args(args + BACKWARD_FORWARD);
    const qn_attention_backward_args a = make_backward_args(args, &forward);
    qn_status status = ffi_stream_create(&stream, forward.q->device);
    if (status != QN_OK)
        return ffi_finish(status);
    status = qn_attention_backward_workspace_bytes(&bytes, stream, &a);
    qn_stream_destroy(stream);
    if (status != QN_OK)
        return ffi_finish(status);
    *result = (TVMFFIAny){.type_index = kTVMFFIInt, .v_int64 = bytes};
    return 0;
}

/** Places of attention_plan's arrays; PLAN_NUMBERS: of the first number. */
enum { PLAN, SIZES, QO_INDPTR, KV_INDPTR, KV_LAST_PAGE_LEN, KV_LENS, PLAN_NUMBERS };

/** attention_plan: sizes gets the bytes of plan and of the workspace. Arrays are on the CPU, plan
 *  of u8, sizes [2] of i64, the others of i32; Python has made them so. */
FFI_FUNCTION(attention_plan) {
    static const char parameters[] =
        "plan!? sizes! qo_indptr? kv_indptr? kv_last_page_len? kv_lens? batches:i qo_len:i "
        "kv_len:i page_size:i num_qo_heads:i num_kv_heads:i head_dim_vo:i kv_chunk:i "
        "max_kv_splits:i q_tile:i num_compute_units:i max_qo_len:i max_kv_len:i is_for_graph:i1";
    if (ffi_check_args("attention_plan", parameters, args, count) != 0)
        return -1;
    int64_t *const sizes = data_of(T(SIZES));
    const qn_attention_plan_args a = {.struct_size = sizeof a,
                                      .qo_indptr = data_of(T(QO_INDPTR)),
                                      .kv_indptr = data_of(T(KV_INDPTR)),
                                      .kv_last_page_len = data_of(T(KV_LAST_PAGE_LEN)),
                                      .kv_lens = data_of(T(KV_LENS)),
                                      .batches = I(PLAN_NUMBERS),
                                      .qo_len = I(PLAN_NUMBERS + 1),
                                      .kv_len = I(PLAN_NUMBERS + 2),
                                      .page_size = I(PLAN_NUMBERS + 3),
                                      .num_qo_heads = I(PLAN_NUMBERS + 4),
                                      .num_kv_heads = I(PLAN_NUMBERS + 5),
                                      .head_dim_vo = I(PLAN_NUMBERS + 6),
                                      .kv_chunk = I(PLAN_NUMBERS + 7),
                                      .max_kv_splits = I(PLAN_NUMBERS + 8),
                                      .q_tile = I(PLAN_NUMBERS + 9),
                                      .num_compute_units = I(PLAN_NUMBERS + 10),
                                      .max_qo_len = I(PLAN_NUMBERS + 11),
                                      .max_kv_len = I(PLAN_NUMBERS + 12),
                                      .is_for_graph = I(PLAN_NUMBERS + 13) != 0};
    sizes[0] = T(PLAN) ? T(PLAN)->shape[0] : 0;
    result->type_index = kTVMFFINone;
    return ffi_finish(qn_attention_plan(data_of(T(PLAN)), &sizes[0], &sizes[1], &a));
}
