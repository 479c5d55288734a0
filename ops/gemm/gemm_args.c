// SPDX-License-Identifier: Apache-2.0
// From the caller's arguments to a checked problem: every pointer, dtype, shape and stride, once.
#include "gemm.h"

/** A call being checked. */
typedef struct call {
    qn_stream *stream;
    const char *op;
    const qn_gemm_args *args;
    qn_gemm_grouping grouping;
    int rank_da; // dimensions of d and a
    int rank_b;
} call;

static int64_t blocks_of(int64_t size) {
    return (size + 127) / 128;
}

static bool is_e4m3(qni_dtype dtype) {
    return dtype == QNI_E4M3FN || dtype == QNI_E4M3FNUZ;
}

// ---- arguments that are not tensors

static qn_status check_scalars(const call *c) {
    const qn_gemm_args *args = c->args;
    const bool is_ends = c->grouping == QN_GEMM_GROUPED_ENDS;
    const bool is_masked = c->grouping == QN_GEMM_GROUPED_MASKED;
    if (args->b_is_packed != 0 && args->b_is_packed != 1)
        return QN_FAIL(QN_E_INVALID, "%s: b_is_packed is %d, needs 0 or 1", c->op,
                       args->b_is_packed);
    if (args->zero_padding != 0 && args->zero_padding != 1)
        return QN_FAIL(QN_E_INVALID, "%s: zero_padding is %d, needs 0 or 1", c->op,
                       args->zero_padding);
    if (!is_ends && (args->m_alignment != 0 || args->zero_padding != 0))
        return QN_FAIL(QN_E_INVALID,
                       "%s: m_alignment is %d and zero_padding %d; only the grouping "
                       "QN_GEMM_GROUPED_ENDS takes them",
                       c->op, args->m_alignment, args->zero_padding);
    if (args->m_alignment < 0)
        return QN_FAIL(QN_E_INVALID, "%s: m_alignment is %d, needs at least 1 (or 0 for 128)",
                       c->op, args->m_alignment);
    if (is_masked ? args->expected_m <= 0 : args->expected_m != 0)
        return QN_FAIL(QN_E_INVALID, "%s: expected_m is %ld, needs %s", c->op,
                       (long)args->expected_m,
                       is_masked ? "at least 1" : "0: only the masked form takes it");
    return QN_OK;
}

static qn_status check_call(const call *c) {
    if (!c->stream)
        return QN_FAIL(QN_E_INVALID, "%s: stream is null", c->op);
    const qn_status st = QNI_CHECK_STRUCT(c->op, "args", qn_gemm_args, c->args);
    return st == QN_OK ? check_scalars(c) : st;
}

// ---- ranks and dtypes

static qn_status check_ranks(call *c) {
    const qn_gemm_args *args = c->args;
    const bool is_dense = c->grouping == QN_GEMM_DENSE;
    c->rank_da = c->grouping == QN_GEMM_GROUPED_MASKED ? 3 : 2;
    c->rank_b = is_dense && !args->b_is_packed ? 2 : 3;
    QN_TRY(qni_check_tensor(c->stream, c->op, "d", args->d, c->rank_da));
    QN_TRY(qni_check_tensor(c->stream, c->op, "a", args->a, c->rank_da));
    QN_TRY(qni_check_tensor(c->stream, c->op, "b", args->b, c->rank_b));
    if (args->c && !is_dense)
        return QN_FAIL(QN_E_INVALID, "%s: c is given; only the dense form adds one", c->op);
    if (args->c)
        QN_TRY(qni_check_tensor(c->stream, c->op, "c", args->c, 2));
    if (!is_dense)
        QN_TRY(qni_check_tensor(c->stream, c->op, "group_layout", args->group_layout, 1));
    else if (args->group_layout)
        return QN_FAIL(QN_E_INVALID, "%s: group_layout is given; only grouped forms take one",
                       c->op);
    return QN_OK;
}

static qn_status check_inputs_dtype(const call *c, qni_dtype a, qni_dtype b) {
    const bool both_fp8 = is_e4m3(a) && is_e4m3(b), both_bf16 = a == QNI_BF16 && b == QNI_BF16;
    if (both_fp8 || both_bf16)
        return QN_OK;
    return QN_FAIL(QN_E_UNSUPPORTED,
                   "%s: a is %s and b is %s; accepted are e4m3fn and e4m3fnuz in any mix, or bf16 "
                   "in both",
                   c->op, qni_dtype_name(a), qni_dtype_name(b));
}

static qn_status check_dtypes(const call *c, qni_gemm_problem *p) {
    const qn_gemm_args *args = c->args;
    p->dtype_a = qni_dtype_of(args->a);
    p->dtype_b = qni_dtype_of(args->b);
    p->dtype_d = qni_dtype_of(args->d);
    QN_TRY(check_inputs_dtype(c, p->dtype_a, p->dtype_b));
    QN_TRY(qni_check_dtype(c->op, "d", args->d,
                           c->grouping == QN_GEMM_DENSE ? qni_of_f32 | 1u << QNI_BF16
                                                        : 1u << QNI_BF16));
    if (args->c && qni_dtype_of(args->c) != p->dtype_d)
        return QN_FAIL(QN_E_UNSUPPORTED, "%s: c is %s, needs d's %s", c->op,
                       qni_dtype_text(args->c), qni_dtype_name(p->dtype_d));
    if (args->group_layout)
        QN_TRY(qni_check_dtype(c->op, "group_layout", args->group_layout, qni_of_i32));
    return QN_OK;
}

// ---- shapes

static qn_status check_packed_b(const call *c, qni_gemm_problem *p) {
    const DLTensor *b = c->args->b;
    const qn_device *device = c->stream->device;
    int64_t tile_n, tile_k;
    qni_gemm_pack_tiles(device, &tile_n, &tile_k);
    p->packed_n = (p->n + tile_n - 1) / tile_n * tile_n;
    p->packed_k = (p->k + tile_k - 1) / tile_k * tile_k;
    qni_dtype want = qni_gemm_pack_dtype(device, p->dtype_b);
    if (!is_e4m3(p->dtype_b))
        return QN_FAIL(QN_E_UNSUPPORTED, "%s: b is packed %s; only FP8 weights are packed", c->op,
                       qni_dtype_name(p->dtype_b));
    if (want != p->dtype_b)
        return QN_FAIL(QN_E_INVALID, "%s: b is packed %s, %s takes packed %s: pack it there", c->op,
                       qni_dtype_name(p->dtype_b), device->info.spec, qni_dtype_name(want));
    if (!qni_is_contiguous(b) || (uintptr_t)qni_data(b) % 16)
        return QN_FAIL(QN_E_INVALID, "%s: packed b must be contiguous and 16-byte aligned", c->op);
    return qni_check_shape(c->op, "packed b", b, 3,
                           (const int64_t[]){p->groups, p->packed_n, p->packed_k});
}

static qn_status check_shapes(const call *c, qni_gemm_problem *p) {
    const qn_gemm_args *args = c->args;
    const int64_t *d = args->d->shape, *a = args->a->shape;
    const int last = c->rank_da - 1;
    p->m = d[last - 1];
    p->n = d[last];
    p->k = a[last];
    const bool is_masked = c->grouping == QN_GEMM_GROUPED_MASKED;
    p->groups = c->grouping == QN_GEMM_DENSE ? 1 : is_masked ? d[0] : args->b->shape[0];
    p->is_packed = args->b_is_packed;
    const int64_t want_a[] = {is_masked ? p->groups : p->m, is_masked ? p->m : p->k, p->k};
    const int64_t want_b[] = {p->groups, p->n, p->k};
    const int64_t want_c[] = {p->m, p->n};
    const int64_t want_layout[] = {c->grouping == QN_GEMM_GROUPED_INDEX ? p->m : p->groups};
    QN_TRY(qni_check_shape(c->op, "a", args->a, c->rank_da, want_a));
    if (p->is_packed)
        QN_TRY(check_packed_b(c, p));
    else
        QN_TRY(qni_check_shape(c->op, "b", args->b, c->rank_b, want_b + 3 - c->rank_b));
    if (args->c)
        QN_TRY(qni_check_shape(c->op, "c", args->c, 2, want_c));
    if (args->group_layout)
        QN_TRY(qni_check_shape(c->op, "group_layout", args->group_layout, 1, want_layout));
    return QN_OK;
}

// ---- strides

static qn_status fail_strides(const call *c, const char *name, const DLTensor *t,
                              const char *needs) {
    char text[256];
    return QN_FAIL(QN_E_INVALID, "%s: %s is %s; needs %s", c->op, name,
                   qni_tensor_text(t, text, sizeof text), needs);
}

/** Strides of the last two dimensions, where a dimension of one element may carry any stride in the
 *  tensor: it is given the one that a contiguous matrix would have. Fails unless the columns (or,
 *  if `either`, the columns or the rows) are contiguous and the other dimension does not overlap
 *  itself. */
static qn_status matrix_strides(const call *c, const char *name, const DLTensor *t, bool either,
                                int64_t *row, int64_t *column) {
    const int last = t->ndim - 1;
    const int64_t rows = t->shape[last - 1], columns = t->shape[last];
    int64_t r = qni_stride(t, last - 1), k = qni_stride(t, last);
    bool one_row = rows <= 1, one_column = columns <= 1;
    if (rows == 0 || columns == 0 || (one_column && one_row))
        r = columns, k = 1, one_row = true;
    const bool by_columns = one_column || k == 1, by_rows = one_row || r == 1;
    if (by_columns && (one_row || r >= columns)) {
        *row = one_row ? columns : r;
        *column = 1;
    } else if (either && by_rows && (one_column || k >= rows)) {
        *row = 1;
        *column = one_column ? rows : k;
    } else {
        return fail_strides(c, name, t,
                            either ? "columns or rows contiguous, the other stride at least as long"
                                   : "columns contiguous, row stride at least as long");
    }
    return qni_check_alignment(c->op, name, t);
}

/** Stride of dimension 0 of a stack of matrices; 0 if t is one matrix. Slabs must not overlap if
 *  `disjoint`. */
static qn_status group_stride(const call *c, const char *name, const DLTensor *t, bool disjoint,
                              int64_t row, int64_t column, int64_t *group) {
    *group = t->ndim == 3 ? qni_stride(t, 0) : 0;
    if (t->ndim < 3 || t->shape[0] <= 1)
        return QN_OK;
    const int64_t extent = (t->shape[1] - 1) * row + (t->shape[2] - 1) * column + 1;
    if (*group < 0 || (disjoint && !qni_is_empty(t) && *group < extent))
        return fail_strides(c, name, t, "groups that do not overlap");
    return QN_OK;
}

static qn_status check_strides(const call *c, qni_gemm_problem *p) {
    const qn_gemm_args *args = c->args;
    int64_t one;
    QN_TRY(matrix_strides(c, "d", args->d, false, &p->d_row, &one));
    QN_TRY(group_stride(c, "d", args->d, true, p->d_row, 1, &p->d_group));
    QN_TRY(matrix_strides(c, "a", args->a, true, &p->a_row, &p->a_k));
    QN_TRY(group_stride(c, "a", args->a, false, p->a_row, p->a_k, &p->a_group));
    if (!p->is_packed) {
        QN_TRY(matrix_strides(c, "b", args->b, true, &p->b_n, &p->b_k));
        QN_TRY(group_stride(c, "b", args->b, false, p->b_n, p->b_k, &p->b_group));
    }
    if (args->c)
        QN_TRY(matrix_strides(c, "c", args->c, false, &p->c_row, &one));
    if (args->group_layout && !qni_is_contiguous(args->group_layout))
        return fail_strides(c, "group_layout", args->group_layout, "contiguous elements");
    if (args->group_layout)
        QN_TRY(qni_check_alignment(c->op, "group_layout", args->group_layout));
    return QN_OK;
}

// ---- scales

static qn_status check_scale(const call *c, const char *name, const DLTensor *t, int rank,
                             const int64_t *shape, bool either, int64_t strides[3]) {
    if (!t)
        return QN_FAIL(QN_E_INVALID, "%s: %s is null; FP8 needs scales", c->op, name);
    QN_TRY(qni_check_tensor(c->stream, c->op, name, t, rank));
    QN_TRY(qni_check_dtype(c->op, name, t, qni_of_f32));
    QN_TRY(qni_check_shape(c->op, name, t, rank, shape + 3 - rank));
    QN_TRY(matrix_strides(c, name, t, either, &strides[1], &strides[2]));
    return group_stride(c, name, t, false, strides[1], strides[2], &strides[0]);
}

static qn_status check_scales(const call *c, qni_gemm_problem *p) {
    const qn_gemm_args *args = c->args;
    if (p->dtype_a == QNI_BF16) {
        if (args->scale_a || args->scale_b)
            return QN_FAIL(QN_E_INVALID, "%s: %s is given; bf16 takes no scales", c->op,
                           args->scale_a ? "scale_a" : "scale_b");
        return QN_OK;
    }
    int64_t a[3], b[3];
    QN_TRY(check_scale(c, "scale_a", args->scale_a, c->rank_da,
                       (const int64_t[]){p->groups, p->m, blocks_of(p->k)}, true, a));
    QN_TRY(check_scale(c, "scale_b", args->scale_b, c->grouping == QN_GEMM_DENSE ? 2 : 3,
                       (const int64_t[]){p->groups, blocks_of(p->n), blocks_of(p->k)}, false, b));
    p->scale_a_group = a[0], p->scale_a_row = a[1], p->scale_a_kb = a[2];
    p->scale_b_group = b[0], p->scale_b_nb = b[1];
    p->scale_a = qni_data(args->scale_a);
    p->scale_b = qni_data(args->scale_b);
    return QN_OK;
}

// ---- what d must not share memory with

/** c may be d itself or lie beside it, even column slices of one matrix; anything else that shares
 *  memory would be read after it was written. */
static qn_status check_c_apart(const call *c, const qni_gemm_problem *p) {
    const int64_t bytes = qni_dtype_bytes(p->dtype_d);
    const int64_t d_extent = ((p->m - 1) * p->d_row + p->n) * bytes;
    const int64_t c_extent = ((p->m - 1) * p->c_row + p->n) * bytes;
    const uintptr_t d = (uintptr_t)p->d, add = (uintptr_t)p->c;
    if (p->m == 0 || p->n == 0 || d + (uintptr_t)d_extent <= add || add + (uintptr_t)c_extent <= d)
        return QN_OK;
    if (p->c_row == p->d_row || p->m == 1) {
        const int64_t gap = d < add ? (int64_t)(add - d) / bytes : (int64_t)(d - add) / bytes;
        const int64_t column = gap % p->d_row;
        if (gap == 0 || (p->m > 1 && column >= p->n && column + p->n <= p->d_row))
            return QN_OK;
    }
    return QN_FAIL(QN_E_INVALID, "%s: c overlaps d without being d itself", c->op);
}

static qn_status check_overlap(const call *c, const qni_gemm_problem *p) {
    const qn_gemm_args *a = c->args;
    const struct {
        const char *name;
        const DLTensor *t;
    } read[] = {{"a", a->a},
                {"b", a->b},
                {"scale_a", a->scale_a},
                {"scale_b", a->scale_b},
                {"group_layout", a->group_layout}};
    qn_status st = p->c ? check_c_apart(c, p) : QN_OK;
    for (size_t i = 0; st == QN_OK && i < sizeof read / sizeof *read; i++)
        st = qni_check_disjoint(c->op, "d", a->d, read[i].name, read[i].t);
    return st;
}

qn_status qni_gemm_problem_set(qni_gemm_problem *problem, qn_stream *stream, const char *op,
                               const qn_gemm_args *args, qn_gemm_grouping grouping) {
    call c = {.stream = stream, .op = op, .args = args, .grouping = grouping};
    qni_gemm_problem p = {.grouping = grouping};
    QN_TRY(check_call(&c));
    QN_TRY(check_ranks(&c));
    QN_TRY(check_dtypes(&c, &p));
    QN_TRY(check_shapes(&c, &p));
    QN_TRY(check_strides(&c, &p));
    QN_TRY(check_scales(&c, &p));
    p.d = qni_data(args->d);
    p.a = qni_data(args->a);
    p.b = qni_data(args->b);
    p.c = args->c ? qni_data(args->c) : nullptr;
    p.layout = args->group_layout ? qni_data(args->group_layout) : nullptr;
    p.m_alignment = args->m_alignment ? args->m_alignment : 128;
    p.expected_m = args->expected_m;
    p.zero_padding = args->zero_padding;
    QN_TRY(check_overlap(&c, &p));
    *problem = p;
    return QN_OK;
}
