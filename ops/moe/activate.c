// SPDX-License-Identifier: Apache-2.0
// qn_moe_activate: reads its tensors and makes a problem.
#include "../../runtime/tensor/read.h"
#include "moe.h"

enum { X, OUT, SCALE, EXPERTS, NUM_TENSORS };
static const char op[] = "moe_activate";
constexpr float default_alpha = 1.702f, default_eps = 1e-10f;

qn_status qni_moe_check_function(const char *name, qn_moe_function function, float limit,
                                 float alpha, int32_t is_interleaved) {
    if (function < QN_MOE_SILU || function > QN_MOE_SWIGLU)
        return QN_FAIL(QN_E_INVALID,
                       "%s: function is %d; accepted: QN_MOE_SILU (0), QN_MOE_GELU (1), "
                       "QN_MOE_GELU_TANH (2), QN_MOE_SWIGLU (3)",
                       name, (int)function);
    if (!(limit >= 0))
        return QN_FAIL(QN_E_INVALID,
                       "%s: limit is %g; accepted: above 0, and 0 or infinity for none", name,
                       (double)limit);
    if (!(alpha >= 0 && alpha <= __FLT_MAX__) || (alpha != 0 && function != QN_MOE_SWIGLU))
        return QN_FAIL(QN_E_INVALID,
                       "%s: alpha is %g; accepted: above 0 and finite with QN_MOE_SWIGLU, 0 for "
                       "1.702; 0 with other functions",
                       name, (double)alpha);
    if (is_interleaved != 0 && is_interleaved != 1)
        return QN_FAIL(QN_E_INVALID, "%s: is_interleaved is %d; accepted: 0, 1", name,
                       is_interleaved);
    return QN_OK;
}

static qn_status read_tensors(const qni_call *call, const qn_moe_activate_args *a,
                              qni_tensor t[NUM_TENSORS]) {
    t[X] = (qni_tensor){"x", a->x, 2, qni_of_floats, .has_rows = true};
    QN_TRY(qni_read_tensors(call, &t[X], 1));
    const int64_t rows = t[X].size[0], h = t[X].size[1] / 2;
    if (t[X].size[1] % 2 != 0)
        return QN_FAIL(QN_E_INVALID,
                       "%s: x has rows of %ld elements, needs an even number: gate and up", op,
                       (long)t[X].size[1]);
    t[OUT] = (qni_tensor){.name = "out",
                          .t = a->out,
                          .ndim = 2,
                          .dtypes = a->scale ? qni_of_fp8 : 0,
                          .like = a->scale ? nullptr : &t[X],
                          .shape = (const int64_t[]){rows, h},
                          .has_rows = true,
                          .is_written = true};
    t[SCALE] =
        (qni_tensor){.name = "scale",
                     .t = a->scale,
                     .ndim = 2,
                     .dtypes = qni_of_f32,
                     .shape = (const int64_t[]){rows, (h + QNI_MOE_GROUP - 1) / QNI_MOE_GROUP},
                     .may_be_null = true,
                     .is_written = true};
    t[EXPERTS] = qni_indices("expert_of_row", a->expert_of_row, &rows);
    t[EXPERTS].may_be_null = true;
    if (!a->scale && a->out && qni_is_fp8(qni_dtype_of(a->out)))
        return QN_FAIL(QN_E_INVALID, "%s: scale is null; needed with out of %s", op,
                       qni_dtype_text(a->out));
    return qni_read_tensors(call, &t[OUT], NUM_TENSORS - OUT);
}

qn_status qn_moe_activate(qn_stream *stream, const qn_moe_activate_args *args) {
    const qni_call call = {op, stream};
    qni_tensor t[NUM_TENSORS] = {};
    QN_TRY(QNI_CHECK_STRUCT(op, "args", qn_moe_activate_args, args));
    QN_TRY(
        qni_moe_check_function(op, args->function, args->limit, args->alpha, args->is_interleaved));
    if (args->scale_eps != 0 && !(args->scale_eps >= 1e-30f && args->scale_eps <= __FLT_MAX__))
        return QN_FAIL(QN_E_INVALID,
                       "%s: scale_eps is %g; accepted: 1e-30 or more, finite, and 0 for 1e-10", op,
                       (double)args->scale_eps);
    QN_TRY(read_tensors(&call, args, t));
    const qni_moe_activate_problem p = {.dtype = t[X].dtype,
                                        .dtype_out = t[OUT].dtype,
                                        .x = t[X].data,
                                        .out = t[OUT].data,
                                        .scale = t[SCALE].data,
                                        .expert_of_row = t[EXPERTS].data,
                                        .x_row = t[X].stride[0],
                                        .out_row = t[OUT].stride[0],
                                        .scale_row = t[SCALE].stride[0],
                                        .scale_column = t[SCALE].stride[1],
                                        .rows = t[X].size[0],
                                        .h = t[X].size[1] / 2,
                                        .function = args->function,
                                        .limit = args->limit > 0 ? args->limit : HUGE_VALF,
                                        .alpha = args->alpha != 0 ? args->alpha : default_alpha,
                                        .scale_eps =
                                            args->scale_eps > 0 ? args->scale_eps : default_eps,
                                        .is_interleaved = args->is_interleaved != 0};
    QN_TRY(qni_check_apart(&call, t, NUM_TENSORS));
    return p.rows == 0 || p.h == 0 ? QN_OK : qni_run(&qni_op_moe_activate, stream, &p);
}
