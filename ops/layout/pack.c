// SPDX-License-Identifier: Apache-2.0
// qn_packbits and qn_segment_packbits: check the tensors, choose a kernel, run it.
#include "pack.h"

#include "../shared/variants.h"

#define QN_TABLE_OF_packbits 0,
static const qni_variant variants[] = {
#include "variants.def"
};
#undef QN_TABLE_OF_packbits
const qni_op qni_op_packbits = QN_OP("packbits", variants);

/** A vector of bytes: u8, or bool where that may be. */
static qn_status check_bytes(const qn_stream *stream, const char *op, const char *name,
                             const DLTensor *t, bool may_be_bool) {
    QN_TRY(qni_check_tensor(stream, op, name, t, 1));
    const bool is_bool = t->dtype.code == kDLBool && t->dtype.bits == 8 && t->dtype.lanes == 1;
    if (qni_dtype_of(t) != QNI_U8 && !(may_be_bool && is_bool))
        return QN_FAIL(QN_E_UNSUPPORTED, "%s: %s has dtype %s; accepted: %su8", op, name,
                       qni_dtype_text(t), may_be_bool ? "bool, " : "");
    return qni_check_last_contiguous(op, name, t);
}

static qn_status check_indptr(const qn_stream *stream, const char *op, const char *name,
                              const DLTensor *t) {
    QN_TRY(qni_check_tensor(stream, op, name, t, 1));
    QN_TRY(qni_check_dtype(op, name, t, qni_of_i32));
    QN_TRY(qni_check_last_contiguous(op, name, t));
    return qni_check_alignment(op, name, t);
}

static qn_status check_order(const char *op, qn_bit_order order) {
    if (order == QN_BITS_BIG || order == QN_BITS_LITTLE)
        return QN_OK;
    return QN_FAIL(QN_E_INVALID, "%s: order is %d; accepted: QN_BITS_BIG, QN_BITS_LITTLE", op,
                   (int)order);
}

qn_status qn_packbits(qn_stream *stream, DLTensor *out, const DLTensor *x, qn_bit_order order) {
    constexpr char op[] = "packbits";
    QN_TRY(check_bytes(stream, op, "x", x, true));
    QN_TRY(check_bytes(stream, op, "out", out, false));
    QN_TRY(check_order(op, order));
    const int64_t want[] = {(x->shape[0] + 7) / 8};
    QN_TRY(qni_check_shape(op, "out", out, 1, want));
    QN_TRY(qni_check_disjoint(op, "out", out, "x", x));
    const qni_pack_problem p = {.x = qni_data(x),
                                .out = qni_data(out),
                                .count = x->shape[0],
                                .segments = 1,
                                .is_little = order == QN_BITS_LITTLE};
    if (p.count > 0)
        QN_TRY(qni_run(&qni_op_packbits, stream, &p));
    return QN_OK;
}

static qn_status check_room(const char *op, const DLTensor *out, int64_t count, int64_t segments) {
    const int64_t most = count / 8 + segments; // each segment's last byte may be partial
    if (out->shape[0] >= most)
        return QN_OK;
    return QN_FAIL(QN_E_INVALID, "%s: out has %ld bytes, needs %ld for %ld values in %ld segments",
                   op, (long)out->shape[0], (long)most, (long)count, (long)segments);
}

qn_status qn_segment_packbits(qn_stream *stream, DLTensor *out, DLTensor *indptr_out,
                              const DLTensor *x, const DLTensor *indptr, qn_bit_order order) {
    constexpr char op[] = "segment_packbits";
    QN_TRY(check_bytes(stream, op, "x", x, true));
    QN_TRY(check_bytes(stream, op, "out", out, false));
    QN_TRY(check_indptr(stream, op, "indptr", indptr));
    QN_TRY(check_indptr(stream, op, "indptr_out", indptr_out));
    QN_TRY(check_order(op, order));
    if (indptr->shape[0] < 1)
        return QN_FAIL(QN_E_INVALID, "%s: indptr has no elements, needs at least 1", op);
    QN_TRY(qni_check_shape(op, "indptr_out", indptr_out, 1, indptr->shape));
    QN_TRY(check_room(op, out, x->shape[0], indptr->shape[0] - 1));
    QN_TRY(qni_check_disjoint(op, "out", out, "x", x));
    QN_TRY(qni_check_disjoint(op, "out", out, "indptr", indptr));
    QN_TRY(qni_check_disjoint(op, "indptr_out", indptr_out, "x", x));
    QN_TRY(qni_check_disjoint(op, "indptr_out", indptr_out, "indptr", indptr));
    QN_TRY(qni_check_disjoint(op, "indptr_out", indptr_out, "out", out));
    const qni_pack_problem p = {.x = qni_data(x),
                                .out = qni_data(out),
                                .indptr = qni_data(indptr),
                                .indptr_out = qni_data(indptr_out),
                                .count = x->shape[0],
                                .segments = indptr->shape[0] - 1,
                                .is_little = order == QN_BITS_LITTLE};
    return qni_run(&qni_op_packbits, stream, &p);
}
