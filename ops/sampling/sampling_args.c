// SPDX-License-Identifier: Apache-2.0
// Reads what the sampling family's public functions have in common: vocabularies, numbers for rows,
// seeds and offsets.
#include "sampling_args.h"

qn_status qni_sampling_check_vocab(const qni_call *call, const qni_tensor *x) {
    const int64_t vocab = x->size[x->ndim - 1];
    if (vocab < 1 || vocab > QK_SAMPLING_MOST)
        return QN_FAIL(QN_E_INVALID, "%s: %s has rows of %ld elements; accepted: 1 to %d", call->op,
                       x->name, (long)vocab, QK_SAMPLING_MOST);
    if (x->size[0] >= INT32_MAX)
        return QN_FAIL(QN_E_INVALID, "%s: %s has %ld rows; accepted: fewer than 2^31", call->op,
                       x->name, (long)x->size[0]);
    return QN_OK;
}

static qn_status check_number(const qni_call *call, const char *name, float value,
                              const qni_sampling_numbers *n) {
    if (value >= n->least && value <= n->most)
        return QN_OK;
    if (n->least == 0x1p-149f)
        return QN_FAIL(QN_E_INVALID, "%s: %s is %g; accepted: above 0, up to %g", call->op, name,
                       (double)value, (double)n->most);
    return QN_FAIL(QN_E_INVALID, "%s: %s is %g; accepted: %g to %g", call->op, name, (double)value,
                   (double)n->least, (double)n->most);
}

/** Looks at the numbers of a vector, on a GPU after the stream's work is done. */
static qn_status check_vector(const qni_call *call, qn_stream *stream, const float *vector,
                              int64_t count, const qni_sampling_numbers *n) {
    const int32_t *bits = nullptr;
    char name[64];
    qn_status st;
    QN_TRY_OUT(
        qni_read_indices(stream, call->op, n->vector_name, (const int32_t *)vector, count, &bits));
    for (int64_t i = 0; st == QN_OK && i < count; i++) {
        snprintf(name, sizeof name, "%s[%ld]", n->vector_name, (long)i);
        st = check_number(call, name, __builtin_bit_cast(float, bits[i]), n);
    }
out:
    qni_release_indices(stream, bits);
    return st;
}

qn_status qni_sampling_read_numbers(const qni_call *call, qn_stream *stream,
                                    const qni_sampling_numbers *numbers, int64_t batch,
                                    qni_tensor *t, const float **out) {
    *t = (qni_tensor){numbers->vector_name, numbers->vector,    1, qni_of_f32, .shape = &batch,
                      .has_rows = true,     .may_be_null = true};
    QN_TRY(qni_read_tensors(call, t, 1));
    *out = t->data;
    QN_TRY(check_number(call, numbers->name, numbers->value, numbers));
    if (!numbers->vector || batch == 0 || !qni_validates_indices(stream))
        return QN_OK;
    return check_vector(call, stream, t->data, batch, numbers);
}

/** Reads one of seeds and offsets; *step says whether rows have entries of their own. */
static qn_status read_i64(const qni_call *call, const char *name, const DLTensor *given,
                          int64_t batch, qni_tensor *t, const int64_t **out, uint32_t *step) {
    const bool is_one = given && given->ndim == 1 && given->shape && given->shape[0] == 1;
    const int64_t count = is_one ? 1 : batch;
    *t = (qni_tensor){
        name, given, 1, 1u << QNI_I64, .shape = &count, .has_rows = true, .may_be_null = true};
    QN_TRY(qni_read_tensors(call, t, 1));
    *out = t->data;
    *step = !is_one;
    return QN_OK;
}

qn_status qni_sampling_read_random(const qni_call *call, const DLTensor *seeds,
                                   const DLTensor *offsets, int64_t seed, int64_t offset,
                                   int64_t batch, qni_tensor *t, qk_sampling_random *out) {
    *out = (qk_sampling_random){.seed = (uint64_t)seed, .offset = (uint64_t)offset};
    QN_TRY(read_i64(call, "seeds", seeds, batch, &t[0], &out->seeds, &out->seed_step));
    return read_i64(call, "offsets", offsets, batch, &t[1], &out->offsets, &out->offset_step);
}
