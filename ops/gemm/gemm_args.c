// SPDX-License-Identifier: Apache-2.0
// Makes a problem of the caller's arguments: each tensor is described and read where the problem
// gets it.
#include "../../runtime/tensor/read.h"
#include "gemm.h"

#include <stddef.h>
#include <string.h>

enum {
    A,
    B,
    C,
    SCALE_A,
    SCALE_B,
    GROUP_LAYOUT,
    BIAS,
    GATE,
    GIVEN_SCALE_D,
    SCALE_D,
    D,
    NUM_TENSORS
};

/** A call whose arguments become a problem. */
typedef struct call {
    qni_call of;
    const qn_gemm_args *args;
    qn_gemm_grouping grouping;
    bool has_batches; // qn_gemm's tensors have a first dimension of batches
    int rank_da;      // dimensions of d and a
    int rank_b;
    qni_tensor t[NUM_TENSORS];
} call;

// ---- arguments that are not tensors

/** Copies the arguments. A caller compiled before there were epilogues, or FP8 results, states a
 *  smaller size; what its struct lacks is then not given. */
static qn_status copy_args(const char *op, const qn_gemm_args *args, qn_gemm_args *copy) {
    constexpr size_t before_epilogues = offsetof(qn_gemm_args, bias),
                     before_scale_d = offsetof(qn_gemm_args, scale_d);
    *copy = (qn_gemm_args){};
    if (!args || (args->struct_size != before_epilogues && args->struct_size != before_scale_d))
        QN_TRY(QNI_CHECK_STRUCT(op, "args", qn_gemm_args, args));
    memcpy(copy, args, args->struct_size);
    return QN_OK;
}

static qn_status check_activation(const call *c) {
    const qn_gemm_activation activation = c->args->activation;
    if (activation < QN_GEMM_NO_ACTIVATION || activation > QN_GEMM_SILU_AND_MUL)
        return QN_FAIL(QN_E_INVALID,
                       "%s: activation is %d, needs QN_GEMM_NO_ACTIVATION (%d), "
                       "QN_GEMM_GELU_TANH (%d) or QN_GEMM_SILU_AND_MUL (%d)",
                       c->of.op, (int)activation, (int)QN_GEMM_NO_ACTIVATION,
                       (int)QN_GEMM_GELU_TANH, (int)QN_GEMM_SILU_AND_MUL);
    return QN_OK;
}

static qn_status check_scalars(const call *c) {
    const qn_gemm_args *args = c->args;
    const bool is_ends = c->grouping == QN_GEMM_GROUPED_ENDS;
    const bool is_masked = c->grouping == QN_GEMM_GROUPED_MASKED;
    if (args->b_is_packed != 0 && args->b_is_packed != 1)
        return QN_FAIL(QN_E_INVALID, "%s: b_is_packed is %d, needs 0 or 1", c->of.op,
                       args->b_is_packed);
    if (args->zero_padding != 0 && args->zero_padding != 1)
        return QN_FAIL(QN_E_INVALID, "%s: zero_padding is %d, needs 0 or 1", c->of.op,
                       args->zero_padding);
    if (!is_ends && (args->m_alignment != 0 || args->zero_padding != 0))
        return QN_FAIL(QN_E_INVALID,
                       "%s: m_alignment is %d and zero_padding %d; only the grouping "
                       "QN_GEMM_GROUPED_ENDS takes them",
                       c->of.op, args->m_alignment, args->zero_padding);
    if (args->m_alignment < 0)
        return QN_FAIL(QN_E_INVALID, "%s: m_alignment is %d, needs at least 1 (or 0 for 128)",
                       c->of.op, args->m_alignment);
    if (is_masked ? args->expected_m <= 0 : args->expected_m != 0)
        return QN_FAIL(QN_E_INVALID, "%s: expected_m is %ld, needs %s", c->of.op,
                       (long)args->expected_m,
                       is_masked ? "at least 1" : "0: only the masked form takes it");
    return check_activation(c);
}

// ---- strides

static qn_status fail_strides(const call *c, const qni_tensor *t, const char *needs) {
    char text[256];
    return QN_FAIL(QN_E_INVALID, "%s: %s is %s; needs %s", c->of.op, t->name,
                   qni_tensor_text(t->t, text, sizeof text), needs);
}

/** Reads the strides of the last two dimensions. A dimension of one element may have any stride; it
 *  gets the stride that it has in a contiguous matrix. Fails unless the columns (or, if `either`,
 *  the columns or the rows) are contiguous and the other dimension does not overlap itself. */
static qn_status read_strides(const call *c, const qni_tensor *t, bool either, int64_t *row,
                              int64_t *column) {
    const int last = t->ndim - 1;
    const int64_t rows = t->size[last - 1], columns = t->size[last];
    int64_t r = t->stride[last - 1], k = t->stride[last];
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
        return fail_strides(c, t,
                            either ? "columns or rows contiguous, the other stride at least as long"
                                   : "columns contiguous, row stride at least as long");
    }
    return QN_OK;
}

/** Strides of a matrix, or of a stack of matrices: of groups (0: one matrix), rows and columns. */
typedef struct matrix {
    int64_t group, row, column;
} matrix;

static qn_status read_matrix(call *c, int which, const qni_tensor *stated, bool either,
                             matrix *out) {
    qni_tensor *const t = &c->t[which];
    *t = *stated;
    QN_TRY(qni_read_tensors(&c->of, t, 1));
    QN_TRY(read_strides(c, t, either, &out->row, &out->column));
    out->group = t->ndim == 3 ? t->stride[0] : 0;
    if (t->ndim == 3 && t->size[0] > 1 && out->group < 0)
        return fail_strides(c, t, "groups that do not overlap");
    return QN_OK;
}

/** Returns the first dimension that b or bias, of `ndim` dimensions, needs: one may stand for all
 *  batches. The tensor has not been checked. */
static int64_t count_groups(const call *c, const qni_gemm_problem *p, const DLTensor *t, int ndim) {
    return c->has_batches && t && t->ndim == ndim && t->shape && t->shape[0] == 1 ? 1 : p->groups;
}

// ---- matrices

constexpr uint32_t of_operands = qni_of_floats | qni_of_fp8 | 1u << QNI_I8;

static qn_status read_d(call *c, qni_gemm_problem *p) {
    const uint32_t grouped = 1u << QNI_F16 | 1u << QNI_BF16 | qni_of_fp8;
    matrix d;
    if (c->grouping == QN_GEMM_DENSE && c->args->d && c->args->d->ndim != 2 && !c->has_batches)
        return QN_FAIL(QN_E_INVALID, "%s: d has %d dimensions, needs 2, or 3 with batches",
                       c->of.op, c->args->d->ndim);
    QN_TRY(read_matrix(c, D,
                       &(qni_tensor){
                           .name = "d",
                           .t = c->args->d,
                           .ndim = c->rank_da,
                           .dtypes = c->grouping == QN_GEMM_DENSE ? grouped | qni_of_f32 : grouped,
                           .is_written = true,
                           .may_be = &c->t[C],
                       },
                       false, &d));
    const qni_tensor *const t = &c->t[D];
    p->dtype_d = t->dtype;
    p->groups = c->rank_da == 3 ? t->size[0] : 1;
    p->m = t->size[c->rank_da - 2];
    p->n = t->size[c->rank_da - 1] * qni_gemm_ratio(p); // d has fewer than 2^62 bytes
    p->d = t->data;
    p->d_group = d.group, p->d_row = d.row;
    return QN_OK;
}

static qn_status read_a(call *c, qni_gemm_problem *p) {
    const int64_t shape[] = {p->groups, p->m, -1};
    matrix a;
    QN_TRY(read_matrix(c, A,
                       &(qni_tensor){
                           .name = "a",
                           .t = c->args->a,
                           .ndim = c->rank_da,
                           .dtypes = of_operands,
                           .shape = shape + 3 - c->rank_da,
                       },
                       true, &a));
    p->dtype_a = c->t[A].dtype;
    p->k = c->t[A].size[c->rank_da - 1];
    p->a = c->t[A].data;
    p->a_group = a.group, p->a_row = a.row, p->a_k = a.column;
    return QN_OK;
}

/** Checks packed weights: their shape must be as qn_gemm_packed_shape says for this device. */
static qn_status read_packed_b(call *c, qni_gemm_problem *p) {
    const qn_device *device = c->of.stream->device;
    qni_tensor *const b = &c->t[B];
    int64_t tile_n, tile_k;
    *b = (qni_tensor){.name = "b", .t = c->args->b, .ndim = 3, .dtypes = of_operands};
    QN_TRY(qni_read_tensors(&c->of, b, 1));
    p->dtype_b = b->dtype;
    p->groups = c->grouping == QN_GEMM_GROUPED_INDEX || c->grouping == QN_GEMM_GROUPED_ENDS
                    ? b->size[0]
                    : p->groups;
    const qni_dtype want = qni_gemm_pack_dtype(device, p->dtype_b);
    if (!qni_gemm_is_e4m3(p->dtype_b))
        return QN_FAIL(QN_E_UNSUPPORTED, "%s: b is packed %s; only FP8 weights are packed",
                       c->of.op, qni_dtype_name(p->dtype_b));
    if (want != p->dtype_b)
        return QN_FAIL(QN_E_INVALID, "%s: b is packed %s, %s takes packed %s: pack it there",
                       c->of.op, qni_dtype_name(p->dtype_b), device->info.spec,
                       qni_dtype_name(want));
    if (!qni_is_contiguous(b->t) || (uintptr_t)b->data % 16)
        return QN_FAIL(QN_E_INVALID, "%s: packed b must be contiguous and 16-byte aligned",
                       c->of.op);
    qni_gemm_pack_tiles(device, &tile_n, &tile_k);
    p->packed_n = qni_round_up(p->n, tile_n);
    p->packed_k = qni_round_up(p->k, tile_k);
    p->b = b->data;
    const int64_t groups = count_groups(c, p, b->t, 3);
    p->b_group = groups == 1 ? 0 : p->packed_n * p->packed_k;
    return qni_check_shape(c->of.op, "packed b", b->t, 3,
                           (const int64_t[]){groups, p->packed_n, p->packed_k});
}

static qn_status read_b(call *c, qni_gemm_problem *p) {
    const bool says_groups =
        c->grouping == QN_GEMM_GROUPED_INDEX || c->grouping == QN_GEMM_GROUPED_ENDS;
    const int64_t shape[] = {says_groups ? -1 : count_groups(c, p, c->args->b, c->rank_b), p->n,
                             p->k};
    matrix b;
    QN_TRY(read_matrix(c, B,
                       &(qni_tensor){
                           .name = "b",
                           .t = c->args->b,
                           .ndim = c->rank_b,
                           .dtypes = of_operands,
                           .shape = shape + 3 - c->rank_b,
                       },
                       true, &b));
    p->dtype_b = c->t[B].dtype;
    p->groups = says_groups ? c->t[B].size[0] : p->groups;
    p->b = c->t[B].data;
    p->b_group = shape[0] == 1 ? 0 : b.group, p->b_n = b.row, p->b_k = b.column;
    return QN_OK;
}

/** Reads c. It may be d itself or lie beside d, even as columns of one matrix. */
static qn_status read_c(call *c, qni_gemm_problem *p) {
    const int64_t shape[] = {p->groups, p->m, qni_gemm_columns(p)};
    matrix add;
    if (!c->args->c)
        return QN_OK;
    if (c->grouping != QN_GEMM_DENSE)
        return QN_FAIL(QN_E_INVALID, "%s: c is given; only the dense form adds one", c->of.op);
    if (qni_is_fp8(p->dtype_d))
        return QN_FAIL(QN_E_INVALID, "%s: c is given; d is %s, which takes none", c->of.op,
                       qni_dtype_name(p->dtype_d));
    QN_TRY(read_matrix(c, C,
                       &(qni_tensor){
                           .name = "c",
                           .t = c->args->c,
                           .ndim = c->rank_da,
                           .like = &c->t[D],
                           .shape = shape + 3 - c->rank_da,
                       },
                       false, &add));
    p->c = c->t[C].data;
    p->c_group = add.group, p->c_row = add.row;
    return QN_OK;
}

// ---- what acts on the product

/** Reads bias or gate, of which `t` is one. */
static qn_status read_vectors(call *c, int which, const char *name, const DLTensor *t, int ndim,
                              const int64_t *shape) {
    c->t[which] = (qni_tensor){.name = name,
                               .t = t,
                               .ndim = ndim,
                               .dtypes = qni_of_f32 | 1u << QNI_BF16,
                               .shape = shape,
                               .has_rows = true};
    return qni_read_tensors(&c->of, &c->t[which], 1);
}

static qn_status read_bias(call *c, qni_gemm_problem *p) {
    const int ndim = c->rank_b - 1;
    const int64_t shape[] = {count_groups(c, p, c->args->bias, ndim), p->n};
    if (!c->args->bias)
        return QN_OK;
    QN_TRY(read_vectors(c, BIAS, "bias", c->args->bias, ndim, shape + 2 - ndim));
    p->bias_group = ndim == 2 && shape[0] != 1 ? c->t[BIAS].stride[0] : 0;
    p->bias = c->t[BIAS].data;
    p->dtype_bias = c->t[BIAS].dtype;
    return QN_OK;
}

static qn_status read_gate(call *c, qni_gemm_problem *p) {
    const DLTensor *gate = c->args->gate;
    if (!gate)
        return QN_OK;
    if (c->grouping != QN_GEMM_DENSE || c->has_batches)
        return QN_FAIL(QN_E_INVALID, "%s: gate is given; only the dense form takes one%s", c->of.op,
                       c->has_batches ? ", without batches" : "");
    const int ndim = gate->ndim == 1 ? 1 : 2;
    const int64_t shape[] = {-1, qni_gemm_columns(p)};
    QN_TRY(read_vectors(c, GATE, "gate", gate, ndim, shape + 2 - ndim));
    const qni_tensor *const t = &c->t[GATE];
    const int64_t batches = ndim == 2 ? t->size[0] : 1;
    if (batches == 0 ? p->m != 0 : p->m % batches != 0)
        return QN_FAIL(QN_E_INVALID, "%s: gate has %ld rows; d's %ld rows are no multiple of them",
                       c->of.op, (long)batches, (long)p->m);
    p->gate = t->data;
    p->dtype_gate = t->dtype;
    p->gate_rows = batches == 0 ? 0 : p->m / batches;
    p->gate_batch = ndim == 2 ? t->stride[0] : 0;
    return QN_OK;
}

/** Reads the layout: which rows are of which group. */
static qn_status read_layout(call *c, qni_gemm_problem *p) {
    const DLTensor *layout = c->args->group_layout;
    if (c->grouping == QN_GEMM_DENSE && layout)
        return QN_FAIL(QN_E_INVALID, "%s: group_layout is given; only grouped forms take one",
                       c->of.op);
    c->t[GROUP_LAYOUT] = qni_indices("group_layout", layout,
                                     c->grouping == QN_GEMM_GROUPED_INDEX ? &p->m : &p->groups);
    c->t[GROUP_LAYOUT].may_be_null = c->grouping == QN_GEMM_DENSE;
    QN_TRY(qni_read_tensors(&c->of, &c->t[GROUP_LAYOUT], 1));
    p->layout = c->t[GROUP_LAYOUT].data;
    return QN_OK;
}

// ---- scales

/** The scales of an operand: what its tensor's dimensions may be besides 1, which stands for all.
 *  Dimensions that the tensor lacks at the end are 1. */
typedef struct scales {
    const char *name;
    const DLTensor *t;
    int rank;
    int64_t size[3]; // groups, rows or blocks of rows, K-blocks
    int64_t rows;    // or so many: one for each row
    uint32_t dtypes;
} scales;

static qn_status fail_scales(const call *c, const scales *s, bool has_words) {
    char text[256], rows[48] = "";
    if (s->rows != s->size[1])
        snprintf(rows, sizeof rows, " or %ld", (long)s->rows);
    char groups[32] = "";
    if (s->rank == 3)
        snprintf(groups, sizeof groups, "%ld, ", (long)s->size[0]);
    return QN_FAIL(
        QN_E_INVALID, "%s: %s is %s; needs [%s%ld%s, %ld], any of these %s, no stride below 0",
        c->of.op, s->name, qni_tensor_text(s->t, text, sizeof text), groups, (long)s->size[1], rows,
        (long)s->size[2], has_words ? "but the last 1" : "1 or left out at the end");
}

/** Returns the stride of a dimension of scales; 0 where one scale stands for all. */
static int64_t scale_stride(int64_t size, int64_t stride, int64_t count, int64_t of_one) {
    return size != count ? 0 : count <= 1 ? of_one : stride;
}

/** Reads scales and their strides, and whether there is one for each row in place of a block of
 *  them. Without a tensor all strides are 0. */
static qn_status read_scale(call *c, int which, scales *s, matrix *out, bool *by_rows) {
    qni_tensor *const t = &c->t[which];
    int64_t size[3] = {1, 1, 1}, stride[3] = {};
    *out = (matrix){};
    *by_rows = false;
    if (!s->t)
        return QN_OK;
    const bool has_words = qni_dtype_of(s->t) == QNI_I32;
    const bool is_whole = has_words || s->t->ndim < 1 || s->t->ndim > s->rank;
    const int ndim = is_whole ? s->rank : s->t->ndim;
    if (has_words)
        s->size[2] = qni_pieces(s->size[2], 4);
    *t = (qni_tensor){.name = s->name, .t = s->t, .ndim = ndim, .dtypes = s->dtypes};
    QN_TRY(qni_read_tensors(&c->of, t, 1));
    for (int i = 0; i < ndim; i++) {
        const int at = 3 - s->rank + i;
        size[at] = t->size[i], stride[at] = t->stride[i];
        const bool is_by_row = at == 1 && size[at] == s->rows;
        const bool is_one = size[at] == 1 && (at < 2 || !has_words);
        if ((!is_one && size[at] != s->size[at] && !is_by_row) || (size[at] > 1 && stride[at] < 0))
            return fail_scales(c, s, has_words);
    }
    *by_rows = size[1] != s->size[1] && size[1] == s->rows;
    const int64_t column = scale_stride(size[2], stride[2], s->size[2], 1);
    const int64_t row = column == 1 ? s->size[2] : 1;
    *out = (matrix){.group = scale_stride(size[0], stride[0], s->size[0], stride[0]),
                    .row = scale_stride(size[1], stride[1], *by_rows ? s->rows : s->size[1], row),
                    .column = column};
    return QN_OK;
}

static qn_status read_scales(call *c, qni_gemm_problem *p) {
    const int64_t kb = qni_pieces(p->k, 128), nb = qni_pieces(p->n, 128);
    constexpr uint32_t all = qni_of_f32 | qni_of_i32 | 1u << QNI_E8M0FNU;
    scales of_a = {"scale_a", c->args->scale_a, c->rank_da, {p->groups, p->m, kb}, p->m, all},
           of_b = {"scale_b",           c->args->scale_b,         c->rank_b,
                   {p->groups, nb, kb}, p->is_packed ? nb : p->n, p->is_packed ? qni_of_f32 : all};
    matrix a, b;
    bool by_rows;
    QN_TRY(read_scale(c, SCALE_A, &of_a, &a, &by_rows));
    QN_TRY(read_scale(c, SCALE_B, &of_b, &b, &by_rows));
    p->scale_a_group = a.group, p->scale_a_row = a.row, p->scale_a_kb = a.column;
    p->scale_b_group = b.group, p->scale_b_nb = b.row, p->scale_b_kb = b.column;
    p->scale_b_columns = by_rows ? 1 : 128;
    p->scale_a = c->t[SCALE_A].data;
    p->scale_b = c->t[SCALE_B].data;
    p->dtype_scale_a = c->t[SCALE_A].dtype;
    p->dtype_scale_b = c->t[SCALE_B].dtype;
    return QN_OK;
}

// ---- scales of d

static qn_status check_eps(const call *c) {
    const float eps = c->args->scale_d_eps;
    if (c->args->scale_d ? eps != 0 && !(eps >= 1e-30f && eps <= __FLT_MAX__) : eps != 0)
        return QN_FAIL(QN_E_INVALID, "%s: scale_d_eps is %g; accepted: %s", c->of.op, (double)eps,
                       c->args->scale_d ? "1e-30 or more, finite (or 0 for 1e-10)"
                                        : "0 without scale_d");
    return QN_OK;
}

/** Checks that d has the scales that its dtype needs. */
static qn_status check_scales_d(const call *c, const qni_gemm_problem *p) {
    const qn_gemm_args *args = c->args;
    const char *dtype = qni_dtype_name(p->dtype_d);
    if (!qni_is_fp8(p->dtype_d) && (args->scale_d || args->given_scale_d))
        return QN_FAIL(QN_E_INVALID, "%s: %s is given; d is %s, which takes no scales", c->of.op,
                       args->scale_d ? "scale_d" : "given_scale_d", dtype);
    if (qni_is_fp8(p->dtype_d) && !args->scale_d == !args->given_scale_d)
        return QN_FAIL(QN_E_INVALID,
                       "%s: scale_d and given_scale_d are %s; d is %s, which takes one of them",
                       c->of.op, args->scale_d ? "given" : "null", dtype);
    return check_eps(c);
}

static qn_status read_scales_d(call *c, qni_gemm_problem *p) {
    const int64_t shape[] = {p->groups, p->m, qni_pieces(qni_gemm_columns(p), QNI_GEMM_GROUP)};
    qni_tensor *const t = &c->t[SCALE_D], *const given = &c->t[GIVEN_SCALE_D];
    QN_TRY(check_scales_d(c, p));
    if (c->args->given_scale_d) {
        *given = qni_given_scale("given_scale_d", c->args->given_scale_d);
        QN_TRY(qni_read_tensors(&c->of, given, 1));
        p->given_scale_d = given->data;
    }
    if (!c->args->scale_d)
        return QN_OK;
    *t = (qni_tensor){.name = "scale_d",
                      .t = c->args->scale_d,
                      .ndim = c->rank_da,
                      .dtypes = qni_of_f32,
                      .shape = shape + 3 - c->rank_da,
                      .is_written = true};
    QN_TRY(qni_read_tensors(&c->of, t, 1));
    p->scale_d = t->data;
    p->scale_d_group = t->ndim == 3 ? t->stride[0] : 0;
    p->scale_d_row = t->stride[t->ndim - 2], p->scale_d_nb = t->stride[t->ndim - 1];
    p->eps = c->args->scale_d_eps != 0 ? c->args->scale_d_eps : 1e-10f;
    return QN_OK;
}

// ---- batches that are rows of one matrix

/** Gives the stride of the rows of all batches, if they go on from batch to batch as in one. */
static bool join_rows(const qni_gemm_problem *p, int64_t group, int64_t *row) {
    if (p->m == 1)
        *row = group;
    return group == p->m * *row;
}

/** Returns whether rows that were joined still are a's: either dimension is contiguous, and the
 *  other one's stride is at least as long. */
static bool is_operand(int64_t rows, int64_t row, int64_t k, int64_t k_stride) {
    return k_stride == 1 ? row >= k : row == 1 && k_stride >= rows;
}

void qni_gemm_join_batches(qni_gemm_problem *p) {
    const bool has_batches = p->grouping == QN_GEMM_GROUPED_MASKED && !p->layout;
    const bool shares_b = p->groups == 1 || (p->b_group == 0 && p->bias_group == 0 &&
                                             (!p->scale_b || p->scale_b_group == 0));
    if (!has_batches || p->groups == 0 || p->m > INT32_MAX / p->groups || !shares_b)
        return;
    qni_gemm_problem all = *p;
    all.grouping = QN_GEMM_DENSE;
    all.groups = 1;
    all.m = p->groups * p->m;
    all.expected_m = 0;
    if (p->groups > 1 &&
        !(join_rows(p, p->a_group, &all.a_row) && is_operand(all.m, all.a_row, p->k, p->a_k) &&
          join_rows(p, p->d_group, &all.d_row) && (!p->c || join_rows(p, p->c_group, &all.c_row)) &&
          (!p->scale_a || join_rows(p, p->scale_a_group, &all.scale_a_row)) &&
          (!p->scale_d || join_rows(p, p->scale_d_group, &all.scale_d_row))))
        return;
    *p = all;
}

qn_status qni_gemm_problem_set(qni_gemm_problem *problem, qn_stream *stream, const char *op,
                               const qn_gemm_args *args, qn_gemm_grouping grouping) {
    qn_gemm_args copy;
    call c = {.of = {op, stream}, .args = &copy, .grouping = grouping};
    qni_gemm_problem p = {};
    if (!stream)
        return QN_FAIL(QN_E_INVALID, "%s: stream is null", op);
    QN_TRY(copy_args(op, args, &copy));
    QN_TRY(check_scalars(&c));
    c.has_batches = grouping == QN_GEMM_DENSE && copy.d && copy.d->ndim == 3;
    c.rank_da = grouping == QN_GEMM_GROUPED_MASKED || c.has_batches ? 3 : 2;
    c.rank_b = grouping == QN_GEMM_DENSE && !c.has_batches ? 2 : 3;
    p.grouping = c.has_batches ? QN_GEMM_GROUPED_MASKED : grouping;
    p.is_packed = copy.b_is_packed;
    p.activation = copy.activation;
    QN_TRY(read_d(&c, &p));
    QN_TRY(read_a(&c, &p));
    QN_TRY(p.is_packed ? read_packed_b(&c, &p) : read_b(&c, &p));
    QN_TRY(read_c(&c, &p));
    QN_TRY(read_bias(&c, &p));
    QN_TRY(read_gate(&c, &p));
    QN_TRY(read_layout(&c, &p));
    QN_TRY(read_scales(&c, &p));
    QN_TRY(read_scales_d(&c, &p));
    p.m_alignment = copy.m_alignment ? copy.m_alignment : 128;
    p.expected_m = c.has_batches ? p.m : copy.expected_m;
    p.zero_padding = copy.zero_padding;
    QN_TRY(qni_check_apart(&c.of, c.t, NUM_TENSORS));
    *problem = p;
    return QN_OK;
}
