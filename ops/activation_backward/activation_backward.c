// SPDX-License-Identifier: Apache-2.0
// The backward pass of gated activations, host side: the public function, which reads its tensors
// and makes a problem, and the table of kernels.
#include "activation_backward.h"

#include "../../runtime/tensor/read.h"
#include "../shared/variants.h"

#define OP "activation_backward"

#define QN_TABLE_OF_activation_backward 0,
static const qni_variant variants[] = {
#include "variants.def"
};
#undef QN_TABLE_OF_activation_backward

static const char *const function_words[] = {"silu", "gelu", "gelu_tanh", nullptr};
static const qni_key keys[] = {{.name = "h"},
                               {.name = "x", .words = qni_dtype_words},
                               {.name = "function", .words = function_words},
                               {.name = "rows", .is_of_batch = true},
                               {}};

static void describe(const void *problem, int64_t *values) {
    const qni_activation_backward_problem *p = problem;
    QN_SET_VALUES(keys, values, p->h, p->dtype, p->function, p->rows);
}

const qni_op qni_op_activation_backward = QN_OP(OP, variants, keys, describe);

enum { X, D_OUT, DX, NUM_TENSORS };

/** Reads x, dx, which has its shape, and d_out, which has half of its last dimension. */
static qn_status read_tensors(const qni_call *call, qni_tensor t[NUM_TENSORS], const DLTensor *x,
                              const DLTensor *d_out, const DLTensor *dx) {
    const int ndim = x && x->ndim >= 1 && x->ndim <= QNI_MAX_DIMS ? x->ndim : 2;
    int64_t shape[QNI_MAX_DIMS];
    t[X] = (qni_tensor){"x", x, ndim, qni_of_floats, .has_rows = true};
    QN_TRY(qni_read_tensors(call, &t[X], 1));
    if (t[X].size[ndim - 1] % 2 != 0)
        return QN_FAIL(QN_E_INVALID,
                       "%s: x has rows of %ld elements, needs an even number: gate and up", OP,
                       (long)t[X].size[ndim - 1]);
    for (int i = 0; i < ndim; i++)
        shape[i] = t[X].size[i] / (i == ndim - 1 ? 2 : 1);
    t[D_OUT] = (qni_tensor){"d_out", d_out, ndim, .like = &t[X], .shape = shape, .has_rows = true};
    t[DX] = (qni_tensor){.name = "dx",
                         .t = dx,
                         .ndim = ndim,
                         .like = &t[X],
                         .shape = t[X].size,
                         .has_rows = true,
                         .is_written = true};
    return qni_read_tensors(call, &t[D_OUT], 2);
}

/** Folds the dimensions before the last into batches of rows, in one way for all tensors. */
static qn_status fold_rows(const qni_tensor t[NUM_TENSORS], qni_activation_backward_problem *p) {
    int64_t size[2] = {1, 1}, stride[NUM_TENSORS][2] = {};
    int level = 0;
    for (int i = t[X].ndim - 2; i >= 0; i--) {
        const int64_t n = t[X].size[i];
        bool continues = true;
        if (n == 1)
            continue;
        for (int k = 0; k < NUM_TENSORS; k++)
            continues &= t[k].stride[i] == stride[k][level] * size[level];
        if (size[level] > 1 && !continues && ++level == 2)
            return QN_FAIL(QN_E_UNSUPPORTED,
                           "%s: the strides of x, d_out and dx do not fold into two dimensions of "
                           "rows",
                           OP);
        for (int k = 0; k < NUM_TENSORS && size[level] == 1; k++)
            stride[k][level] = t[k].stride[i];
        size[level] *= n;
    }
    p->inner = size[0];
    p->rows = size[0] * size[1];
    p->x = (qni_activation_rows){t[X].data, stride[X][1], stride[X][0]};
    p->d_out = (qni_activation_rows){t[D_OUT].data, stride[D_OUT][1], stride[D_OUT][0]};
    p->dx = (qni_activation_rows){t[DX].data, stride[DX][1], stride[DX][0]};
    return QN_OK;
}

qn_status qn_activation_backward(qn_stream *stream, DLTensor *dx, const DLTensor *d_out,
                                 const DLTensor *x, qn_activation function, float limit) {
    const qni_call call = {OP, stream};
    qni_tensor t[NUM_TENSORS];
    QN_TRY(read_tensors(&call, t, x, d_out, dx));
    if (function < QN_SILU || function > QN_GELU_TANH)
        return QN_FAIL(QN_E_INVALID, "%s: function is %d; accepted: QN_SILU, QN_GELU, QN_GELU_TANH",
                       OP, (int)function);
    if (!(limit >= 0))
        return QN_FAIL(QN_E_INVALID,
                       "%s: limit is %g; accepted: above 0, and 0 or infinity for none", OP,
                       (double)limit);
    QN_TRY(qni_check_apart(&call, t, NUM_TENSORS));
    qni_activation_backward_problem p = {.dtype = t[X].dtype,
                                         .h = t[D_OUT].size[t[X].ndim - 1],
                                         .function = function,
                                         .limit = limit > 0 ? limit : HUGE_VALF};
    if (qni_is_empty(t[D_OUT].t))
        return QN_OK;
    QN_TRY(fold_rows(t, &p));
    return qni_run(&qni_op_activation_backward, stream, &p);
}
