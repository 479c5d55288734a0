// SPDX-License-Identifier: Apache-2.0
// Checks how tensors lie in memory: contiguous rows, rows that share no element, tensors that do
// not overlap.
#include "../runtime.h"

qn_status qni_check_last_contiguous(const char *op, const char *name, const DLTensor *t) {
    const int last = t->ndim - 1;
    if (qni_is_empty(t) || t->shape[last] == 1 || qni_stride(t, last) == 1)
        return QN_OK;
    return QN_FAIL(QN_E_INVALID, "%s: %s has stride %ld in its last dimension, needs 1", op, name,
                   (long)qni_stride(t, last));
}

static int64_t distance_of(const DLTensor *t, int i) {
    const int64_t stride = qni_stride(t, i);
    return stride < 0 ? -stride : stride;
}

/** Returns the dimension of the smallest stride that is not in the set `done`; dimensions of 1 do
 *  not count. -1: there are no more. */
static int next_by_stride(const DLTensor *t, unsigned done) {
    int next = -1;
    for (int i = 0; i < t->ndim; i++)
        if (!(done >> i & 1) && t->shape[i] != 1 &&
            (next < 0 || distance_of(t, i) < distance_of(t, next)))
            next = i;
    return next;
}

qn_status qni_check_elements_apart(const char *op, const char *name, const DLTensor *t) {
    int64_t reach = 1; // elements from the first to behind the last, in the dimensions so far
    if (qni_is_empty(t))
        return QN_OK;
    unsigned done = 0;
    for (int i; (i = next_by_stride(t, done)) >= 0; done |= 1u << i) {
        if (qni_stride(t, i) < reach)
            return QN_FAIL(QN_E_INVALID,
                           "%s: %s has stride %ld in dimension %d, needs at least %ld", op, name,
                           (long)qni_stride(t, i), i, (long)reach);
        reach += (t->shape[i] - 1) * qni_stride(t, i);
    }
    return QN_OK;
}

/** A tensor's bytes as pieces of one length at one distance, as far as the tensor's dimensions
 *  allow that. */
typedef struct pieces {
    uintptr_t begin;
    int64_t length, distance, extent; // extent: from begin to behind the last byte
} pieces;

static pieces pieces_of(const DLTensor *t) {
    const int64_t size = t->dtype.bits * t->dtype.lanes / 8;
    pieces p = {(uintptr_t)qni_data(t), size, 0, size};
    unsigned done = 0;
    for (int i; (i = next_by_stride(t, done)) >= 0; done |= 1u << i) {
        const int64_t stride = distance_of(t, i) * size;
        p.extent += (t->shape[i] - 1) * stride;
        if (qni_stride(t, i) < 0) // begins at the lowest address
            p.begin -= (uintptr_t)((t->shape[i] - 1) * stride);
        if (p.distance == 0 && stride == p.length)
            p.length *= t->shape[i];
        else if (p.distance == 0)
            p.distance = stride;
        else if (stride % p.distance != 0)
            p.length = p.extent; // pieces at two distances count as one piece
    }
    return p;
}

bool qni_can_meet(const DLTensor *a, const DLTensor *b) {
    if (qni_is_empty(a) || qni_is_empty(b))
        return false;
    const pieces p = pieces_of(a), q = pieces_of(b);
    if (p.begin + (uintptr_t)p.extent <= q.begin || q.begin + (uintptr_t)q.extent <= p.begin)
        return false;
    const int64_t distance = p.distance ? p.distance : q.distance;
    if (distance == 0 || (p.distance && q.distance && p.distance != q.distance))
        return true;
    const int64_t from_p = (int64_t)(q.begin - p.begin) % distance;
    const int64_t at = from_p < 0 ? from_p + distance : from_p;
    return at < p.length || at + q.length > distance;
}

qn_status qni_check_disjoint(const char *op, const char *name_a, const DLTensor *a,
                             const char *name_b, const DLTensor *b) {
    if (!a || !b || !qni_can_meet(a, b))
        return QN_OK;
    return QN_FAIL(QN_E_INVALID, "%s: %s overlaps %s", op, name_a, name_b);
}

bool qni_is_same_memory(const DLTensor *a, const DLTensor *b) {
    if (qni_data(a) != qni_data(b) || a->ndim != b->ndim || a->dtype.bits != b->dtype.bits)
        return false;
    for (int i = 0; i < a->ndim; i++)
        if (a->shape[i] != b->shape[i] || (a->shape[i] > 1 && qni_stride(a, i) != qni_stride(b, i)))
            return false;
    return true;
}
