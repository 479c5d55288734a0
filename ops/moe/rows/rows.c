// SPDX-License-Identifier: Apache-2.0
// qn_moe_permute and qn_moe_sum: they read their tensors and make problems.
#include "../../../runtime/tensor/read.h"
#include "../moe.h"

constexpr uint32_t of_rows = qni_of_floats | qni_of_fp8 | 1u << QNI_I8;

/** States a matrix that is read, or null. */
static qni_tensor matrix(const char *name, const DLTensor *t, uint32_t dtypes,
                         const int64_t *shape) {
    return (qni_tensor){
        .name = name, .t = t, .ndim = 2, .dtypes = dtypes, .shape = shape, .has_rows = true};
}

// ---- permute

enum { X, OUT, SCALE, SCALE_OUT, PAIRS, NUM_PERMUTE };

static qn_status read_permute(const qni_call *call, DLTensor *scale_out, const DLTensor *scale,
                              qni_tensor t[NUM_PERMUTE]) {
    QN_TRY(qni_read_tensors(call, &t[X], 1));
    QN_TRY(qni_read_tensors(call, &t[PAIRS], 1));
    t[OUT].shape = (const int64_t[]){t[PAIRS].size[0], t[X].size[1]};
    QN_TRY(qni_read_tensors(call, &t[OUT], 1));
    if (!scale != !scale_out)
        return QN_FAIL(QN_E_INVALID, "%s: %s is null and %s is not", call->op,
                       scale ? "scale_out" : "scale", scale ? "scale" : "scale_out");
    if (!scale)
        return QN_OK;
    t[SCALE] =
        (qni_tensor){"scale", scale, 2, qni_of_f32, .shape = (const int64_t[]){t[X].size[0], -1}};
    QN_TRY(qni_read_tensors(call, &t[SCALE], 1));
    t[SCALE_OUT] = (qni_tensor){.name = "scale_out",
                                .t = scale_out,
                                .ndim = 2,
                                .dtypes = qni_of_f32,
                                .shape = (const int64_t[]){t[PAIRS].size[0], t[SCALE].size[1]},
                                .is_written = true};
    return qni_read_tensors(call, &t[SCALE_OUT], 1);
}

qn_status qn_moe_permute(qn_stream *stream, DLTensor *out, DLTensor *scale_out, const DLTensor *x,
                         const DLTensor *scale, const DLTensor *pair_of_row, int64_t top_k) {
    const qni_call call = {"moe_permute", stream};
    qni_tensor t[NUM_PERMUTE] = {[X] = matrix("x", x, of_rows, nullptr),
                                 [OUT] = matrix("out", out, 0, nullptr),
                                 [PAIRS] = qni_indices("pair_of_row", pair_of_row, nullptr)};
    t[OUT].like = &t[X], t[OUT].is_written = true;
    QN_TRY(read_permute(&call, scale_out, scale, t));
    if (top_k < 1 || top_k > INT32_MAX)
        return QN_FAIL(QN_E_INVALID, "%s: top_k is %ld; accepted: 1 to 2^31 - 1", call.op,
                       (long)top_k);
    const qni_moe_permute_problem p = {.dtype = t[X].dtype,
                                       .x = t[X].data,
                                       .out = t[OUT].data,
                                       .scale = t[SCALE].data,
                                       .scale_out = t[SCALE_OUT].data,
                                       .pair_of_row = t[PAIRS].data,
                                       .x_row = t[X].stride[0],
                                       .out_row = t[OUT].stride[0],
                                       .scale_row = t[SCALE].stride[0],
                                       .scale_column = t[SCALE].stride[1],
                                       .scale_out_row = t[SCALE_OUT].stride[0],
                                       .scale_out_column = t[SCALE_OUT].stride[1],
                                       .rows = t[PAIRS].size[0],
                                       .tokens = t[X].size[0],
                                       .top_k = top_k,
                                       .n = t[X].size[1],
                                       .groups = scale ? t[SCALE].size[1] : 0};
    QN_TRY(qni_check_apart(&call, t, NUM_PERMUTE));
    return p.rows == 0 || p.tokens == 0 ? QN_OK : qni_run(&qni_op_moe_permute, stream, &p);
}

// ---- sum

enum { Y, TO, WEIGHTS, ROWS, ADDEND, NUM_SUM };

/** Finds how many pairs a token has, from the tensors that know, and reads these. */
static qn_status read_pairs(const qni_call *call, qni_tensor t[NUM_SUM], int64_t *top_k) {
    const int64_t tokens = t[TO].size[0], rows = t[Y].size[0];
    t[WEIGHTS].shape = (const int64_t[]){tokens, -1};
    QN_TRY(qni_read_tensors(call, &t[WEIGHTS], 1));
    *top_k = t[WEIGHTS].t ? t[WEIGHTS].size[1] : -1;
    t[ROWS].shape = (const int64_t[]){tokens, *top_k};
    QN_TRY(qni_read_tensors(call, &t[ROWS], 1));
    if (t[ROWS].t) {
        *top_k = t[ROWS].size[1];
        return QN_OK;
    }
    if (*top_k < 0)
        *top_k = tokens > 0 ? rows / tokens : 0;
    if (rows != tokens * *top_k)
        return QN_FAIL(QN_E_INVALID,
                       "%s: x has %ld rows; accepted without row_of_pair: %ld tokens times %s",
                       call->op, (long)rows, (long)tokens,
                       t[WEIGHTS].t ? "the columns of weights" : "any number");
    return QN_OK;
}

static qn_status validate_rows(qn_stream *stream, const qni_moe_sum_problem *p) {
    const bool is_dense = p->row_of_pair_row == p->top_k;
    if (!p->row_of_pair || !qni_validates_indices(stream))
        return QN_OK;
    for (int64_t t = 0; t < (is_dense ? 1 : p->tokens); t++)
        QN_TRY(qni_validate_range(stream, "moe_sum", "row_of_pair",
                                  p->row_of_pair + t * p->row_of_pair_row,
                                  is_dense ? p->tokens * p->top_k : p->top_k, -1, p->rows));
    return QN_OK;
}

qn_status qn_moe_sum(qn_stream *stream, DLTensor *out, const DLTensor *x, const DLTensor *weights,
                     const DLTensor *row_of_pair, const DLTensor *addend) {
    const qni_call call = {"moe_sum", stream};
    qni_tensor t[NUM_SUM] = {[Y] = matrix("x", x, qni_of_floats, nullptr),
                             [TO] = matrix("out", out, qni_of_floats, nullptr),
                             [WEIGHTS] = matrix("weights", weights, qni_of_f32, nullptr),
                             [ROWS] = matrix("row_of_pair", row_of_pair, qni_of_i32, nullptr),
                             [ADDEND] = matrix("addend", addend, 0, nullptr)};
    int64_t top_k;
    QN_TRY(qni_read_tensors(&call, &t[Y], 1));
    t[TO].is_written = true, t[TO].may_be = &t[ADDEND];
    t[TO].shape = (const int64_t[]){-1, t[Y].size[1]};
    QN_TRY(qni_read_tensors(&call, &t[TO], 1));
    t[WEIGHTS].may_be_null = t[ROWS].may_be_null = t[ADDEND].may_be_null = true;
    t[ADDEND].like = &t[TO], t[ADDEND].shape = t[TO].size;
    QN_TRY(qni_read_tensors(&call, &t[ADDEND], 1));
    QN_TRY(read_pairs(&call, t, &top_k));
    const qni_moe_sum_problem p = {.dtype = t[Y].dtype,
                                   .dtype_out = t[TO].dtype,
                                   .x = t[Y].data,
                                   .addend = t[ADDEND].data,
                                   .out = t[TO].data,
                                   .weights = t[WEIGHTS].data,
                                   .row_of_pair = t[ROWS].data,
                                   .x_row = t[Y].stride[0],
                                   .addend_row = t[ADDEND].stride[0],
                                   .out_row = t[TO].stride[0],
                                   .weights_row = t[WEIGHTS].stride[0],
                                   .row_of_pair_row = t[ROWS].stride[0],
                                   .tokens = t[TO].size[0],
                                   .top_k = top_k,
                                   .n = t[Y].size[1],
                                   .rows = t[Y].size[0]};
    QN_TRY(qni_check_apart(&call, t, NUM_SUM));
    if (p.tokens == 0 || p.n == 0)
        return QN_OK;
    QN_TRY(validate_rows(stream, &p));
    return qni_run(&qni_op_moe_sum, stream, &p);
}
