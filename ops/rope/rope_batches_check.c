// SPDX-License-Identifier: Apache-2.0
// Checks that a token's bits do not depend on the rest of its batch, for each kernel and each way
// to give angles.
#include "../../check/batches.h"
#include "rope.h"
#include "rope_check.h"

typedef struct form {
    const char *name;
    qni_rope_angles angles;
    bool is_interleaved, has_norm, is_quant;
    int64_t width, rotary_dim;
} form;
static const form forms[] = {
    {"by frequencies", QNI_ROPE_BY_FREQUENCY, false, false, false, 256, 128},
    {"after RMSNorm", QNI_ROPE_BY_TOKEN, true, true, false, 128, 128},
    {"to FP8", QNI_ROPE_BY_POSITION, false, false, true, 64, 64},
    {"of any width", QNI_ROPE_BY_FREQUENCY, true, false, false, 100, 30},
};
enum { HEADS = 14, K_HEADS = 2, TABLE_ROWS = 64 };
enum { Q, K, Q_OUT, K_OUT, Q_WEIGHT, K_WEIGHT, COS, SIN, POS_IDS, NUM_TENSORS };

typedef struct batch_case {
    const form *form;
    qni_rope_problem problem; // all but pointers and tokens
} batch_case;

static qni_rope_rows rows_of(const form *f, const void *in, void *out, const void *weight,
                             int64_t heads) {
    return (qni_rope_rows){.in = in,
                           .out = out,
                           .weight = weight,
                           .in_token = heads * f->width,
                           .in_head = f->width,
                           .out_token = heads * f->width,
                           .out_head = f->width,
                           .heads = heads,
                           .width = f->width,
                           .scale = 0.75f};
}

static const void *make_batch(void *context, void *const *data, int64_t rows) {
    batch_case *c = context;
    qni_rope_problem *p = &c->problem;
    p->n = p->inner = rows;
    p->parts[QNI_ROPE_Q] = rows_of(c->form, data[Q], data[Q_OUT], data[Q_WEIGHT], HEADS);
    p->parts[QNI_ROPE_K] = rows_of(c->form, data[K], data[K_OUT], data[K_WEIGHT], K_HEADS);
    const float *const cos = data[COS]; // null if angles come from frequencies
    p->cos = cos;
    p->sin = data[SIN] ? data[SIN] : cos ? cos + c->form->rotary_dim / 2 : nullptr;
    p->pos_ids = data[POS_IDS];
    return p;
}

static qn_status try_form(qni_trial_run *run, const form *f, qni_dtype dtype) {
    const qni_dtype fp8 = qni_usual_e4m3(qn_stream_device(qni_trial_stream(run)));
    const qni_dtype out = f->is_quant ? fp8 : dtype;
    const bool by_token = f->angles == QNI_ROPE_BY_TOKEN;
    const int64_t half = f->rotary_dim / 2, norm = f->has_norm ? f->width : 0;
    const int64_t table = by_token                            ? half
                          : f->angles == QNI_ROPE_BY_POSITION ? TABLE_ROWS * f->rotary_dim
                                                              : 0;
    batch_case c = {f,
                    {.dtype = dtype,
                     .dtype_out = out,
                     .dtype_table = QNI_F32,
                     .rotary_dim = f->rotary_dim,
                     .is_interleaved = f->is_interleaved,
                     .eps = 1e-6f,
                     .angles = f->angles,
                     .law = {.theta = 1e4f, .scale = 1},
                     .table_row = by_token ? half : f->rotary_dim,
                     .table_step = 1}};
    const qni_batch_tensor tensors[NUM_TENSORS] = {
        [Q] = {.name = "q", .dtype = dtype, .width = HEADS * f->width},
        [K] = {.name = "k", .dtype = dtype, .width = K_HEADS * f->width},
        [Q_OUT] = {.name = "q_out", .dtype = out, .width = HEADS * f->width, .is_written = true},
        [K_OUT] = {.name = "k_out", .dtype = out, .width = K_HEADS * f->width, .is_written = true},
        [Q_WEIGHT] = {.name = "q_weight", .dtype = dtype, .width = norm, .is_common = true},
        [K_WEIGHT] = {.name = "k_weight", .dtype = dtype, .width = norm, .is_common = true},
        [COS] = {.name = "cos", .dtype = QNI_F32, .width = table, .is_common = !by_token},
        [SIN] = {.name = "sin", .dtype = QNI_F32, .width = by_token ? half : 0},
        [POS_IDS] = {.name = "pos_ids", .dtype = QNI_I32, .width = by_token ? 0 : 1}};
    char text[80];
    snprintf(text, sizeof text, "%s, heads of %ld %s->%s", f->name, (long)f->width,
             qni_dtype_name(dtype), qni_dtype_name(out));
    return qni_trial_row_batches(
        run, &(qni_row_op){&qni_op_rope, text, tensors, NUM_TENSORS, make_batch, &c});
}

qn_status qni_rope_try_batches(qni_trial_run *run) {
    const int thinning = qni_trial_is_quick(run) ? 5 : 1;
    int turn = 0;
    qn_status st = QN_OK;
    for (size_t f = 0; f < sizeof forms / sizeof *forms; f++)
        for (int dtype = QNI_F32; st == QN_OK && dtype <= QNI_BF16; dtype++)
            if (++turn % thinning == 0)
                st = try_form(run, &forms[f], (qni_dtype)dtype);
    return st;
}
