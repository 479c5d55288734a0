// SPDX-License-Identifier: Apache-2.0
// qn_quantize_fp8 and qn_dequantize_fp8: read the tensors, choose a kernel, run it.
#include "quantize.h"

#include "../../runtime/tensor/read.h"
#include "../shared/variants.h"

#define QN_TABLE_OF_quantize 0,
static const qni_variant quantize_variants[] = {
#include "variants.def"
};
#undef QN_TABLE_OF_quantize

#define QN_TABLE_OF_dequantize 0,
static const qni_variant dequantize_variants[] = {
#include "variants.def"
};
#undef QN_TABLE_OF_dequantize

static const qni_key keys[] = {{.name = "cols"},
                               {.name = "block_rows"},
                               {.name = "x", .words = qni_dtype_words},
                               {.name = "q", .words = qni_dtype_words},
                               {.name = "rows", .is_of_batch = true},
                               {}};

static void describe(const void *problem, int64_t *values) {
    const qni_quantize_problem *p = problem;
    QN_SET_VALUES(keys, values, p->cols, p->block_rows, p->dtype_x, QNI_E4M3FN + (int64_t)p->kind,
                  p->rows);
}

const qni_op qni_op_quantize = QN_OP("quantize", quantize_variants, keys, describe);
const qni_op qni_op_dequantize = QN_OP("dequantize", dequantize_variants, keys, describe);

/** The smallest eps. With it or a larger one, scales and their inverses are normal f32 numbers for
 *  every kind. */
constexpr float min_eps = 1e-30f;

static qn_status check_blocks(const char *op, int64_t block_rows, int64_t block_cols) {
    if ((block_rows == 1 || block_rows == QNI_BLOCK) && block_cols == QNI_BLOCK)
        return QN_OK;
    return QN_FAIL(QN_E_UNSUPPORTED, "%s: blocks of %ld x %ld; accepted: 1 x 128 and 128 x 128", op,
                   (long)block_rows, (long)block_cols);
}

enum { X, Q, SCALE, NUM_TENSORS };

/** Reads the distance between rows; a matrix of one row gets its width, whatever its stride. A
 *  tensor may not overlap itself even if it is only read. */
static qn_status read_row_stride(const qni_call *call, const qni_tensor *t, int64_t *stride) {
    *stride = t->size[0] > 1 ? t->stride[0] : t->size[1];
    if (qni_is_empty(t->t) || *stride >= t->size[1])
        return QN_OK;
    return QN_FAIL(QN_E_INVALID, "%s: %s has row stride %ld, needs at least its %ld columns",
                   call->op, t->name, (long)*stride, (long)t->size[1]);
}

/** Reads what quantising and dequantising have in common into a problem. is_written[i] says whether
 *  tensor i is an output. */
static qn_status read_problem(const qni_call *call, const DLTensor *const given[NUM_TENSORS],
                              const bool is_written[NUM_TENSORS], int64_t block_rows,
                              int64_t block_cols, qni_quantize_problem *p) {
    qni_tensor t[NUM_TENSORS];
    t[X] = (qni_tensor){
        .name = "x",
        .t = given[X],
        .ndim = 2,
        .dtypes = qni_of_floats,
        .has_rows = true,
        .is_written = is_written[X],
    };
    QN_TRY(qni_read_tensors(call, &t[X], 1));
    t[Q] = (qni_tensor){
        .name = "q",
        .t = given[Q],
        .ndim = 2,
        .dtypes = qni_of_fp8,
        .shape = t[X].size,
        .has_rows = true,
        .is_written = is_written[Q],
    };
    QN_TRY(qni_read_tensors(call, &t[Q], 1));
    QN_TRY(check_blocks(call->op, block_rows, block_cols));
    *p = (qni_quantize_problem){.dtype_x = t[X].dtype,
                                .kind = (qni_fp8)(t[Q].dtype - QNI_E4M3FN),
                                .rows = t[X].size[0],
                                .cols = t[X].size[1],
                                .block_rows = block_rows,
                                .x = t[X].data,
                                .q = t[Q].data};
    const int64_t shape[] = {(p->rows + block_rows - 1) / block_rows, qni_quantize_block_cols(p)};
    t[SCALE] = (qni_tensor){
        .name = "scale",
        .t = given[SCALE],
        .ndim = 2,
        .dtypes = qni_of_f32,
        .shape = shape,
        .has_rows = true,
        .is_written = is_written[SCALE],
    };
    QN_TRY(qni_read_tensors(call, &t[SCALE], 1));
    p->scale = t[SCALE].data;
    QN_TRY(read_row_stride(call, &t[X], &p->x_row));
    QN_TRY(read_row_stride(call, &t[Q], &p->q_row));
    QN_TRY(read_row_stride(call, &t[SCALE], &p->scale_row));
    return qni_check_apart(call, t, NUM_TENSORS);
}

qn_status qn_quantize_fp8(qn_stream *stream, DLTensor *q, DLTensor *scale, const DLTensor *x,
                          int64_t block_rows, int64_t block_cols, float eps) {
    const qni_call call = {"quantize_fp8", stream};
    qni_quantize_problem p;
    QN_TRY(read_problem(&call, (const DLTensor *[]){x, q, scale}, (bool[]){false, true, true},
                        block_rows, block_cols, &p));
    if (!(eps >= min_eps && eps <= __FLT_MAX__))
        return QN_FAIL(QN_E_INVALID, "%s: eps is %g; accepted: %g or more, finite", call.op,
                       (double)eps, (double)min_eps);
    p.eps = eps;
    return p.rows > 0 && p.cols > 0 ? qni_run(&qni_op_quantize, stream, &p) : QN_OK;
}

qn_status qn_dequantize_fp8(qn_stream *stream, DLTensor *x, const DLTensor *q,
                            const DLTensor *scale, int64_t block_rows, int64_t block_cols) {
    const qni_call call = {"dequantize_fp8", stream};
    qni_quantize_problem p;
    QN_TRY(read_problem(&call, (const DLTensor *[]){x, q, scale}, (bool[]){true, false, false},
                        block_rows, block_cols, &p));
    return p.rows > 0 && p.cols > 0 ? qni_run(&qni_op_dequantize, stream, &p) : QN_OK;
}
