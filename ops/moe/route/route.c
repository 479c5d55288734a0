// SPDX-License-Identifier: Apache-2.0
// qn_moe_route: reads its tensors and makes a problem.
#include "../../../runtime/tensor/read.h"
#include "../moe.h"

#include <stdlib.h>

enum { LOGITS, BIAS, WEIGHTS, IDS, NUM_TENSORS };
static const char op[] = "moe_route";

static qn_status check_numbers(const qn_moe_route_args *a) {
    if (a->scoring != QN_MOE_SOFTMAX && a->scoring != QN_MOE_SIGMOID)
        return QN_FAIL(QN_E_INVALID,
                       "%s: scoring is %d; accepted: QN_MOE_SOFTMAX (0), QN_MOE_SIGMOID (1)", op,
                       (int)a->scoring);
    if (a->renormalize != 0 && a->renormalize != 1)
        return QN_FAIL(QN_E_INVALID, "%s: renormalize is %d; accepted: 0, 1", op, a->renormalize);
    if (!(a->scaling >= 0 && a->scaling <= __FLT_MAX__))
        return QN_FAIL(QN_E_INVALID, "%s: scaling is %g; accepted: above 0 and finite, and 0 for 1",
                       op, (double)a->scaling);
    if (!(a->shared_weight >= 0 && a->shared_weight <= __FLT_MAX__))
        return QN_FAIL(QN_E_INVALID,
                       "%s: shared_weight is %g; accepted: above 0 and finite, and 0 for 1", op,
                       (double)a->shared_weight);
    if (a->shared_experts < 0)
        return QN_FAIL(QN_E_INVALID, "%s: shared_experts is %ld, needs at least 0", op,
                       (long)a->shared_experts);
    return QN_OK;
}

static qn_status read_tensors(const qni_call *call, const qn_moe_route_args *a,
                              qni_tensor t[NUM_TENSORS]) {
    t[LOGITS] = (qni_tensor){"logits", a->logits, 2, qni_of_floats, .has_rows = true};
    QN_TRY(qni_read_tensors(call, &t[LOGITS], 1));
    t[BIAS] = (qni_tensor){"bias",
                           a->bias,
                           1,
                           qni_of_floats,
                           .shape = (const int64_t[]){t[LOGITS].size[1]},
                           .has_rows = true,
                           .may_be_null = true};
    t[WEIGHTS] = (qni_tensor){.name = "weights",
                              .t = a->weights,
                              .ndim = 2,
                              .dtypes = qni_of_f32,
                              .shape = (const int64_t[]){t[LOGITS].size[0], -1},
                              .has_rows = true,
                              .is_written = true};
    QN_TRY(qni_read_tensors(call, &t[BIAS], 2));
    t[IDS] = t[WEIGHTS];
    t[IDS].name = "ids", t[IDS].t = a->ids, t[IDS].dtypes = qni_of_i32;
    t[IDS].shape = (const int64_t[]){t[LOGITS].size[0], t[WEIGHTS].size[1]};
    return qni_read_tensors(call, &t[IDS], 1);
}

/** Checks how many experts there are, in groups, and how many are chosen. */
static qn_status check_experts(const qni_moe_route_problem *p) {
    if (p->experts < 1 || p->experts > INT32_MAX - p->shared)
        return QN_FAIL(QN_E_INVALID,
                       "%s: logits are of %ld experts and shared_experts is %ld; accepted: at "
                       "least 1, and fewer than 2^31 together",
                       op, (long)p->experts, (long)p->shared);
    if (p->groups < 1 || p->groups > QK_MOE_MAX_GROUPS || p->experts % p->groups != 0)
        return QN_FAIL(QN_E_INVALID, "%s: groups is %ld; accepted: 1 to %d that divide %ld experts",
                       op, (long)p->groups, QK_MOE_MAX_GROUPS, (long)p->experts);
    if (p->topk_groups < 1 || p->topk_groups > p->groups)
        return QN_FAIL(QN_E_INVALID, "%s: topk_groups is %ld; accepted: 1 to groups, %ld", op,
                       (long)p->topk_groups, (long)p->groups);
    const int64_t most = p->experts / p->groups * p->topk_groups;
    if (p->top_k < 1 || p->top_k > most)
        return QN_FAIL(QN_E_INVALID,
                       "%s: weights have %ld columns, %ld of shared experts; accepted for the "
                       "others: 1 to %ld, the experts of topk_groups groups",
                       op, (long)(p->top_k + p->shared), (long)p->shared, (long)most);
    return QN_OK;
}

// ---- contents

/** Returns the first NaN among `count` elements; count: there is none. */
static int64_t find_nan(qni_dtype dtype, const void *row, int64_t count) {
    const float *f32 = row;
    const uint16_t *bits = row;
    const uint16_t infinity = dtype == QNI_F16 ? 0x7C00 : 0x7F80;
    int found = 0;
    if (dtype == QNI_F32)
        for (int64_t i = 0; i < count; i++)
            found |= f32[i] != f32[i];
    else
        for (int64_t i = 0; i < count; i++)
            found |= (bits[i] & 0x7FFF) > infinity;
    for (int64_t i = 0; found && i < count; i++)
        if (isnan(qni_get(dtype, row, i)))
            return i;
    return count;
}

static qn_status check_rows(const qni_moe_route_problem *p, const char *logits) {
    const int64_t row = p->logits_row * qni_dtype_bytes(p->dtype);
    for (int64_t t = 0; t < p->tokens; t++) {
        const int64_t e = find_nan(p->dtype, logits + t * row, p->experts);
        if (e < p->experts)
            return QN_FAIL(QN_E_INVALID, "%s: logits[%ld, %ld] is NaN; accepted: numbers", op,
                           (long)t, (long)e);
    }
    return QN_OK;
}

/** Looks for NaNs in the logits: in place on the CPU, else in a copy. */
static qn_status validate_logits(qn_stream *stream, const qni_moe_route_problem *p,
                                 const qni_tensor *logits) {
    const qni_backend *backend = stream->device->backend;
    if (!qni_validates_indices(stream))
        return QN_OK;
    if (stream->device->id.device_type == kDLCPU)
        return check_rows(p, p->logits);
    const int64_t bytes = (int64_t)(logits->end - logits->begin);
    char *host = malloc((size_t)bytes);
    if (!host)
        return QN_FAIL(QN_E_MEMORY, "%s: no memory for %ld bytes of logits", op, (long)bytes);
    qn_status st;
    QN_TRY_OUT(backend->copy(stream, host, (const void *)logits->begin, bytes, QNI_COPY_TO_HOST));
    QN_TRY_OUT(backend->stream_sync(stream));
    st = check_rows(p, host + ((const char *)p->logits - (const char *)logits->begin));
out:
    free(host);
    return st;
}

qn_status qn_moe_route(qn_stream *stream, const qn_moe_route_args *args) {
    const qni_call call = {op, stream};
    qni_tensor t[NUM_TENSORS] = {};
    QN_TRY(QNI_CHECK_STRUCT(op, "args", qn_moe_route_args, args));
    QN_TRY(check_numbers(args));
    QN_TRY(read_tensors(&call, args, t));
    const int64_t groups = args->groups ? args->groups : 1;
    const qni_moe_route_problem p = {.dtype = t[LOGITS].dtype,
                                     .dtype_bias = args->bias ? t[BIAS].dtype : QNI_F32,
                                     .logits = t[LOGITS].data,
                                     .bias = t[BIAS].data,
                                     .weights = t[WEIGHTS].data,
                                     .ids = t[IDS].data,
                                     .logits_row = t[LOGITS].stride[0],
                                     .weights_row = t[WEIGHTS].stride[0],
                                     .ids_row = t[IDS].stride[0],
                                     .tokens = t[LOGITS].size[0],
                                     .experts = t[LOGITS].size[1],
                                     .top_k = t[WEIGHTS].size[1] - args->shared_experts,
                                     .groups = groups,
                                     .topk_groups = args->topk_groups ? args->topk_groups : groups,
                                     .shared = args->shared_experts,
                                     .is_sigmoid = args->scoring == QN_MOE_SIGMOID,
                                     .renormalizes = args->renormalize != 0,
                                     .scaling = args->scaling > 0 ? args->scaling : 1,
                                     .shared_weight =
                                         args->shared_weight != 0 ? args->shared_weight : 1};
    QN_TRY(check_experts(&p));
    QN_TRY(qni_check_apart(&call, t, NUM_TENSORS));
    if (p.tokens == 0)
        return QN_OK;
    QN_TRY(validate_logits(stream, &p, &t[LOGITS]));
    return qni_run(&qni_op_moe_route, stream, &p);
}
