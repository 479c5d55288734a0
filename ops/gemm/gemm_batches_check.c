// SPDX-License-Identifier: Apache-2.0
// Checks that a row's bits do not depend on the rest of the batch, by problems that share their
// first row.
#include "gemm_case.h"

/** How operands are stored. Batches of one form share their first row and what it is multiplied
 *  by. */
typedef struct form {
    qni_dtype dtype;
    bool is_packed, a_transposed, b_transposed;
    bool has_epilogue; // dense only: bias, gate and c
    qn_gemm_activation activation;
    int64_t n, k; // 0: N, K
    qni_gemm_scales scales_a, scales_b;
} form;

// K is nine whole K-blocks and a broken one, as the waves of gemm.fp8_decode take eight in a round
// and gemm.fp8_rows_... in a turn. Of TURN_K the broken one is a turn's first.
// With 1172 the first group of QNI_ROWS_MIXED has 127 rows.
// WIDE_K has rows of whole 16 bytes, which Hopper's copy engine takes. FEW_K, which it takes as
// well, is for what follows the sums; WIDE_N has rows of whole 16 bytes, which it stores.
enum { N = 130, K = 1172, TURN_K = 1100, WIDE_K = 1168, FEW_K = 144, WIDE_N = 136 };
#define EPILOGUE(ACTIVATION) .has_epilogue = true, .activation = QN_GEMM_##ACTIVATION, .k = FEW_K

static qn_status reset_case(void *context, [[maybe_unused]] qn_stream *stream) {
    return qni_gemm_case_reset(context);
}

static qn_status add_batch(qni_trial_batches *batches, const qni_gemm_spec *spec) {
    qni_gemm_case c;
    qn_status st = qni_gemm_case_create(&c, qni_trial_stream(batches->run), spec,
                                        qni_trial_seed(batches->run));
    int64_t columns = c.d.shape[2], stride = 1;
    DLTensor row = c.d.t;
    row.ndim = 1;
    row.shape = &columns;
    row.strides = &stride;
    const DLTensor *outputs[] = {&row};
    const qni_trial_problem problem = {.op = &qni_op_gemm,
                                       .text = c.text,
                                       .problem = &c.problem,
                                       .context = &c,
                                       .reset = reset_case,
                                       .outputs = outputs,
                                       .num_outputs = 1};
    if (st == QN_OK)
        st = qni_trial_batches_add(batches, &problem);
    qni_gemm_case_destroy(&c);
    return st;
}

static qn_status add_batches(qni_trial_run *run, const form *f, const qni_gemm_spec *specs,
                             size_t count) {
    qni_trial_batches batches = {.run = run, .op = &qni_op_gemm};
    qn_status st = QN_OK;
    for (size_t i = 0; i < count && st == QN_OK; i++) {
        qni_gemm_spec spec = specs[i];
        spec.n = f->n ? f->n : N;
        spec.k = f->k ? f->k : K;
        spec.dtype_a = spec.dtype_b = f->dtype;
        spec.fill = QNI_FILL_CANCEL;
        spec.is_packed = f->is_packed;
        spec.a_transposed = f->a_transposed;
        if (f->a_transposed && spec.m == 1)
            spec.m = 8; // k of a single row is contiguous, whichever way it is stored
        spec.b_transposed = f->b_transposed;
        spec.has_bias = spec.adds_c = f->has_epilogue;
        spec.activation = f->activation;
        spec.scales_a = f->scales_a;
        spec.scales_b = f->scales_b;
        if (f->has_epilogue && !spec.gate_batches)
            spec.gate_batches = 1;
        spec.has_no_answer = true;
        st = add_batch(&batches, &spec);
    }
    return st;
}

/** Tries numbers of rows that take different kernels and tiles. Of a transposed a, Hopper's copy
 *  engine takes all of them. */
static qn_status try_dense(qni_trial_run *run, const form *f) {
    static const qni_gemm_spec specs[] = {{.m = 1, .dtype_d = QNI_F32},
                                          {.m = 32, .dtype_d = QNI_F32},
                                          {.m = 200, .dtype_d = QNI_F32},
                                          {.m = 304, .dtype_d = QNI_F32}};
    return add_batches(run, f, specs, sizeof specs / sizeof *specs);
}

/** As try_dense, in bf16. Where batches of gate end decides how an epilogue is done on Hopper. */
static qn_status try_epilogues(qni_trial_run *run, const form *f) {
    static const qni_gemm_spec specs[] = {{.m = 1, .dtype_d = QNI_BF16},
                                          {.m = 128, .dtype_d = QNI_BF16, .gate_batches = 2},
                                          {.m = 200, .dtype_d = QNI_BF16, .gate_batches = 2},
                                          {.m = 300, .dtype_d = QNI_BF16}};
    return add_batches(run, f, specs, sizeof specs / sizeof *specs);
}

/** Tries the first row of one group, of several groups by each way of grouping, of batches, and
 *  alone. */
static qn_status try_groups(qni_trial_run *run, const form *f) {
    static const qni_gemm_spec specs[] = {
        {.m = 1, .dtype_d = QNI_BF16},
        {QN_GEMM_GROUPED_INDEX, .groups = 1, .dtype_d = QNI_BF16},
        {QN_GEMM_GROUPED_INDEX, .groups = 4, .dtype_d = QNI_BF16},
        {QN_GEMM_GROUPED_ENDS, .groups = 1, .dtype_d = QNI_BF16},
        {QN_GEMM_GROUPED_ENDS, .groups = 4, .dtype_d = QNI_BF16, .m_alignment = 16},
        {QN_GEMM_GROUPED_MASKED, 1, .m = 3, .dtype_d = QNI_BF16, .rows = QNI_ROWS_FULL},
        {QN_GEMM_GROUPED_MASKED, 3, .m = 140, .dtype_d = QNI_BF16, .rows = QNI_ROWS_FULL},
        {QN_GEMM_GROUPED_MASKED, 3, .m = 140, .dtype_d = QNI_BF16, .rows = QNI_ROWS_FULL,
         .expected_m = 2},
        {.groups = 2, .m = 3, .dtype_d = QNI_BF16},
    };
    return add_batches(run, f, specs, sizeof specs / sizeof *specs);
}

qn_status qni_gemm_try_batches(qni_trial_run *run) {
    static const form forms[] = {
        {QNI_E4M3FN, .is_packed = true},
        {QNI_BF16, .is_packed = false},
        {QNI_E4M3FN, .is_packed = true, EPILOGUE(GELU_TANH)},
        {QNI_BF16, EPILOGUE(GELU_TANH)},
        {QNI_BF16, .n = WIDE_N, EPILOGUE(GELU_TANH)},
        {QNI_E4M3FN, .n = WIDE_N, EPILOGUE(GELU_TANH)},
        {QNI_E4M3FN, .is_packed = true, EPILOGUE(SILU_AND_MUL)},
        {QNI_BF16, .n = WIDE_N, EPILOGUE(SILU_AND_MUL)},
        {QNI_BF16, .n = 2 * WIDE_N, .k = WIDE_K, .activation = QN_GEMM_SILU_AND_MUL},
        {QNI_E4M3FN, .n = 2 * WIDE_N, .k = WIDE_K, .activation = QN_GEMM_SILU_AND_MUL},
        {QNI_E4M3FNUZ, .is_packed = true},
        {QNI_E4M3FNUZ, .is_packed = true, .k = TURN_K},
        {QNI_E4M3FN, .is_packed = false},
        {QNI_E4M3FN, .a_transposed = true, .b_transposed = true},
        {QNI_BF16, .b_transposed = true},
        {QNI_BF16, .a_transposed = true},
        {QNI_BF16, .a_transposed = true, .b_transposed = true},
        {QNI_E4M3FN, .k = WIDE_K},
        {QNI_BF16, .k = WIDE_K},
        {QNI_E4M3FN, .k = WIDE_K, .scales_a = QNI_SCALES_LINES, .scales_b = QNI_SCALES_LINES},
        {QNI_E4M3FN, .scales_a = QNI_SCALES_ROWS, .scales_b = QNI_SCALES_ROWS},
        {QNI_F16, .b_transposed = true},
        {QNI_F32, EPILOGUE(GELU_TANH)},
        {QNI_F32, .a_transposed = true},
        {QNI_I8, .scales_a = QNI_SCALES_ROWS, .scales_b = QNI_SCALES_ROWS},
        {QNI_BF16, .b_transposed = true, .n = WIDE_N, .k = WIDE_K},
        {QNI_BF16, .a_transposed = true, .k = WIDE_K},
        {QNI_BF16, .a_transposed = true, .b_transposed = true, .n = WIDE_N, .k = WIDE_K},
    };
    const size_t count = qni_trial_is_quick(run) ? 2 : sizeof forms / sizeof *forms;
    const qn_status st = QN_OK;
    for (size_t i = 0; i < count && st == QN_OK; i++) {
        QN_TRY(try_dense(run, &forms[i]));
        if (forms[i].has_epilogue)
            QN_TRY(try_epilogues(run, &forms[i]));
        if (i < 2 || (forms[i].k == WIDE_K && !forms[i].a_transposed))
            QN_TRY(try_groups(run, &forms[i]));
    }
    return st;
}
