// SPDX-License-Identifier: Apache-2.0
// qn_packbits and qn_segment_packbits: read the tensors, choose a kernel, run it.
#include "pack.h"

#include "../../runtime/tensor/read.h"
#include "../shared/variants.h"

#define QN_TABLE_OF_packbits 0,
static const qni_variant variants[] = {
#include "variants.def"
};
#undef QN_TABLE_OF_packbits

static const char *const order_words[] = {"big", "little", nullptr};
static const qni_key keys[] = {{.name = "order", .words = order_words},
                               {.name = "count", .is_of_batch = true},
                               {.name = "segments", .is_of_batch = true},
                               {}};

static void describe(const void *problem, int64_t *values) {
    const qni_pack_problem *p = problem;
    QN_SET_VALUES(keys, values, p->is_little, p->count, p->segments);
}

const qni_op qni_op_packbits = QN_OP("packbits", variants, keys, describe);

static qni_tensor bytes(const char *name, const DLTensor *t) {
    return (qni_tensor){name, t, 1, 1u << QNI_U8, .has_rows = true};
}

static qn_status check_order(const char *op, qn_bit_order order) {
    if (order == QN_BITS_BIG || order == QN_BITS_LITTLE)
        return QN_OK;
    return QN_FAIL(QN_E_INVALID, "%s: order is %d; accepted: QN_BITS_BIG, QN_BITS_LITTLE", op,
                   (int)order);
}

qn_status qn_packbits(qn_stream *stream, DLTensor *out, const DLTensor *x, qn_bit_order order) {
    const qni_call call = {"packbits", stream};
    enum { X, OUT, NUM };
    qni_tensor t[NUM] = {[X] = bytes("x", x), [OUT] = bytes("out", out)};
    t[X].dtypes |= 1u << QNI_BOOL;
    t[OUT].is_written = true;
    QN_TRY(check_order(call.op, order));
    QN_TRY(qni_read_tensors(&call, &t[X], 1));
    t[OUT].shape = (const int64_t[]){(t[X].size[0] + 7) / 8};
    QN_TRY(qni_read_tensors(&call, &t[OUT], 1));
    QN_TRY(qni_check_apart(&call, t, NUM));
    const qni_pack_problem p = {.x = t[X].data,
                                .out = t[OUT].data,
                                .count = t[X].size[0],
                                .segments = 1,
                                .is_little = order == QN_BITS_LITTLE};
    return p.count > 0 ? qni_run(&qni_op_packbits, stream, &p) : QN_OK;
}

static qn_status check_room(const qni_call *call, const qni_tensor *out, int64_t count,
                            int64_t segments) {
    const int64_t most = count / 8 + segments; // each segment's last byte may be partial
    if (out->size[0] >= most)
        return QN_OK;
    return QN_FAIL(QN_E_INVALID, "%s: out has %ld bytes, needs %ld for %ld values in %ld segments",
                   call->op, (long)out->size[0], (long)most, (long)count, (long)segments);
}

qn_status qn_segment_packbits(qn_stream *stream, DLTensor *out, DLTensor *indptr_out,
                              const DLTensor *x, const DLTensor *indptr, qn_bit_order order) {
    const qni_call call = {"segment_packbits", stream};
    enum { X, INDPTR, OUT, INDPTR_OUT, NUM };
    qni_tensor t[NUM] = {[X] = bytes("x", x),
                         [INDPTR] = qni_indices("indptr", indptr, nullptr),
                         [OUT] = bytes("out", out),
                         [INDPTR_OUT] = qni_indices("indptr_out", indptr_out, nullptr)};
    t[X].dtypes |= 1u << QNI_BOOL;
    t[OUT].is_written = t[INDPTR_OUT].is_written = true;
    QN_TRY(check_order(call.op, order));
    QN_TRY(qni_read_tensors(&call, t, INDPTR_OUT));
    if (t[INDPTR].size[0] < 1)
        return QN_FAIL(QN_E_INVALID, "%s: indptr has no elements, needs at least 1", call.op);
    t[INDPTR_OUT].shape = t[INDPTR].size;
    QN_TRY(qni_read_tensors(&call, &t[INDPTR_OUT], 1));
    QN_TRY(check_room(&call, &t[OUT], t[X].size[0], t[INDPTR].size[0] - 1));
    QN_TRY(qni_check_apart(&call, t, NUM));
    const qni_pack_problem p = {.x = t[X].data,
                                .out = t[OUT].data,
                                .indptr = t[INDPTR].data,
                                .indptr_out = t[INDPTR_OUT].data,
                                .count = t[X].size[0],
                                .segments = t[INDPTR].size[0] - 1,
                                .is_little = order == QN_BITS_LITTLE};
    return qni_run(&qni_op_packbits, stream, &p);
}
